//! The worker in this model does in one go what it does: an [`AttemptMachine`] from the call to its outcome, every answer heard.

use std::collections::VecDeque;

use leasehold_json::AcceptedJson;
use leasehold_protocol::{
    AttemptEffect, AttemptInput, AttemptMachine, ClaimId, IdError, Incarnation, Link,
    LogbookAnswer, LogbookId, Now, Payload, RegisterRequest, ToolReturn, WorkerId, WorkerIdentity,
    WorkerWeakening, WriteAnswer,
};
use leasehold_tools::SideEffect;

use super::state::State;

const NOW: Now = Now { wall: 0, boot: 0 };
const NAME: &str = "w";

fn identity() -> Result<(WorkerIdentity, ClaimId), IdError> {
    let worker = WorkerIdentity {
        worker: WorkerId::new(NAME)?,
        incarnation: Incarnation::new("w-1")?,
        logbook: LogbookId::new("book")?,
        weakening: WorkerWeakening::None,
        moved_from: None,
    };
    Ok((worker, ClaimId::new("claim")?))
}

impl State {
    /// The first call whose chain is not over: nobody has claimed or revoked it.
    pub(super) fn waiting_call(&self) -> Option<usize> {
        let open = |lane: &crate::model::stored::Lane| {
            lane.chain.claim.is_none() && lane.chain.outcome.is_none()
        };
        self.stored.lanes.iter().position(|lane| open(lane))
    }

    /// The call is handed to the worker, which claims it, does it and says so.
    pub(super) fn work(&mut self) {
        let (Some(at), Ok((me, claim))) = (self.waiting_call(), identity()) else {
            return;
        };
        let lane = self.stored.lanes[at].clone();
        let Some((seq, envelope)) = lane.chain.call.clone() else {
            return;
        };
        let (mut machine, effects) = AttemptMachine::deliver(
            me,
            SideEffect::LocalMutation,
            lane.key.clone(),
            seq,
            envelope,
            false,
            claim,
            NOW,
        );
        let mut due = VecDeque::from(effects);
        while let Some(effect) = due.pop_front() {
            if let Some(input) = self.carry_out(at, effect) {
                due.extend(machine.step(NOW, true, input));
            }
        }
    }

    fn carry_out(&mut self, at: usize, effect: AttemptEffect) -> Option<AttemptInput> {
        let input = match effect {
            AttemptEffect::ReadChain => AttemptInput::ChainRead {
                messages: self.stored.lanes[at].messages.clone(),
            },
            AttemptEffect::WriteClaim { expected, body } => {
                AttemptInput::ClaimTried(self.write(at, Link::Claim, expected, body))
            }
            AttemptEffect::WriteOutcome { expected, body } => {
                AttemptInput::OutcomeTried(self.write(at, Link::Outcome, expected, body))
            }
            AttemptEffect::CreateRecord { .. } => {
                AttemptInput::LogbookTried(LogbookAnswer::Written)
            }
            AttemptEffect::LogOutcome { .. } => AttemptInput::OutcomeLogged(Ok(())),
            AttemptEffect::WriteNote { .. } => AttemptInput::NoteTried,
            AttemptEffect::ReadRecord => AttemptInput::LogbookRead(Ok(None)),
            AttemptEffect::Execute(_) => {
                self.stored.effects[at] += 1;
                let result = Payload::Json(AcceptedJson::empty_object());
                AttemptInput::Returned(ToolReturn::Done(result))
            }
            AttemptEffect::CancelTool
            | AttemptEffect::Published
            | AttemptEffect::Over
            | AttemptEffect::AckCall { .. } => return None,
        };
        Some(input)
    }

    fn write(
        &mut self,
        at: usize,
        link: Link,
        expected: leasehold_protocol::Seq,
        body: leasehold_protocol::Body,
    ) -> WriteAnswer {
        let write = RegisterRequest {
            chain: self.stored.lanes[at].key.clone(),
            link,
            expected,
            body,
        };
        self.stored
            .register(&write, NAME)
            .map_or(WriteAnswer::Refused, WriteAnswer::Stored)
    }
}
