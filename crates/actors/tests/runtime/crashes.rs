//! Lives that end at a named point, and what the next life makes of it: no effect is lost that was acknowledged, none is made twice.

use leasehold_actors::Point;
use leasehold_protocol::{Decision, Finding, Question, RunState, Status};

use crate::approvals::decide;
use crate::world::{Life, StopAt, World, calls, patient};

/// Runs one call until the point is reached, and ends that life there.
async fn stop_at(world: &World, point: Point, tool: &str) {
    let stop = StopAt::new(point);
    let points = stop.clone();
    let life = world
        .start_with(move |options| options.points = points)
        .await;
    life.submit("run", &calls(&[(tool, "pay")])).await;
    patient(stop.stopped.notified()).await;
    life.crash().await;
}

/// What the next life ends with: the run's state once it has ended or waits.
async fn next_life(world: &World) -> (Life, RunState) {
    let life = world.start().await;
    let state = life.parked(&"run".parse().unwrap()).await;
    (life, state)
}

fn interrupted(state: &RunState) -> bool {
    state
        .open_questions()
        .any(|(_, question)| matches!(question.question, Question::InterruptedSideEffect { .. }))
}

async fn completes_with_one_effect(point: Point) -> (Life, RunState) {
    let world = World::new();
    stop_at(&world, point, "pay").await;
    let (life, state) = next_life(&world).await;
    assert_eq!(state.status(), Status::Completed, "{point}: {state:?}");
    assert_eq!(world.ledger.count(), 1, "{point}");
    (life, state)
}

#[tokio::test(flavor = "multi_thread")]
async fn s53_a_crash_before_the_first_commit_changes_nothing() {
    for point in [Point::R9, Point::R1, Point::R3, Point::R10] {
        completes_with_one_effect(point).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s53_a_crash_after_the_outcome_loses_nothing() {
    for point in [Point::R6, Point::R7, Point::W9, Point::W10, Point::R14] {
        let (life, _) = completes_with_one_effect(point).await;
        assert_eq!(life.dispatched(&"run".parse().unwrap()).await, 1, "{point}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s51_w1_a_call_that_nobody_began_is_begun_by_the_next_life() {
    let (life, _) = completes_with_one_effect(Point::W1).await;
    assert_eq!(life.dispatched(&"run".parse().unwrap()).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn s51_w3_claimed_and_never_armed_is_buried_and_tried_again() {
    let (life, _) = completes_with_one_effect(Point::W3).await;
    let run = "run".parse().unwrap();
    assert_eq!(life.findings(&run).await, [Finding::NotStarted]);
    assert_eq!(life.dispatched(&run).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn s51_w8_an_outcome_in_the_logbook_is_published_by_the_next_life() {
    let (life, _) = completes_with_one_effect(Point::W8).await;
    assert_eq!(life.dispatched(&"run".parse().unwrap()).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn s51_w5_w6_w7_look_the_same_and_wait_for_an_operator() {
    for (point, applied) in [(Point::W5, 0), (Point::W6, 1), (Point::W7, 1)] {
        let world = World::new();
        stop_at(&world, point, "pay").await;
        let (life, state) = next_life(&world).await;
        assert_eq!(state.status(), Status::Waiting, "{point}");
        assert!(interrupted(&state), "{point}");
        assert_eq!(world.ledger.count(), applied, "{point}");
        assert_eq!(life.dispatched(&state.run).await, 1, "{point}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s51_w2_r5_a_call_that_went_on_beside_the_crash_is_never_made_twice() {
    for point in [Point::W2, Point::R5] {
        let world = World::new();
        stop_at(&world, point, "pay").await;
        let (_, state) = next_life(&world).await;
        let count = world.ledger.count();
        match state.status() {
            Status::Completed => assert_eq!(count, 1, "{point}"),
            Status::Waiting => assert!(interrupted(&state) && count <= 1, "{point}: {count}"),
            other => panic!("{point}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s51_a_probe_tells_what_happened_before_the_crash() {
    for (point, applied, finding) in [
        (Point::W5, 0, Finding::ProbeNotDone),
        (Point::W6, 1, Finding::ProbeDone),
        (Point::W7, 1, Finding::ProbeDone),
    ] {
        let world = World::new();
        stop_at(&world, point, "probed").await;
        assert_eq!(world.ledger.count(), applied, "{point}");
        let (life, state) = next_life(&world).await;
        assert_eq!(state.status(), Status::Completed, "{point}");
        assert_eq!(world.ledger.count(), 1, "{point}");
        assert_eq!(life.findings(&state.run).await, [finding], "{point}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s53_a_second_crash_during_recovery_changes_nothing() {
    for second in [
        Point::R1,
        Point::R3,
        Point::C2,
        Point::C3,
        Point::R15,
        Point::R7,
    ] {
        let world = World::new();
        stop_at(&world, Point::W7, "probed").await;
        let stop = StopAt::new(second);
        let points = stop.clone();
        let life = world
            .start_with(move |options| options.points = points)
            .await;
        // Some points lie on no way that this recovery takes: then it simply ends.
        let run = "run".parse().unwrap();
        tokio::select! {
            () = stop.stopped.notified() => {}
            _ = life.ended(&run) => {}
        }
        life.crash().await;
        let (_, state) = next_life(&world).await;
        assert_eq!(state.status(), Status::Completed, "{second}");
        assert_eq!(world.ledger.count(), 1, "{second}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k46_s36_an_approved_call_survives_a_crash_at_every_point_and_runs_once() {
    for point in [
        Point::R9,
        Point::R10,
        Point::R1,
        Point::R3,
        Point::W1,
        Point::W3,
        Point::W8,
        Point::W9,
        Point::W10,
    ] {
        let world = World::new();
        let life = world.start().await;
        let run = life.submit("run", &calls(&[("asked", "pay")])).await;
        let state = life.parked(&run).await;
        life.crash().await;
        // The decision is given to a life that dies at the point.
        let stop = StopAt::new(point);
        let points = stop.clone();
        let life = world
            .start_with(move |options| options.points = points)
            .await;
        let approve = decide(&state, Decision::Approve);
        tokio::select! {
            () = stop.stopped.notified() => {}
            answer = life.runtime.decide(&run, &approve) => {
                answer.unwrap();
                patient(stop.stopped.notified()).await;
            }
        }
        life.crash().await;
        let life = world.start().await;
        // The operator cannot know whether it arrived, and says the same again.
        let answer = life.runtime.decide(&run, &approve).await.unwrap();
        assert_eq!(answer, leasehold_actors::Answer::Taken, "{point}");
        let state = life.ended(&run).await;
        assert_eq!(state.status(), Status::Completed, "{point}");
        assert_eq!(world.ledger.count(), 1, "{point}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s53_a_crash_while_parking_loses_no_question() {
    for point in [Point::R12, Point::R13] {
        let world = World::new();
        let stop = StopAt::new(point);
        let points = stop.clone();
        let life = world
            .start_with(move |options| options.points = points)
            .await;
        let mut submission = crate::world::submission("run", &calls(&[("asked", "pay")]));
        submission.limits.approval_ttl_ms = 3_600_000;
        life.runtime.submit(&submission).await.unwrap();
        patient(stop.stopped.notified()).await;
        life.crash().await;
        let (life, state) = next_life(&world).await;
        assert_eq!(
            life.runtime
                .decide(&state.run, &decide(&state, Decision::Approve))
                .await
                .unwrap(),
            leasehold_actors::Answer::Taken
        );
        assert_eq!(
            life.ended(&state.run).await.status(),
            Status::Completed,
            "{point}"
        );
        assert_eq!(world.ledger.count(), 1, "{point}");
    }
}
