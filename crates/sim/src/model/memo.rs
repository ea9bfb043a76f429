//! What was computed once: the machines, the chains and the journal are pure, and most orders lead them through the same steps.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_protocol::{AttemptEffect, AttemptMachine, Effect, RunMachine};

use super::printed::Printed;
use super::state::{Journal, Lane};

/// Results by the fingerprint of everything that they come from.
pub(super) struct Memo<T>(Mutex<HashMap<u64, T>>);

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Memo<T> {
    /// The result for `from`, made now if it is not there.
    pub(super) fn of(&self, from: &impl Hash, make: impl FnOnce() -> T) -> T {
        let mut hasher = DefaultHasher::new();
        from.hash(&mut hasher);
        let key = hasher.finish();
        // A thread that panicked has left whole entries behind.
        let table = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = table().get(&key) {
            return known.clone();
        }
        // Not under the lock: two threads may make the same thing, and it is the same thing.
        let made = make();
        table().insert(key, made.clone());
        made
    }
}

/// What a step of the owner leads to.
#[derive(Clone)]
pub(super) struct Owned {
    /// Absent: it stopped.
    pub(super) machine: Option<Printed<RunMachine>>,
    pub(super) effects: Vec<Printed<Effect>>,
    /// It stopped because it could not read what is stored.
    pub(super) unreadable: bool,
}

/// What a step of an attempt leads to.
#[derive(Clone)]
pub(super) struct Worked {
    pub(super) machine: Printed<AttemptMachine>,
    pub(super) effects: Vec<Printed<AttemptEffect>>,
}

/// The tables of one check, shared by all its states and no part of any.
#[derive(Clone, Default)]
pub(super) struct Memos(Arc<Tables>);

#[derive(Default)]
pub(super) struct Tables {
    pub(super) owner: Memo<Owned>,
    pub(super) job: Memo<Worked>,
    pub(super) lane: Memo<Printed<Lane>>,
    pub(super) journal: Memo<(Printed<Journal>, bool)>,
}

impl std::ops::Deref for Memos {
    type Target = Tables;
    fn deref(&self) -> &Tables {
        &self.0
    }
}

impl PartialEq for Memos {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Hash for Memos {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl std::fmt::Debug for Memos {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memos")
    }
}
