//! A run that changes hands: whether that is what ends its owners (I16), the consumer's word (S52), then the open attempts.
//!
//! An owner that finds [`MAX_LOST_OWNERS`] owners in a row lost right after they took the run goes on with nothing: the very commit that
//! takes the run asks an operator and parks it. The journal alone says so, whichever process reads it. Also a run that is ending is held so:
//! each answer lets it go on ending.
//!
//! The hook may hold the run: then an operator is asked, and until the answer is folded nothing moves but letters and time; no attempt is
//! looked at, dispatched or settled. A question that an earlier owner asked holds the run as well, and the hook is not asked beside it.

use super::RunMachine;
use super::io::{Effect, HookAnswer};
use super::question::Grant;
use crate::state::MAX_LOST_OWNERS;
use crate::wire::{Payload, Question, Reason};

/// How many lives of a session after it took the run an owner counts as lost by it: one until its lease is free, one for whoever takes it.
const LOST_WITHIN_TTLS: u64 = 2;

impl RunMachine {
    /// Holds a run that has cost too many owners.
    pub(super) fn quarantine(&mut self) -> Result<(), String> {
        if self.state.held_by().is_some() {
            return Ok(());
        }
        let window = self
            .config
            .session_ttl_ms
            .saturating_mul(LOST_WITHIN_TTLS)
            .saturating_add(self.config.clock_bound_ms);
        let lost = self.state.lost_owners(window);
        if lost.len() < MAX_LOST_OWNERS {
            return Ok(());
        }
        let question = Question::Quarantined {
            lost: lost.to_vec(),
        };
        let hash = self.question_hash(None, None, &question, None);
        self.hook_due = false;
        self.ask(None, question, hash)
    }

    /// An operator lets a held run go on. A hook that was not asked because of a quarantine is asked now.
    pub(super) fn let_go_on(&mut self, quarantined: bool) {
        if quarantined && self.config.hook && !self.state.is_ending() {
            self.hook_due = true;
        } else {
            self.take_over();
        }
    }

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
        if self.state.is_ending() {
            // What is left of it goes on, whatever the hook wants.
            self.take_over();
            return Ok(());
        }
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
