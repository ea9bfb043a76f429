//! Runs that change hands under a consumer's hook (S52).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_actors::{Answer, Drained, FileRecorder, TakeoverHook};
use leasehold_json::AcceptedJson;
use leasehold_protocol::{
    Body, Decision, Event, HookAnswer, Question, Reason, RunId, RunState, Status,
};

use crate::approvals::decide;
use crate::lives::replay;
use crate::world::{Life, World, calls, patient};

/// A hook that always answers the same, and counts.
struct Hook {
    answer: HookAnswer,
    asked: AtomicUsize,
}

#[async_trait]
impl TakeoverHook for Hook {
    async fn taken_over(&self, _: &RunId) -> HookAnswer {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.answer.clone()
    }
}

const SHOWN: &str = r#"{"since": 9007199254740993, "lag":1.50}"#;

fn waiting(presentation: &str) -> Arc<Hook> {
    Arc::new(Hook {
        answer: HookAnswer::Waiting {
            approval_kind: "failover".into(),
            capability: "go on here".into(),
            presentation: AcceptedJson::check_str(presentation).unwrap(),
        },
        asked: AtomicUsize::default(),
    })
}

/// A life with this hook; everything that its machines are told is recorded.
async fn life(world: &World, hook: Option<&Arc<Hook>>, recording: &Path) -> Life {
    let recorder = Arc::new(FileRecorder::append(recording).unwrap());
    let hook = hook.cloned();
    world
        .start_with(move |options| {
            options.recorder = recorder;
            options.hook = hook.map(|hook| hook as Arc<dyn TakeoverHook>);
        })
        .await
}

/// A run that its first owner let go of while its call was on its way, and whose call has returned since.
async fn let_go(world: &World, recording: &Path) -> RunId {
    let life = life(world, None, recording).await;
    let run = life.submit("handed-over", &calls(&[("pay", "gate")])).await;
    patient(world.gate.entered.notified()).await;
    let mut events = life.runtime.watch();
    let (drained, ()) = tokio::join!(
        patient(life.runtime.drain(Duration::from_secs(30))),
        async {
            let released = |event: &Event| matches!(event, Event::Released { .. });
            while !life.events(&run).await.iter().any(released) {
                patient(events.recv()).await.unwrap();
            }
            world.gate.open();
        }
    );
    assert_eq!(drained, Drained::Clean);
    run
}

fn asked(events: &[Event]) -> usize {
    let asked = |event: &&Event| matches!(event, Event::Requested { step: None, .. });
    events.iter().filter(asked).count()
}

fn end(state: RunState) -> (Status, Reason) {
    (state.status(), state.ending.unwrap().reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn s52_a_hook_holds_a_run_until_an_operator_lets_it_go_on() {
    let world = World::new();
    let recording = world.folder().join("recording");
    let run = let_go(&world, &recording).await;
    let hook = waiting(SHOWN);
    let second = life(&world, Some(&hook), &recording).await;
    let state = second.parked(&run).await;
    assert_eq!(state.status(), Status::Waiting);
    let (approval, question) = state.open_questions().next().unwrap();
    assert_eq!(state.held_by(), Some(approval));
    assert!(
        matches!(&question.question, Question::Approve { presentation, .. } if presentation.as_str() == SHOWN)
    );
    assert!(
        state.turns[0].steps[0].observation.is_none(),
        "nothing is adopted"
    );
    // A further life finds the question and waits with it.
    second.crash().await;
    let third = life(&world, Some(&hook), &recording).await;
    let state = third.parked(&run).await;
    assert_eq!(asked(&third.events(&run).await), 1);
    assert_eq!(
        third
            .runtime
            .decide(&run, &decide(&state, Decision::Approve))
            .await
            .unwrap(),
        Answer::Taken
    );
    assert_eq!(
        end(third.ended(&run).await),
        (Status::Completed, Reason::GoalCompleted)
    );
    assert_eq!((world.ledger.count(), third.dispatched(&run).await), (1, 1));
    assert_eq!(asked(&third.events(&run).await), 1);
    assert_eq!(hook.asked.load(Ordering::SeqCst), 1);
    // I9: its answer is an input like any other.
    let journal = third.runtime.journal(&run).await.unwrap();
    let stored: Vec<Body> = journal.into_iter().map(|commit| commit.body).collect();
    assert_eq!(replay(&third, &recording), stored);
}

#[tokio::test(flavor = "multi_thread")]
async fn s52_a_run_that_an_operator_does_not_let_go_on_ends() {
    let world = World::new();
    let recording = world.folder().join("recording");
    let run = let_go(&world, &recording).await;
    let second = life(&world, Some(&waiting("null")), &recording).await;
    let state = second.parked(&run).await;
    let request = decide(&state, Decision::Reject);
    assert_eq!(
        second.runtime.decide(&run, &request).await.unwrap(),
        Answer::Taken
    );
    assert_eq!(
        end(second.ended(&run).await),
        (Status::Cancelled, Reason::ApprovalRejected)
    );
    assert_eq!(
        (world.ledger.count(), second.dispatched(&run).await),
        (1, 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn s52_an_answer_that_cannot_be_recorded_is_an_internal_error() {
    let world = World::new();
    let recording = world.folder().join("recording");
    let run = let_go(&world, &recording).await;
    let large = format!("\"{}\"", "x".repeat(256 * 1024));
    let second = life(&world, Some(&waiting(&large)), &recording).await;
    assert_eq!(
        end(second.ended(&run).await),
        (Status::Failed, Reason::InternalError)
    );
    assert_eq!(asked(&second.events(&run).await), 0);
}
