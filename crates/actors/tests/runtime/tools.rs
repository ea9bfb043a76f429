//! Tools that fail in every way that tools fail in.

use leasehold_protocol::{Event, ObservationKind, Payload, Question, Reason, RunState, Status};
use leasehold_tools::Failure;

use crate::world::{Life, World, calls, observations};

async fn one_call(life: &Life, tool: &str, order: &str) -> RunState {
    let run = life
        .submit(&format!("{tool}-{order}"), &calls(&[(tool, order)]))
        .await;
    life.parked(&run).await
}

fn waits_for_an_operator(state: &RunState) -> bool {
    state
        .open_questions()
        .any(|(_, question)| matches!(question.question, Question::InterruptedSideEffect { .. }))
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_what_a_tool_says_of_its_failure_decides() {
    let world = World::new();
    let life = world.start().await;
    for (tool, order, failure) in [
        ("pay", "refuse", Failure::Error),
        ("look", "refuse", Failure::Error),
        ("look", "unsure", Failure::Error),
        ("look", "unclassified", Failure::Error),
        ("look", "panic", Failure::Panic),
        ("look", "hang", Failure::Timeout),
    ] {
        let state = one_call(&life, tool, order).await;
        assert_eq!(state.status(), Status::Completed, "{tool} {order}");
        let told = observations(&state).remove(0);
        assert_eq!(
            (told.kind, told.failure),
            (ObservationKind::ToolError, Some(failure)),
            "{tool} {order}"
        );
    }
    for (tool, order) in [
        ("pay", "unsure"),
        ("pay", "unclassified"),
        ("pay", "panic"),
        ("hasty", "hang"),
        ("pay", "abort"),
    ] {
        let state = one_call(&life, tool, order).await;
        assert_eq!(state.status(), Status::Waiting, "{tool} {order}");
        assert!(waits_for_an_operator(&state), "{tool} {order}");
        assert!(
            observations(&state).is_empty(),
            "the agent has not heard of it"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s15_a_result_that_is_no_usable_json_is_kept_and_its_effect_stands() {
    let world = World::new();
    let life = world.start().await;
    let state = one_call(&life, "pay", "garbage").await;
    assert_eq!(state.status(), Status::Completed);
    let told = observations(&state).remove(0);
    assert_eq!(
        (told.kind, told.failure),
        (ObservationKind::ToolError, Some(Failure::InvalidContent))
    );
    assert_eq!(world.ledger.count(), 1);
    let Payload::Json(content) = told.content else {
        panic!("in a blob")
    };
    let kept: String = content
        .member("content")
        .expect("the bytes are shown")
        .parse()
        .unwrap();
    assert_eq!(kept, "{\"a\":1,\"a\":2}", "{content:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn k57_s15_a_large_result_lies_in_the_blob_store() {
    let world = World::new();
    let life = world.start().await;
    let state = one_call(&life, "pay", "large").await;
    let told = observations(&state).remove(0);
    let Payload::Blob { sha256, size } = told.content else {
        panic!("inline")
    };
    let bytes = life
        .runtime
        .store()
        .get_blob(&sha256)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((size, bytes.len()), (100_002, 100_002));
}

#[tokio::test(flavor = "multi_thread")]
async fn s17_a_tool_that_may_abort_ends_the_run() {
    let world = World::new();
    let life = world.start().await;
    let state = one_call(&life, "abort", "abort").await;
    assert_eq!(state.status(), Status::Failed);
    let ending = state.ending.unwrap();
    assert_eq!(ending.reason, Reason::ToolAbort);
    assert!(ending.detail.unwrap().contains("on fire"));
}

#[tokio::test(flavor = "multi_thread")]
async fn s16_a_truth_after_the_deadline_still_settles_the_call() {
    let world = World::new();
    let life = world.start().await;
    // The tool answers its cancellation with a result: the note of the passed deadline is out, the outcome follows.
    let run = life.submit("late", &calls(&[("hasty", "late")])).await;
    let state = life.ended(&run).await;
    assert_eq!(state.status(), Status::Completed);
    assert_eq!(
        observations(&state).remove(0).kind,
        ObservationKind::ToolResult
    );
    assert_eq!(world.ledger.count(), 1);
    let asked = life
        .events(&run)
        .await
        .iter()
        .filter(|event| matches!(event, Event::Requested { .. }))
        .count();
    let withdrawn = life
        .events(&run)
        .await
        .iter()
        .filter(|event| matches!(event, Event::Withdrawn { .. }))
        .count();
    assert_eq!(
        asked, withdrawn,
        "a question that the truth has answered is withdrawn"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn s30_a_denied_call_never_reaches_its_tool() {
    let world = World::new();
    let life = world.start().await;
    let state = one_call(&life, "denied", "pay").await;
    assert_eq!(state.status(), Status::Completed);
    assert_eq!(
        observations(&state).remove(0).kind,
        ObservationKind::PolicyDenied
    );
    assert_eq!(world.ledger.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn s51_a_probe_settles_what_a_tool_cannot_say() {
    let world = World::new();
    let life = world.start().await;
    // Not done, fencing: tried again, up to the bound; then a person is asked.
    let state = one_call(&life, "probed", "unsure").await;
    assert_eq!(world.ledger.count(), 0);
    assert!(
        state
            .open_questions()
            .any(|(_, question)| matches!(question.question, Question::Exhausted { .. })),
        "{state:?}"
    );
}
