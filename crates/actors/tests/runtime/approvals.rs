//! Runs that wait for a person.

use leasehold_actors::{Answer, CommandError};
use leasehold_json::AcceptedJson;
use leasehold_protocol::{
    ApprovalId, CancelRequest, DecideRequest, Decision, Event, InboxAnswer, OperatorId, Reason,
    RunState, Status, WIRE_VERSION,
};

use crate::world::{World, calls, observations, operator};

fn question(state: &RunState) -> (ApprovalId, leasehold_json::Digest) {
    let (approval, asked) = state.open_questions().next().expect("nothing is asked");
    (approval.clone(), asked.hash)
}

pub fn decide(state: &RunState, decision: Decision) -> DecideRequest {
    let (approval, hash) = question(state);
    DecideRequest {
        v: WIRE_VERSION,
        approval,
        hash,
        decision,
        by: operator(),
        note: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s36_a_run_parks_for_its_approval_and_the_approved_call_runs_once() {
    let world = World::new();
    let life = world.start().await;
    let run = life.submit("asked", &calls(&[("asked", "pay")])).await;
    let state = life.parked(&run).await;
    assert_eq!(state.status(), Status::Waiting);
    assert_eq!(world.ledger.count(), 0);
    assert_eq!(
        life.runtime.status().await.driven,
        vec![],
        "a parked run has no actor"
    );
    assert_eq!(
        life.runtime.store().lease(&run).await.unwrap().record,
        None,
        "and no lease"
    );
    let request = decide(&state, Decision::Approve);
    assert_eq!(
        life.runtime.decide(&run, &request).await.unwrap(),
        Answer::Taken
    );
    assert_eq!(life.ended(&run).await.status(), Status::Completed);
    assert_eq!(world.ledger.count(), 1);
    // S34: the exact repeat is the first decision; another word of the same operator is refused.
    assert_eq!(
        life.runtime.decide(&run, &request).await.unwrap(),
        Answer::Taken
    );
    let otherwise = DecideRequest {
        decision: Decision::Reject,
        ..request
    };
    assert!(matches!(
        life.runtime.decide(&run, &otherwise).await,
        Err(CommandError::SaidOtherwise(_))
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn s34_of_two_decisions_one_wins_and_the_other_is_told() {
    let world = World::new();
    let life = world.start().await;
    let run = life.submit("two", &calls(&[("asked", "pay")])).await;
    let state = life.parked(&run).await;
    let approve = decide(&state, Decision::Approve);
    let reject = DecideRequest {
        decision: Decision::Reject,
        by: OperatorId::new("oscar").unwrap(),
        ..approve.clone()
    };
    let (first, second) = tokio::join!(
        life.runtime.decide(&run, &approve),
        life.runtime.decide(&run, &reject)
    );
    let answers = [first.unwrap(), second.unwrap()];
    assert_eq!(
        answers
            .iter()
            .filter(|answer| **answer == Answer::Taken)
            .count(),
        1,
        "{answers:?}"
    );
    let end = life.ended(&run).await;
    let applied = usize::from(answers[0] == Answer::Taken);
    assert_eq!(world.ledger.count(), applied);
    assert_eq!(
        end.status(),
        if applied == 1 {
            Status::Completed
        } else {
            Status::Cancelled
        }
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn s34_a_decision_for_another_hash_is_refused() {
    let world = World::new();
    let life = world.start().await;
    let run = life.submit("hash", &calls(&[("asked", "pay")])).await;
    let state = life.parked(&run).await;
    let mut request = decide(&state, Decision::Approve);
    request.hash = leasehold_json::Digest::of(b"what I was not shown");
    let answer = life.runtime.decide(&run, &request).await.unwrap();
    assert_eq!(answer, Answer::Answered(InboxAnswer::HashDiffers));
    assert_eq!(world.ledger.count(), 0);
    assert_eq!(
        life.parked(&run).await.status(),
        Status::Waiting,
        "the question stays open"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_a_rejected_run_ends_cancelled() {
    let world = World::new();
    let life = world.start().await;
    let run = life.submit("rejected", &calls(&[("asked", "pay")])).await;
    let state = life.parked(&run).await;
    assert_eq!(
        life.runtime
            .decide(&run, &decide(&state, Decision::Reject))
            .await
            .unwrap(),
        Answer::Taken
    );
    let end = life.ended(&run).await;
    assert_eq!(
        (end.status(), end.ending.unwrap().reason),
        (Status::Cancelled, Reason::ApprovalRejected)
    );
    assert_eq!(world.ledger.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn s8_a_cancel_ends_waiting_and_working_runs() {
    let world = World::new();
    let life = world.start().await;
    let cancel = CancelRequest {
        v: WIRE_VERSION,
        by: operator(),
        note: Some("enough".into()),
    };
    let waiting = life.submit("waiting", &calls(&[("asked", "pay")])).await;
    life.parked(&waiting).await;
    assert_eq!(
        life.runtime.cancel(&waiting, &cancel).await.unwrap(),
        Answer::Taken
    );
    let end = life.ended(&waiting).await;
    assert_eq!(
        (end.status(), end.ending.unwrap().reason),
        (Status::Cancelled, Reason::OperatorCancelled)
    );

    let working = life.submit("working", &calls(&[("pay", "gate")])).await;
    crate::world::patient(world.gate.entered.notified()).await;
    assert_eq!(
        life.runtime.cancel(&working, &cancel).await.unwrap(),
        Answer::Taken
    );
    // What is claimed is waited for.
    world.gate.open();
    let end = life.ended(&working).await;
    assert_eq!(end.status(), Status::Cancelled);
    assert_eq!(end.ended.unwrap().len(), 1, "the call in flight is named");
    assert_eq!(world.ledger.count(), 1);
    // I21: a message for a run that has ended is answered too.
    let late = CancelRequest {
        by: OperatorId::new("oscar").unwrap(),
        ..cancel
    };
    assert_eq!(
        life.runtime.cancel(&working, &late).await.unwrap(),
        Answer::RunEnded
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn s38_an_operator_records_an_interrupted_effect_as_done() {
    let world = World::new();
    let life = world.start().await;
    let run = life.submit("unsure", &calls(&[("pay", "unsure")])).await;
    let state = life.parked(&run).await;
    let result = AcceptedJson::check(b"{\"seen\":\"by eye\"}").unwrap();
    let request = decide(
        &state,
        Decision::RecordDone {
            result: result.clone(),
        },
    );
    assert_eq!(
        life.runtime.decide(&run, &request).await.unwrap(),
        Answer::Taken
    );
    let end = life.ended(&run).await;
    assert_eq!(end.status(), Status::Completed);
    assert_eq!(
        observations(&end).remove(0).content,
        leasehold_protocol::Payload::Json(result)
    );
    assert_eq!(life.dispatched(&run).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn s38_run_again_is_one_more_attempt() {
    let world = World::new();
    let life = world.start().await;
    let run = life.submit("again", &calls(&[("pay", "unsure")])).await;
    let state = life.parked(&run).await;
    assert_eq!(
        life.runtime
            .decide(&run, &decide(&state, Decision::RunAgain))
            .await
            .unwrap(),
        Answer::Taken
    );
    // It is unsure again, and asks again.
    let mut events = life.runtime.watch();
    while life.dispatched(&run).await < 2 {
        crate::world::patient(events.recv()).await.unwrap();
    }
    let state = life.parked(&run).await;
    assert_eq!(state.status(), Status::Waiting);
    assert_eq!(life.dispatched(&run).await, 2);
    assert_eq!(
        question(&state).0,
        state.approvals.keys().next_back().unwrap().clone()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn s37_an_approval_that_nobody_gives_expires_and_ends_the_run() {
    let world = World::new();
    let life = world.start().await;
    let mut submission = crate::world::submission("expires", &calls(&[("asked", "pay")]));
    submission.limits.approval_ttl_ms = 300;
    life.runtime.submit(&submission).await.unwrap();
    let end = life.ended(&submission.run).await;
    assert_eq!(
        (end.status(), end.ending.unwrap().reason),
        (Status::Cancelled, Reason::ApprovalExpired)
    );
    let events = life.events(&submission.run).await;
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::Parked { wake_at: Some(_) })),
        "it was woken by its timer"
    );
    assert_eq!(world.ledger.count(), 0);
}
