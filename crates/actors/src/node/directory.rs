//! Where a run's actor is: readable by every task, so that a hint reaches it in one hop.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_protocol::RunId;
use ractor::ActorRef;

use crate::run::RunMsg;

/// The actors of the runs that this node drives.
#[derive(Clone, Default)]
pub(crate) struct Directory(Arc<Mutex<HashMap<RunId, ActorRef<RunMsg>>>>);

impl Directory {
    fn with<T>(&self, look: impl FnOnce(&mut HashMap<RunId, ActorRef<RunMsg>>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn insert(&self, run: RunId, actor: ActorRef<RunMsg>) {
        self.with(|runs| runs.insert(run, actor));
    }

    pub(crate) fn remove(&self, run: &RunId) {
        self.with(|runs| runs.remove(run));
    }

    pub(crate) fn contains(&self, run: &RunId) -> bool {
        self.with(|runs| runs.contains_key(run))
    }

    /// Sends to the run's actor. Whether there is one.
    pub(crate) fn send(&self, run: &RunId, message: RunMsg) -> bool {
        self.with(|runs| {
            runs.get(run)
                .is_some_and(|actor| actor.cast(message).is_ok())
        })
    }
}
