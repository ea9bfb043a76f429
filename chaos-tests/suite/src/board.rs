//! What has been heard of the runs so far, from their journals as they are stored: who waits for whom, and what is over.
//!
//! It paces workload and drain, and gives operators their questions. What is reported at the end comes from the dump.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use crate::clock;
use crate::json;
use crate::nats::Nats;

/// How often the journals are read.
const LOOK: Duration = Duration::from_millis(200);
/// Every commit of every run.
const COMMITS: &str = "lh.*.run.*.j.>";

/// A question to an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) run: String,
    pub(crate) approval: String,
    pub(crate) hash: String,
    /// `approve`, `interrupted_side_effect` or `exhausted`.
    pub(crate) ask: String,
    pub(crate) step: String,
    /// When it was read here, unix milliseconds.
    pub(crate) heard: i64,
}

#[derive(Debug, Default)]
struct RunOf {
    over: bool,
    questions: BTreeMap<String, Question>,
    /// Steps that were dispatched and are not finished.
    in_flight: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Seen {
    runs: BTreeMap<String, RunOf>,
    commits: u64,
    takeovers: u64,
    findings: u64,
}

/// Numbers for whoever watches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) runs: usize,
    pub(crate) over: usize,
    pub(crate) asking: usize,
    pub(crate) commits: u64,
    /// Times a run was owned by another life than before.
    pub(crate) owned_again: u64,
    pub(crate) findings: u64,
}

/// The board, shared.
#[derive(Debug, Clone, Default)]
pub(crate) struct Board(Arc<Mutex<Seen>>);

impl Board {
    /// Reads the journals for ever; whatever fails is read with the next look.
    pub(crate) async fn follow(self, nats: Nats) {
        let mut positions: BTreeMap<String, u64> = BTreeMap::new();
        loop {
            if let Ok(streams) = nats.journals().await {
                for stream in streams {
                    let from = positions.entry(stream.clone()).or_insert(1);
                    while let Ok(Some(raw)) = nats.next(&stream, *from, COMMITS).await {
                        *from = raw.seq + 1;
                        self.hear(&json::read(&raw.body));
                    }
                }
            }
            sleep(LOOK).await;
        }
    }

    pub(crate) fn numbers(&self) -> Numbers {
        let seen = self.seen();
        let asking = |run: &&RunOf| !run.over && !run.questions.is_empty();
        Numbers {
            runs: seen.runs.len(),
            over: seen.runs.values().filter(|run| run.over).count(),
            asking: seen.runs.values().filter(asking).count(),
            commits: seen.commits,
            owned_again: seen.takeovers,
            findings: seen.findings,
        }
    }

    /// The open questions.
    pub(crate) fn questions(&self) -> Vec<Question> {
        let seen = self.seen();
        let open = seen.runs.values().filter(|run| !run.over);
        open.flat_map(|run| run.questions.values().cloned())
            .collect()
    }

    /// Runs that are not over, in order of name.
    pub(crate) fn open(&self) -> Vec<String> {
        let seen = self.seen();
        let open = seen.runs.iter().filter(|(_, run)| !run.over);
        open.map(|(name, _)| name.clone()).collect()
    }

    /// Runs that are not over and wait for nothing but an operator.
    pub(crate) fn parked(&self) -> BTreeSet<String> {
        let seen = self.seen();
        let parked = seen.runs.iter().filter(|(_, run)| {
            let asked: BTreeSet<&String> =
                run.questions.values().map(|asked| &asked.step).collect();
            !run.over
                && !run.questions.is_empty()
                && run.in_flight.iter().all(|step| asked.contains(step))
        });
        parked.map(|(name, _)| name.clone()).collect()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, commit: &Value) {
        let mut seen = self.seen();
        seen.commits += 1;
        let name = json::text(commit, "run").to_owned();
        for event in json::elements(commit, "events") {
            let is_known = seen.runs.contains_key(&name);
            let run = seen.runs.entry(name.clone()).or_default();
            let step = json::text(event, "step").to_owned();
            match json::text(event, "kind") {
                "run.owned" if is_known && json::number(commit, "n") > 1 => seen.takeovers += 1,
                "approval.requested" => {
                    let question = Question {
                        run: name.clone(),
                        approval: json::text(event, "approval").to_owned(),
                        hash: json::text(event, "hash").to_owned(),
                        ask: event
                            .get("question")
                            .map_or("", |question| json::text(question, "ask"))
                            .to_owned(),
                        step,
                        heard: clock::now(),
                    };
                    run.questions.insert(question.approval.clone(), question);
                }
                "approval.decided" | "approval.withdrawn" | "approval.expired" => {
                    run.questions.remove(json::text(event, "approval"));
                }
                "step.dispatched" => {
                    run.in_flight.insert(step);
                }
                "step.finished" => {
                    run.in_flight.remove(&step);
                }
                "attempt.finding" => seen.findings += 1,
                "run.ended" => run.over = true,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_is_parked_while_every_step_in_flight_is_asked_about() {
        let board = Board::default();
        let hear = |n: u64, event: Value| {
            board.hear(&json!({"run": "r", "n": n, "events": [event]}));
        };
        hear(1, json!({"kind": "run.submitted"}));
        hear(2, json!({"kind": "step.dispatched", "step": "1-0"}));
        assert!(board.parked().is_empty());
        let asked = json!({"kind": "approval.requested", "step": "1-0", "approval": "a", "hash": "h",
            "question": {"ask": "interrupted_side_effect"}});
        hear(3, asked);
        assert_eq!(board.parked().len(), 1);
        assert_eq!(board.questions()[0].hash, "h");
        hear(4, json!({"kind": "approval.withdrawn", "approval": "a"}));
        assert!(board.questions().is_empty() && board.parked().is_empty());
        hear(5, json!({"kind": "run.ended", "status": "completed"}));
        assert_eq!((board.numbers().over, board.open().len()), (1, 0));
    }
}
