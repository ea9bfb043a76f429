//! What must hold in every situation, how every schedule must be able to end, and what must come about for a check to mean anything.

use leasehold_protocol::{
    ApprovalState, Basis, Commit, Decision, Event, InboxAnswer, Invariant, Question, Reason,
    Verdict,
};
use stateright::Property;

use super::state::{Drive, State};
use super::{Bound, Says};
use crate::model::stored::Stored;

/// Promises about moments: the number, and the words of its property.
const MOMENTS: [(Invariant, &str); 9] = [
    (
        Invariant::I3,
        "I3: nothing of an older epoch follows a newer owner",
    ),
    (Invariant::I4, "I4: each takeover's epoch is higher"),
    (Invariant::I6, "I6: intent precedes claim and effect"),
    (
        Invariant::I7,
        "I7: what was approved is what is dispatched, once, on one decision",
    ),
    (Invariant::I8, "I8: commits are all there, linked, once"),
    (Invariant::I9, "I9: replay gives the same state"),
    (Invariant::I10, "I10: nothing follows the end"),
    (Invariant::I16, "I16: nobody is given what cannot be read"),
    (Invariant::I19, "I19: no commit after authority ended"),
];

/// Every property of the model within this bound.
pub(super) fn all(bound: &Bound) -> Vec<Property<Bound>> {
    let mut properties = moments();
    properties.extend([
        Property::always(
            "other moments (I1, I2, I11, I13, I17, I20)",
            |_, state: &State| {
                let named = |flaw| MOMENTS.iter().any(|(invariant, _)| *invariant == flaw);
                state.stored.flaw.is_none_or(named)
            },
        ),
        Property::always("I1: effects <= 1", |_, state: &State| {
            state.stored.total() <= 1
        }),
        Property::always(
            "mail: no message is acknowledged that no commit names, in a run that has not ended",
            |_, state: &State| !state.dropped,
        ),
        Property::always(
            "one owner: without a fault nobody is fenced",
            |_, state: &State| !state.fenced || state.spent.faults() > 0,
        ),
        Property::always("rest: no stuck state", |bound: &Bound, state: &State| {
            is_settled(state) || !bound.is_terminal(state)
        }),
        Property::always("rest: every lease ends", |bound: &Bound, state: &State| {
            let held = state
                .lease
                .holder
                .is_some_and(|holder| state.is_alive(holder));
            // One whose deletion was lost is found free by its own holder, and forwarded to it by all others.
            !held || state.spent.lost_acks > 0 || !bound.is_terminal(state)
        }),
        Property::sometimes("a completed run", |_, state: &State| {
            ended_for(state, Reason::GoalCompleted)
        }),
    ]);
    if bound.approval {
        properties.push(Property::sometimes(
            "a parked run at rest",
            |_, state: &State| state.stored.journal.state.parked && is_settled(state),
        ));
    }
    if bound.faults > 0 {
        properties.push(Property::sometimes("a takeover", |_, state: &State| {
            state.stored.journal.state.epoch.get() > 2
        }));
        properties.push(Property::sometimes("a fenced owner", |_, state: &State| {
            state.fenced
        }));
    }
    if bound.pauses > 0 && bound.faults > 0 {
        properties.push(Property::sometimes(
            "a zombie that writes after its successor",
            |_, state: &State| {
                let journal = &state.stored.journal.state;
                state.nodes.iter().any(|node| {
                    matches!(&node.drive, Drive::Driving(driving)
                        if driving.checked && !node.paused && journal.epoch > driving.machine.state().epoch)
                })
            },
        ));
    }
    if bound.says.contains(&Says::Cancel) {
        properties.push(Property::sometimes(
            "a cancelled run",
            |_, state: &State| ended_for(state, Reason::OperatorCancelled),
        ));
    }
    if bound.letters > 1 {
        properties.extend(answers());
    }
    if bound.expiry {
        properties.push(Property::sometimes("an expiry", |_, state: &State| {
            ended_for(state, Reason::ApprovalExpired)
        }));
    }
    if bound.policies > 0 {
        properties.push(Property::sometimes(
            "a grant that does not cover the call any more",
            |_, state: &State| state.stored.journal.state.approvals.len() > 1,
        ));
    }
    properties
}

fn moments() -> Vec<Property<Bound>> {
    macro_rules! moment {
        ($($at:literal)*) => {
            vec![$(Property::always(MOMENTS[$at].1, |_, state: &State| {
                state.stored.flaw != Some(MOMENTS[$at].0)
            })),*]
        };
    }
    moment!(0 1 2 3 4 5 6 7 8)
}

fn answers() -> [Property<Bound>; 4] {
    [
        Property::sometimes("already_decided", |_, state: &State| {
            answered(state, &InboxAnswer::AlreadyDecided)
        }),
        Property::sometimes("repeated", |_, state: &State| {
            answered(state, &InboxAnswer::Repeated)
        }),
        Property::sometimes("hash_differs", |_, state: &State| {
            answered(state, &InboxAnswer::HashDiffers)
        }),
        Property::sometimes("no_longer_asked", |_, state: &State| {
            answered(state, &InboxAnswer::NoLongerAsked)
        }),
    ]
}

fn ended_for(state: &State, reason: Reason) -> bool {
    let journal = &state.stored.journal.state;
    journal.ended.is_some()
        && journal
            .ending
            .as_ref()
            .is_some_and(|ending| ending.reason == reason)
}

fn answered(state: &State, wanted: &InboxAnswer) -> bool {
    events(&state.stored)
        .any(|event| matches!(event, Event::Answered { answer, .. } if answer == *wanted))
}

fn events(stored: &Stored) -> impl Iterator<Item = Event> {
    stored
        .journal
        .commits
        .iter()
        .filter_map(|stored| Commit::decode(stored.body.as_bytes()).ok())
        .flat_map(|commit| commit.events)
}

/// Whether nothing is left to do: the run has ended, or waits for an operator's answer in time; every message is folded or answered, and
/// nobody drives the run.
pub(super) fn is_settled(state: &State) -> bool {
    let journal = &state.stored.journal.state;
    let now = super::shell::clock(state.late).wall;
    let overdue = journal
        .open_questions()
        .any(|(_, asked)| asked.expires_at.is_some_and(|at| at <= now));
    let waits = journal.parked && journal.open_questions().next().is_some() && !overdue;
    let over = journal.ended.is_some() || waits;
    let idle = state
        .nodes
        .iter()
        .all(|node| node.drive == Drive::Idle && node.acks == 0);
    let read = (0..state.letters.len())
        .all(|letter| state.letters[letter].acked && state.is_settled(letter));
    over && idle && read
}

/// The first numbered promise that the stored bytes break. Over what [`invariant::check`](leasehold_protocol::invariant::check()) sees: one
/// decision a question, one dispatch a grant, and a grant for exactly what the policy wanted of the call that was dispatched.
pub(super) fn broken(stored: &Stored) -> Option<Invariant> {
    if let Some(violation) = stored.check().first() {
        return Some(violation.invariant);
    }
    let decided: Vec<_> = events(stored)
        .filter_map(|event| match event {
            Event::ApprovalDecided { approval, .. } => Some(approval),
            _ => None,
        })
        .collect();
    let twice = (1..decided.len()).any(|at| decided[..at].contains(&decided[at]));
    (twice || !spent_rightly(stored)).then_some(Invariant::I7)
}

fn spent_rightly(stored: &Stored) -> bool {
    let journal = &stored.journal.state;
    let mut spent = Vec::new();
    journal
        .turns
        .iter()
        .flat_map(|turn| &turn.steps)
        .all(|step| {
            let Some(Verdict::RequireApproval {
                approval_kind,
                capability,
                presentation,
            }) = step.accepted.as_ref().map(|accepted| &accepted.verdict)
            else {
                return true;
            };
            let wanted = Question::Approve {
                approval_kind: approval_kind.clone(),
                capability: capability.clone(),
                presentation: presentation.clone(),
            };
            step.attempts.iter().all(|attempt| {
                let Basis::First {
                    approval: Some(approval),
                } = &attempt.basis
                else {
                    return false;
                };
                let once = !spent.contains(approval);
                spent.push(approval.clone());
                let granted = journal.approvals.get(approval);
                once && granted.is_some_and(|granted| {
                    granted.question == wanted
                        && matches!(
                            granted.state,
                            ApprovalState::Decided {
                                decision: Decision::Approve,
                                ..
                            }
                        )
                })
            })
        })
}
