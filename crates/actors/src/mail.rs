//! Inbox messages on their way into a run's journal: kept in memory from their delivery until a commit names them or the run has ended.
//!
//! The node puts a message into its run's bag and the run's actor takes it out once it may be acknowledged. So a message that comes just
//! as the actor leaves is not lost: it is found in the bag, and the run is woken again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_protocol::{Body, Input, Seq};
use leasehold_store::{InboxKind, InboxMessage};
use tokio::sync::OwnedSemaphorePermit;

/// A delivered message, and the place it takes in the intake's bound.
#[derive(Debug)]
pub(crate) struct Mail {
    pub(crate) message: InboxMessage,
    /// Held, not read.
    pub(crate) _place: OwnedSemaphorePermit,
}

/// The messages of one run that are not acknowledged.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bag(Arc<Mutex<BTreeMap<Seq, Mail>>>);

impl Bag {
    fn with<T>(&self, look: impl FnOnce(&mut BTreeMap<Seq, Mail>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn put(&self, mail: Mail) {
        self.with(|bag| bag.insert(mail.message.seq, mail));
    }

    pub(crate) fn take(&self, seq: Seq) -> Option<Mail> {
        self.with(|bag| bag.remove(&seq))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.with(|bag| bag.is_empty())
    }

    /// Positions of all messages, in order.
    pub(crate) fn all(&self) -> Vec<Seq> {
        self.with(|bag| bag.keys().copied().collect())
    }

    /// Positions of the submissions among them.
    pub(crate) fn submissions(&self) -> Vec<Seq> {
        let is_submission = |mail: &Mail| matches!(mail.message.kind, InboxKind::Submit(_));
        self.with(|bag| {
            bag.iter()
                .filter(|(_, mail)| is_submission(mail))
                .map(|(seq, _)| *seq)
                .collect()
        })
    }

    /// What the run's machine is told of the messages that it was not given yet. Submissions are told with the journal.
    pub(crate) fn inputs(&self, given: &BTreeSet<Seq>) -> Vec<(Seq, Input)> {
        self.with(|bag| {
            let fresh = bag.iter().filter(|(seq, _)| !given.contains(seq));
            fresh
                .filter_map(|(seq, mail)| Some((*seq, input(*seq, &mail.message)?)))
                .collect()
        })
    }
}

fn input(inbox: Seq, message: &InboxMessage) -> Option<Input> {
    let body = Body::from(&message.body[..]);
    match message.kind {
        InboxKind::Submit(_) => None,
        InboxKind::Decide(..) => Some(Input::Decide { inbox, body }),
        InboxKind::Cancel(_) => Some(Input::Cancel { inbox, body }),
    }
}
