//! Leases on real servers: entries that make no sense, sessions whose time never runs out on the server, servers that come and go.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod common;

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::{self, Context};
use common::Servers;
use leasehold_protocol::{RunId, Seq, SessionId};
use leasehold_store::{AppendError, LeaseRecord, Leases as _};

/// Longer than any of this takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Rounds of "write, then read" while a server is away and comes back.
const ROUNDS: u64 = 300;

fn held(session: &str, epoch: u64) -> Option<LeaseRecord> {
    Some(LeaseRecord {
        session: SessionId::new(session).unwrap(),
        epoch,
    })
}

async fn jetstream(servers: &Servers) -> Context {
    jetstream::new(
        async_nats::connect(servers.servers.urls().unwrap())
            .await
            .unwrap(),
    )
}

/// Writes an entry as no node would.
async fn put(nats: &Context, key: &str, headers: HeaderMap, value: &'static [u8]) -> Seq {
    let published = nats
        .publish_with_headers(key.to_owned(), headers, value.into())
        .await
        .unwrap();
    Seq(published.await.unwrap().sequence)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k10_a_lease_that_is_empty_or_makes_no_sense_is_nobodys_and_can_be_taken() {
    let servers = common::servers(1).await;
    let store = servers.store(2).await;
    let nats = jetstream(&servers).await;
    let mut expired = HeaderMap::new();
    expired.insert("Nats-Marker-Reason", "MaxAge");
    let none = HeaderMap::new();
    let entries: [(&str, HeaderMap, &[u8]); 7] = [
        ("empty", none.clone(), b""),
        ("blank", none.clone(), b" "),
        ("text", none.clone(), b"node-1"),
        (
            "unnamed",
            none.clone(),
            br#"{"v":1,"session":"","epoch":1}"#,
        ),
        ("array", none.clone(), b"[]"),
        ("bytes", none, b"\xff\xfe"),
        ("expired", expired, b""),
    ];
    for (name, headers, value) in entries {
        let run = RunId::new(name).unwrap();
        let key = format!("$KV.LH_LEASES.{name}");
        let revision = put(&nats, &key, headers, value).await;
        let lease = store.lease(&run).await.unwrap();
        assert_eq!((lease.revision, lease.record), (revision, None), "{name}");
        // By its revision, and by no other: whoever was quicker has it.
        let late = store.put_lease(&run, Seq::NONE, held("late", 1)).await;
        assert!(matches!(late, Err(AppendError::Refused { .. })), "{late:?}");
        store.put_lease(&run, revision, held("s", 1)).await.unwrap();
        assert_eq!(store.lease(&run).await.unwrap().record, held("s", 1));
    }
    // A session's record without sense: neither a panic nor somebody who is alive for ever.
    put(&nats, "$KV.LH_SESSIONS.odd", HeaderMap::new(), b"").await;
    dies(&store, "odd").await;
}

/// Waits until the session counts as dead.
async fn dies(store: &leasehold_nats::NatsStore, session: &str) {
    let session = SessionId::new(session).unwrap();
    let dead = async {
        // Nobody tells when a record has been there unchanged for long enough: whoever wants the run looks again.
        while store.session_alive(&session).await.unwrap_or(true) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, dead).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k09_a_session_whose_record_never_expires_is_found_dead_and_its_lease_is_taken() {
    let servers = common::servers(1).await;
    let store = servers.store(2).await;
    let nats = jetstream(&servers).await;
    let run = RunId::new("stuck").unwrap();
    let revision = store
        .put_lease(&run, Seq::NONE, held("immortal", 1))
        .await
        .unwrap();
    // As if the server did not count the time: no time to live, and nobody who renews.
    let record =
        br#"{"v":1,"session":"immortal","name":"n","pid":1,"version":"0","ttl_ms":2000,"renewal":1}"#;
    let key = "$KV.LH_SESSIONS.immortal";
    let written = put(&nats, key, HeaderMap::new(), record).await;
    assert!(
        store
            .session_alive(&SessionId::new("immortal").unwrap())
            .await
            .unwrap()
    );
    dies(&store, "immortal").await;
    let bucket = nats.get_key_value("LH_SESSIONS").await.unwrap();
    let entry = bucket.entry("immortal").await.unwrap().unwrap();
    assert_eq!(Seq(entry.revision), written, "the record is still there");
    store
        .put_lease(&run, revision, held("next", 2))
        .await
        .unwrap();
    assert_eq!(store.lease(&run).await.unwrap().record, held("next", 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k08_while_a_server_leaves_and_rejoins_an_older_lease_is_never_read_after_a_newer() {
    let servers = common::servers(3).await;
    let store = servers.store(1).await;
    let run = RunId::new("read back").unwrap();
    let leader = servers.servers.stream_leader("KV_LH_LEASES").await.unwrap();
    let follower = (1..=3).find(|n| Some(*n) != leader).unwrap();
    let (mut revision, mut stale, mut unanswered) = (Seq::NONE, 0, 0);
    for round in 1..=ROUNDS {
        match round {
            50 => servers.servers.kill(follower).await.unwrap(),
            150 => servers.servers.restart(follower).await.unwrap(),
            _ => {}
        }
        let known = revision;
        // Whatever is read, what is written is decided by the revision alone.
        match store.put_lease(&run, known, held("s", round)).await {
            Ok(written) => revision = written,
            Err(AppendError::Refused { .. }) => stale += 1,
            Err(_) => unanswered += 1,
        }
        match store.lease(&run).await {
            Ok(lease) => {
                assert!(
                    lease.revision >= revision,
                    "round {round}: {} was read after {revision}",
                    lease.revision
                );
                revision = lease.revision;
            }
            Err(_) => unanswered += 1,
        }
    }
    let last = store.lease(&run).await.unwrap();
    assert_eq!(last.revision, revision);
    assert!(last.record.is_some_and(|record| record.epoch > ROUNDS / 2));
    println!("{ROUNDS} rounds, {stale} refused, {unanswered} without an answer");
}
