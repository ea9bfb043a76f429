//! The inbox of clients and operators.

use std::sync::Arc;
use std::time::Duration;

use leasehold_protocol::{ApprovalId, ClientId, JournalSubject, OperatorId, Seq};

use super::{Rig, append, bytes, never, run, soon, together};
use crate::{InboxKind, InboxMessage, SharedBackend, SubmitError};

fn submit(client: &str) -> InboxKind {
    InboxKind::Submit(ClientId::new(client).unwrap())
}

fn decide(approval: &str, operator: &str) -> InboxKind {
    InboxKind::Decide(
        ApprovalId::new(approval).unwrap(),
        OperatorId::new(operator).unwrap(),
    )
}

fn cancel(operator: &str) -> InboxKind {
    InboxKind::Cancel(OperatorId::new(operator).unwrap())
}

async fn next(store: &SharedBackend) -> InboxMessage {
    soon("a message", store.next_message()).await.unwrap()
}

/// Sending the same again, by the same or a later process, is answered as the first time and stores nothing.
pub async fn the_same_message_again_is_the_same_message(rig: &dyn Rig) {
    let store = rig.open().await;
    let big = "x".repeat(50_000);
    let mut positions = Vec::new();
    for body in ["small", &big] {
        let seq = store
            .put(&run(&format!("r{}", body.len())), submit("c"), bytes(body))
            .await
            .unwrap();
        assert_eq!(
            store
                .put(&run(&format!("r{}", body.len())), submit("c"), bytes(body))
                .await
                .unwrap(),
            seq
        );
        positions.push(seq);
    }
    drop(store);
    let store = rig.open().await;
    for (body, seq) in ["small", &big].into_iter().zip(positions) {
        assert_eq!(
            store
                .put(&run(&format!("r{}", body.len())), submit("c"), bytes(body))
                .await
                .unwrap(),
            seq
        );
        assert_eq!(next(&store).await.seq, seq);
    }
    never("a second copy", store.next_message()).await;
}

/// Other bytes are refused, with what stands there, for ever.
pub async fn another_message_at_the_same_subject_is_refused_with_what_stands_there(rig: &dyn Rig) {
    let store = rig.open().await;
    let run = run("r");
    for kind in [submit("c"), decide("1-0.1", "o"), cancel("o")] {
        let first = store.put(&run, kind.clone(), bytes("first")).await.unwrap();
        let got = next(&store).await;
        store.ack_message(&run, got.seq).await.unwrap();
        match store.put(&run, kind, bytes("second")).await {
            Err(SubmitError::Exists { seq, body }) => {
                assert_eq!((seq, body), (first, bytes("first")))
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A race for one subject has one winner, and everybody is told what stands there.
pub async fn of_many_different_messages_at_one_subject_one_is_stored(rig: &dyn Rig) {
    let store = rig.open().await;
    let results = together((0..16).map(|n| {
        let store = Arc::clone(&store);
        async move {
            (
                n,
                store
                    .put(&run("r"), cancel("o"), bytes(&n.to_string()))
                    .await,
            )
        }
    }))
    .await;
    let winners: Vec<_> = results
        .iter()
        .filter_map(|(n, result)| result.as_ref().ok().map(|seq| (*n, *seq)))
        .collect();
    let [(winner, seq)] = winners[..] else {
        panic!("{winners:?}")
    };
    for (_, result) in results.iter().filter(|(n, _)| *n != winner) {
        let Err(SubmitError::Exists { seq: there, body }) = result else {
            panic!("{result:?}")
        };
        assert_eq!((*there, body.clone()), (seq, bytes(&winner.to_string())));
    }
}

/// Run, kind, client, approval and operator each make another subject.
pub async fn each_name_has_its_own_subject(rig: &dyn Rig) {
    let store = rig.open().await;
    let subjects = [
        (run("r"), submit("a")),
        (run("r"), submit("b")),
        (run("r2"), submit("a")),
        (run("r"), decide("a", "a")),
        (run("r"), decide("a", "b")),
        (run("r"), decide("b", "a")),
        (run("r"), decide("a.a", "a")),
        (run("r"), cancel("a")),
        (run("r"), cancel("b")),
    ];
    for (n, (run, kind)) in subjects.iter().enumerate() {
        store
            .put(run, kind.clone(), bytes(&n.to_string()))
            .await
            .unwrap();
    }
    for (n, (run, kind)) in subjects.iter().enumerate() {
        let message = next(&store).await;
        assert_eq!(
            (&message.run, &message.kind, message.body),
            (run, kind, bytes(&n.to_string()))
        );
    }
}

/// Messages come in order of position; one that was handed out is not handed out again, and one that is awaited comes at once.
pub async fn messages_come_in_order_and_once(rig: &dyn Rig) {
    let store = rig.open().await;
    let mut positions = Vec::new();
    for n in 0..5 {
        positions.push(
            store
                .put(&run("r"), submit(&n.to_string()), bytes("x"))
                .await
                .unwrap(),
        );
    }
    for seq in &positions {
        assert_eq!(next(&store).await.seq, *seq);
    }
    let late = run("late");
    let (message, put) = tokio::join!(next(&store), store.put(&late, cancel("o"), bytes("x")));
    assert_eq!(message.seq, put.unwrap());
    never("a message that was handed out before", store.next_message()).await;
}

/// A message that was given back waits its time without holding up others.
pub async fn a_naked_message_waits_aside_and_comes_again(rig: &dyn Rig) {
    let store = rig.open().await;
    let first = store.put(&run("r"), submit("1"), bytes("x")).await.unwrap();
    let second = store.put(&run("r"), submit("2"), bytes("x")).await.unwrap();
    assert_eq!(next(&store).await.seq, first);
    store
        .nak_message(&run("r"), first, Duration::from_millis(150))
        .await
        .unwrap();
    assert_eq!(
        next(&store).await.seq,
        second,
        "a naked message held up the line"
    );
    assert_eq!(next(&store).await.seq, first);
    store
        .nak_message(&run("r"), first, Duration::from_secs(3600))
        .await
        .unwrap();
    store
        .nak_message(&run("r"), second, Duration::ZERO)
        .await
        .unwrap();
    assert_eq!(next(&store).await.seq, second);
    never("a message before its time", store.next_message()).await;
    store.ack_message(&run("r"), first).await.unwrap();
    store
        .nak_message(&run("r"), first, Duration::ZERO)
        .await
        .unwrap();
    never("a message that was acknowledged", store.next_message()).await;
}

/// A new process is handed what no commit has named, and nothing else.
pub async fn unacknowledged_messages_come_again_after_reopening(rig: &dyn Rig) {
    let store = rig.open().await;
    let mut positions = Vec::new();
    for n in 0..4 {
        positions.push(
            store
                .put(&run("r"), submit(&n.to_string()), bytes(&n.to_string()))
                .await
                .unwrap(),
        );
    }
    next(&store).await;
    let folded = next(&store).await;
    store.ack_message(&run("r"), folded.seq).await.unwrap();
    append(
        &*store,
        &run("another"),
        JournalSubject::Open,
        Seq::NONE,
        "durable behind the acknowledgement",
    )
    .await;
    drop(store);
    let store = rig.open().await;
    let mut again = Vec::new();
    for _ in 0..3 {
        let message = next(&store).await;
        again.push((message.seq, message.body));
    }
    // What another process may still have in hand comes when its time for an answer has passed.
    again.sort_by_key(|(seq, _)| *seq);
    let left = [0, 2, 3].map(|n: usize| (positions[n], bytes(&n.to_string())));
    assert_eq!(again, left);
    never("a message that was acknowledged", store.next_message()).await;
}

/// A run's submission is found without knowing the client, acknowledged or not.
pub async fn a_submission_is_found_whoever_sent_it(rig: &dyn Rig) {
    let store = rig.open().await;
    let run = run("r");
    assert!(store.submission(&run).await.unwrap().is_none());
    store
        .put(&run, cancel("o"), bytes("no submission"))
        .await
        .unwrap();
    store
        .put(&super::run("r2"), submit("c"), bytes("of another run"))
        .await
        .unwrap();
    assert!(store.submission(&run).await.unwrap().is_none());
    let seq = store
        .put(&run, submit("zoe"), bytes("first"))
        .await
        .unwrap();
    store
        .put(&run, submit("adam"), bytes("second"))
        .await
        .unwrap();
    store.ack_message(&run, seq).await.unwrap();
    let found = store.submission(&run).await.unwrap().unwrap();
    assert_eq!(
        (found.seq, found.kind, found.body),
        (seq, submit("zoe"), bytes("first")),
        "the first one counts"
    );
}
