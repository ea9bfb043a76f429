//! Faults inside the runtime itself: actors that fail, and deliberate weakenings that must show.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold_actors::{Point, ReadError, Recorded, Recorder, Until};
use leasehold_protocol::{Input, RunWeakening, Status, WorkerWeakening};

use crate::world::{StopAt, World, calls, patient};

/// Brings the actor of one run down each time its machine hears of a stored commit, so many times.
struct Bringer {
    left: AtomicU32,
}

impl Recorder for Bringer {
    fn record(&self, record: Recorded) {
        let hears = matches!(
            &record,
            Recorded::Input {
                input: Input::CommitStored { .. },
                ..
            }
        );
        if hears
            && self
                .left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                })
                .is_ok()
        {
            panic!("brought down by a test");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s53_a_run_whose_actor_fails_is_started_again_from_its_journal() {
    let world = World::new();
    let life = world
        .start_with(|options| {
            options.recorder = Arc::new(Bringer {
                left: AtomicU32::new(3),
            })
        })
        .await;
    let run = life.submit("failing", &calls(&[("pay", "pay")])).await;
    assert_eq!(life.ended(&run).await.status(), Status::Completed);
    assert_eq!(world.ledger.count(), 1);
    assert!(life.runtime.status().await.quarantined.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn i16_a_run_whose_actor_keeps_failing_is_left_alone_and_reported() {
    let world = World::new();
    let life = world
        .start_with(|options| {
            options.recorder = Arc::new(Bringer {
                left: AtomicU32::new(4),
            })
        })
        .await;
    let run = life.submit("poison", &calls(&[("pay", "pay")])).await;
    let waited = patient(life.runtime.wait(&run, Until::Ended)).await;
    assert!(
        matches!(waited, Err(ReadError::Quarantined { .. })),
        "{waited:?}"
    );
    assert!(life.runtime.status().await.quarantined.contains_key(&run));
    // Its neighbours are driven, and so is the run itself by the next life.
    let sound = life.submit("sound", &calls(&[("look", "refuse")])).await;
    assert_eq!(life.ended(&sound).await.status(), Status::Completed);
    life.crash().await;
    let life = world.start().await;
    assert_eq!(life.ended(&run).await.status(), Status::Completed);
    assert_eq!(world.ledger.count(), 1);
}

/// Crashes after the effect and before its outcome is written, with this weakening in both lives. Returns the effects.
async fn effects_of(worker: WorkerWeakening, owner: RunWeakening) -> usize {
    let world = World::new();
    let stop = StopAt::new(Point::W7);
    let points = stop.clone();
    let weaken = move |options: &mut leasehold_actors::RuntimeOptions| {
        options.worker_weakening = worker;
        options.run_weakening = owner;
    };
    let life = world
        .start_with(move |options| {
            options.points = points;
            weaken(options);
        })
        .await;
    let run = life.submit("weak", &calls(&[("pay", "pay")])).await;
    patient(stop.stopped.notified()).await;
    life.crash().await;
    let life = world.start_with(weaken).await;
    life.parked(&run).await;
    world.ledger.count()
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_each_weakening_shows_as_a_second_effect() {
    assert_eq!(
        effects_of(WorkerWeakening::None, RunWeakening::None).await,
        1
    );
    assert_eq!(
        effects_of(WorkerWeakening::SkipClaim, RunWeakening::None).await,
        2
    );
    assert_eq!(
        effects_of(WorkerWeakening::None, RunWeakening::RetryUnknown).await,
        2
    );
}
