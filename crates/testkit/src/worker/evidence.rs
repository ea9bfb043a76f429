//! Deadlines, seals and questions: what a worker says when the owner cannot wait for it, or did not.

use std::time::Duration;

use leasehold_protocol::{InspectAnswer, NoteKind, OutcomeBody};
use leasehold_tools::Failure;

use super::stage::Dispatched;
use super::{Moment, Stage};

/// Milliseconds: long enough to claim and arm on a machine under load, short for a test.
const SHORT: u64 = 2_000;
/// Well past [`SHORT`].
const PAST: Duration = Duration::from_secs(4);

/// The register holds the seal, and a note holds what really happened.
async fn met_the_seal(stage: &Stage<'_>, call: &Dispatched) {
    let notes = stage.noted(&call.chain).await;
    assert!(
        matches!(
            &notes[..],
            [NoteKind::MetSeal {
                outcome: OutcomeBody::Done { .. }
            }]
        ),
        "{notes:?}"
    );
    let outcome = stage.outcome(&call.chain).await;
    assert!(matches!(outcome, OutcomeBody::Sealed { .. }), "{outcome:?}");
    assert_eq!(
        stage.read(&call.chain).await.void,
        0,
        "an outcome that meets a seal is no second outcome"
    );
    assert_eq!(stage.published(call), 1);
}

/// The owner seals while the tool works.
pub async fn an_outcome_that_meets_a_seal_is_a_note(mut stage: Stage<'_>) {
    stage.start_slow(Duration::from_secs(2));
    let call = stage.dispatch().await;
    stage.happened(&call).await;
    stage.seal(&call.chain).await;
    met_the_seal(&stage, &call).await;
}

/// The owner seals while the worker is dead, and its own store holds the truth.
pub async fn an_outcome_of_an_earlier_life_that_meets_a_seal_is_a_note(mut stage: Stage<'_>) {
    stage.start_stalling(Moment::Logged);
    let call = stage.dispatch().await;
    stage.reached().await;
    stage.kill().await;
    stage.seal(&call.chain).await;
    stage.start();
    met_the_seal(&stage, &call).await;
}

/// The tool never answers; the worker's runtime speaks for it, and does not call it running any more.
pub async fn i11_at_the_deadline_the_worker_says_that_it_may_have_happened(mut stage: Stage<'_>) {
    stage.start_stalling(Moment::Effect);
    let call = stage.dispatch_within(SHORT).await;
    stage.reached().await;
    timed_out(&stage, &call).await;
    assert_ne!(stage.inspect(&call.chain).await, InspectAnswer::Running);
    assert!(stage.read(&call.chain).await.outcome.is_none());
    assert_eq!(stage.published(&call), 1);
}

async fn timed_out(stage: &Stage<'_>, call: &Dispatched) {
    let notes = stage.noted(&call.chain).await;
    assert!(
        matches!(
            &notes[..],
            [NoteKind::MayHaveHappened {
                failure: Failure::Timeout,
                ..
            }]
        ),
        "{notes:?}"
    );
}

/// A tool that returns after its deadline: the note stands, and a fact still goes where facts go. Where the worker ends the tool at the
/// deadline there is no later fact, and the note stands all the same.
pub async fn a_truth_that_comes_after_the_deadline_is_the_outcome(mut stage: Stage<'_>) {
    stage.start_slow(PAST);
    let call = stage.dispatch_within(SHORT).await;
    stage.happened(&call).await;
    timed_out(&stage, &call).await;
    if stage.tools_outlive_their_deadline() {
        stage.done(&call).await;
    } else {
        stage.settled(&call.chain).await;
        assert!(stage.read(&call.chain).await.outcome.is_none());
    }
    stage.goes_on().await;
    assert_eq!(stage.published(&call), 1);
}

/// A call without any time: too late at the last gate, and the worker knows that it began nothing.
pub async fn a_deadline_that_passed_before_the_effect_is_not_started(mut stage: Stage<'_>) {
    stage.start();
    let call = stage.dispatch_within(0).await;
    let outcome = stage.outcome(&call.chain).await;
    assert!(
        matches!(outcome, OutcomeBody::NotStarted { .. }),
        "{outcome:?}"
    );
    assert!(stage.claimed_by_worker(&call.chain).await);
    assert_eq!(stage.published(&call), 0);
}

/// While it may be happening, and once everything is written.
pub async fn an_inspection_is_told_running_while_the_effect_may_happen_and_settled_afterwards(
    mut stage: Stage<'_>,
) {
    stage.start_slow(Duration::from_secs(2));
    let call = stage.dispatch().await;
    stage.happened(&call).await;
    assert_eq!(stage.inspect(&call.chain).await, InspectAnswer::Running);
    stage.done(&call).await;
    stage.settled(&call.chain).await;
    assert!(stage.notes(&call.chain).await.is_empty());
}

/// Nobody has claimed it, so there is nothing to settle; it is executed like any other.
pub async fn an_inspection_of_an_unclaimed_call_changes_nothing(mut stage: Stage<'_>) {
    // Pulled by the suite, so that the worker does not get it yet.
    let call = stage.dispatch().await;
    let delivery = stage.pull().await;
    stage.start();
    stage.ready().await;
    stage.settled(&call.chain).await;
    assert!(stage.notes(&call.chain).await.is_empty());
    stage.give_back(&delivery).await;
    stage.done(&call).await;
}
