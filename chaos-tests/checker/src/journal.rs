//! One run's journal: which commits are valid, what they say, and every rule of the chain that is broken on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::attempt::{Attempt, Found};
use crate::dump::{Dump, Message, Place, number, sha256, text};

/// `prev` of a first commit.
const ZEROS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// How a step ended.
#[derive(Debug, Clone)]
pub(crate) struct Finished {
    /// Of the commit.
    pub(crate) seq: u64,
    pub(crate) attempt: Option<u64>,
    pub(crate) kind: String,
    pub(crate) failure: String,
}

/// A question to an operator.
#[derive(Debug, Clone)]
pub(crate) struct Approval {
    pub(crate) step: String,
    pub(crate) open: bool,
    /// The choice, once decided.
    pub(crate) choice: Option<String>,
}

/// One run as its journal and registers show it.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) id: String,
    /// Valid commits.
    pub(crate) commits: u64,
    /// `run.submitted`, if it is there, and the position of its commit.
    pub(crate) submitted: Option<(u64, Value)>,
    pub(crate) ended: Option<String>,
    ending: bool,
    /// Times it changed hands without its owner having let go of it.
    pub(crate) takeovers: u64,
    owned: bool,
    /// The last event let go of the run: parked or released.
    let_go: bool,
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) finished: BTreeMap<String, Finished>,
    pub(crate) approvals: BTreeMap<String, Approval>,
    policies: BTreeMap<String, Value>,
    /// What is wrong with the chain itself: invariant and words.
    pub(crate) faults: Vec<(&'static str, String)>,
    epoch: u64,
    tail: String,
    last_seq: u64,
    /// Tools whose effects stand in the books.
    tools: Arc<BTreeSet<String>>,
}

/// Every run that has a journal or registers, in order of id.
pub(crate) fn read_all(dump: &Dump, tools: &Arc<BTreeSet<String>>) -> Vec<Run> {
    let has_records = |messages: &[&Message]| {
        messages
            .iter()
            .any(|message| !matches!(message.place, Place::Inbox(_)))
    };
    dump.by_run()
        .into_iter()
        .filter(|(_, messages)| has_records(messages))
        .map(|(id, messages)| Run::read(id, &messages, tools))
        .collect()
}

impl Run {
    fn read(id: &str, messages: &[&Message], tools: &Arc<BTreeSet<String>>) -> Self {
        let mut run = Self {
            id: id.to_owned(),
            tools: tools.clone(),
            tail: ZEROS.to_owned(),
            ..Self::default()
        };
        let shard = messages.first().map(|message| message.shard.as_str());
        for message in messages {
            if Some(message.shard.as_str()) != shard {
                run.fault(
                    "I8",
                    format!(
                        "position {} of shard {} holds a record of a run of shard {}",
                        message.seq,
                        message.shard,
                        shard.unwrap_or_default()
                    ),
                );
                continue;
            }
            match message.place {
                Place::Journal(_) => run.commit(message),
                Place::Claim | Place::Outcome => run.register(message),
                Place::Evidence | Place::Inbox(_) => {}
            }
        }
        run
    }

    /// `completed`, `failed`, `cancelled`, `waiting` or `running`.
    pub(crate) fn status(&self) -> &str {
        if let Some(status) = &self.ended {
            return status;
        }
        // A question about the run itself holds it, whatever is in flight.
        if self
            .approvals
            .values()
            .any(|approval| approval.open && approval.step.is_empty())
        {
            return "waiting";
        }
        let asked = |step: &str| {
            self.approvals
                .values()
                .any(|approval| approval.open && approval.step == step)
        };
        let moving = self.attempts.iter().any(|attempt| {
            !self.finished.contains_key(&attempt.chain.step) && !asked(&attempt.chain.step)
        });
        let waits =
            !self.ending && !moving && self.approvals.values().any(|approval| approval.open);
        if waits { "waiting" } else { "running" }
    }

    /// Attempts of a step that an operator permitted although the one before may have acted.
    pub(crate) fn run_agains(&self, step: &str) -> usize {
        self.attempts
            .iter()
            .filter(|attempt| {
                attempt.chain.step == step && text(&attempt.basis, "basis") == "run_again"
            })
            .count()
    }

    fn fault(&mut self, invariant: &'static str, text: String) {
        self.faults.push((invariant, text));
    }

    fn register(&mut self, message: &Message) {
        let Some(chain) = &message.chain else { return };
        let same = |attempt: &&mut Attempt| {
            attempt.chain.step == chain.step
                && attempt.chain.attempt == chain.attempt
                && attempt.chain.tool == chain.tool
        };
        match self.attempts.iter_mut().find(same) {
            Some(attempt) => attempt.push(message),
            None => {
                let text = format!(
                    "position {}: a {:?} of step {} attempt {} before any dispatch",
                    message.seq, message.place, chain.step, chain.attempt
                );
                self.fault("I6", text);
            }
        }
    }

    fn commit(&mut self, message: &Message) {
        let commit = message.json();
        let seq = message.seq;
        let (n, epoch) = (number(&commit, "n"), number(&commit, "epoch"));
        let events = commit
            .get("events")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        if self.ended.is_some() {
            self.fault("I10", format!("position {seq}: a commit after the end"));
            return;
        }
        if text(&commit, "run") != self.id {
            self.fault(
                "I13",
                format!("position {seq}: a commit of run {:?}", text(&commit, "run")),
            );
            return;
        }
        if let Some(expected) = message.expected
            && expected != self.last_seq
        {
            self.fault(
                "I3",
                format!(
                    "position {seq}: stored on position {expected}, the journal's last was {}",
                    self.last_seq
                ),
            );
        }
        self.last_seq = seq;
        if text(&commit, "prev") != self.tail || n != self.commits + 1 {
            self.fault(
                "I8",
                format!(
                    "position {seq}: commit {n} is not linked to commit {}",
                    self.commits
                ),
            );
            return;
        }
        let owns = events
            .iter()
            .any(|event| text(event, "kind") == "run.owned");
        if owns && epoch <= self.epoch {
            self.fault(
                "I4",
                format!(
                    "position {seq}: taken over in epoch {epoch}, epoch {} was reached before",
                    self.epoch
                ),
            );
        } else if !owns && epoch != self.epoch {
            self.fault(
                "I3",
                format!(
                    "position {seq}: a commit of epoch {epoch} in epoch {}",
                    self.epoch
                ),
            );
        }
        (self.commits, self.epoch, self.tail) = (n, epoch.max(self.epoch), sha256(&message.body));
        for event in &events {
            if self.ended.is_some() {
                self.fault(
                    "I10",
                    format!("position {seq}: {} after the end", text(event, "kind")),
                );
                return;
            }
            self.event(message, event);
        }
    }

    fn event(&mut self, message: &Message, event: &Value) {
        let step = text(event, "step").to_owned();
        let lets_go = matches!(text(event, "kind"), "run.parked" | "run.released");
        let let_go = std::mem::replace(&mut self.let_go, lets_go);
        match text(event, "kind") {
            "run.submitted" => self.submitted = Some((message.seq, event.clone())),
            "run.owned" => {
                self.takeovers += u64::from(self.owned && !let_go);
                self.owned = true;
            }
            "step.policy" => {
                self.policies.insert(step, event.clone());
            }
            "approval.requested" => {
                self.approvals.insert(
                    text(event, "approval").to_owned(),
                    Approval {
                        step,
                        open: true,
                        choice: None,
                    },
                );
            }
            "approval.decided" => {
                let choice = event
                    .get("decision")
                    .map_or("", |decision| text(decision, "choice"))
                    .to_owned();
                self.close(event, Some(choice));
            }
            "approval.withdrawn" | "approval.expired" => self.close(event, None),
            "step.dispatched" => self.dispatched(message, event, &step),
            "attempt.finding" => self.found(message.seq, event, &step),
            "step.finished" => {
                let observation = event.get("observation").unwrap_or(&Value::Null);
                let attempt = event.get("attempt").and_then(Value::as_u64);
                let finished = Finished {
                    seq: message.seq,
                    attempt,
                    kind: text(observation, "kind").to_owned(),
                    failure: text(observation, "failure").to_owned(),
                };
                if self.finished.insert(step.clone(), finished).is_some() {
                    self.fault(
                        "I8",
                        format!(
                            "position {}: step {step} finished a second time",
                            message.seq
                        ),
                    );
                }
            }
            "run.ending" => self.ending = true,
            "run.ended" => self.ended = Some(text(event, "status").to_owned()),
            _ => {}
        }
    }

    fn close(&mut self, event: &Value, choice: Option<String>) {
        let name = text(event, "approval").to_owned();
        match self.approvals.get_mut(&name) {
            Some(approval) => {
                approval.open = false;
                if choice.is_some() && approval.choice.is_some() {
                    self.fault("I7", format!("question {name} was decided twice"));
                } else if choice.is_some() {
                    approval.choice = choice;
                }
            }
            None => self.fault(
                "I12",
                format!(
                    "{} of question {name}, which nobody asked",
                    text(event, "kind")
                ),
            ),
        }
    }

    fn dispatched(&mut self, message: &Message, event: &Value, step: &str) {
        let attempt = number(event, "attempt");
        let Some(chain) = message
            .chain
            .clone()
            .filter(|chain| chain.step == step && chain.attempt == attempt)
        else {
            return self.fault(
                "I6",
                format!(
                    "position {}: step {step} attempt {attempt} was dispatched on another subject",
                    message.seq
                ),
            );
        };
        if self
            .attempts
            .iter()
            .any(|known| known.chain.step == step && known.chain.attempt == attempt)
        {
            return self.fault(
                "I3",
                format!(
                    "position {}: step {step} attempt {attempt} was dispatched a second time",
                    message.seq
                ),
            );
        }
        self.attempts.push(Attempt {
            in_books: self.tools.contains(&chain.tool),
            chain,
            seq: message.seq,
            epoch: self.epoch,
            call: text(event, "call").to_owned(),
            basis: event.get("basis").cloned().unwrap_or(Value::Null),
            envelope: message.call.clone(),
            policy: self.policies.get(step).cloned().unwrap_or(Value::Null),
            claim: None,
            outcome: None,
            unclaimed: Vec::new(),
            found: Vec::new(),
        });
    }

    fn found(&mut self, seq: u64, event: &Value, step: &str) {
        let attempt = number(event, "attempt");
        let found = Found {
            seq,
            finding: text(event, "finding").to_owned(),
            register: event.get("register").and_then(Value::as_u64),
        };
        match self.attempts.iter_mut().find(|known| known.chain.step == step && known.chain.attempt == attempt) {
            Some(known) => known.found.push(found),
            None => self.fault("I12", format!("position {seq}: a finding on step {step} attempt {attempt}, which was never dispatched")),
        }
    }
}
