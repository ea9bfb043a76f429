//! Stopping in good order, stopping at once, recording.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_actors::{Drained, FileRecorder, LocalAuthority, Recorded};
use leasehold_json::AcceptedJson;
use leasehold_protocol::{Body, Effect, Event, RunConfig, RunMachine, Status};

use crate::world::{Life, World, calls, patient};

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_lets_calls_finish_and_releases_runs() {
    let world = World::new();
    let life = world.start().await;
    let run = life.submit("drained", &calls(&[("pay", "gate")])).await;
    patient(world.gate.entered.notified()).await;
    let mut events = life.runtime.watch();
    let (drained, ()) = tokio::join!(
        patient(life.runtime.drain(Duration::from_secs(30))),
        async {
            // The run lets go while its call goes on.
            while !life
                .events(&run)
                .await
                .iter()
                .any(|event| matches!(event, Event::Released { .. }))
            {
                patient(events.recv()).await.unwrap();
            }
            world.gate.open();
        }
    );
    assert_eq!(drained, Drained::Clean);
    drop(life);
    assert_eq!(world.ledger.count(), 1);
    // S19: the outcome is not lost; the next life adopts it.
    let life = world.start().await;
    assert_eq!(life.ended(&run).await.status(), Status::Completed);
    assert_eq!(life.dispatched(&run).await, 1);
    assert_eq!(world.ledger.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_drain_ends_the_first_at_once() {
    let world = World::new();
    let life = world.start().await;
    life.submit("hurried", &calls(&[("pay", "gate")])).await;
    patient(world.gate.entered.notified()).await;
    let hour = Duration::from_secs(3600);
    let (first, second) = tokio::join!(patient(life.runtime.drain(hour)), async {
        tokio::task::yield_now().await;
        patient(life.runtime.drain(hour)).await
    });
    assert_eq!((first, second), (Drained::CutShort, Drained::CutShort));
}

#[tokio::test(flavor = "multi_thread")]
async fn i19_without_authority_nothing_is_committed_and_nothing_executed() {
    use leasehold_actors::Authority;
    let world = World::new();
    let authority = Arc::new(LocalAuthority::new());
    let given = authority.clone();
    let life = world
        .start_with(move |options| options.authority = given)
        .await;
    authority.lose("a test says so");
    let run = life.submit("powerless", &calls(&[("pay", "pay")])).await;
    // Whatever is told now is told by the next life.
    life.crash().await;
    assert_eq!(world.ledger.count(), 0);
    let life = world.start().await;
    assert_eq!(life.ended(&run).await.status(), Status::Completed);
    assert_eq!(world.ledger.count(), 1);
}

/// The commits that the machines of a recording ask for when they are told it all once more.
pub fn replay(life: &Life, recording: &Path) -> Vec<Body> {
    let mut machine = None;
    let mut asked: Vec<Body> = Vec::new();
    let lines = std::fs::read(recording).unwrap();
    for line in lines
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        match AcceptedJson::check(line)
            .unwrap()
            .parse::<Recorded>()
            .unwrap()
        {
            Recorded::Machine {
                run,
                cluster,
                node,
                session,
                clock_bound_ms,
                session_ttl_ms,
                hook,
                ..
            } => {
                let tools = life.runtime.tools().clone();
                let config = RunConfig {
                    cluster,
                    node,
                    session,
                    tools,
                    clock_bound_ms,
                    session_ttl_ms,
                    hook,
                    weakening: Default::default(),
                };
                machine = Some(RunMachine::new(config, run));
            }
            Recorded::Input { now, input, .. } => {
                for effect in machine.as_mut().unwrap().step(now, input) {
                    if let Effect::Commit(request) = effect {
                        asked.push(request.body);
                    }
                }
            }
        }
    }
    asked
}

#[tokio::test(flavor = "multi_thread")]
async fn i9_a_recording_replays_to_the_same_commits_byte_for_byte() {
    let world = World::new();
    let file = world.folder().join("recording");
    let recorder = Arc::new(FileRecorder::append(&file).unwrap());
    let life = world
        .start_with(move |options| options.recorder = recorder)
        .await;
    let run = life
        .submit(
            "recorded",
            &format!(
                "{},{}",
                calls(&[("pay", "pay"), ("look", "x")]),
                calls(&[("close", "y")])
            ),
        )
        .await;
    assert_eq!(life.ended(&run).await.status(), Status::Completed);
    let journal = life.runtime.journal(&run).await.unwrap();

    let asked = replay(&life, &file);
    let stored: Vec<Body> = journal.into_iter().map(|commit| commit.body).collect();
    assert!(stored.len() >= 4);
    assert_eq!(asked, stored);
}
