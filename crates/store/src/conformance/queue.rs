//! Calls on their way to workers.

use std::sync::Arc;

use leasehold_protocol::{ChainKey, JournalSubject, Seq};

use super::{Rig, append, bytes, chain, dispatch, never, run, soon, together, write};
use crate::{Backend, Delivery, JournalAppend, SharedBackend};

fn tools(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

async fn next(store: &SharedBackend, names: &[&str]) -> Delivery {
    soon("a call", store.next_call(&tools(names)))
        .await
        .unwrap()
}

/// Dispatches one call of each of these tools, in this order, each in a run of its own.
async fn dispatch_all(store: &dyn Backend, names: &[&str]) -> Vec<(Seq, ChainKey)> {
    let mut calls = Vec::new();
    for (n, tool) in names.iter().enumerate() {
        let chain = chain(&run(&format!("run {n}")), tool, "1-0");
        calls.push((dispatch(store, &chain, &format!("call {n}")).await, chain));
    }
    calls
}

/// Over all tools asked for, the oldest call comes first; of no other tool does any come.
pub async fn calls_come_oldest_first_and_of_the_asked_tools(rig: &dyn Rig) {
    let store = rig.open().await;
    let calls = dispatch_all(&*store, &["b", "a", "c", "b", "a"]).await;
    for n in [0, 1, 3, 4] {
        let delivery = next(&store, &["a", "b"]).await;
        assert_eq!((delivery.seq, &delivery.chain), (calls[n].0, &calls[n].1));
        assert_eq!(delivery.call, format!("call {n}"));
        assert!(!delivery.redelivered);
    }
    never(
        "a call of a tool that was not asked for",
        store.next_call(&tools(&["a", "b"])),
    )
    .await;
    assert_eq!(next(&store, &["c"]).await.seq, calls[2].0);
}

/// Who asks first waits, and gets the call as soon as it is stored.
pub async fn a_worker_waits_until_there_is_a_call(rig: &dyn Rig) {
    let store = rig.open().await;
    let chain = chain(&run("r"), "t", "1-0");
    let waiting = next(&store, &["t"]);
    let (delivery, seq) = tokio::join!(waiting, dispatch(&*store, &chain, "e"));
    assert_eq!((delivery.seq, delivery.chain), (seq, chain));
}

/// Of many workers, each gets another call.
pub async fn a_call_is_handed_to_one_worker(rig: &dyn Rig) {
    let store = rig.open().await;
    let workers = (0..20).map(|_| {
        let store = Arc::clone(&store);
        async move { next(&store, &["t"]).await.seq }
    });
    let (mut got, calls) = tokio::join!(together(workers), async {
        dispatch_all(&*store, &["t"; 20]).await
    });
    got.sort();
    assert_eq!(got, calls.iter().map(|(seq, _)| *seq).collect::<Vec<_>>());
    never(
        "a call that was handed out before",
        store.next_call(&tools(&["t"])),
    )
    .await;
}

/// A call that a worker gave back comes again, marked as such.
pub async fn a_naked_call_comes_again(rig: &dyn Rig) {
    let store = rig.open().await;
    let calls = dispatch_all(&*store, &["t", "t"]).await;
    let first = next(&store, &["t"]).await;
    store.nak_call(&first.chain, first.seq).await.unwrap();
    let mut both = [next(&store, &["t"]).await, next(&store, &["t"]).await];
    both.sort_by_key(|delivery| delivery.seq);
    let [again, other] = both;
    assert_eq!(
        (again.seq, again.redelivered, again.call),
        (calls[0].0, true, first.call)
    );
    assert!(!other.redelivered);
    store.ack_call(&again.chain, again.seq).await.unwrap();
    store.nak_call(&again.chain, again.seq).await.unwrap();
    never(
        "a call that was acknowledged",
        store.next_call(&tools(&["t"])),
    )
    .await;
}

/// A worker that was dropped while it waited has not taken anything along.
pub async fn a_worker_that_stops_waiting_takes_no_call_along(rig: &dyn Rig) {
    let store = rig.open().await;
    never("a call", store.next_call(&tools(&["t"]))).await;
    let calls = dispatch_all(&*store, &["t"]).await;
    assert_eq!(next(&store, &["t"]).await.seq, calls[0].0);
}

/// A new process is handed every call that was never acknowledged, whoever had it.
pub async fn k22_unacknowledged_calls_come_again_after_reopening(rig: &dyn Rig) {
    let store = rig.open().await;
    let calls = dispatch_all(&*store, &["t", "t", "t"]).await;
    next(&store, &["t"]).await;
    drop(store);
    let store = rig.open().await;
    let mut again = Vec::new();
    for _ in &calls {
        again.push(next(&store, &["t"]).await);
    }
    // What another process may still have in hand comes when its time for an answer has passed.
    again.sort_by_key(|delivery| delivery.seq);
    assert!(
        again[0].redelivered,
        "it was handed out by the process before"
    );
    for (n, (delivery, (seq, chain))) in again.iter().zip(&calls).enumerate() {
        assert_eq!((delivery.seq, &delivery.chain), (*seq, chain));
        assert_eq!(delivery.call, format!("call {n}"));
    }
}

/// An acknowledged call does not come again, nor after an orderly close.
pub async fn acknowledged_calls_do_not_come_again(rig: &dyn Rig) {
    let store = rig.open().await;
    let calls = dispatch_all(&*store, &["t", "t"]).await;
    let first = next(&store, &["t"]).await;
    store.ack_call(&first.chain, first.seq).await.unwrap();
    store.ack_call(&first.chain, first.seq).await.unwrap();
    // Durable behind it, so that the acknowledgement can ride along.
    append(
        &*store,
        &run("another"),
        JournalSubject::Open,
        Seq::NONE,
        "x",
    )
    .await;
    drop(store);
    let store = rig.open().await;
    assert_eq!(next(&store, &["t"]).await.seq, calls[1].0);
    never(
        "a call that was acknowledged",
        store.next_call(&tools(&["t"])),
    )
    .await;
}

/// The commit is the dispatch: one that was refused dispatches nothing.
pub async fn a_refused_call_is_not_queued(rig: &dyn Rig) {
    let store = rig.open().await;
    let run = run("r");
    append(&*store, &run, JournalSubject::Open, Seq::NONE, "1").await;
    let chain = chain(&run, "t", "1-0");
    let call = JournalAppend {
        call: Some(bytes("e")),
        ..write(&run, JournalSubject::Call(chain.clone()), Seq::NONE, "x")
    };
    assert!(store.append(call).await.is_err());
    never("a call that was refused", store.next_call(&tools(&["t"]))).await;
    assert_eq!(store.read_chain(&chain).await.unwrap(), []);
}
