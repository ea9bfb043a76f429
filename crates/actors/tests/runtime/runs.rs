//! Runs from submission to end.

use leasehold_actors::{SubmitProblem, SubmitRefusal, Until};
use leasehold_protocol::{ObservationKind, Payload, Reason, Status};

use crate::world::{World, calls, observations, submission};

#[tokio::test(flavor = "multi_thread")]
async fn s1_a_run_completes_with_what_it_observed() {
    let world = World::new();
    let life = world.start().await;
    let run = life.submit("first", &calls(&[("pay", "pay")])).await;
    let state = life.ended(&run).await;
    assert_eq!(state.status(), Status::Completed);
    let ending = state.ending.unwrap();
    assert_eq!(ending.reason, Reason::GoalCompleted);
    // S12: no number is rounded on the way.
    assert_eq!(
        ending.result,
        Some(Payload::Json(
            leasehold_json::AcceptedJson::check(b"{\"paid\":12345678901234567890}").unwrap()
        ))
    );
    assert_eq!(world.ledger.count(), 1);
    assert_eq!(life.runtime.status().await.driven, vec![]);
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_three_calls_of_one_turn_run_side_by_side() {
    let world = World::new();
    let life = world.start().await;
    let run = life
        .submit(
            "three",
            &calls(&[("pay", "gate"), ("pay", "gate"), ("look", "gate")]),
        )
        .await;
    for _ in 0..3 {
        // All three are inside their tool before any of them may go on.
        crate::world::patient(world.gate.entered.notified()).await;
    }
    world.gate.open();
    let state = life.ended(&run).await;
    assert_eq!(state.status(), Status::Completed);
    assert_eq!(world.ledger.count(), 3);
    assert_eq!(state.turns.first().unwrap().steps.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn s4_an_unusable_decision_is_told_and_the_run_goes_on() {
    let world = World::new();
    let life = world.start().await;
    let run = life
        .submit(
            "odd",
            &format!("{{\"kind\":\"dance\"}},{}", calls(&[("look", "look")])),
        )
        .await;
    let state = life.ended(&run).await;
    assert_eq!(state.status(), Status::Completed);
    let kinds: Vec<_> = observations(&state)
        .into_iter()
        .map(|observation| observation.kind)
        .collect();
    assert_eq!(
        kinds,
        [
            ObservationKind::InvalidDecision,
            ObservationKind::ToolResult
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn s17_a_terminal_tool_completes_the_run() {
    let world = World::new();
    let life = world.start().await;
    let script = format!(
        "{},{}",
        calls(&[("close", "close")]),
        calls(&[("pay", "pay")])
    );
    let run = life.submit("closing", &script).await;
    let state = life.ended(&run).await;
    assert_eq!(state.status(), Status::Completed);
    assert_eq!(state.turns.len(), 1, "nothing follows a terminal tool");
    assert_eq!(world.ledger.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_an_agent_that_panics_ends_its_own_run_only() {
    let world = World::new();
    let life = world.start().await;
    let mut broken = submission("broken", "");
    broken.agent = "panics".into();
    life.runtime.submit(&broken).await.unwrap();
    let run = life.submit("sound", &calls(&[("pay", "pay")])).await;
    let state = life.ended(&broken.run).await;
    assert_eq!(
        (state.status(), state.ending.unwrap().reason),
        (Status::Failed, Reason::AgentError)
    );
    assert_eq!(life.ended(&run).await.status(), Status::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn k33_the_same_id_means_the_same_run_and_never_another() {
    let world = World::new();
    let life = world.start().await;
    let first = submission("once", &calls(&[("pay", "pay")]));
    let taken = life.runtime.submit(&first).await.unwrap();
    let again = life.runtime.submit(&first).await.unwrap();
    assert_eq!(
        (taken.inbox, taken.repeated, again.repeated),
        (again.inbox, false, true)
    );
    let state = life.ended(&first.run).await;
    assert_eq!(state.status(), Status::Completed);
    assert!(
        life.runtime.submit(&first).await.unwrap().repeated,
        "also after its end"
    );
    let mut other = first.clone();
    other.goal = "something else".into();
    assert!(matches!(
        life.runtime.submit(&other).await,
        Err(SubmitRefusal::IdUsed { .. })
    ));
    assert_eq!(world.ledger.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_wrong_with_a_submission_is_said_at_once() {
    let world = World::new();
    let life = world.start().await;
    let mut wrong = submission("wrong", "");
    wrong.goal = " \n".into();
    wrong.agent = "nobody".into();
    wrong.tools = vec!["look".into(), "fly".into(), "look".into()];
    wrong.limits.max_steps = 0;
    wrong.limits.max_parallel_calls = 0;
    let Err(SubmitRefusal::Invalid(problems)) = life.runtime.submit(&wrong).await else {
        panic!("taken")
    };
    assert_eq!(problems.len(), 6, "{problems:?}");
    assert!(problems.contains(&SubmitProblem::BlankGoal));
    assert!(problems.contains(&SubmitProblem::RepeatedTool("look".into())));
    assert!(
        life.runtime.state(&wrong.run).await.unwrap().is_none(),
        "nothing is written"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_concurrency_key_bounds_its_calls_and_holds_no_other_tool_up() {
    let world = World::new();
    let life = world
        .start_with(|options| options.worker.as_mut().unwrap().slots = 2)
        .await;
    let held = life
        .submit(
            "held",
            &calls(&[("single", "gate"), ("single", "gate"), ("single", "gate")]),
        )
        .await;
    crate::world::patient(world.gate.entered.notified()).await;
    let free = life.submit("free", &calls(&[("pay", "pay")])).await;
    assert_eq!(life.ended(&free).await.status(), Status::Completed);
    assert_eq!(
        world.ledger.count(),
        1,
        "one call of the key is inside, none is through"
    );
    world.gate.open();
    assert_eq!(
        life.until(&held, Until::Ended).await.status(),
        Status::Completed
    );
    assert_eq!(world.ledger.count(), 4);
}
