//! The ladder: what became of an open attempt, rung by rung.
//!
//! Facts come first and are read from the registers only. Where there is none, an unclaimed attempt that must end is revoked (rung 2), the
//! claim's worker is inspected (3), evidence or time makes the attempt unknown (4), and what is unknown is superseded (read_only, 5),
//! probed (6) or put before an operator (7). A finding that ends an attempt is written into its outcome register first: if the truth is
//! there already, the truth is adopted. An error, a silence or a missing record never leads to a further attempt.

use leasehold_tools::{Failure, ProbeKind, SideEffect};

use super::io::{Effect, InspectAnswer, ProbeReply, ProbeRequest, RegisterRequest};
use super::observe::{of_outcome, own, result};
use super::watch::{ProbeSlot, Watch};
use super::{RunMachine, RunWeakening};
use crate::chain::Link;
use crate::ids::{ApprovalId, OperatorId, Seq, StepId};
use crate::state::{ApprovalState, Phase};
use crate::wire::{
    Body, ClaimBody, Decision, Event, Finding, NoteKind, Observation, ObservationKind, Outcome,
    OutcomeBody, Payload, Question, Reason, RevokeReason, Sealed, WIRE_VERSION, sealed_trust,
};

/// Attempts of one step that may be proved not to have acted before a person is asked whether to go on.
pub const MAX_PROVEN: usize = 5;
/// Added to the wait for a claimed attempt of which nothing is heard: delivery, scheduling, the worker's own note.
pub const SILENCE_SLACK_MS: u64 = 5_000;
/// How often a probe that fails (not: that answers) is asked before a person is.
pub const MAX_PROBES: u32 = 6;
/// The first wait after a failed probe; doubled each time. All of them together outlast a service's restart.
pub const PROBE_RETRY_MS: u64 = 200;

/// A fact about an attempt, read from its registers.
enum Fact {
    /// It is over; this is what the agent is told.
    Settled {
        seq: Seq,
        finding: Finding,
        observation: Observation,
        abort: Option<String>,
    },
    /// It did not act and never will.
    NotDone {
        seq: Seq,
        finding: Finding,
        detail: String,
    },
    /// Read-only, given up.
    Superseded { seq: Seq },
    /// An operator's decision is sealed.
    Operator { seq: Seq, sealed: Sealed },
}

impl RunMachine {
    pub(super) fn climb_all(&mut self) -> Result<(), String> {
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
                let operator = self.operator(approval);
                return match decision {
                    Decision::RecordDone { result: value } => {
                        self.record_done(id, None, operator, value.clone())
                    }
                    Decision::Reject => self.reject(id, None, operator),
                    _ => Ok(()),
                };
            }
            Phase::Decided { .. } if self.has_finding(id) => return Ok(()),
            _ => {}
        }
        match self.fact(id) {
            Some(fact) => self.on_fact(id, phase, fact),
            None => self.on_silence(id, phase),
        }
    }

    fn has_finding(&self, id: StepId) -> bool {
        self.state
            .step(id)
            .and_then(|step| step.latest())
            .is_some_and(|latest| latest.finding.is_some())
    }

    fn fact(&self, id: StepId) -> Option<Fact> {
        let watch = self.watches.get(&id)?;
        if let Some((seq, outcome)) = &watch.chain.outcome {
            return Some(self.fact_of(*seq, &outcome.fact, &watch.key.tool));
        }
        match &watch.chain.claim {
            Some((seq, ClaimBody::Revoke { why, .. })) => {
                let why = match why {
                    RevokeReason::Ending => "the run is ending",
                    RevokeReason::QueueLimit => "no worker took it within the queue limit",
                    RevokeReason::SpecChanged => "the tool's specification changed",
                };
                Some(Fact::NotDone {
                    seq: *seq,
                    finding: Finding::Revoked,
                    detail: format!("revoked before anybody claimed it: {why}"),
                })
            }
            _ => None,
        }
    }

    fn fact_of(&self, seq: Seq, fact: &OutcomeBody, tool: &str) -> Fact {
        let trust = self.trust(tool);
        if let Some(observation) = of_outcome(fact, trust) {
            let finding = if matches!(fact, OutcomeBody::NothingHappened { .. }) {
                Finding::NothingHappened
            } else {
                Finding::Done
            };
            let abort = if let OutcomeBody::Aborted { detail } = fact {
                Some(detail.clone())
            } else {
                None
            };
            return Fact::Settled {
                seq,
                finding,
                observation,
                abort,
            };
        }
        match fact {
            OutcomeBody::NotStarted { why } => Fact::NotDone {
                seq,
                finding: Finding::NotStarted,
                detail: why.clone(),
            },
            OutcomeBody::Sealed {
                finding: Sealed::ProbeDone { result: value },
                ..
            } => Fact::Settled {
                seq,
                finding: Finding::ProbeDone,
                observation: result(value.clone(), trust),
                abort: None,
            },
            OutcomeBody::Sealed {
                finding: Sealed::ProbeNotDone,
                ..
            } => {
                let detail = "the tool's probe says that it did not and cannot happen".to_owned();
                Fact::NotDone {
                    seq,
                    finding: Finding::ProbeNotDone,
                    detail,
                }
            }
            OutcomeBody::Sealed {
                finding: Sealed::Superseded,
                ..
            } => Fact::Superseded { seq },
            OutcomeBody::Sealed { finding, .. } => Fact::Operator {
                seq,
                sealed: finding.clone(),
            },
            // All other bodies are observations and were answered above.
            _ => Fact::Superseded { seq },
        }
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
                let stands = finding == Finding::NothingHappened;
                if let (
                    true,
                    Phase::Decided {
                        approval, decision, ..
                    },
                ) = (stands, &phase)
                {
                    let operator = self.operator(approval);
                    match decision {
                        Decision::RecordDone { result: value } => {
                            return self.record_done(id, Some(seq), operator, value.clone());
                        }
                        Decision::Reject => return self.reject(id, Some(seq), operator),
                        _ => {}
                    }
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
                    5,
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
                        7,
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
            let (rung, detail) = match finding {
                Finding::ProbeDone => (6, "the tool's probe says that it happened"),
                _ => (1, "the outcome register had been written"),
            };
            self.found(id, finding, rung, Some(seq), detail.to_owned())?;
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
        let rung = match finding {
            Finding::Revoked => 2,
            Finding::ProbeNotDone => 6,
            _ => 3,
        };
        if let Phase::Decided {
            approval, decision, ..
        } = &phase
        {
            let operator = self.operator(approval);
            return match decision {
                Decision::RecordDone { result: value } => {
                    self.record_done(id, Some(seq), operator, value.clone())
                }
                Decision::Reject => self.reject(id, Some(seq), operator),
                // The decision meets a fact: a continue, on the fact.
                _ => {
                    self.found(id, finding, rung, Some(seq), detail)?;
                    self.watches.remove(&id);
                    Ok(())
                }
            };
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
        self.found(id, finding, rung, Some(seq), detail.clone())?;
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

    fn wait_or_ask(&mut self, id: StepId) -> Result<(), String> {
        let Some(watch) = self.watches.get(&id) else {
            return Ok(());
        };
        if watch.chain.claim.is_none() {
            return self.unclaimed(id);
        }
        match self.unknown_because(watch) {
            Some(why) => {
                if let Some(watch) = self.watches.get_mut(&id) {
                    watch.orphan = true;
                }
                self.unknown(id, why)
            }
            None => {
                self.inspect_or_wait(id);
                Ok(())
            }
        }
    }

    /// Nobody has claimed it: it waits for a worker, unless it must end (rung 2).
    fn unclaimed(&mut self, id: StepId) -> Result<(), String> {
        let Some(watch) = self.watches.get(&id) else {
            return Ok(());
        };
        let queue_ms = self
            .state
            .opened
            .as_ref()
            .map_or(0, |opened| opened.limits.queue_ms);
        let limit = (queue_ms > 0).then(|| watch.call_seen.saturating_add(queue_ms));
        let accepted = self.accepted(id);
        let registered = self.tool(&watch.key.tool).map(|tool| tool.spec_hash());
        let changed = registered.is_some() && registered != accepted.map(|accepted| accepted.spec);
        let why = if self.state.is_ending() {
            RevokeReason::Ending
        } else if changed {
            RevokeReason::SpecChanged
        } else if limit.is_some_and(|at| self.now.boot >= at) {
            RevokeReason::QueueLimit
        } else {
            if let Some(watch) = self.watches.get_mut(&id) {
                watch.wait = limit;
            }
            return Ok(());
        };
        let body = ClaimBody::Revoke {
            v: WIRE_VERSION,
            by: self.config.session.clone(),
            why,
        };
        self.write(id, Link::Claim, body.encode());
        Ok(())
    }

    /// Rung 4: evidence, or silence for longer than the attempt could take.
    fn unknown_because(&self, watch: &Watch) -> Option<String> {
        let note = watch.notes.iter().find_map(|note| match &note.evidence {
            NoteKind::Unsure { detail } => Some(format!("the worker is unsure: {detail}")),
            NoteKind::MayHaveHappened { message, .. } => Some(format!(
                "the tool says that it may have happened: {message}"
            )),
            NoteKind::MetSeal { .. } => None,
        });
        note.or_else(|| {
            let over = self.now.boot >= self.silence_ends(watch)?;
            over.then(|| "nothing was heard of it for longer than it could take".to_owned())
        })
    }

    /// exec_timeout x 1.01 + slack after the first sight of the claim.
    fn silence_ends(&self, watch: &Watch) -> Option<u64> {
        let timeout = watch.chain.call.as_ref()?.1.timeout_ms;
        Some(
            watch
                .claim_seen?
                .saturating_add(timeout)
                .saturating_add(timeout / 100)
                .saturating_add(SILENCE_SLACK_MS),
        )
    }

    /// Rung 3: of an attempt that was claimed before we took over, its worker is asked; of any other, we wait.
    fn inspect_or_wait(&mut self, id: StepId) {
        let Some(ends) = self
            .watches
            .get(&id)
            .and_then(|watch| self.silence_ends(watch))
        else {
            return;
        };
        let Some(watch) = self.watches.get_mut(&id) else {
            return;
        };
        watch.wait = Some(ends);
        let Some((_, ClaimBody::Claim { worker, .. })) = &watch.chain.claim else {
            return;
        };
        if watch.orphan && watch.inspected.is_none() && !watch.inspecting {
            watch.inspecting = true;
            self.out.push(Effect::Inspect {
                chain: watch.key.clone(),
                worker: worker.clone(),
            });
        }
        // Whatever was answered: the registers and the notes say the rest, and the wait goes on.
        debug_assert!(watch.inspected.is_none_or(|answer| matches!(
            answer,
            InspectAnswer::Running | InspectAnswer::Settled | InspectAnswer::NoAnswer
        )));
    }

    /// Rungs 5 to 7.
    fn unknown(&mut self, id: StepId, why: String) -> Result<(), String> {
        let Some(watch) = self.watches.get(&id) else {
            return Ok(());
        };
        if self.config.weakening == RunWeakening::RetryUnknown {
            self.found(
                id,
                Finding::NotStarted,
                4,
                None,
                format!("negative control: {why}"),
            )?;
            self.watches.remove(&id);
            return Ok(());
        }
        if watch.class == SideEffect::ReadOnly {
            return self.seal(id, Sealed::Superseded);
        }
        let probe = self
            .tool(&watch.key.tool)
            .and_then(|tool| tool.spec().probe);
        match probe {
            Some(kind) if watch.class != SideEffect::Destructive || kind == ProbeKind::Fencing => {
                self.probe(id, kind, why)
            }
            _ => self.nobody_knows(id, why, None),
        }
    }

    /// Rung 6.
    fn probe(&mut self, id: StepId, kind: ProbeKind, why: String) -> Result<(), String> {
        let (boot, bound) = (self.now.boot, self.config.clock_bound_ms);
        let refuses_late = self
            .watches
            .get(&id)
            .and_then(|watch| self.tool(&watch.key.tool))
            .is_some_and(|tool| tool.spec().refuses_late);
        let Some(watch) = self.watches.get_mut(&id) else {
            return Ok(());
        };
        match watch.probe.clone() {
            ProbeSlot::Idle => self.ask_probe(id),
            ProbeSlot::Later(at) if boot >= at => self.ask_probe(id),
            ProbeSlot::Asked | ProbeSlot::Later(_) => Ok(()),
            ProbeSlot::Answered(ProbeReply::Done { result: value }) => {
                self.seal(id, Sealed::ProbeDone { result: value })
            }
            ProbeSlot::Answered(ProbeReply::NotDone) if kind == ProbeKind::Fencing => {
                self.seal(id, Sealed::ProbeNotDone)
            }
            ProbeSlot::Answered(ProbeReply::NotDone)
                if self.config.weakening == RunWeakening::PlainProbeCounts =>
            {
                self.seal(id, Sealed::ProbeNotDone)
            }
            ProbeSlot::Answered(ProbeReply::NotDone) if refuses_late => {
                // Observing: it counts only once the service would refuse the attempt. The deadline lies at most exec_timeout after the
                // first sight of the claim; an answer given before that says nothing about a request that is still on its way.
                let timeout = watch
                    .chain
                    .call
                    .as_ref()
                    .map_or(0, |(_, envelope)| envelope.timeout_ms);
                let seen = watch.claim_seen.unwrap_or(boot);
                let closed = seen
                    .saturating_add(timeout)
                    .saturating_add(timeout / 100)
                    .saturating_add(bound);
                if watch.wait_probe_after(closed, boot) {
                    Ok(())
                } else {
                    self.seal(id, Sealed::ProbeNotDone)
                }
            }
            ProbeSlot::Answered(ProbeReply::NotDone) => self.nobody_knows(
                id,
                why,
                Some(
                    "the probe says not done, but it only observes: a late request could still act"
                        .into(),
                ),
            ),
            ProbeSlot::Answered(ProbeReply::Conflict { detail }) => {
                self.close_conflict(id, &detail)?;
                self.begin_ending(Reason::ReconcileConflict, Some(detail), None)
            }
            ProbeSlot::Answered(ProbeReply::Unknown { detail }) => {
                self.nobody_knows(id, why, Some(format!("the probe cannot say: {detail}")))
            }
            ProbeSlot::Answered(ProbeReply::Failed { error }) if watch.probes >= MAX_PROBES => self
                .nobody_knows(
                    id,
                    why,
                    Some(format!(
                        "the probe failed {MAX_PROBES} times, last: {error}"
                    )),
                ),
            ProbeSlot::Answered(ProbeReply::Failed { .. }) => {
                let gap = PROBE_RETRY_MS << watch.probes.min(16);
                watch.probe = ProbeSlot::Later(boot.saturating_add(gap));
                Ok(())
            }
        }
    }

    fn ask_probe(&mut self, id: StepId) -> Result<(), String> {
        let key = self.idempotency_key(id);
        let Some(accepted) = self.accepted(id) else {
            return Ok(());
        };
        let Some(watch) = self.watches.get_mut(&id) else {
            return Ok(());
        };
        watch.probe = ProbeSlot::Asked;
        watch.probes = watch.probes.saturating_add(1);
        watch.probe_asked = self.now.boot;
        let request = ProbeRequest {
            chain: watch.key.clone(),
            idempotency_key: key,
            arguments: accepted.arguments,
        };
        self.out.push(Effect::Probe(request));
        Ok(())
    }

    /// Rung 7: a person decides; of a run that is ending nobody is asked any more.
    fn nobody_knows(
        &mut self,
        id: StepId,
        why: String,
        probe: Option<String>,
    ) -> Result<(), String> {
        if self.state.is_ending() {
            return self.close_unknown(id, why);
        }
        let Some(watch) = self.watches.get(&id) else {
            return Ok(());
        };
        let claimed = match &watch.chain.claim {
            Some((
                seq,
                ClaimBody::Claim {
                    worker,
                    incarnation,
                    ..
                },
            )) => Some(format!(
                "claimed at position {seq} by worker {worker}, incarnation {incarnation}"
            )),
            _ => None,
        };
        let evidence = [claimed, Some(why), probe].into_iter().flatten().collect();
        let call = watch.chain.call.as_ref().map(|(seq, _)| *seq);
        let question = Question::InterruptedSideEffect {
            attempt: watch.key.attempt,
            evidence,
        };
        self.ask_about(id, question, call)
    }

    fn ask_about(
        &mut self,
        id: StepId,
        question: Question,
        call: Option<Seq>,
    ) -> Result<(), String> {
        let Some(accepted) = self.accepted(id) else {
            return Ok(());
        };
        let hash = self.question_hash(id, &accepted.tool, &accepted.arguments, &question, call);
        self.ask(id, question, hash)
    }

    /// Writes a finding into the outcome register: refused means that the truth was there.
    fn seal(&mut self, id: StepId, sealed: Sealed) -> Result<(), String> {
        if self.config.weakening == RunWeakening::NoSeal {
            return self.unsealed(id, sealed);
        }
        let claim = self
            .watches
            .get(&id)
            .and_then(|watch| match &watch.chain.claim {
                Some((_, ClaimBody::Claim { claim, .. })) => Some(claim.clone()),
                _ => None,
            });
        let fact = OutcomeBody::Sealed {
            finding: sealed,
            by: self.config.session.clone(),
        };
        self.write(id, Link::Outcome, Outcome::new(claim, fact).encode());
        Ok(())
    }

    /// Negative control: what a runtime that trusts its own journal alone does.
    fn unsealed(&mut self, id: StepId, sealed: Sealed) -> Result<(), String> {
        let nowhere = Seq::NONE;
        let tool = self
            .watches
            .get(&id)
            .map(|watch| watch.key.tool.clone())
            .unwrap_or_default();
        let fact = self.fact_of(
            nowhere,
            &OutcomeBody::Sealed {
                finding: sealed,
                by: self.config.session.clone(),
            },
            &tool,
        );
        self.on_fact(id, Phase::InFlight, fact)
    }

    fn write(&mut self, id: StepId, link: Link, body: Vec<u8>) {
        if let Some(watch) = self.watches.get_mut(&id) {
            watch.writing = true;
            let request = RegisterRequest {
                chain: watch.key.clone(),
                link,
                expected: watch.chain.last,
                body: Body::from(body),
            };
            self.out.push(Effect::WriteRegister(request));
        }
    }

    fn found(
        &mut self,
        id: StepId,
        finding: Finding,
        rung: u8,
        register: Option<Seq>,
        detail: String,
    ) -> Result<(), String> {
        let Some(attempt) = self
            .state
            .step(id)
            .and_then(|step| step.latest())
            .map(|latest| latest.attempt)
        else {
            return Ok(());
        };
        self.judgements.remove(&id);
        self.draft(Event::Found {
            step: id,
            attempt,
            finding,
            rung,
            register,
            detail,
        })
    }

    fn record_done(
        &mut self,
        id: StepId,
        seq: Option<Seq>,
        operator: OperatorId,
        value: leasehold_json::AcceptedJson,
    ) -> Result<(), String> {
        let Some(attempt) = self
            .state
            .step(id)
            .and_then(|step| step.latest())
            .map(|latest| latest.attempt)
        else {
            return Ok(());
        };
        let tool = self
            .accepted(id)
            .map(|accepted| accepted.tool)
            .unwrap_or_default();
        self.found(
            id,
            Finding::RecordedDone,
            7,
            seq,
            format!("{operator} recorded it as done"),
        )?;
        let content = Payload::Json(value);
        self.finish(id, Some(attempt), result(content.clone(), sealed_trust()))?;
        if self.tool(&tool).is_some_and(|tool| tool.spec().terminal) {
            self.begin_ending(Reason::GoalCompleted, None, Some(content))?;
        }
        Ok(())
    }

    fn reject(&mut self, id: StepId, seq: Option<Seq>, operator: OperatorId) -> Result<(), String> {
        let Some(attempt) = self
            .state
            .step(id)
            .and_then(|step| step.latest())
            .map(|latest| latest.attempt)
        else {
            return Ok(());
        };
        let text = format!("{operator} rejected it");
        self.found(id, Finding::Rejected, 7, seq, text.clone())?;
        self.finish(
            id,
            Some(attempt),
            own(ObservationKind::Interrupted, None, &text),
        )?;
        self.begin_ending(Reason::ApprovalRejected, Some(text), None)
    }

    fn close_not_started(
        &mut self,
        id: StepId,
        finding: Finding,
        seq: Seq,
        detail: String,
    ) -> Result<(), String> {
        let rung = if finding == Finding::Revoked { 2 } else { 3 };
        let attempt = self.watches.get(&id).map(|watch| watch.key.attempt);
        let text = format!("the run ended before the call was made: {detail}");
        self.found(id, finding, rung, Some(seq), detail)?;
        self.finish(id, attempt, own(ObservationKind::Interrupted, None, &text))
    }

    fn close_unknown(&mut self, id: StepId, why: String) -> Result<(), String> {
        let attempt = self.watches.get(&id).map(|watch| watch.key.attempt);
        let text =
            format!("the run ended and nobody can say whether the call had its effect: {why}");
        self.found(id, Finding::Unknown, 7, None, why)?;
        self.finish(id, attempt, own(ObservationKind::Interrupted, None, &text))
    }

    fn close_conflict(&mut self, id: StepId, detail: &str) -> Result<(), String> {
        let attempt = self.watches.get(&id).map(|watch| watch.key.attempt);
        self.found(id, Finding::Conflict, 6, None, detail.to_owned())?;
        self.finish(
            id,
            attempt,
            own(
                ObservationKind::Interrupted,
                None,
                &format!("the tool's probe contradicts the record: {detail}"),
            ),
        )
    }

    /// Who decided a question; questions that are decided have a name in them.
    fn operator(&self, approval: &ApprovalId) -> OperatorId {
        match self
            .state
            .approvals
            .get(approval)
            .map(|approval| &approval.state)
        {
            Some(ApprovalState::Decided { by, .. }) => by.clone(),
            _ => OperatorId::unnamed(),
        }
    }
}
