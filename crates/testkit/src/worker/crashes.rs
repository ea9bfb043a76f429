//! SIGKILL at each moment between claim and outcome, and what the next life says. The names are those of the design's crash points.

use leasehold_protocol::{NoteKind, OutcomeBody};

use super::stage::Dispatched;
use super::{Moment, Stage};

/// Lets the worker die at this moment of a call.
async fn killed_at(stage: &mut Stage<'_>, at: Moment) -> Dispatched {
    stage.start_stalling(at);
    let call = stage.dispatch().await;
    stage.reached().await;
    stage.kill().await;
    assert!(stage.claimed_by_worker(&call.chain).await);
    assert!(stage.read(&call.chain).await.outcome.is_none());
    call
}

/// One note, and it says that nobody knows.
async fn only_unsure(stage: &Stage<'_>, call: &Dispatched) {
    let notes = stage.noted(&call.chain).await;
    assert!(matches!(&notes[..], [NoteKind::Unsure { .. }]), "{notes:?}");
    assert!(
        stage.read(&call.chain).await.outcome.is_none(),
        "what is unknown is no fact"
    );
}

/// Nothing was armed, so nothing began: the next life says so as a fact, once it is asked.
pub async fn w3_killed_between_claim_and_arming_it_is_not_started(mut stage: Stage<'_>) {
    let call = killed_at(&mut stage, Moment::AfterClaim).await;
    stage.start();
    stage.ready().await;
    stage.settled(&call.chain).await;
    let outcome = stage.outcome(&call.chain).await;
    assert!(
        matches!(outcome, OutcomeBody::NotStarted { .. }),
        "{outcome:?}"
    );
    stage.goes_on().await;
    assert_eq!(stage.published(&call), 0);
}

/// Armed means that it may have begun: the next life says so by itself, and does not begin it.
pub async fn w5_killed_between_arming_and_effect_it_is_not_executed_and_unsure(
    mut stage: Stage<'_>,
) {
    let call = killed_at(&mut stage, Moment::Armed).await;
    stage.start();
    stage.at_once("a note", only_unsure(&stage, &call)).await;
    stage.goes_on().await;
    assert_eq!(stage.published(&call), 0);
}

/// It happened and nobody has heard of it.
pub async fn w7_killed_after_the_effect_it_is_not_executed_again_and_unsure(mut stage: Stage<'_>) {
    let call = killed_at(&mut stage, Moment::Effect).await;
    assert_eq!(stage.published(&call), 1);
    stage.start();
    stage.at_once("a note", only_unsure(&stage, &call)).await;
    stage.goes_on().await;
    assert_eq!(stage.published(&call), 1);
}

/// What the worker's own store holds is published by the next life, unasked.
pub async fn w8_killed_with_the_outcome_in_its_store_it_publishes_it(mut stage: Stage<'_>) {
    let call = killed_at(&mut stage, Moment::Logged).await;
    stage.start();
    stage.at_once("the outcome", stage.done(&call)).await;
    stage.goes_on().await;
    assert_eq!(stage.published(&call), 1);
    assert!(stage.notes(&call.chain).await.is_empty());
}

/// Nobody asks: the call itself comes again, to the life after the one that claimed it, at each moment.
pub async fn k22_a_call_that_comes_again_to_a_later_life_is_settled_and_not_executed(
    mut stage: Stage<'_>,
) {
    let unarmed = killed_at(&mut stage, Moment::AfterClaim).await;
    let armed = killed_at(&mut stage, Moment::Armed).await;
    let happened = killed_at(&mut stage, Moment::Effect).await;
    // Their time is over at once for the suite's own pulls, and what it gives back is the worker's.
    for _ in 0..3 {
        let delivery = stage.pull().await;
        assert!(delivery.redelivered);
        stage.give_back(&delivery).await;
    }
    stage.start();
    let outcome = stage.outcome(&unarmed.chain).await;
    assert!(
        matches!(outcome, OutcomeBody::NotStarted { .. }),
        "{outcome:?}"
    );
    only_unsure(&stage, &armed).await;
    only_unsure(&stage, &happened).await;
    stage.goes_on().await;
    let published = [&unarmed, &armed, &happened].map(|call| stage.published(call));
    assert_eq!(published, [0, 0, 1]);
}

/// A store that is gone knows nothing: not even that nothing was armed.
pub async fn a_worker_on_a_fresh_disk_is_unsure(mut stage: Stage<'_>) {
    let unarmed = killed_at(&mut stage, Moment::AfterClaim).await;
    let happened = killed_at(&mut stage, Moment::Effect).await;
    stage.disk().lose();
    stage.start();
    stage.ready().await;
    for call in [&unarmed, &happened] {
        stage.settled(&call.chain).await;
        only_unsure(&stage, call).await;
    }
    stage.goes_on().await;
    assert_eq!(stage.published(&unarmed), 0);
    assert_eq!(stage.published(&happened), 1);
}

/// A copy of the store from before the claim: it lacks what was armed since, and must not be taken for proof that nothing was.
pub async fn a_worker_whose_disk_went_back_in_time_is_unsure(mut stage: Stage<'_>) {
    stage.start();
    stage.goes_on().await;
    stage.tell_to_stop();
    stage.ended().await;
    stage.disk().back_up();
    let call = killed_at(&mut stage, Moment::Effect).await;
    stage.disk().put_back();
    stage.start();
    stage.ready().await;
    stage.settled(&call.chain).await;
    only_unsure(&stage, &call).await;
    stage.goes_on().await;
    assert_eq!(stage.published(&call), 1);
}

/// A store that cannot be read is no empty store: nothing of it says that nothing was armed.
pub async fn k34_a_worker_whose_store_cannot_be_read_is_unsure(mut stage: Stage<'_>) {
    let unarmed = killed_at(&mut stage, Moment::AfterClaim).await;
    let happened = killed_at(&mut stage, Moment::Effect).await;
    stage.disk().garble();
    stage.start();
    stage.ready().await;
    for call in [&unarmed, &happened] {
        stage.settled(&call.chain).await;
        only_unsure(&stage, call).await;
    }
    stage.goes_on().await;
    assert_eq!(stage.published(&unarmed), 0);
    assert_eq!(stage.published(&happened), 1);
}

/// However many lives follow, and however often they are asked.
pub async fn another_life_says_the_same_thing_once(mut stage: Stage<'_>) {
    let call = killed_at(&mut stage, Moment::Effect).await;
    for _ in 0..3 {
        stage.start();
        stage.ready().await;
        stage.settled(&call.chain).await;
        only_unsure(&stage, &call).await;
        stage.goes_on().await;
        stage.kill().await;
    }
    assert_eq!(stage.published(&call), 1);
}

/// A cluster that was restored from an old backup dispatches an attempt again. The worker's own store remembers it.
pub async fn k26_an_attempt_that_its_store_knows_is_not_executed_whatever_the_cluster_forgot(
    mut stage: Stage<'_>,
) {
    stage.start();
    let call = stage.dispatch().await;
    stage.done(&call).await;
    stage.kill().await;
    stage.lose_cluster().await;
    stage.start();
    let again = stage.dispatch().await;
    assert_eq!(again.chain, call.chain);
    let outcome = stage.outcome(&again.chain).await;
    assert!(
        matches!(outcome, OutcomeBody::NotStarted { .. }),
        "{outcome:?}"
    );
    stage.goes_on().await;
    assert_eq!(stage.published(&call), 1);
}
