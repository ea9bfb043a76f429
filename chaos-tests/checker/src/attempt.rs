//! One attempt as its chain shows it: call, claim, outcome. Position decides which message counts: the first claim or
//! revocation after the call, then the first outcome by the claim's worker or by the runtime. Everything else is void.

use serde_json::Value;

use crate::dump::{ChainId, Message, Place, json, text};

/// The runtime's token as a writer of registers.
pub(crate) const RUNTIME: &str = "_rt";

/// A register message that counts.
#[derive(Debug, Clone)]
pub(crate) struct Register {
    pub(crate) seq: u64,
    pub(crate) writer: String,
    pub(crate) body: Value,
}

/// A finding in the journal.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// Of the commit.
    pub(crate) seq: u64,
    pub(crate) finding: String,
    pub(crate) register: Option<u64>,
}

/// One permission to execute a step.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) chain: ChainId,
    /// Its tool is one whose effects stand in the books.
    pub(crate) in_books: bool,
    /// Of the commit that dispatched it.
    pub(crate) seq: u64,
    /// Of that commit.
    pub(crate) epoch: u64,
    /// SHA-256 of the envelope, as the commit says.
    pub(crate) call: String,
    pub(crate) basis: Value,
    pub(crate) envelope: Option<Vec<u8>>,
    /// What the policy was asked about last before the dispatch.
    pub(crate) policy: Value,
    pub(crate) claim: Option<Register>,
    pub(crate) outcome: Option<Register>,
    /// Outcomes of workers that have no claim of theirs before them.
    pub(crate) unclaimed: Vec<u64>,
    pub(crate) found: Vec<Found>,
}

impl Attempt {
    pub(crate) fn envelope(&self) -> Value {
        self.envelope.as_deref().map_or(Value::Null, json)
    }

    /// The idempotency key, of the envelope.
    pub(crate) fn key(&self) -> String {
        text(&self.envelope(), "idempotency_key").to_owned()
    }

    /// Whether it may change something: an effect in the books, or a tool that anybody ever claimed.
    pub(crate) fn mutates(&self) -> bool {
        self.in_books || self.claim.is_some()
    }

    pub(crate) fn revoked(&self) -> bool {
        self.claim
            .as_ref()
            .is_some_and(|claim| text(&claim.body, "kind") == "revoke")
    }

    /// What the outcome register says: `done`, `done_unusable`, `aborted`, `nothing_happened`, `not_started`, or the
    /// finding that was sealed. Empty: nothing.
    pub(crate) fn fact(&self) -> &str {
        let Some(fact) = self
            .outcome
            .as_ref()
            .and_then(|outcome| outcome.body.get("fact"))
        else {
            return "";
        };
        match text(fact, "kind") {
            "sealed" => fact
                .get("finding")
                .map_or("", |finding| text(finding, "finding")),
            kind => kind,
        }
    }

    /// The position of what proves that it did not act and never will, with the name of the finding.
    pub(crate) fn proof(&self) -> Option<(u64, &str)> {
        match (&self.outcome, self.fact()) {
            (Some(outcome), fact @ ("not_started" | "probe_not_done")) => Some((outcome.seq, fact)),
            _ if self.revoked() => self.claim.as_ref().map(|claim| (claim.seq, "revoked")),
            _ => None,
        }
    }

    /// The last finding, if it was an orphan.
    pub(crate) fn finding(&self) -> Option<&str> {
        self.found.last().map(|found| found.finding.as_str())
    }

    /// Takes the next register message of the chain in.
    pub(crate) fn push(&mut self, message: &Message) {
        let register = || Register {
            seq: message.seq,
            writer: message.writer.clone(),
            body: message.json(),
        };
        match message.place {
            Place::Claim if self.claim.is_none() && self.outcome.is_none() => {
                let register = register();
                let by = match text(&register.body, "kind") {
                    "revoke" => RUNTIME.to_owned(),
                    _ => text(&register.body, "worker").to_owned(),
                };
                if crate::dump::decode(&message.writer).as_ref() == Some(&by)
                    || message.writer == by
                {
                    self.claim = Some(register);
                }
            }
            Place::Outcome => {
                let register = register();
                let claimed = self.claim.as_ref().is_some_and(|claim| {
                    claim.writer == message.writer
                        && text(&claim.body, "claim") == text(&register.body, "claim")
                        && !self.revoked()
                });
                let by_runtime = message.writer == RUNTIME && self.claim.is_some();
                let read_only = !self.mutates();
                if !claimed && !by_runtime && !read_only {
                    self.unclaimed.push(message.seq);
                } else if self.outcome.is_none() {
                    self.outcome = Some(register);
                }
            }
            _ => {}
        }
    }
}
