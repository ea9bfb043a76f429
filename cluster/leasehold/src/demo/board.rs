//! What has been heard of the runs so far, gathered from the runtime's own stream of events.
//!
//! The stream breaks off whenever the runtime is killed; after each new connection the runs are read once, so that nothing stays missed. It
//! paces the demo and fills the progress bar; what is reported at the end comes from elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use leasehold_protocol::{Commit, Event, RunId, StoredCommit};
use tokio::sync::watch;

use crate::place::Place;
use crate::socket::client::{Client, ClientError};
use crate::socket::wire::Happening;
use crate::view::RunSummary;

/// How long to wait before the next try to connect to a runtime that is not there.
pub(super) const RECONNECT: Duration = Duration::from_millis(30);

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// Commits heard of; those of the time without a connection are not counted.
    pub(super) commits: u64,
    runs: BTreeMap<RunId, State>,
    /// Runs that have made a call.
    called: BTreeSet<RunId>,
    /// Runs of which the runtime says that it cannot go on, and why.
    pub(super) stuck: BTreeMap<RunId, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Asks,
    Over,
}

impl Seen {
    /// Runs that are over.
    pub(super) fn over(&self) -> usize {
        self.count(State::Over)
    }

    /// Runs that are neither over nor wait for an operator.
    pub(super) fn in_hand(&self) -> usize {
        self.count(State::Open)
    }

    fn count(&self, wanted: State) -> usize {
        self.runs.values().filter(|state| **state == wanted).count()
    }

    /// Runs that wait for an operator.
    pub(super) fn asking(&self) -> Vec<RunId> {
        let asking = self.runs.iter().filter(|(_, state)| **state == State::Asks);
        asking.map(|(run, _)| run.clone()).collect()
    }

    /// Whether the run has made a call.
    pub(super) fn has_called(&self, run: &RunId) -> bool {
        self.called.contains(run)
    }

    fn set(&mut self, run: &RunId, state: State) {
        let known = self.runs.entry(run.clone()).or_insert(state);
        // What is over stays over; an event may be heard again after it was read.
        if *known != State::Over {
            *known = state;
        }
    }

    fn read(&mut self, summary: &RunSummary) {
        let asks =
            summary.waiting_on.is_some() || summary.open.iter().any(|step| step.approval.is_some());
        let state = match summary.status.is_final() {
            true => State::Over,
            false if asks => State::Asks,
            false => State::Open,
        };
        self.set(&summary.run, state);
        if summary.turns > 0 {
            self.called.insert(summary.run.clone());
        }
    }

    fn hear(&mut self, run: &RunId, commit: &StoredCommit) {
        self.commits += 1;
        // What cannot be read is for the checks at the end.
        let events = Commit::decode(commit.body.as_bytes())
            .map(|commit| commit.events)
            .unwrap_or_default();
        for event in events {
            match event {
                Event::Dispatched { .. } => {
                    self.called.insert(run.clone());
                    self.set(run, State::Open);
                }
                Event::Ended { .. } => self.set(run, State::Over),
                Event::Requested { .. } => self.set(run, State::Asks),
                Event::ApprovalDecided { .. }
                | Event::Withdrawn { .. }
                | Event::Submitted { .. } => self.set(run, State::Open),
                _ => {}
            }
        }
    }
}

/// The board, shared.
#[derive(Debug, Clone)]
pub(super) struct Board(Arc<watch::Sender<Seen>>);

impl Board {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::channel(Seen::default()).0))
    }

    /// Looks at it.
    pub(super) fn look<T>(&self, at: impl FnOnce(&Seen) -> T) -> T {
        at(&self.0.borrow())
    }

    /// Is told of every change.
    pub(super) fn changes(&self) -> watch::Receiver<Seen> {
        self.0.subscribe()
    }

    /// A run was submitted.
    pub(super) fn entered(&self, run: &RunId) {
        self.0.send_modify(|seen| {
            seen.runs.entry(run.clone()).or_insert(State::Open);
        });
    }

    /// Listens to the runtime in a place for ever, across its lives.
    pub(super) async fn follow(self, place: Arc<Place>) {
        loop {
            // Whatever ended it: the runtime is gone, or will be asked again.
            let _ = self.follow_one_life(&place).await;
            tokio::time::sleep(RECONNECT).await;
        }
    }

    async fn follow_one_life(&self, place: &Place) -> Result<(), ClientError> {
        let mut watch = Client::connect(place).await?.watch(None).await?;
        let mut reader = Client::connect(place).await?;
        self.read(&reader.runs().await?);
        while let Some(happening) = watch.next().await? {
            match happening {
                Happening::Committed { run, commit } => {
                    self.0.send_modify(|seen| seen.hear(&run, &commit))
                }
                Happening::Missed { .. } => self.read(&reader.runs().await?),
                Happening::Quarantined { run, why } => self.0.send_modify(|seen| {
                    seen.stuck.insert(run, why);
                }),
                Happening::Subscribed | Happening::Left { .. } => {}
            }
        }
        Ok(())
    }

    fn read(&self, runs: &[RunSummary]) {
        self.0
            .send_modify(|seen| runs.iter().for_each(|run| seen.read(run)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str) -> RunId {
        RunId::new(name).unwrap()
    }

    #[test]
    fn what_is_over_stays_over_whatever_is_heard_again() {
        let mut seen = Seen::default();
        seen.set(&run("a"), State::Open);
        seen.set(&run("b"), State::Asks);
        assert_eq!(
            (seen.in_hand(), seen.over(), seen.asking()),
            (1, 0, vec![run("b")])
        );
        seen.set(&run("b"), State::Over);
        seen.set(&run("b"), State::Asks);
        seen.set(&run("b"), State::Open);
        assert_eq!(
            (seen.in_hand(), seen.over(), seen.asking()),
            (1, 1, Vec::new())
        );
    }

    #[test]
    fn a_submitted_run_is_in_hand_unless_more_is_known_of_it() {
        let board = Board::new();
        board.entered(&run("a"));
        assert_eq!(board.look(Seen::in_hand), 1);
        board.0.send_modify(|seen| seen.set(&run("a"), State::Over));
        board.entered(&run("a"));
        assert_eq!(board.look(Seen::over), 1);
    }
}
