//! A run that changes hands: the consumer's word first (S52), then the open attempts.
//!
//! The hook may hold the run: then an operator is asked, and until the answer is folded nothing moves but letters and time; no attempt is
//! looked at, dispatched or settled. A question that an earlier owner asked holds the run as well, and the hook is not asked beside it.

use super::RunMachine;
use super::io::{Effect, HookAnswer};
use super::question::Grant;
use crate::wire::{Payload, Question, Reason};

impl RunMachine {
    /// This owner's first commit is stored.
    pub(super) fn changed_hands(&mut self) {
        self.owned = true;
        if self.hook_due {
            self.out.push(Effect::AskHook);
        } else if self.state.held_by().is_none() {
            self.take_over();
        }
    }

    pub(super) fn hook_answered(&mut self, answer: HookAnswer) -> Result<(), String> {
        if !self.hook_due {
            return Ok(());
        }
        self.hook_due = false;
        match answer {
            HookAnswer::Continue => {
                self.take_over();
                Ok(())
            }
            HookAnswer::Completed { result } => {
                self.begin_ending(Reason::GoalCompleted, None, Some(Payload::Json(result)))
            }
            HookAnswer::Waiting {
                approval_kind,
                capability,
                presentation,
            } => self.hold(Question::Approve {
                approval_kind,
                capability,
                presentation,
            }),
            HookAnswer::Conflict { detail } => {
                self.begin_ending(Reason::ReconcileConflict, Some(detail), None)
            }
            HookAnswer::Error { error } => {
                self.begin_ending(Reason::InternalError, Some(error), None)
            }
        }
    }

    /// Asks whether the run may go on, unless somebody permitted exactly that and the owner at the time died before anything came of it.
    fn hold(&mut self, question: Question) -> Result<(), String> {
        if self.state.is_ending() {
            // What is left of it goes on whoever permits it.
            self.take_over();
            return Ok(());
        }
        let hash = self.question_hash(None, None, &question, None);
        match self.grant(self.state.permission().cloned(), hash)? {
            Grant::Covers => {
                self.take_over();
                Ok(())
            }
            Grant::Expired => Ok(()),
            Grant::Missing => self.ask(None, question, hash),
        }
    }
}
