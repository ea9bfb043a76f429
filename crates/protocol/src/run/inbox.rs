//! What operators write, folded into the journal: a decision has force only from the commit that names it.

use super::RunMachine;
use super::io::Effect;
use crate::ids::{Seq, StepId};
use crate::state::ApprovalState;
use crate::wire::{
    Body, CancelRequest, DecideRequest, Decision, Event, InboxAnswer, Question, Reason,
};

/// An inbox message that was handed to this run.
#[derive(Debug, Clone)]
pub(super) enum Letter {
    Decide(Body),
    Cancel(Body),
}

impl RunMachine {
    pub(super) fn letter(&mut self, inbox: Seq, letter: Letter) {
        if self.state.folded.contains(&inbox) && self.pending.is_none() && self.draft.is_none() {
            // A commit names it already; only the acknowledgement was lost.
            self.out.push(Effect::AckInbox { inbox });
        } else {
            self.letters.insert(inbox, letter);
        }
    }

    pub(super) fn fold_letters(&mut self) -> Result<(), String> {
        while let Some((inbox, letter)) = self.letters.pop_first() {
            if self.state.folded.contains(&inbox) {
                self.out.push(Effect::AckInbox { inbox });
                continue;
            }
            match letter {
                Letter::Decide(body) => self.fold_decision(inbox, &body)?,
                Letter::Cancel(body) => self.fold_cancel(inbox, &body)?,
            }
            self.ack_with_draft(inbox);
        }
        Ok(())
    }

    fn fold_cancel(&mut self, inbox: Seq, body: &Body) -> Result<(), String> {
        let request = match CancelRequest::decode(body.as_bytes()) {
            Ok(request) => request,
            Err(error) => {
                return self.answer(
                    inbox,
                    InboxAnswer::Unreadable {
                        error: error.to_string(),
                    },
                );
            }
        };
        if self.state.is_ending() {
            return self.answer(inbox, InboxAnswer::AlreadyEnding);
        }
        let detail = request.note.clone();
        self.draft(Event::CancelRequested {
            by: request.by,
            note: request.note,
            inbox,
        })?;
        self.begin_ending(Reason::OperatorCancelled, detail, None)
    }

    fn fold_decision(&mut self, inbox: Seq, body: &Body) -> Result<(), String> {
        let request = match DecideRequest::decode(body.as_bytes()) {
            Ok(request) => request,
            Err(error) => {
                return self.answer(
                    inbox,
                    InboxAnswer::Unreadable {
                        error: error.to_string(),
                    },
                );
            }
        };
        let Some(approval) = self.state.approvals.get(&request.approval) else {
            return self.answer(inbox, InboxAnswer::UnknownQuestion);
        };
        let refusal = match &approval.state {
            ApprovalState::Decided { decision, .. } if *decision == request.decision => {
                Some(InboxAnswer::Repeated)
            }
            ApprovalState::Decided { .. } => Some(InboxAnswer::AlreadyDecided),
            ApprovalState::Withdrawn | ApprovalState::Expired => Some(InboxAnswer::NoLongerAsked),
            ApprovalState::Open if approval.hash != request.hash => Some(InboxAnswer::HashDiffers),
            ApprovalState::Open if !offers(&approval.question, &request.decision) => {
                Some(InboxAnswer::ChoiceNotOffered)
            }
            ApprovalState::Open => None,
        };
        if let Some(answer) = refusal {
            return self.answer(inbox, answer);
        }
        let (step, asked, quarantined) = (
            approval.step,
            matches!(approval.question, Question::Approve { .. }),
            matches!(approval.question, Question::Quarantined { .. }),
        );
        let rejected = request.decision == Decision::Reject;
        let by = request.by.clone();
        self.draft(Event::ApprovalDecided {
            approval: request.approval,
            decision: request.decision,
            by: request.by,
            note: request.note,
            inbox,
        })?;
        match step {
            Some(step) => {
                self.judgements.remove(&step);
                if asked && rejected {
                    let text = format!("{by} rejected the call");
                    self.finish_denied(step, &text)?;
                    self.begin_ending(Reason::ApprovalRejected, Some(text), None)?;
                }
                Ok(())
            }
            None if rejected && !self.state.is_ending() => {
                let text = format!("{by} does not let the run go on");
                self.begin_ending(Reason::ApprovalRejected, Some(text), None)
            }
            None => {
                self.let_go_on(quarantined);
                Ok(())
            }
        }
    }

    fn answer(&mut self, inbox: Seq, answer: InboxAnswer) -> Result<(), String> {
        self.draft(Event::Answered { inbox, answer })
    }

    /// Questions whose wait is over, and grants that were not used in time.
    pub(super) fn expire(&mut self) -> Result<(), String> {
        if self.state.is_ending() {
            return Ok(());
        }
        let now = self.now.wall;
        let overdue = self
            .state
            .open_questions()
            .find(|(_, approval)| approval.expires_at.is_some_and(|at| at <= now));
        let Some((id, step)) = overdue.map(|(id, approval)| (id.clone(), approval.step)) else {
            return Ok(());
        };
        self.draft(Event::Expired {
            approval: id.clone(),
        })?;
        self.expired(step, format!("nobody answered {id} in time"))
    }

    pub(super) fn expired(&mut self, step: Option<StepId>, text: String) -> Result<(), String> {
        let before_any_attempt = |id: &StepId| {
            self.state
                .step(*id)
                .is_some_and(|step| step.attempts.is_empty())
        };
        if let Some(step) = step.filter(before_any_attempt) {
            self.finish_denied(step, &text)?;
        }
        self.begin_ending(Reason::ApprovalExpired, Some(text), None)
    }
}

/// Whether the question offers this choice.
fn offers(question: &Question, decision: &Decision) -> bool {
    match question {
        Question::Approve { .. } | Question::Quarantined { .. } => {
            matches!(decision, Decision::Approve | Decision::Reject)
        }
        Question::InterruptedSideEffect { .. } => {
            matches!(
                decision,
                Decision::RunAgain | Decision::RecordDone { .. } | Decision::Reject
            )
        }
        Question::Exhausted { .. } => matches!(
            decision,
            Decision::Continue | Decision::RecordDone { .. } | Decision::Reject
        ),
    }
}
