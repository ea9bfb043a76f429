//! Questions to operators: what is asked, what a decision is bound to, and when an earlier grant makes the question unnecessary.

use leasehold_json::{AcceptedJson, Digest};

use super::{RunMachine, RunWeakening};
use crate::approval::{self, Bound};
use crate::ids::{ApprovalId, Seq, StepId};
use crate::state::ApprovalState;
use crate::wire::{Decision, Event, Question};

/// What an earlier approval is worth now (S35).
pub(super) enum Grant {
    /// It was given for exactly this.
    Covers,
    /// It was, but too long ago: the run has been told to end (S37).
    Expired,
    /// There is none.
    Missing,
}

impl RunMachine {
    /// Whether this approval was given for what has this hash.
    pub(super) fn grant(&mut self, id: Option<ApprovalId>, hash: Digest) -> Result<Grant, String> {
        let found = id.and_then(|id| self.state.approvals.get(&id).map(|approval| (id, approval)));
        let by_position = self.config.weakening == RunWeakening::ApprovalByPosition;
        let Some((id, approval)) =
            found.filter(|(_, approval)| by_position || approval.hash == hash)
        else {
            return Ok(Grant::Missing);
        };
        let ApprovalState::Decided {
            decision: Decision::Approve,
            at,
            ..
        } = approval.state
        else {
            return Ok(Grant::Missing);
        };
        let step = approval.step;
        let ttl = self
            .state
            .opened
            .as_ref()
            .map_or(0, |opened| opened.limits.grant_ttl_ms);
        let age = u64::try_from(self.now.wall.saturating_sub(at)).unwrap_or(0);
        if ttl == 0 || age <= ttl {
            return Ok(Grant::Covers);
        }
        let text = format!("the grant {id} was not used within {ttl} ms");
        self.draft(Event::Expired { approval: id })?;
        self.expired(step, text)?;
        Ok(Grant::Expired)
    }

    /// Asks an operator about a step or, without one, about the run. Told to nobody before it is durable.
    pub(super) fn ask(
        &mut self,
        step: Option<StepId>,
        question: Question,
        hash: Digest,
    ) -> Result<(), String> {
        let asked = match step {
            Some(id) => self.state.step(id).map_or(0, |step| step.questions),
            None => self.state.run_questions(),
        };
        let approval = ApprovalId::derive(step, asked.saturating_add(1));
        let ttl = self
            .state
            .opened
            .as_ref()
            .map_or(0, |opened| opened.limits.approval_ttl_ms);
        // S38: a question about an effect that may have happened never expires, nor does a quarantine: nobody decides it by waiting.
        let expires = matches!(question, Question::Approve { .. }) && ttl > 0;
        let expires_at = expires.then(|| {
            self.now
                .wall
                .saturating_add(i64::try_from(ttl).unwrap_or(i64::MAX))
        });
        self.draft(Event::Requested {
            approval,
            step,
            hash,
            question,
            expires_at,
        })?;
        self.force();
        if expires_at.is_none()
            && self.letters.is_empty()
            && self.state.waits_for_operator()
            && self.state.open_questions().count() == 1
        {
            // Nothing else can happen and no timer is needed: asking and parking are one commit.
            self.draft(Event::Parked { wake_at: None })?;
        }
        Ok(())
    }

    /// What a decision must name. `call` is the tool and the arguments of a question about a step.
    pub(super) fn question_hash(
        &self,
        step: Option<StepId>,
        call: Option<(&str, &AcceptedJson)>,
        question: &Question,
        position: Option<Seq>,
    ) -> Digest {
        let spec = call.and_then(|(tool, _)| self.tool(tool).map(|tool| tool.spec()));
        approval::hash(&Bound {
            run: &self.state.run,
            step,
            question,
            spec,
            arguments: call.map(|(_, arguments)| arguments),
            call: position,
        })
    }
}
