//! A run that is held: its takeover hook wants an operator's word before it goes on (S52), or its owners die one after another (I16).
//!
//! The question is about the run itself and names no step. While it is open, the agent decides nothing and nothing is dispatched. An
//! approval is spent by the first thing that the run does after it; until then it is not lost if the run changes hands once more.

use super::{Approval, ApprovalState, RunState};
use crate::ids::{ApprovalId, NodeId, SessionId};
use crate::wire::{Decision, Event, LostOwner, Question};

/// Owners in a row that are lost right after they took a run, until the run is held. Three deaths in a row are hardly chance, and three
/// processes are what a run may cost.
pub const MAX_LOST_OWNERS: usize = 3;

impl RunState {
    /// The open question that holds the run.
    pub fn held_by(&self) -> Option<&ApprovalId> {
        self.open_questions()
            .find(|(_, approval)| approval.step.is_none())
            .map(|(id, _)| id)
    }

    /// Whether the run is held because its owners died one after another.
    pub fn is_quarantined(&self) -> bool {
        let held = self.held_by().and_then(|id| self.approvals.get(id));
        held.is_some_and(|approval| matches!(approval.question, Question::Quarantined { .. }))
    }

    /// The owners lost right before the present one, each within `window_ms` of the moment at which it took the run and without any other
    /// commit. Times of two machines are compared here: the window has to hold how far apart their clocks may be.
    pub(crate) fn lost_owners(&self, window_ms: u64) -> &[LostOwner] {
        let soon = |pair: &&[LostOwner]| match pair {
            [lost, next] => u64::try_from(next.at.saturating_sub(lost.at)).unwrap_or(0) < window_ms,
            _ => false,
        };
        let lost = self.idle_owners.windows(2).rev().take_while(soon).count();
        let end = self.idle_owners.len().saturating_sub(1);
        self.idle_owners
            .get(end.saturating_sub(lost)..end)
            .unwrap_or_default()
    }

    pub(super) fn taken_by(&mut self, node: &NodeId, session: &SessionId, at: i64) {
        // The same life once more: nobody was lost.
        if self
            .idle_owners
            .last()
            .is_some_and(|owner| owner.session == *session)
        {
            self.idle_owners.pop();
        }
        self.idle_owners.push(LostOwner {
            node: node.clone(),
            session: session.clone(),
            at,
        });
        if self.idle_owners.len() > MAX_LOST_OWNERS + 1 {
            self.idle_owners.remove(0);
        }
    }

    /// Whatever an owner commits beside that it takes the run shows that the run did not end it there.
    pub(super) fn something_came(&mut self, event: &Event) {
        if !matches!(event, Event::Submitted { .. } | Event::Owned { .. }) {
            self.idle_owners.clear();
        }
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
        if !matches!(
            question,
            Question::Approve { .. } | Question::Quarantined { .. }
        ) {
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

/// Whether it answers a hook. The word that a quarantined run may go on has done all it can by the commit that folds it.
fn is_permission(approval: &Approval) -> bool {
    let of_hook = matches!(approval.question, Question::Approve { .. });
    of_hook
        && matches!(
            approval.state,
            ApprovalState::Decided {
                decision: Decision::Approve,
                spent: false,
                ..
            }
        )
}
