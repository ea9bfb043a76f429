//! Reported cases that need actors: K03, K04, K16, K36, K60.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold_actors::{
    Answer, Authority, Drained, LocalAuthority, Point, Progress, Recorded, Recorder,
};
use leasehold_protocol::{
    Decision, Event, Input, Link, ObservationKind, Payload, Seq, Status, StopReason,
};

use crate::approvals::decide;
use crate::world::{StopAt, World, calls, observations, patient, submission};

#[tokio::test(flavor = "multi_thread")]
async fn k04_calls_that_outlive_their_runs_authority_are_told_and_commit_nothing() {
    let world = World::new();
    let authority = Arc::new(LocalAuthority::new());
    let given = authority.clone();
    let life = world
        .start_with(move |options| options.authority = given)
        .await;
    let script = calls(&[("pay", "gate"), ("pay", "gate"), ("look", "gate")]);
    let run = life.submit("three", &script).await;
    for _ in 0..3 {
        patient(world.gate.entered.notified()).await;
    }
    let before = life.runtime.journal(&run).await.unwrap();
    let mut hints = life.runtime.store().hints(life.runtime.session());
    let mut progress = life.runtime.watch();
    authority.lose("a test says so");
    world.gate.open();
    // What became of the calls is a fact, and is written.
    let mut outcomes = 0;
    while outcomes < 3 {
        let hint = patient(hints.recv()).await.unwrap();
        outcomes += usize::from(
            hint.message
                .is_some_and(|stored| stored.link == Link::Outcome),
        );
    }
    // The run's owner hears of it and lets go without a commit.
    loop {
        match patient(progress.recv()).await.unwrap() {
            Progress::Left { reason, .. } => {
                assert_eq!(reason, StopReason::AuthorityLost);
                break;
            }
            _ => continue,
        }
    }
    assert_eq!(life.runtime.journal(&run).await.unwrap(), before);
    life.crash().await;
    let life = world.start().await;
    assert_eq!(life.ended(&run).await.status(), Status::Completed);
    assert_eq!((life.dispatched(&run).await, world.ledger.count()), (3, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn k03_a_stop_does_not_wait_for_a_call_that_never_returns_and_writes_nothing_after_the_loss()
{
    let world = World::new();
    let authority = Arc::new(LocalAuthority::new());
    let given = authority.clone();
    let life = world
        .start_with(move |options| options.authority = given)
        .await;
    let run = life.submit("blocked", &calls(&[("pay", "gate")])).await;
    patient(world.gate.entered.notified()).await;
    let store = life.runtime.store().clone();
    let before = store.read_journal(&run, Seq::NONE).await.unwrap();
    authority.lose("a test says so");
    let drained = patient(life.runtime.drain(Duration::from_millis(100))).await;
    assert_eq!(drained, Drained::CutShort);
    assert_eq!(store.read_journal(&run, Seq::NONE).await.unwrap(), before);
    drop((life, store));
    // It was armed: the next life cannot know, and asks.
    let life = world.start().await;
    assert_eq!(life.parked(&run).await.status(), Status::Waiting);
    assert_eq!((life.dispatched(&run).await, world.ledger.count()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn k16_a_run_without_owner_and_without_lease_is_found_by_its_journal() {
    let world = World::new();
    let stop = StopAt::new(Point::W1);
    let points = stop.clone();
    let life = world
        .start_with(move |options| options.points = points)
        .await;
    let run = life.submit("lost", &calls(&[("pay", "pay")])).await;
    patient(stop.stopped.notified()).await;
    let store = life.runtime.store().clone();
    let lease = store.lease(&run).await.unwrap();
    assert!(lease.record.is_some());
    store.put_lease(&run, lease.revision, None).await.unwrap();
    drop(store);
    life.crash().await;
    let life = world.start().await;
    assert_eq!(life.ended(&run).await.status(), Status::Completed);
    assert_eq!(world.ledger.count(), 1);
}

/// Brings the actor of a run down each time it hears of a stored outcome, so many times.
struct Deaf(AtomicU32);

impl Recorder for Deaf {
    fn record(&self, record: Recorded) {
        let hears = |input: &Input| match input {
            Input::Hint(hint) => hint
                .message
                .as_ref()
                .is_some_and(|stored| stored.link == Link::Outcome),
            _ => false,
        };
        let is_it = matches!(&record, Recorded::Input { input, .. } if hears(input));
        let take = |left: u32| left.checked_sub(1);
        let (set, get) = (Ordering::SeqCst, Ordering::SeqCst);
        if is_it && self.0.fetch_update(set, get, take).is_ok() {
            panic!("brought down by a test");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn k36_a_turn_of_results_and_an_approval_are_not_lost_with_the_mailbox_they_lay_in() {
    /// With the approval as many as a turn may have.
    const CALLS: usize = leasehold_protocol::proposal::MAX_CALLS_PER_TURN - 1;
    let world = World::new();
    let life = world
        .start_with(|options| {
            options.recorder = Arc::new(Deaf(AtomicU32::new(3)));
            options.worker.as_mut().unwrap().slots = CALLS;
        })
        .await;
    let mut wanted = vec![("pay", "gate"); CALLS];
    wanted.push(("asked", "pay"));
    let mut submission = submission("many", &calls(&wanted));
    submission.limits.max_parallel_calls = wanted.len() as u32;
    let run = submission.run.clone();
    let mut progress = life.runtime.watch();
    life.runtime.submit(&submission).await.unwrap();
    let state = loop {
        let state = life.runtime.state(&run).await.unwrap();
        let asks = |state: &leasehold_protocol::RunState| state.open_questions().next().is_some();
        if let Some(state) = state.filter(asks)
            && life.dispatched(&run).await == CALLS
        {
            break state;
        }
        // Lagging behind is no news.
        let _ = patient(progress.recv()).await;
    };
    let approve = decide(&state, Decision::Approve);
    world.gate.open();
    let answer = patient(life.runtime.decide(&run, &approve)).await.unwrap();
    assert_eq!(answer, Answer::Taken);
    let state = life.ended(&run).await;
    assert_eq!(state.status(), Status::Completed);
    assert_eq!(world.ledger.count(), CALLS + 1);
    let results = observations(&state);
    assert_eq!(results.len(), CALLS + 1);
    assert!(
        results
            .iter()
            .all(|told| told.kind == ObservationKind::ToolResult)
    );
    let owners = life.events(&run).await;
    let owners = owners
        .iter()
        .filter(|event| matches!(event, Event::Owned { .. }));
    // What came while it was down is read by the next owner, not heard: how often it hears, and dies, is chance.
    assert!(owners.count() > 1, "its actor was not brought down");
}

#[tokio::test(flavor = "multi_thread")]
async fn k36_an_actor_that_is_killed_writes_nothing_on_its_way_out() {
    let world = World::new();
    let life = world.start().await;
    let run = life.submit("killed", &calls(&[("pay", "gate")])).await;
    patient(world.gate.entered.notified()).await;
    let store = life.runtime.store().clone();
    let before = store.read_journal(&run, Seq::NONE).await.unwrap();
    life.crash().await;
    assert_eq!(store.read_journal(&run, Seq::NONE).await.unwrap(), before);
    assert_eq!(world.ledger.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn k60_an_error_text_of_megabytes_is_cut_to_what_a_record_holds() {
    let world = World::new();
    let life = world.start().await;
    let run = life.submit("verbose", &calls(&[("pay", "verbose")])).await;
    let state = life.ended(&run).await;
    assert_eq!(state.status(), Status::Completed);
    let told = observations(&state).remove(0);
    assert_eq!(told.kind, ObservationKind::ToolError);
    let Payload::Json(content) = told.content else {
        panic!("in a blob")
    };
    let size = content.as_bytes().len();
    assert!(
        size > 1024 && size <= leasehold_protocol::MAX_INLINE,
        "{size}"
    );
    for commit in life.runtime.journal(&run).await.unwrap() {
        assert!(commit.body.as_bytes().len() < 4 * leasehold_protocol::MAX_INLINE);
    }
}
