//! People: careful and careless, alone or two at once, now and then with a hash that was never shown.

use leasehold_json::AcceptedJson;
use leasehold_protocol::{
    CancelRequest, DecideRequest, Decision, OperatorId, Question, RunId, StepId, WIRE_VERSION,
};
use rand::Rng;

use super::*;
use crate::store::LetterKind;

impl World {
    pub(super) fn operate(&mut self) {
        for run in self.runs.clone() {
            if self.ended(&run) {
                continue;
            }
            if self.fault(2) {
                let request = CancelRequest {
                    v: WIRE_VERSION,
                    by: operator("anna"),
                    note: None,
                };
                self.store
                    .put(&run, LetterKind::Cancel, request.encode().into());
            }
            let Some(state) = self.state(&run) else {
                continue;
            };
            let open: Vec<_> = state
                .open_questions()
                .map(|(id, approval)| (id.clone(), approval.clone()))
                .collect();
            for (id, approval) in open {
                if !self.decided.insert((run.clone(), id.to_string())) {
                    continue;
                }
                // Two people at once, and now and then somebody who was shown something else.
                for name in if self.chance(30) {
                    vec!["anna", "bob"]
                } else {
                    vec!["anna"]
                } {
                    let decision = self.choose(&run, &approval.question, approval.step);
                    let wrong = name == "bob" && self.chance(30);
                    let hash = if wrong {
                        leasehold_json::Digest::ZERO
                    } else {
                        approval.hash
                    };
                    let request = DecideRequest {
                        v: WIRE_VERSION,
                        approval: id.clone(),
                        hash,
                        decision,
                        by: operator(name),
                        note: None,
                    };
                    self.store
                        .put(&run, LetterKind::Decide, request.encode().into());
                }
            }
        }
        self.send(400, Message::Operate);
    }

    pub(super) fn choose(
        &mut self,
        run: &RunId,
        question: &Question,
        step: Option<StepId>,
    ) -> Decision {
        let result = AcceptedJson::empty_object();
        let pick = self.rng.random_range(0..10);
        match question {
            Question::Approve { .. } | Question::Quarantined { .. } if pick < 9 => {
                Decision::Approve
            }
            Question::Approve { .. } | Question::Quarantined { .. } => Decision::Reject,
            // A careful operator looks at the world first; a careless one permits a second effect, and that is counted.
            Question::InterruptedSideEffect { .. }
                if pick < 4 && step.is_some_and(|step| self.outside.happened(run, step)) =>
            {
                Decision::RecordDone { result }
            }
            Question::InterruptedSideEffect { .. } if pick < 8 => Decision::RunAgain,
            Question::InterruptedSideEffect { .. } if pick < 9 => Decision::RecordDone { result },
            Question::Exhausted { .. } if pick < 7 => Decision::Continue,
            Question::Exhausted { .. } if pick < 9 => Decision::RecordDone { result },
            _ => Decision::Reject,
        }
    }
}

#[expect(
    clippy::expect_used,
    reason = "the simulator's own two operators have valid names"
)]
fn operator(name: &str) -> OperatorId {
    OperatorId::new(name).expect("a valid name")
}
