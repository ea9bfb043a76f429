//! What a new incarnation says of its predecessor's attempts: from the logbook, and nothing beyond it.
//!
//! Stored outcome: publish it. Claimed and never armed: a tombstone, then `not_started`. Armed without an outcome: `unsure`. A logbook that
//! is another file, or cannot be read, knows nothing: `unsure`. One that was moved here from another machine proves nothing about what was
//! claimed by earlier lives: the outcomes of tools that it holds are published, all else is `unsure`.

use super::io::{AttemptEffect, LogbookAnswer};
use super::{AttemptMachine, Stage, WorkerWeakening};
use crate::ids::{ClaimId, Incarnation, LogbookId};
use crate::wire::{LogbookRecord, NoteKind, OutcomeBody};

impl AttemptMachine {
    /// The claim that counts is this worker's, of an earlier life (or of this one, on inspection).
    pub(super) fn consult(
        &mut self,
        claim: ClaimId,
        incarnation: &Incarnation,
        logbook: LogbookId,
        out: &mut Vec<AttemptEffect>,
    ) {
        self.for_claim = Some(claim.clone());
        self.call = self.chain.call.clone();
        if logbook != self.me.logbook {
            let detail = format!(
                "claimed under logbook {logbook}, which this worker does not have any more"
            );
            return self.unsure(detail, out);
        }
        self.elsewhere = self.me.moved_from.is_some() && *incarnation != self.me.incarnation;
        self.stage = Stage::Consulting { claim };
        out.push(AttemptEffect::ReadRecord);
    }

    pub(super) fn logbook_read(
        &mut self,
        result: Result<Option<LogbookRecord>, String>,
        out: &mut Vec<AttemptEffect>,
    ) {
        let Stage::Consulting { claim } = self.stage.clone() else {
            return;
        };
        match result {
            Ok(record) => self.record_says(claim, record, out),
            Err(_) if self.me.weakening == WorkerWeakening::ErrorIsAbsence => {
                let why = "negative control".to_owned();
                let expected = self.chain.last;
                self.publish_unlogged(OutcomeBody::NotStarted { why }, expected, out);
            }
            Err(_) if self.chain.outcome.is_some() => self.acknowledge(out),
            // K34: an unreadable record is no absent one.
            Err(error) => self.unsure(format!("the logbook cannot be read: {error}"), out),
        }
    }

    fn record_says(
        &mut self,
        claim: ClaimId,
        record: Option<LogbookRecord>,
        out: &mut Vec<AttemptEffect>,
    ) {
        if self.chain.outcome.is_some() {
            return match record {
                Some(LogbookRecord::Outcome { armed, outcome }) if armed.claim == claim => {
                    self.reread_outcome(outcome, true, out)
                }
                _ => {
                    out.push(AttemptEffect::Published);
                    self.acknowledge(out);
                }
            };
        }
        let expected = self.chain.last;
        let settles = matches!(
            &record,
            Some(LogbookRecord::Outcome { armed, outcome })
                if armed.claim == claim && !matches!(outcome, OutcomeBody::NotStarted { .. })
        );
        if let (Some(machine), true, false) = (&self.me.moved_from, self.elsewhere, settles) {
            let detail = format!(
                "claimed by an earlier life of this worker; its logbook has been moved here from machine {machine}, where that life may still run, so the logbook cannot tell that nothing was begun"
            );
            return self.unsure(detail, out);
        }
        match record {
            None => {
                let why = "claimed by an earlier life of this worker, which never armed".to_owned();
                out.push(AttemptEffect::CreateRecord {
                    record: LogbookRecord::Tombstone {
                        claim: claim.clone(),
                        why,
                    },
                });
                self.stage = Stage::Burying { claim };
            }
            Some(LogbookRecord::Outcome { armed, outcome }) if armed.claim == claim => {
                self.publish_unlogged(outcome, expected, out)
            }
            Some(LogbookRecord::Armed(armed)) if armed.claim == claim => {
                self.unsure(
                    format!(
                        "armed by incarnation {}, no outcome recorded",
                        armed.incarnation
                    ),
                    out,
                );
            }
            Some(LogbookRecord::Tombstone { why, .. }) => {
                self.publish_unlogged(OutcomeBody::NotStarted { why }, expected, out)
            }
            Some(LogbookRecord::Armed(_) | LogbookRecord::Outcome { .. }) => {
                let why = "the logbook armed for another claim than the one that counts; nothing was begun under this one".to_owned();
                self.publish_unlogged(OutcomeBody::NotStarted { why }, expected, out);
            }
        }
    }

    pub(super) fn buried(&mut self, answer: LogbookAnswer, out: &mut Vec<AttemptEffect>) {
        let Stage::Burying { claim } = self.stage.clone() else {
            return;
        };
        match answer {
            LogbookAnswer::Written => {
                let why = "claimed, never armed; buried by a later life of the worker".to_owned();
                let expected = self.chain.last;
                self.publish_unlogged(OutcomeBody::NotStarted { why }, expected, out);
            }
            LogbookAnswer::Present(record) => self.record_says(claim, Some(record), out),
            LogbookAnswer::Failed(error) => {
                self.unsure(format!("the logbook cannot be written: {error}"), out)
            }
        }
    }

    fn unsure(&mut self, detail: String, out: &mut Vec<AttemptEffect>) {
        self.stage = Stage::Noting;
        let note = self.note(NoteKind::Unsure { detail }, false);
        out.push(note);
    }
}
