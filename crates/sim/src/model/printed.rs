//! A value beside the fingerprint of what it says: what makes two situations of the model the same one.
//!
//! The machines hold private state and no hash. Their `Debug` text says all of it, so its fingerprint, taken once when the value is made,
//! stands for the value; comparing and hashing a state then costs a few words.

use std::collections::hash_map::DefaultHasher;
use std::fmt::{self, Debug, Write};
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// A value with its fingerprint; equal if the fingerprints are. Cheap to clone.
pub(crate) struct Printed<T> {
    print: u64,
    value: Arc<T>,
}

impl<T> Printed<T> {
    /// A value that is told apart by its `Debug` text.
    pub(crate) fn new(value: T) -> Self
    where
        T: Debug,
    {
        let mut text = Text(DefaultHasher::new());
        // A hasher takes every text.
        let _ = write!(text, "{value:?}");
        Self {
            print: text.0.finish(),
            value: Arc::new(value),
        }
    }

    /// A value that is told apart by something else.
    pub(crate) fn by(value: T, what: &impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        Self {
            print: hasher.finish(),
            value: Arc::new(value),
        }
    }

    pub(crate) fn print(&self) -> u64 {
        self.print
    }
}

struct Text(DefaultHasher);

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl<T> Clone for Printed<T> {
    fn clone(&self) -> Self {
        Self {
            print: self.print,
            value: self.value.clone(),
        }
    }
}

impl<T> Deref for Printed<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> PartialEq for Printed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.print == other.print
    }
}

impl<T> Hash for Printed<T> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.print.hash(hasher);
    }
}
