//! `--set NAME=VALUE`: values for `${NAME}` in a tools file.

use std::fmt;
use std::str::FromStr;

/// One value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    name: String,
    value: String,
}

impl Variable {
    /// The value of a name; the last one given counts.
    pub(crate) fn value(set: &[Self], name: &str) -> Option<String> {
        let last = set.iter().rfind(|variable| variable.name == name);
        last.map(|variable| variable.value.clone())
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

impl FromStr for Variable {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => Ok(Self {
                name: name.to_owned(),
                value: value.to_owned(),
            }),
            _ => Err(format!("{text:?} is not of the form NAME=VALUE")),
        }
    }
}
