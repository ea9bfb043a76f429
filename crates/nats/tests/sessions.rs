//! Sessions: authority ends before anybody may count the session as dead, and their end is heard.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use common::TTL;
use leasehold_nats::{NatsStore, Role, Session, SessionOptions, StartError};
use leasehold_protocol::{NodeId, Now, RunId, Seq, SessionId};
use leasehold_store::{Authority as _, Clock, LeaseRecord, Leases as _, SystemClock};

/// Longer than any of this takes.
const PATIENCE: Duration = Duration::from_secs(30);

fn session(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap()
}

async fn holds(store: &NatsStore, run: &RunId, holder: &SessionId) {
    let record = LeaseRecord {
        session: holder.clone(),
        epoch: 1,
    };
    store.put_lease(run, Seq::NONE, Some(record)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i19_a_session_that_cannot_renew_loses_authority_before_it_counts_as_dead() {
    let servers = common::servers(1).await;
    let store = servers.store(1).await;
    let its = servers.session(&session("its"), TTL).await;
    let authority = its.authority();
    assert!(authority.check());
    assert!(store.session_alive(&session("its")).await.unwrap());
    servers.servers.pause(1).await.unwrap();
    // For good: nothing that it could still do would be its own.
    soon(its.over()).await;
    assert!(!authority.check());
    servers.servers.resume(1).await.unwrap();
    soon(async {
        while store.session_alive(&session("its")).await.unwrap_or(true) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert!(!authority.check());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_the_runs_of_a_session_are_told_when_it_ends_and_when_its_time_runs_out() {
    let servers = common::servers(1).await;
    let store = servers.store(2).await;
    let mut unowned = store.unowned();
    let (ended, run) = (session("ended"), RunId::new("of the ended").unwrap());
    let its = servers.session(&ended, TTL).await;
    holds(&store, &run, &ended).await;
    its.end();
    assert_eq!(soon(unowned.recv()).await, Some(run.clone()));
    assert!(!store.session_alive(&ended).await.unwrap());

    // A process that is killed renews no more; here its thread is kept from renewing by losing its authority without a word.
    let (silent, other) = (session("silent"), RunId::new("of the silent").unwrap());
    let client = async_nats::connect(servers.servers.url(1).unwrap())
        .await
        .unwrap();
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("Nats-TTL", "2s");
    let record =
        r#"{"v":1,"session":"silent","name":"n","pid":1,"version":"0","ttl_ms":2000,"renewal":1}"#;
    let jetstream = async_nats::jetstream::new(client);
    let acked = jetstream
        .publish_with_headers("$KV.LH_SESSIONS.silent", headers, record.into())
        .await
        .unwrap();
    acked.await.unwrap();
    holds(&store, &other, &silent).await;
    assert!(store.session_alive(&silent).await.unwrap());
    assert_eq!(soon(unowned.recv()).await, Some(other));
    assert!(!store.session_alive(&silent).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_woken_is_told_to_one_of_the_nodes() {
    let servers = common::servers(1).await;
    let stores = [servers.store(1).await, servers.store(1).await];
    let mut told = stores.each_ref().map(|store| store.unowned());
    let run = RunId::new("woken up").unwrap();
    let [one, two] = &mut told;
    let woken = soon(async {
        loop {
            // A listener that is not there yet misses it: hints may be lost.
            stores[0].wake(&run).await;
            let wait = tokio::time::sleep(Duration::from_millis(100));
            tokio::select! {
                run = one.recv() => break run,
                run = two.recv() => break run,
                () = wait => {}
            }
        }
    })
    .await;
    assert_eq!(woken, Some(run));
}

/// A machine's clock that is off.
struct Off(i64);

#[async_trait]
impl Clock for Off {
    fn now(&self) -> Now {
        let now = SystemClock.now();
        Now {
            wall: now.wall + self.0,
            ..now
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_an_hour_off_is_refused_with_how_far() {
    let servers = common::servers(1).await;
    let _store = servers.store(1).await;
    for hours in [1, -1] {
        let options = SessionOptions {
            target: servers.target(),
            role: Role::Node(NodeId::new("node").unwrap()),
            session: session("off"),
            ttl: TTL,
            clock_bound: Duration::from_secs(60),
            clock: Arc::new(Off(hours * 3_600_000)),
        };
        match Session::start(options).await {
            Err(StartError::Clock { off, bound: 60 }) => {
                assert!((off - hours * 3_600).abs() <= 5, "{off}");
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("a session with a clock that is {hours} h off"),
        }
    }
}
