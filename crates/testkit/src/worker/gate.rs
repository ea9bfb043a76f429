//! Whether a call may be executed, and that it is, once.

use std::time::Duration;

use leasehold_protocol::{NoteKind, OutcomeBody, Seq};
use leasehold_tools::Failure;
use serde_json::json;

use super::Stage;
use super::stage::{ACK_WAIT, AMPLE, envelope};

/// A call is claimed, executed, and its outcome stands in the register.
pub async fn p1_a_call_is_executed_once_and_its_outcome_is_written(mut stage: Stage<'_>) {
    stage.start();
    let call = stage.dispatch().await;
    stage.done(&call).await;
    let chain = stage.read(&call.chain).await;
    assert!(stage.claimed_by_worker(&call.chain).await);
    assert_eq!(
        chain.void, 0,
        "a worker alone on a chain writes nothing in vain"
    );
    assert!(stage.notes(&call.chain).await.is_empty());
}

/// Side by side and over all shards, none is lost and none happens twice.
pub async fn p1_of_many_calls_each_is_executed_once(mut stage: Stage<'_>) {
    stage.start();
    let mut calls = Vec::new();
    for _ in 0..40 {
        calls.push(stage.dispatch_anywhere().await);
    }
    for call in &calls {
        stage.done(call).await;
    }
}

/// Names that are no subject tokens, and a text that a careless reader would change.
pub async fn k58_odd_names_and_texts_arrive_as_they_are(mut stage: Stage<'_>) {
    stage.start();
    for run in ["a.b", "a_b", "a b*>", "é✓", "x".repeat(128).as_str()] {
        let chain = stage.chain(run);
        let text = format!("{run}: \"ü\" \\ \u{1} 🙂\tend");
        let envelope = envelope(&chain, &json!({ "text": text }).to_string(), AMPLE);
        let call = stage.dispatch_as(chain, envelope, &text).await;
        stage.done(&call).await;
    }
}

/// An envelope that is too long for a header lies in the blob store.
pub async fn large_arguments_are_fetched_from_the_blob_store(mut stage: Stage<'_>) {
    stage.start();
    let chain = stage.chain("large");
    let text = "long ".repeat(12_000);
    let envelope = envelope(&chain, &json!({ "text": text }).to_string(), AMPLE);
    let call = stage.dispatch_as(chain, envelope, &text).await;
    stage.done(&call).await;
}

/// A call that another worker was given and gave back.
pub async fn k22_a_call_that_was_handed_out_before_is_executed_once(mut stage: Stage<'_>) {
    let call = stage.dispatch().await;
    let delivery = stage.pull().await;
    stage.give_back(&delivery).await;
    stage.start();
    stage.done(&call).await;
}

/// What was executed does not come again.
pub async fn a_finished_call_is_acknowledged(mut stage: Stage<'_>) {
    stage.start();
    let call = stage.dispatch().await;
    stage.done(&call).await;
    // The acknowledgement comes after the outcome: a worker that ends in good order has sent it.
    stage.tell_to_stop();
    stage.ended().await;
    stage.nothing_to_pull().await;
}

/// The same call, delivered again to the worker that is executing it, whoever else was given it meanwhile.
pub async fn k21_i5_a_call_that_comes_again_while_it_runs_is_not_executed_again(
    mut stage: Stage<'_>,
) {
    stage.start_slow(3 * ACK_WAIT);
    let call = stage.dispatch().await;
    stage.happened(&call).await;
    // Once its time is over it comes again: to the suite, which gives it back, so that it goes to the worker.
    let delivery = stage.pull().await;
    assert!(delivery.redelivered && delivery.chain == call.chain);
    stage.give_back(&delivery).await;
    stage.done(&call).await;
    stage.settled(&call.chain).await;
    assert_eq!(stage.published(&call), 1);
    assert_eq!(stage.read(&call.chain).await.void, 0);
}

/// The claim register holds another worker's claim.
pub async fn k30_i5_a_call_that_another_worker_claimed_is_not_executed(mut stage: Stage<'_>) {
    let first = stage.dispatch().await;
    let again = stage.dispatch().await;
    stage.claim_as_rival(&first.chain, first.seq).await;
    stage.claim_as_rival(&again.chain, again.seq).await;
    // One of them comes to the worker for the first time, one again.
    let delivery = stage.pull().await;
    stage.give_back(&delivery).await;
    stage.start();
    stage.goes_on().await;
    for call in [&first, &again] {
        stage.settled(&call.chain).await;
        assert_eq!(stage.published(call), 0);
        let chain = stage.read(&call.chain).await;
        assert!(chain.outcome.is_none() && chain.void == 0);
    }
    stage.tell_to_stop();
    stage.ended().await;
    stage.nothing_to_pull().await;
}

/// The claim register holds a revocation.
pub async fn i5_a_revoked_call_is_not_executed(mut stage: Stage<'_>) {
    let first = stage.dispatch().await;
    let again = stage.dispatch().await;
    stage.revoke(&first.chain, first.seq).await;
    stage.revoke(&again.chain, again.seq).await;
    let delivery = stage.pull().await;
    stage.give_back(&delivery).await;
    stage.start();
    stage.goes_on().await;
    for call in [&first, &again] {
        stage.settled(&call.chain).await;
        assert_eq!(stage.published(call), 0);
        let chain = stage.read(&call.chain).await;
        assert!(chain.revoked() && chain.outcome.is_none() && chain.void == 0);
    }
    stage.tell_to_stop();
    stage.ended().await;
    stage.nothing_to_pull().await;
}

/// A late delivery: everything is written already.
pub async fn i5_a_call_that_is_over_is_not_executed(mut stage: Stage<'_>) {
    let call = stage.dispatch().await;
    let claimed = stage.claim_as_rival(&call.chain, call.seq).await;
    stage.outcome_as_rival(&call.chain, claimed).await;
    stage.start();
    stage.goes_on().await;
    stage.settled(&call.chain).await;
    assert_eq!(stage.published(&call), 0);
    assert!(stage.notes(&call.chain).await.is_empty());
    stage.tell_to_stop();
    stage.ended().await;
    stage.nothing_to_pull().await;
}

/// What stands before the call says that this attempt was restored from somewhere: it may have happened long ago. Whoever reads the chain,
/// as of a call that was handed out before, leaves it alone.
pub async fn i5_a_chain_whose_call_is_not_its_first_message_is_never_claimed(mut stage: Stage<'_>) {
    let chain = stage.chain("restored");
    stage.claim_as_rival(&chain, Seq::NONE).await;
    let call = envelope(&chain, r#"{"text":"restored"}"#, AMPLE);
    let call = stage.dispatch_as(chain, call, "restored").await;
    let delivery = stage.pull().await;
    stage.give_back(&delivery).await;
    stage.start();
    stage.goes_on().await;
    stage.settled(&call.chain).await;
    assert_eq!(stage.published(&call), 0);
    assert!(!stage.claimed_by_worker(&call.chain).await);
}

/// Messages that count for nothing move the chain's last position and nothing else.
pub async fn void_messages_do_not_keep_a_call_from_its_worker(mut stage: Stage<'_>) {
    let call = stage.dispatch().await;
    let void = stage.outcome_as_rival(&call.chain, call.seq).await;
    stage.outcome_as_rival(&call.chain, void).await;
    stage.start();
    stage.done(&call).await;
    assert_eq!(stage.read(&call.chain).await.void, 2);
}

/// It is not claimed, nothing is written about it, and the calls behind it are executed.
pub async fn a_call_of_a_newer_version_or_without_sense_is_left_alone(mut stage: Stage<'_>) {
    stage.start();
    let mut left = Vec::new();
    for (run, field, value) in [
        ("newer", "v", json!(2)),
        ("unknown", "zzz", json!(1)),
        (
            "repeated",
            "arguments",
            json!(r#"{"text":"repeated","text":"repeated"}"#),
        ),
    ] {
        let chain = stage.chain(run);
        let mut envelope = envelope(&chain, &json!({ "text": run }).to_string(), AMPLE);
        envelope[field] = value;
        left.push(stage.dispatch_as(chain, envelope, run).await);
        stage.goes_on().await;
    }
    for call in &left {
        assert_eq!(stage.published(call), 0, "{}", call.text);
        assert!(!stage.claimed_by_worker(&call.chain).await, "{}", call.text);
    }
}

/// The claim comes before the arguments are looked at; then the tool says that it did nothing.
pub async fn s16_arguments_that_the_tool_refuses_are_nothing_happened(mut stage: Stage<'_>) {
    stage.start();
    for (run, arguments) in [("number", r#"{"text":5}"#), ("absent", "{}")] {
        let chain = stage.chain(run);
        let envelope = envelope(&chain, arguments, AMPLE);
        let call = stage.dispatch_as(chain, envelope, run).await;
        let outcome = stage.outcome(&call.chain).await;
        assert!(
            matches!(
                outcome,
                OutcomeBody::NothingHappened {
                    failure: Failure::Error,
                    ..
                }
            ),
            "{outcome:?}"
        );
        assert!(stage.claimed_by_worker(&call.chain).await);
        assert_eq!(stage.published(&call), 0);
    }
}

/// Told to stop while a call runs: the outcome is written before the end, and nothing is unsure.
pub async fn a_worker_that_is_told_to_stop_finishes_its_calls(mut stage: Stage<'_>) {
    stage.start_slow(Duration::from_secs(2));
    let call = stage.dispatch().await;
    stage.happened(&call).await;
    stage.tell_to_stop();
    stage.ended().await;
    stage.done(&call).await;
    let unsure = |note: &NoteKind| matches!(note, NoteKind::Unsure { .. });
    let notes = stage.notes(&call.chain).await;
    assert!(!notes.iter().any(|note| unsure(&note.evidence)));
}
