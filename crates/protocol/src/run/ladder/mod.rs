//! The ladder: what became of an open attempt, rung by rung.
//!
//! Facts come first and are read from the registers only. Where there is none, an unclaimed attempt that must end is revoked (rung 2), the
//! claim's worker is inspected (3), evidence or time makes the attempt unknown (4), and what is unknown is superseded (read_only, 5),
//! probed (6) or put before an operator (7). A finding that ends an attempt is written into its outcome register first: if the truth is
//! there already, the truth is adopted. An error, a silence or a missing record never leads to a further attempt.

mod facts;
mod settle;
mod unknown;

pub use unknown::{MAX_PROBES, PROBE_RETRY_MS, SILENCE_SLACK_MS};

use leasehold_tools::Failure;

use super::RunMachine;
use super::observe::own;
use crate::ids::{Seq, StepId};
use crate::state::Phase;
use crate::wire::{
    ClaimBody, Decision, Event, Finding, Observation, ObservationKind, Question, Reason,
    RevokeReason, Sealed,
};
use facts::Fact;

/// Attempts of one step that may be proved not to have acted before a person is asked whether to go on.
pub const MAX_PROVEN: usize = 5;

impl RunMachine {
    pub(in crate::run) fn climb_all(&mut self) -> Result<(), String> {
        self.read_due();
        for (id, phase) in self.open_attempts() {
            if self.draft_is_forced() {
                // What was just drafted has to be stored before anything is written on the strength of it.
                return Ok(());
            }
            let readable = self
                .watches
                .get(&id)
                .is_some_and(|watch| watch.known && !watch.writing);
            if !readable {
                continue;
            }
            if self.watches.get(&id).is_some_and(|watch| watch.chain.newer) {
                self.stop(super::StopReason::Unreadable(format!(
                    "the chain of step {id} was written by a newer version"
                )));
                return Ok(());
            }
            // What was waited for is looked at anew each time; a wait that still matters is set again.
            if let Some(watch) = self.watches.get_mut(&id) {
                watch.wait = None;
                watch.fresh = false;
            }
            self.climb(id, phase)?;
        }
        Ok(())
    }

    fn climb(&mut self, id: StepId, phase: Phase) -> Result<(), String> {
        match &phase {
            // Only an answer moves a question about a proven attempt. Once it was withdrawn (the run ends) the fact is taken as it is.
            Phase::Exhausted(_) => return Ok(()),
            Phase::Decided {
                approval,
                decision,
                exhausted: true,
            } => {
                return self.decision_ends(id, None, approval, decision).map(drop);
            }
            Phase::Decided { .. } if self.has_finding(id) => return Ok(()),
            Phase::InFlight | Phase::Decided { .. } if self.is_headless(id) => {
                // Whatever is written to such a chain counts for nothing: neither a revocation nor a seal would ever hold.
                let text = "the first message of the attempt's chain is not its call: the chain was purged, restored or forged, and proves nothing";
                self.close_conflict(id, text, text)?;
                return self.begin_ending(Reason::ReconcileConflict, Some(text.to_owned()), None);
            }
            _ => {}
        }
        match self.fact(id) {
            Some(fact) => self.on_fact(id, phase, fact),
            None => self.on_silence(id, phase),
        }
    }

    /// Whether something stands in the attempt's chain, and its call is not the first of it.
    fn is_headless(&self, id: StepId) -> bool {
        let chain = self.watches.get(&id).map(|watch| &watch.chain);
        chain.is_some_and(|chain| chain.call.is_none() && chain.last > Seq::NONE)
    }

    fn has_finding(&self, id: StepId) -> bool {
        self.state
            .step(id)
            .and_then(|step| step.latest())
            .is_some_and(|latest| latest.finding.is_some())
    }

    fn on_fact(&mut self, id: StepId, phase: Phase, fact: Fact) -> Result<(), String> {
        match fact {
            Fact::Settled {
                seq,
                finding,
                observation,
                abort,
            } => {
                // A person's record-as-done or reject stands over everything but `done`.
                if finding == Finding::NothingHappened
                    && let Phase::Decided {
                        approval, decision, ..
                    } = &phase
                    && self.decision_ends(id, Some(seq), approval, decision)?
                {
                    return Ok(());
                }
                self.adopt(id, phase, seq, finding, observation, abort)
            }
            Fact::NotDone {
                seq,
                finding,
                detail,
            } => self.on_proof(id, phase, seq, finding, detail),
            Fact::Superseded { seq } => {
                if self.state.is_ending() {
                    return self.close_not_started(
                        id,
                        Finding::Superseded,
                        seq,
                        "given up for an attempt that is not made any more".into(),
                    );
                }
                self.found(
                    id,
                    Finding::Superseded,
                    Some(seq),
                    "read-only: another attempt changes nothing".into(),
                )?;
                self.watches.remove(&id);
                Ok(())
            }
            Fact::Operator { seq, sealed } => match sealed {
                Sealed::RecordedDone {
                    operator,
                    result: value,
                } => self.record_done(id, Some(seq), operator, value),
                Sealed::Rejected { operator } => self.reject(id, Some(seq), operator),
                Sealed::RunAgain { operator } if self.state.is_ending() => self.close_unknown(
                    id,
                    format!("{operator} permitted another attempt, but the run is ending"),
                ),
                Sealed::RunAgain { operator } => {
                    self.found(
                        id,
                        Finding::RunAgain,
                        Some(seq),
                        format!("{operator} permits another attempt"),
                    )?;
                    self.watches.remove(&id);
                    Ok(())
                }
                Sealed::ProbeDone { .. } | Sealed::ProbeNotDone | Sealed::Superseded => Ok(()),
            },
        }
    }

    /// The truth is there: the step is over.
    fn adopt(
        &mut self,
        id: StepId,
        phase: Phase,
        seq: Seq,
        finding: Finding,
        observation: Observation,
        abort: Option<String>,
    ) -> Result<(), String> {
        let Some(watch) = self.watches.get(&id) else {
            return Ok(());
        };
        let (attempt, tool, orphan) = (watch.key.attempt, watch.key.tool.clone(), watch.orphan);
        if let Phase::Interrupted(approval) = &phase {
            self.draft(Event::Withdrawn {
                approval: approval.clone(),
                why: "the truth arrived first".into(),
            })?;
        }
        if orphan || finding == Finding::ProbeDone {
            let detail = match finding {
                Finding::ProbeDone => "the tool's probe says that it happened",
                _ => "the outcome register had been written",
            };
            self.found(id, finding, Some(seq), detail.to_owned())?;
        }
        let ok = observation.kind == ObservationKind::ToolResult;
        let content = observation.content.clone();
        self.finish(id, Some(attempt), observation)?;
        let terminal = self.tool(&tool).is_some_and(|tool| tool.spec().terminal);
        if let Some(detail) = abort {
            self.begin_ending(Reason::ToolAbort, Some(detail), None)?;
        } else if let Phase::Decided {
            decision: Decision::Reject,
            ..
        } = phase
        {
            self.begin_ending(Reason::ApprovalRejected, None, None)?;
        } else if ok && terminal {
            self.begin_ending(Reason::GoalCompleted, None, Some(content))?;
        }
        Ok(())
    }

    /// Proved that the attempt did not act and never will: another one, unless the run ends, a person decided otherwise, or it is enough.
    fn on_proof(
        &mut self,
        id: StepId,
        phase: Phase,
        seq: Seq,
        finding: Finding,
        detail: String,
    ) -> Result<(), String> {
        if let Phase::Decided {
            approval, decision, ..
        } = &phase
        {
            if !self.decision_ends(id, Some(seq), approval, decision)? {
                if self.state.is_ending() {
                    return self.close_not_started(id, finding, seq, detail);
                }
                // The decision meets a fact: a continue, on the fact.
                self.found(id, finding, Some(seq), detail)?;
                self.watches.remove(&id);
            }
            return Ok(());
        }
        let enough = self
            .state
            .step(id)
            .is_some_and(|step| step.proven_not_done() + 1 >= MAX_PROVEN);
        if self.state.is_ending() {
            return self.close_not_started(id, finding, seq, detail);
        }
        if let Phase::Interrupted(approval) = &phase {
            if enough {
                // The fact would only lead to asking again: the question stays.
                return Ok(());
            }
            self.draft(Event::Withdrawn {
                approval: approval.clone(),
                why: "it is proved that the attempt did not act".into(),
            })?;
        }
        self.found(id, finding, Some(seq), detail.clone())?;
        let queue_limit = matches!(
            self.watches
                .get(&id)
                .and_then(|watch| watch.chain.claim.as_ref()),
            Some((
                _,
                ClaimBody::Revoke {
                    why: RevokeReason::QueueLimit,
                    ..
                }
            ))
        );
        if queue_limit {
            let attempt = self.watches.get(&id).map(|watch| watch.key.attempt);
            return self.finish(
                id,
                attempt,
                own(ObservationKind::ToolError, Some(Failure::NoWorker), &detail),
            );
        }
        let Some(attempt) = self.watches.remove(&id).map(|watch| watch.key.attempt) else {
            return Ok(());
        };
        if enough {
            let question = Question::Exhausted {
                attempt,
                fact: format!("{finding:?} at position {seq}: {detail}"),
            };
            return self.ask_about(id, question, Some(seq));
        }
        Ok(())
    }

    /// No fact yet.
    fn on_silence(&mut self, id: StepId, phase: Phase) -> Result<(), String> {
        match phase {
            Phase::Decided {
                approval, decision, ..
            } => {
                let operator = self.operator(&approval);
                let sealed = match decision {
                    Decision::RecordDone { result: value } => Sealed::RecordedDone {
                        operator,
                        result: value,
                    },
                    Decision::Reject => Sealed::Rejected { operator },
                    _ => Sealed::RunAgain { operator },
                };
                self.seal(id, sealed)
            }
            Phase::InFlight => self.wait_or_ask(id),
            _ => Ok(()),
        }
    }
}
