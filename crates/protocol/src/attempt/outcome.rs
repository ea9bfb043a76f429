//! From the tool's return to the register: what is a fact, what is only evidence, and where each of them goes.

use leasehold_tools::Failure;

use super::io::{AttemptEffect, ToolReturn, WriteAnswer};
use super::{AttemptMachine, Stage, WorkerWeakening};
use crate::ids::Seq;
use crate::wire::{Body, LogbookRecord, Note, NoteKind, Outcome, OutcomeBody};

impl AttemptMachine {
    pub(super) fn returned(&mut self, returned: ToolReturn, out: &mut Vec<AttemptEffect>) {
        if self.stage != Stage::Running {
            return;
        }
        let expected = self.chain.last;
        match self.fact(returned) {
            Ok(fact) => self.publish(fact, expected, out),
            Err(evidence) => {
                // Each kind of evidence stands once: after a timeout nothing is added by the error that the cancellation caused.
                self.stage = Stage::Noting;
                if self.noting_timeout {
                    // Over once that note is written.
                } else if self.timed_out {
                    self.acknowledge(out);
                } else {
                    let note = self.note(evidence, false);
                    out.push(note);
                }
            }
        }
    }

    /// What a return means for a tool of this class: a stable fact, or evidence that settles nothing.
    fn fact(&self, returned: ToolReturn) -> Result<OutcomeBody, NoteKind> {
        Ok(match returned {
            ToolReturn::Done(result) => OutcomeBody::Done { result },
            ToolReturn::Unusable { kept, error } => OutcomeBody::DoneUnusable { kept, error },
            ToolReturn::Abort { detail } => OutcomeBody::Aborted { detail },
            ToolReturn::NothingHappened { failure, message } => {
                OutcomeBody::NothingHappened { failure, message }
            }
            ToolReturn::MayHaveHappened { failure, message } if self.class.is_read_only() => {
                let failure = if self.timed_out {
                    Failure::Timeout
                } else {
                    failure
                };
                OutcomeBody::NothingHappened { failure, message }
            }
            ToolReturn::MayHaveHappened { failure, message }
                if self.me.weakening == WorkerWeakening::ErrorIsNothing =>
            {
                OutcomeBody::NothingHappened { failure, message }
            }
            ToolReturn::MayHaveHappened { failure, message } => {
                return Err(NoteKind::MayHaveHappened { failure, message });
            }
        })
    }

    /// Offers a fact to the register and writes it to the logbook, side by side.
    pub(super) fn publish(
        &mut self,
        fact: OutcomeBody,
        expected: Seq,
        out: &mut Vec<AttemptEffect>,
    ) {
        let armed = self.call.as_ref().map(|(seq, _)| self.armed(*seq));
        match armed {
            Some(armed) if self.for_claim.is_some() && self.keeps_logbook() => {
                out.push(self.outcome(&fact, expected));
                out.push(AttemptEffect::LogOutcome {
                    record: LogbookRecord::Outcome {
                        armed,
                        outcome: fact.clone(),
                    },
                });
                self.stage = Stage::Publishing {
                    outcome: fact,
                    stored: false,
                    logged: false,
                };
            }
            _ => self.publish_unlogged(fact, expected, out),
        }
    }

    /// Offers a fact to the register that the logbook holds already, or that has no place in it.
    pub(super) fn publish_unlogged(
        &mut self,
        fact: OutcomeBody,
        expected: Seq,
        out: &mut Vec<AttemptEffect>,
    ) {
        out.push(self.outcome(&fact, expected));
        self.stage = Stage::Publishing {
            outcome: fact,
            stored: false,
            logged: true,
        };
    }

    fn keeps_logbook(&self) -> bool {
        self.me.weakening != WorkerWeakening::SkipClaim
    }

    fn outcome(&self, fact: &OutcomeBody, expected: Seq) -> AttemptEffect {
        let body = Body::from(Outcome::new(self.for_claim.clone(), fact.clone()).encode());
        AttemptEffect::WriteOutcome { expected, body }
    }

    pub(super) fn note(&self, evidence: NoteKind, last_place: bool) -> AttemptEffect {
        AttemptEffect::WriteNote {
            body: Body::from(Note::new(self.for_claim.clone(), evidence).encode()),
            last_place,
        }
    }

    pub(super) fn outcome_tried(&mut self, answer: WriteAnswer, out: &mut Vec<AttemptEffect>) {
        let Stage::Publishing {
            outcome, logged, ..
        } = self.stage.clone()
        else {
            return;
        };
        match answer {
            WriteAnswer::Stored(_) => self.stored(outcome, logged, out),
            WriteAnswer::Refused | WriteAnswer::Unknown => out.push(AttemptEffect::ReadChain),
        }
    }

    fn stored(&mut self, outcome: OutcomeBody, logged: bool, out: &mut Vec<AttemptEffect>) {
        self.stage = Stage::Publishing {
            outcome,
            stored: true,
            logged,
        };
        self.conclude(out);
    }

    pub(super) fn outcome_logged(
        &mut self,
        _result: Result<(), String>,
        out: &mut Vec<AttemptEffect>,
    ) {
        let Stage::Publishing {
            outcome, stored, ..
        } = self.stage.clone()
        else {
            return;
        };
        // A logbook that fails here takes nothing away from the register: the fact is offered there as well.
        self.stage = Stage::Publishing {
            outcome,
            stored,
            logged: true,
        };
        self.conclude(out);
    }

    fn conclude(&mut self, out: &mut Vec<AttemptEffect>) {
        if let Stage::Publishing {
            stored: true,
            logged: true,
            ..
        } = self.stage
        {
            out.push(AttemptEffect::Published);
            self.acknowledge(out);
        }
    }

    /// The register was not free, or nobody knows: read what counts.
    pub(super) fn reread_outcome(
        &mut self,
        outcome: OutcomeBody,
        logged: bool,
        out: &mut Vec<AttemptEffect>,
    ) {
        match self.chain.outcome.clone() {
            Some((_, stored)) if stored.fact == outcome && stored.claim == self.for_claim => {
                self.stored(outcome, logged, out)
            }
            Some(_)
                if self.for_claim.is_none()
                    || matches!(outcome, OutcomeBody::NotStarted { .. }) =>
            {
                // Of a read_only call the first outcome wins; that nothing was begun adds nothing to what stands there.
                out.push(AttemptEffect::Published);
                self.acknowledge(out);
            }
            Some(_) => {
                self.stage = Stage::Noting;
                let note = self.note(NoteKind::MetSeal { outcome }, true);
                out.push(note);
            }
            None if self.may_write_outcome() => {
                let expected = self.chain.last;
                out.push(self.outcome(&outcome, expected));
            }
            None => self.acknowledge(out),
        }
    }

    /// Whether the chain as read leaves room for this worker's outcome: its claim counts (or it needs none).
    fn may_write_outcome(&self) -> bool {
        match (&self.chain.claim, &self.for_claim) {
            (Some((_, crate::wire::ClaimBody::Claim { claim, .. })), Some(mine)) => claim == mine,
            (None, None) => self.chain.call.is_some(),
            _ => false,
        }
    }

    pub(super) fn note_tried(&mut self, out: &mut Vec<AttemptEffect>) {
        self.noting_timeout = false;
        // After the note of a passed deadline the tool may still return: that truth goes to the register.
        if self.stage == Stage::Noting {
            self.acknowledge(out);
        }
    }
}
