//! Hints: what the store republishes of claims, outcomes and notes, carried to the actor of the run it belongs to.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_protocol::{Hint, Input, Link, SessionId};
use ractor::ActorRef;
use tokio::sync::mpsc::UnboundedReceiver;

use super::{Directory, NodeMsg};
use crate::points::Point;
use crate::run::RunMsg;
use crate::shared::Shared;

/// Listens per origin: to this session's calls always, to those of an earlier session once a run asks about one of them.
pub(crate) struct Hints {
    shared: Arc<Shared>,
    directory: Directory,
    node: ActorRef<NodeMsg>,
    heard: Mutex<HashSet<SessionId>>,
}

impl Hints {
    pub(crate) fn new(shared: Arc<Shared>, directory: Directory, node: ActorRef<NodeMsg>) -> Self {
        let hints = Self {
            shared,
            directory,
            node,
            heard: Mutex::default(),
        };
        let own = hints.shared.session.clone();
        hints.listen(&own);
        hints
    }

    /// From here on everything that is stored for calls of this origin is heard (at most once, possibly never: hints decide nothing).
    pub(crate) fn listen(&self, origin: &SessionId) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if heard.contains(origin) {
            return;
        }
        heard.insert(origin.clone());
        let hints = self.shared.store.hints(origin);
        self.shared.tasks.spawn(carry(
            self.shared.clone(),
            self.directory.clone(),
            self.node.clone(),
            hints,
        ));
    }
}

async fn carry(
    shared: Arc<Shared>,
    directory: Directory,
    node: ActorRef<NodeMsg>,
    mut hints: UnboundedReceiver<Hint>,
) {
    while let Some(hint) = hints.recv().await {
        let run = hint.chain.run.clone();
        if hint
            .message
            .as_ref()
            .is_some_and(|message| message.link == Link::Outcome)
        {
            shared.reach(Point::R6, &run, Some(&hint.chain)).await;
        }
        if !directory.send(&run, RunMsg::input(Input::Hint(hint))) {
            let _ = node.cast(NodeMsg::Wake(run));
        }
    }
}
