//! Sessions: authority ends before anybody may count the session as dead, and their end is heard.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod common;

use std::time::Duration;

use common::TTL;
use futures_util::StreamExt as _;
use leasehold_nats::NatsStore;
use leasehold_protocol::{RunId, Seq, SessionId};
use leasehold_store::{Authority as _, Clock as _, LeaseRecord, Leases as _, SystemClock};

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

/// Whether the sessions' stream refuses every write with an error, at once.
async fn refusing(servers: &common::Servers, refuses: bool) {
    let nats = async_nats::connect(servers.servers.urls().unwrap())
        .await
        .unwrap();
    let nats = async_nats::jetstream::new(nats);
    let stream = nats.get_stream("KV_LH_SESSIONS").await.unwrap();
    let mut config = stream.cached_info().config.clone();
    config.max_message_size = if refuses { 1 } else { -1 };
    nats.update_stream(&config).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k02_a_session_whose_renewals_are_refused_is_over_before_another_has_its_run_and_stays_over()
 {
    let servers = common::servers(1).await;
    let store = servers.store(1).await;
    let its = servers.session(&session("its"), TTL).await;
    let (authority, run) = (its.authority(), RunId::new("taken").unwrap());
    holds(&store, &run, &session("its")).await;
    assert!(authority.check());
    refusing(&servers, true).await;
    soon(async {
        while store.session_alive(&session("its")).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert!(!authority.check(), "its runs are anybody's now");
    soon(its.over()).await;
    let next = LeaseRecord {
        session: session("next"),
        epoch: 2,
    };
    let lease = store.lease(&run).await.unwrap();
    store
        .put_lease(&run, lease.revision, Some(next.clone()))
        .await
        .unwrap();
    // Its writes would be taken again; it does not come back, and takes nothing back.
    refusing(&servers, false).await;
    tokio::time::sleep(2 * TTL).await;
    assert!(!authority.check());
    assert_eq!(store.lease(&run).await.unwrap().record, Some(next));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k18_after_a_renewal_that_failed_the_next_ones_go_on() {
    /// Long enough that one refused renewal is none that was missed for good.
    const LONG_TTL: Duration = Duration::from_secs(6);
    let servers = common::servers(1).await;
    let _store = servers.store(1).await;
    let its = servers.session(&session("its"), LONG_TTL).await;
    let authority = its.authority();
    // Every renewal passes by here, whether it is stored or not.
    let watcher = async_nats::connect(servers.servers.urls().unwrap())
        .await
        .unwrap();
    let mut renewals = watcher.subscribe("$KV.LH_SESSIONS.its").await.unwrap();
    watcher.flush().await.unwrap();
    refusing(&servers, true).await;
    soon(renewals.next()).await.unwrap();
    refusing(&servers, false).await;
    // Four more take longer than what was granted before.
    for _ in 0..4 {
        soon(renewals.next()).await.unwrap();
        assert!(authority.check());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k19_work_that_holds_every_thread_of_the_runtime_does_not_keep_a_session_from_renewing() {
    const SPUN_TTL: Duration = Duration::from_secs(4);
    let servers = common::servers(1).await;
    let store = servers.store(1).await;
    let its = servers.session(&session("its"), SPUN_TTL).await;
    let authority = its.authority();
    let until = SystemClock.now().boot + 2 * u64::try_from(SPUN_TTL.as_millis()).unwrap();
    let spin = move || {
        while SystemClock.now().boot < until {
            std::hint::spin_loop();
        }
    };
    // Both threads of the runtime, and this one, which waits for them outside of it.
    let mut spinning = tokio::task::JoinSet::new();
    spinning.spawn(async move { spin() });
    spinning.spawn(async move { spin() });
    let watching = authority.clone();
    let held = std::thread::spawn(move || {
        let mut looks = 0_u32;
        while SystemClock.now().boot < until {
            assert!(watching.check(), "after {looks} looks");
            looks += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    held.join().unwrap();
    spinning.join_all().await;
    assert!(authority.check());
    assert!(store.session_alive(&session("its")).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k05_a_leader_that_stood_still_and_comes_back_gives_no_authority_over_a_dead_session() {
    let servers = common::servers(3).await;
    let store = servers.store(1).await;
    let its = servers.session(&session("its"), TTL).await;
    let authority = its.authority();
    let leader = servers.servers.stream_leader("KV_LH_SESSIONS").await;
    let leader = leader.unwrap().unwrap();
    servers.servers.pause(leader).await.unwrap();
    let watch = async {
        let mut deaths = 0;
        loop {
            // An answer says what was true when it was given: authority is looked at after it.
            if matches!(store.session_alive(&session("its")).await, Ok(false)) {
                assert!(!authority.check(), "dead for others, and it may act");
                deaths += 1;
                if deaths > 50 {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let back = async {
        tokio::time::sleep(2 * TTL).await;
        servers.servers.resume(leader).await.unwrap();
    };
    tokio::time::timeout(2 * PATIENCE, async { tokio::join!(watch, back) })
        .await
        .unwrap();
    soon(its.over()).await;
    // And life goes on.
    let next = servers.session(&session("next"), 5 * TTL).await;
    assert!(next.authority().check());
}
