//! Blobs and timers.

use leasehold_json::Digest;

use super::{Rig, bytes, run};
use crate::TimerEntry;

/// A blob is found by the SHA-256 of its bytes, whatever its size, also by a new process.
pub async fn blobs_come_back_verified_and_are_stored_once(rig: &dyn Rig) {
    let store = rig.open().await;
    let blobs = [bytes(""), bytes("x"), bytes(&"y".repeat(1_000_000))];
    for blob in &blobs {
        for _ in 0..2 {
            assert_eq!(
                store.put_blob(blob.clone()).await.unwrap(),
                Digest::of(blob)
            );
        }
    }
    drop(store);
    let store = rig.open().await;
    for blob in &blobs {
        assert!(store.get_blob(&Digest::of(blob)).await.unwrap().as_ref() == Some(blob));
    }
}

/// A blob that nobody stored is absent, which is no error.
pub async fn an_unknown_blob_is_absent(rig: &dyn Rig) {
    let store = rig.open().await;
    assert_eq!(
        store.get_blob(&Digest::of(b"never stored")).await.unwrap(),
        None
    );
}

/// Timers at or before the moment are due, the earliest first; one that was cleared is not.
pub async fn timers_that_are_due_are_found_in_order(rig: &dyn Rig) {
    let store = rig.open().await;
    for (name, at) in [
        ("late", 300),
        ("early", -5),
        ("middle", 100),
        ("cleared", 50),
    ] {
        store.set_timer(&run(name), at).await.unwrap();
    }
    store.clear_timer(&run("cleared")).await.unwrap();
    store.clear_timer(&run("never set")).await.unwrap();
    let due = |name: &str, at| TimerEntry { run: run(name), at };
    assert_eq!(store.due_timers(-6).await.unwrap(), []);
    assert_eq!(store.due_timers(-5).await.unwrap(), [due("early", -5)]);
    assert_eq!(
        store.due_timers(299).await.unwrap(),
        [due("early", -5), due("middle", 100)]
    );
    assert_eq!(store.due_timers(i64::MAX).await.unwrap().len(), 3);
}

/// A run has one timer: the one that was set last.
pub async fn a_later_timer_of_a_run_replaces_the_earlier(rig: &dyn Rig) {
    let store = rig.open().await;
    for at in [10, 500, 40] {
        store.set_timer(&run("r"), at).await.unwrap();
    }
    assert_eq!(store.due_timers(39).await.unwrap(), []);
    assert_eq!(
        store.due_timers(1000).await.unwrap(),
        [TimerEntry {
            run: run("r"),
            at: 40
        }]
    );
}

/// A new process finds the timers that were set, and not those that were cleared before something else became durable.
pub async fn timers_are_the_same_after_reopening(rig: &dyn Rig) {
    let store = rig.open().await;
    for name in ["kept", "cleared", "set again"] {
        store.set_timer(&run(name), 10).await.unwrap();
    }
    store.clear_timer(&run("cleared")).await.unwrap();
    store.clear_timer(&run("set again")).await.unwrap();
    store.set_timer(&run("set again"), i64::MIN).await.unwrap();
    drop(store);
    let store = rig.open().await;
    assert_eq!(
        store.due_timers(i64::MAX).await.unwrap(),
        [
            TimerEntry {
                run: run("set again"),
                at: i64::MIN
            },
            TimerEntry {
                run: run("kept"),
                at: 10
            }
        ]
    );
}
