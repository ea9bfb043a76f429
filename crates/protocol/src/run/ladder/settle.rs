//! Sealing a finding, committing it, and closing a step on it.

use super::RunMachine;
use crate::chain::Link;
use crate::ids::{ApprovalId, Attempt, OperatorId, Seq, StepId};
use crate::run::RunWeakening;
use crate::run::io::{Effect, RegisterRequest};
use crate::run::observe::{own, result};
use crate::state::{ApprovalState, Phase};
use crate::wire::{
    Body, ClaimBody, Decision, Event, Finding, ObservationKind, Outcome, OutcomeBody, Payload,
    Reason, Sealed, sealed_trust,
};

impl RunMachine {
    /// Writes a finding into the outcome register: refused means that the truth was there.
    pub(super) fn seal(&mut self, id: StepId, sealed: Sealed) -> Result<(), String> {
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
    pub(super) fn unsealed(&mut self, id: StepId, sealed: Sealed) -> Result<(), String> {
        let tool = self.watches.get(&id).map(|watch| watch.key.tool.clone());
        let fact = OutcomeBody::Sealed {
            finding: sealed,
            by: self.config.session.clone(),
        };
        match self.fact_of(Seq::NONE, &fact, &tool.unwrap_or_default()) {
            Some(fact) => self.on_fact(id, Phase::InFlight, fact),
            None => Ok(()),
        }
    }

    pub(super) fn write(&mut self, id: StepId, link: Link, body: Vec<u8>) {
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

    pub(super) fn found(
        &mut self,
        id: StepId,
        finding: Finding,
        register: Option<Seq>,
        detail: String,
    ) -> Result<(), String> {
        let Some(attempt) = self.latest_attempt(id) else {
            return Ok(());
        };
        self.judgements.remove(&id);
        self.draft(Event::Found {
            step: id,
            attempt,
            finding,
            rung: finding.rung(),
            register,
            detail,
        })
    }

    pub(super) fn record_done(
        &mut self,
        id: StepId,
        seq: Option<Seq>,
        operator: OperatorId,
        value: leasehold_json::AcceptedJson,
    ) -> Result<(), String> {
        let Some(attempt) = self.latest_attempt(id) else {
            return Ok(());
        };
        let tool = self
            .accepted(id)
            .map(|accepted| accepted.tool)
            .unwrap_or_default();
        self.found(
            id,
            Finding::RecordedDone,
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

    pub(super) fn reject(
        &mut self,
        id: StepId,
        seq: Option<Seq>,
        operator: OperatorId,
    ) -> Result<(), String> {
        let Some(attempt) = self.latest_attempt(id) else {
            return Ok(());
        };
        let text = format!("{operator} rejected it");
        self.found(id, Finding::Rejected, seq, text.clone())?;
        self.finish(
            id,
            Some(attempt),
            own(ObservationKind::Interrupted, None, &text),
        )?;
        self.begin_ending(Reason::ApprovalRejected, Some(text), None)
    }

    pub(super) fn close_not_started(
        &mut self,
        id: StepId,
        finding: Finding,
        seq: Seq,
        detail: String,
    ) -> Result<(), String> {
        let attempt = self.watches.get(&id).map(|watch| watch.key.attempt);
        let text = format!("the run ended before the call was made: {detail}");
        self.found(id, finding, Some(seq), detail)?;
        self.finish(id, attempt, own(ObservationKind::Interrupted, None, &text))
    }

    pub(super) fn close_unknown(&mut self, id: StepId, why: String) -> Result<(), String> {
        let attempt = self.watches.get(&id).map(|watch| watch.key.attempt);
        let text =
            format!("the run ended and nobody can say whether the call had its effect: {why}");
        self.found(id, Finding::Unknown, None, why)?;
        self.finish(id, attempt, own(ObservationKind::Interrupted, None, &text))
    }

    pub(super) fn close_conflict(
        &mut self,
        id: StepId,
        detail: &str,
        text: &str,
    ) -> Result<(), String> {
        let attempt = self.watches.get(&id).map(|watch| watch.key.attempt);
        self.found(id, Finding::Conflict, None, detail.to_owned())?;
        self.finish(id, attempt, own(ObservationKind::Interrupted, None, text))
    }

    /// What a person decided about an attempt, where it ends the step; `false` where it asks for another attempt.
    pub(super) fn decision_ends(
        &mut self,
        id: StepId,
        seq: Option<Seq>,
        approval: &ApprovalId,
        decision: &Decision,
    ) -> Result<bool, String> {
        let operator = self.operator(approval);
        match decision {
            Decision::RecordDone { result: value } => {
                self.record_done(id, seq, operator, value.clone())?;
            }
            Decision::Reject => self.reject(id, seq, operator)?,
            Decision::RunAgain | Decision::Continue | Decision::Approve => return Ok(false),
        }
        Ok(true)
    }

    fn latest_attempt(&self, id: StepId) -> Option<Attempt> {
        Some(self.state.step(id)?.latest()?.attempt)
    }

    /// Who decided a question; questions that are decided have a name in them.
    pub(super) fn operator(&self, approval: &ApprovalId) -> OperatorId {
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
