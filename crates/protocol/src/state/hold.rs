//! A run that is held: its takeover hook wants an operator's word before it goes on (S52).
//!
//! The question is about the run itself and names no step. While it is open, the agent decides nothing and nothing is dispatched. An
//! approval is spent by the first thing that the run does after it; until then it is not lost if the run changes hands once more.

use super::{Approval, ApprovalState, RunState};
use crate::ids::ApprovalId;
use crate::wire::{Decision, Event, Question};

impl RunState {
    /// The open question that holds the run.
    pub fn held_by(&self) -> Option<&ApprovalId> {
        self.open_questions()
            .find(|(_, approval)| approval.step.is_none())
            .map(|(id, _)| id)
    }

    /// An operator's permission to go on, of which nothing has come yet.
    pub(crate) fn permission(&self) -> Option<&ApprovalId> {
        self.about_the_run()
            .find(|(_, approval)| is_permission(approval))
            .map(|(id, _)| id)
    }

    /// How many questions about the run have been asked.
    pub(crate) fn run_questions(&self) -> u32 {
        u32::try_from(self.about_the_run().count()).unwrap_or(u32::MAX)
    }

    fn about_the_run(&self) -> impl Iterator<Item = (&ApprovalId, &Approval)> {
        self.approvals
            .iter()
            .filter(|(_, approval)| approval.step.is_none())
    }

    pub(super) fn hold(
        &mut self,
        approval: &ApprovalId,
        question: &Question,
    ) -> Result<(), String> {
        if let Some(open) = self.held_by() {
            return Err(format!("{open} is open and holds the run already"));
        }
        if !matches!(question, Question::Approve { .. }) {
            return Err(format!(
                "{approval} asks about an attempt and names no step"
            ));
        }
        if *approval != ApprovalId::derive(None, self.run_questions().saturating_add(1)) {
            return Err(format!("{approval} is not the next question of the run"));
        }
        Ok(())
    }

    pub(super) fn must_not_be_held(&self) -> Result<(), String> {
        match self.held_by() {
            Some(open) => Err(format!("the run waits for an answer to {open}")),
            None => Ok(()),
        }
    }

    /// A run that goes on has spent the permission to do so.
    pub(super) fn spend_permission(&mut self, event: &Event) {
        let goes_on = matches!(
            event,
            Event::Decided { .. }
                | Event::Invalid { .. }
                | Event::Policy { .. }
                | Event::Dispatched { .. }
                | Event::Found { .. }
                | Event::Finished { .. }
        );
        if !goes_on {
            return;
        }
        for approval in self
            .approvals
            .values_mut()
            .filter(|asked| asked.step.is_none())
        {
            if let ApprovalState::Decided {
                decision, spent, ..
            } = &mut approval.state
            {
                *spent = *decision == Decision::Approve;
            }
        }
    }
}

fn is_permission(approval: &Approval) -> bool {
    matches!(
        approval.state,
        ApprovalState::Decided {
            decision: Decision::Approve,
            spent: false,
            ..
        }
    )
}
