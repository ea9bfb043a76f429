//! From a proposed call to a dispatched attempt: boundary, policy, approval, and the one commit that is both intent and message.

use leasehold_json::{AcceptedJson, Digest, DigestBuilder};

use super::RunMachine;
use super::io::{Effect, PolicyRequest};
use super::observe::own;
use super::question::Grant;
use crate::ids::{Attempt, ChainKey, StepId};
use crate::state::{Accepted, Phase, Step};
use crate::wire::{
    Basis, Body, CallEnvelope, Decision, Event, Finding, JournalSubject, ObservationKind, Question,
    Reason, Verdict, WIRE_VERSION,
};

/// The policy's word on a call, on its way or here.
#[derive(Debug, Clone)]
pub(super) struct Judgement {
    arguments: AcceptedJson,
    answer: Option<(String, Result<Verdict, String>)>,
}

impl Judgement {
    pub(super) fn is_awaited(&self) -> bool {
        self.answer.is_none()
    }
}

/// What a step that is due to be dispatched stands on.
struct Due {
    step: StepId,
    attempt: Attempt,
    basis: Basis,
    tool: String,
    arguments: Vec<u8>,
}

impl RunMachine {
    pub(super) fn judged(
        &mut self,
        step: StepId,
        policy: String,
        verdict: Result<Verdict, String>,
    ) {
        if let Some(judgement) = self.judgements.get_mut(&step)
            && judgement.answer.is_none()
        {
            judgement.answer = Some((policy, verdict));
        }
    }

    /// Dispatches the next step that may be dispatched; at most one a commit.
    pub(super) fn dispatch_ready(&mut self) -> Result<(), String> {
        let steps: Vec<StepId> = self
            .state
            .current_steps()
            .iter()
            .map(|step| step.id)
            .collect();
        for id in steps {
            if self.state.is_ending() || self.draft_is_forced() {
                return Ok(());
            }
            let Some(due) = self.due(id) else { continue };
            if !self.has_room(id, &due.tool) {
                return Ok(());
            }
            match self.judgements.remove(&id) {
                None => {
                    if let Some(arguments) = self.accept(&due)? {
                        self.ask_policy(&due, arguments);
                        return Ok(());
                    }
                }
                // What was judged is what is dispatched, byte for byte.
                Some(Judgement {
                    arguments,
                    answer: Some((policy, verdict)),
                }) => self.carry_out(due, arguments, policy, verdict)?,
                Some(waiting) => {
                    self.judgements.insert(id, waiting);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Whether an attempt of this step is due, and on what it stands.
    fn due(&self, id: StepId) -> Option<Due> {
        let step = self.state.step(id)?;
        let basis = match &step.phase {
            Phase::Proposed => Basis::First { approval: None },
            // A grant for a further attempt is asked for beside the proof about the one before; the proof is what permits it.
            Phase::Granted(approval) => match step.latest().and_then(|latest| latest.finding) {
                Some((_, Some(register))) => Basis::Proof { register },
                _ => Basis::First {
                    approval: Some(approval.clone()),
                },
            },
            Phase::Proven {
                register: Some(register),
            } => Basis::Proof {
                register: *register,
            },
            Phase::Proven { register: None } => Basis::Superseded,
            Phase::Decided {
                approval,
                decision: Decision::RunAgain | Decision::Continue,
                ..
            } => match step.latest()?.finding? {
                (Finding::RunAgain, _) => Basis::RunAgain {
                    approval: approval.clone(),
                },
                (_, Some(register)) => Basis::Continue {
                    approval: approval.clone(),
                    register,
                },
                (_, None) => return None,
            },
            _ => return None,
        };
        let basis = if step
            .latest()
            .is_some_and(|latest| matches!(latest.finding, Some((Finding::Superseded, _))))
        {
            Basis::Superseded
        } else {
            basis
        };
        let attempt = step
            .latest()
            .map_or(Attempt::FIRST, |latest| latest.attempt.next());
        let (tool, arguments) = match &step.accepted {
            Some(accepted) => (
                accepted.tool.clone(),
                accepted.arguments.as_bytes().to_vec(),
            ),
            None => {
                let call = step.call.as_ref()?;
                (call.tool.clone(), call.arguments.clone())
            }
        };
        Some(Due {
            step: id,
            attempt,
            basis,
            tool,
            arguments,
        })
    }

    /// Room beside what is in flight: the run's bound, and nothing beside a call that may end the run.
    fn has_room(&self, id: StepId, tool: &str) -> bool {
        let ends_run = |name: &str| {
            self.tool(name)
                .is_some_and(|tool| tool.spec().terminal || tool.spec().may_abort)
        };
        let most = self
            .state
            .opened
            .as_ref()
            .map_or(1, |opened| opened.limits.max_parallel_calls.max(1));
        let open = |step: &&Step| {
            step.id != id && step.phase.has_open_attempt() && step.phase.asks().is_none()
        };
        let (mut count, mut exclusive) = (0u32, ends_run(tool));
        for accepted in self
            .state
            .current_steps()
            .iter()
            .filter(open)
            .filter_map(|step| step.accepted.as_ref())
        {
            count = count.saturating_add(1);
            exclusive |= ends_run(&accepted.tool);
        }
        count == 0 || (!exclusive && count < most)
    }

    /// The boundary (S13), the same for a first and a further attempt. `None`: the step is over.
    fn accept(&mut self, due: &Due) -> Result<Option<AcceptedJson>, String> {
        let offered = self
            .state
            .opened
            .as_ref()
            .is_some_and(|opened| opened.toolset.iter().any(|tool| tool.name == due.tool));
        let checked = match self.tool(&due.tool) {
            Some(tool) if offered => tool
                .accept_arguments(&due.arguments)
                .map_err(|error| error.to_string()),
            _ => Err(format!(
                "unknown tool {:?}: it is not in the run's toolset or not registered",
                due.tool
            )),
        };
        match checked {
            Ok(arguments) => Ok(Some(arguments)),
            Err(error) if due.attempt == Attempt::FIRST => {
                self.judgements.remove(&due.step);
                self.draft(Event::Invalid {
                    step: due.step,
                    error,
                })?;
                Ok(None)
            }
            // The tool changed under the call. What is proved not to have happened ends as an error; what may have happened does not.
            Err(error) => {
                let kind = if matches!(due.basis, Basis::RunAgain { .. }) {
                    ObservationKind::Interrupted
                } else {
                    ObservationKind::ToolError
                };
                let text = format!("the call no longer fits the tool: {error}");
                self.finish(due.step, None, own(kind, None, &text))?;
                Ok(None)
            }
        }
    }

    fn ask_policy(&mut self, due: &Due, arguments: AcceptedJson) {
        let Some(opened) = &self.state.opened else {
            return;
        };
        let request = PolicyRequest {
            run: self.state.run.clone(),
            step: due.step,
            attempt: due.attempt.get(),
            tool: due.tool.clone(),
            arguments: arguments.clone(),
            goal: opened.goal.clone(),
            turns: self.state.turns.clone(),
            approvals: self.state.approvals.values().cloned().collect(),
            limits: opened.limits.clone(),
        };
        self.judgements.insert(
            due.step,
            Judgement {
                arguments,
                answer: None,
            },
        );
        self.out.push(Effect::AskPolicy(request));
    }

    fn carry_out(
        &mut self,
        due: Due,
        arguments: AcceptedJson,
        policy: String,
        verdict: Result<Verdict, String>,
    ) -> Result<(), String> {
        let verdict = match verdict {
            Ok(verdict) => verdict,
            Err(error) => {
                return self.begin_ending(
                    Reason::InternalError,
                    Some(format!("the policy failed: {error}")),
                    None,
                );
            }
        };
        let Some(tool) = self.tool(&due.tool) else {
            return Ok(());
        };
        let (spec, timeout_ms) = (tool.spec_hash(), tool.spec().timeout_ms);
        let event = Event::Policy {
            step: due.step,
            tool: due.tool.clone(),
            arguments: arguments.clone(),
            spec,
            policy,
            verdict: verdict.clone(),
        };
        self.draft(event)?;
        match verdict {
            Verdict::Allow => self.dispatch(due, arguments, spec, timeout_ms),
            Verdict::Deny { reason } => self.finish_after_denial(&due, &reason),
            Verdict::Abort { reason } => {
                self.finish_after_denial(&due, &reason)?;
                self.begin_ending(Reason::PolicyAbort, Some(reason), None)
            }
            Verdict::RequireApproval {
                approval_kind,
                capability,
                presentation,
            } => {
                let question = Question::Approve {
                    approval_kind,
                    capability,
                    presentation,
                };
                self.require_approval(due, arguments, spec, timeout_ms, question)
            }
        }
    }

    fn finish_after_denial(&mut self, due: &Due, reason: &str) -> Result<(), String> {
        let attempt = self
            .state
            .step(due.step)
            .and_then(|step| step.latest())
            .map(|latest| latest.attempt);
        let observation = own(ObservationKind::PolicyDenied, None, reason);
        self.finish(due.step, attempt, observation)
    }

    /// A grant for exactly this requirement, not too old: dispatch. Otherwise a (new) question.
    fn require_approval(
        &mut self,
        due: Due,
        arguments: AcceptedJson,
        spec: Digest,
        timeout_ms: u64,
        question: Question,
    ) -> Result<(), String> {
        if matches!(due.basis, Basis::RunAgain { .. } | Basis::Continue { .. }) {
            // The operator's word on this very attempt is the approval.
            return self.dispatch(due, arguments, spec, timeout_ms);
        }
        let call = Some((due.tool.as_str(), &arguments));
        let hash = self.question_hash(Some(due.step), call, &question, None);
        let granted = self
            .state
            .step(due.step)
            .and_then(|step| step.grant.clone());
        match self.grant(granted, hash)? {
            Grant::Covers => self.dispatch(due, arguments, spec, timeout_ms),
            Grant::Expired => Ok(()),
            Grant::Missing => self.ask(Some(due.step), question, hash),
        }
    }

    fn dispatch(
        &mut self,
        due: Due,
        arguments: AcceptedJson,
        spec: Digest,
        timeout_ms: u64,
    ) -> Result<(), String> {
        let key = ChainKey {
            run: self.state.run.clone(),
            tool: due.tool.clone(),
            step: due.step,
            attempt: due.attempt,
            origin: self.config.session.clone(),
        };
        let envelope = CallEnvelope {
            v: WIRE_VERSION,
            run: key.run.clone(),
            step: key.step,
            attempt: key.attempt,
            epoch: self.state.epoch,
            origin: key.origin.clone(),
            tool: key.tool.clone(),
            spec,
            idempotency_key: self.idempotency_key(due.step),
            timeout_ms,
            arguments,
        };
        let body = Body::from(envelope.encode());
        let call = Digest::of(body.as_bytes());
        self.draft(Event::Dispatched {
            step: due.step,
            attempt: due.attempt,
            call,
            basis: due.basis,
        })?;
        self.subject(JournalSubject::Call(key), Some(body));
        Ok(())
    }

    /// The same on every attempt and every hop, different for every step of every run of every cluster.
    pub(super) fn idempotency_key(&self, step: StepId) -> Digest {
        DigestBuilder::new("leasehold/idempotency/1")
            .field(self.config.cluster.as_str().as_bytes())
            .field(self.state.open.as_bytes())
            .field(step.to_string().as_bytes())
            .finish()
    }

    /// The call as accepted, of a step that was dispatched.
    pub(super) fn accepted(&self, step: StepId) -> Option<Accepted> {
        self.state.step(step)?.accepted.clone()
    }
}
