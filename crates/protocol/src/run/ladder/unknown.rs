//! No fact: who is waited for, inspected, probed and asked, and for how long.

use leasehold_tools::{ProbeKind, SideEffect};

use super::RunMachine;
use crate::chain::Link;
use crate::ids::{Seq, StepId};
use crate::run::RunWeakening;
use crate::run::io::{Effect, ProbeReply, ProbeRequest};
use crate::run::watch::{ProbeSlot, Watch};
use crate::wire::{
    ClaimBody, Finding, NoteKind, Question, Reason, RevokeReason, Sealed, WIRE_VERSION,
};

/// Added to the wait for a claimed attempt of which nothing is heard: delivery, scheduling, the worker's own note.
pub const SILENCE_SLACK_MS: u64 = 5_000;
/// How often a probe that fails (not: that answers) is asked before a person is.
pub const MAX_PROBES: u32 = 6;
/// The first wait after a failed probe; doubled each time. All of them together outlast a service's restart.
pub const PROBE_RETRY_MS: u64 = 200;

impl RunMachine {
    pub(super) fn wait_or_ask(&mut self, id: StepId) -> Result<(), String> {
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
    pub(super) fn unclaimed(&mut self, id: StepId) -> Result<(), String> {
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
    pub(super) fn unknown_because(&self, watch: &Watch) -> Option<String> {
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
    pub(super) fn silence_ends(&self, watch: &Watch) -> Option<u64> {
        Some(watch.deadline_by()?.saturating_add(SILENCE_SLACK_MS))
    }

    /// Rung 3: of an attempt that was claimed before we took over, its worker is asked; of any other, we wait.
    pub(super) fn inspect_or_wait(&mut self, id: StepId) {
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
        // Whatever is answered: the registers and the notes say the rest, and the wait goes on.
    }

    /// Rungs 5 to 7.
    pub(super) fn unknown(&mut self, id: StepId, why: String) -> Result<(), String> {
        let Some(watch) = self.watches.get(&id) else {
            return Ok(());
        };
        if self.config.weakening == RunWeakening::RetryUnknown {
            self.found(
                id,
                Finding::NotStarted,
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
    pub(super) fn probe(&mut self, id: StepId, kind: ProbeKind, why: String) -> Result<(), String> {
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
                let Some(deadline) = watch.deadline_by() else {
                    return Ok(());
                };
                let closed = deadline.saturating_add(bound);
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
                let text = format!("the tool's probe contradicts the record: {detail}");
                self.close_conflict(id, &detail, &text)?;
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

    pub(super) fn ask_probe(&mut self, id: StepId) -> Result<(), String> {
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
    pub(super) fn nobody_knows(
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

    pub(super) fn ask_about(
        &mut self,
        id: StepId,
        question: Question,
        call: Option<Seq>,
    ) -> Result<(), String> {
        let Some(accepted) = self.accepted(id) else {
            return Ok(());
        };
        let about = Some((accepted.tool.as_str(), &accepted.arguments));
        let hash = self.question_hash(Some(id), about, &question, call);
        self.ask(Some(id), question, hash)
    }
}
