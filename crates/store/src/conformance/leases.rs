//! Leases.

use std::sync::Arc;

use leasehold_protocol::Seq;

use super::{QUIET, Rig, one_winner, run, session, soon, together};
use crate::{AppendError, LeaseRecord};

fn held(holder: &str, epoch: u64) -> Option<LeaseRecord> {
    Some(LeaseRecord {
        session: session(holder),
        epoch,
    })
}

/// Before anybody has written it.
pub async fn a_lease_never_written_has_no_revision_and_no_holder(rig: &dyn Rig) {
    let store = rig.open().await;
    let lease = store.lease(&run("r")).await.unwrap();
    assert_eq!((lease.revision, lease.record), (Seq::NONE, None));
    let revision = store
        .put_lease(&run("r"), Seq::NONE, held("s", 0))
        .await
        .unwrap();
    assert!(revision > Seq::NONE);
    let again = store.put_lease(&run("r"), Seq::NONE, held("t", 0)).await;
    assert!(
        matches!(again, Err(AppendError::Refused { .. })),
        "{again:?}"
    );
}

/// A released lease, taken by fifty at once, has one taker; two hundred times.
pub async fn k06_of_fifty_that_take_a_released_lease_one_wins(rig: &dyn Rig) {
    let store = rig.open().await;
    let run = run("r");
    let mut revision = Seq::NONE;
    for round in 0..200 {
        let takers = (0..50).map(|taker| {
            let (store, run) = (Arc::clone(&store), run.clone());
            async move {
                store
                    .put_lease(&run, revision, held(&format!("s{taker}"), round))
                    .await
            }
        });
        let taken = one_winner(together(takers).await);
        let lease = store.lease(&run).await.unwrap();
        assert_eq!(
            (lease.revision, lease.record.map(|record| record.epoch)),
            (taken, Some(round))
        );
        revision = store.put_lease(&run, taken, None).await.unwrap();
    }
}

/// Releasing leaves a revision behind: nobody who read the lease before can take it on old knowledge.
pub async fn a_released_lease_cannot_be_written_by_an_old_revision(rig: &dyn Rig) {
    let store = rig.open().await;
    let run = run("r");
    let held_at = store
        .put_lease(&run, Seq::NONE, held("s", 1))
        .await
        .unwrap();
    let released = store.put_lease(&run, held_at, None).await.unwrap();
    let lease = store.lease(&run).await.unwrap();
    assert_eq!((lease.revision, lease.record), (released, None));
    for old in [Seq::NONE, held_at] {
        let late = store.put_lease(&run, old, held("t", 2)).await;
        assert!(matches!(late, Err(AppendError::Refused { .. })), "{late:?}");
    }
    store.put_lease(&run, released, held("t", 2)).await.unwrap();
}

/// Three judged the same lease to be a dead one's. The first takes it; the others, late, neither take it nor take the fresh one away.
pub async fn k15_who_judged_a_lease_stale_cannot_remove_the_one_that_followed(rig: &dyn Rig) {
    let store = rig.open().await;
    let run = run("r");
    store
        .put_lease(&run, Seq::NONE, held("dead", 1))
        .await
        .unwrap();
    let judged = [
        store.lease(&run).await.unwrap(),
        store.lease(&run).await.unwrap(),
        store.lease(&run).await.unwrap(),
    ]
    .map(|lease| lease.revision);
    let taken = store
        .put_lease(&run, judged[0], held("first", 2))
        .await
        .unwrap();
    for late in [
        store.put_lease(&run, judged[1], None).await,
        store.put_lease(&run, judged[2], held("third", 2)).await,
    ] {
        assert!(matches!(late, Err(AppendError::Refused { .. })), "{late:?}");
    }
    let lease = store.lease(&run).await.unwrap();
    assert_eq!((lease.revision, lease.record), (taken, held("first", 2)));
}

/// A new process finds the leases of the old one.
pub async fn a_lease_is_the_same_after_reopening(rig: &dyn Rig) {
    let store = rig.open().await;
    store
        .put_lease(&run("a b"), Seq::NONE, held("old é", 7))
        .await
        .unwrap();
    let lease = store.lease(&run("a b")).await.unwrap();
    assert_eq!(lease.record, held("old é", 7));
    drop(store);
    let store = rig.open().await;
    assert_eq!(store.lease(&run("a b")).await.unwrap(), lease);
    store
        .put_lease(&run("a b"), lease.revision, held("new", 8))
        .await
        .unwrap();
}

/// The session of this process is alive; one that nobody has is not, at the latest once a session's time to live has passed.
pub async fn a_session_that_nobody_has_is_found_dead(rig: &dyn Rig) {
    let store = rig.open().await;
    soon("a verdict on a session of nobody", async {
        while store.session_alive(&session("of nobody")).await.unwrap() {
            assert!(store.session_alive(&rig.session()).await.unwrap());
            tokio::time::sleep(QUIET).await;
        }
    })
    .await;
    assert!(store.session_alive(&rig.session()).await.unwrap());
}
