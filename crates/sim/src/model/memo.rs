//! What was computed once: the machines, the chains and the journal are pure, and most orders lead them through the same steps.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_protocol::{
    AttemptEffect, AttemptMachine, Effect, Input, Invariant, Now, RunMachine, StopReason,
};

use super::printed::Printed;
use super::stored::{Journal, Lane};

/// Results by the fingerprint of everything that they come from.
pub(crate) struct Memo<T>(Mutex<HashMap<u64, T>>);

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Memo<T> {
    /// The result for `from`, made now if it is not there.
    pub(crate) fn of(&self, from: &impl Hash, make: impl FnOnce() -> T) -> T {
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

/// What a step of an owner leads to.
#[derive(Clone)]
pub(crate) struct Owned {
    pub(crate) machine: Printed<RunMachine>,
    /// Everything that it wants, but to stop.
    pub(crate) effects: Vec<Printed<Effect>>,
    /// It does nothing more.
    pub(crate) stopped: Option<StopReason>,
}

impl Owned {
    /// One step of the production machine.
    pub(crate) fn step(machine: &RunMachine, now: Now, input: Input) -> Self {
        let mut machine = machine.clone();
        let (mut effects, mut stopped) = (Vec::new(), None);
        for effect in machine.step(now, input) {
            match effect {
                Effect::Stop(reason) => stopped = Some(reason),
                effect => effects.push(Printed::new(effect)),
            }
        }
        Self {
            machine: Printed::new(machine),
            effects,
            stopped,
        }
    }
}

/// What a step of an attempt leads to.
#[derive(Clone)]
pub(crate) struct Worked {
    pub(crate) machine: Printed<AttemptMachine>,
    pub(crate) effects: Vec<Printed<AttemptEffect>>,
}

/// The tables of one check, shared by all its states and no part of any.
#[derive(Clone, Default)]
pub(crate) struct Memos(Arc<Tables>);

#[derive(Default)]
pub(crate) struct Tables {
    pub(crate) owner: Memo<Owned>,
    pub(crate) job: Memo<Worked>,
    pub(crate) lane: Memo<Printed<Lane>>,
    pub(crate) journal: Memo<(Printed<Journal>, bool)>,
    /// The first promise that what is stored breaks.
    pub(crate) verdict: Memo<Option<Invariant>>,
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
