//! Clocks that are off, step, or stand still: who may act and who counts as alive does not follow them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use common::{Servers, TTL};
use leasehold_nats::{NatsStore, Options, Role, Session, SessionOptions, StartError};
use leasehold_protocol::{NodeId, Now, SessionId};
use leasehold_store::{Authority as _, Clock, Leases as _, SystemClock};

/// Longer than any of this takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than a session's record may stand unchanged before its session counts as dead, with the time to live of these tests.
const WATCHED: Duration = Duration::from_secs(12);
const HOUR_MS: i64 = 3_600_000;

/// A machine's clock whose wall time is off by so many milliseconds, and whose boot time is not.
#[derive(Default)]
struct Off(AtomicI64);

impl Off {
    fn by(ms: i64) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(ms)))
    }
}

#[async_trait]
impl Clock for Off {
    fn now(&self) -> Now {
        let now = SystemClock.now();
        Now {
            wall: now.wall + self.0.load(Ordering::SeqCst),
            ..now
        }
    }
}

fn session(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap()
}

async fn start(
    servers: &Servers,
    name: &str,
    clock: Arc<Off>,
    bound: Duration,
) -> Result<Session, StartError> {
    let options = SessionOptions {
        target: servers.target(),
        role: Role::Node(NodeId::new("node").unwrap()),
        session: session(name),
        ttl: TTL,
        clock_bound: bound,
        clock,
    };
    Session::start(options).await
}

/// An observer whose clock is off.
async fn observer(servers: &Servers, ms: i64) -> NatsStore {
    let options = Options {
        clock: Off::by(ms),
        ..servers.options(1)
    };
    NatsStore::open(options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k12_a_clock_that_is_an_hour_off_is_refused_with_how_far() {
    let servers = common::servers(1).await;
    let _store = servers.store(1).await;
    for hours in [1, -1] {
        let bound = Duration::from_secs(60);
        match start(&servers, "off", Off::by(hours * HOUR_MS), bound).await {
            Err(StartError::Clock { off, bound: 60 }) => {
                assert!((off - hours * 3_600).abs() <= 5, "{off}");
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("a session with a clock that is {hours} h off"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k12_clocks_that_are_hours_apart_make_no_session_dead_early_and_none_alive_for_ever() {
    let servers = common::servers(1).await;
    let _first = servers.store(1).await;
    let day = Duration::from_secs(24 * 3600);
    let ahead = start(&servers, "ahead", Off::by(HOUR_MS), day)
        .await
        .unwrap();
    let behind = start(&servers, "behind", Off::by(-HOUR_MS), day)
        .await
        .unwrap();
    let observers = [
        observer(&servers, HOUR_MS).await,
        observer(&servers, -HOUR_MS).await,
    ];
    let end = tokio::time::Instant::now() + WATCHED;
    while tokio::time::Instant::now() < end {
        for observer in &observers {
            for name in ["ahead", "behind"] {
                assert!(
                    observer.session_alive(&session(name)).await.unwrap(),
                    "{name}"
                );
            }
        }
        assert!(ahead.authority().check() && behind.authority().check());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // One that never was there is found dead by both, whatever their clocks say of its time.
    for observer in &observers {
        soon(async {
            while observer.session_alive(&session("nobody")).await.unwrap() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k20_a_wall_clock_that_steps_back_lengthens_no_authority() {
    let servers = common::servers(1).await;
    let _store = servers.store(1).await;
    let clock = Off::by(0);
    let its = start(&servers, "its", clock.clone(), Duration::from_secs(60)).await;
    let its = its.unwrap();
    assert!(its.authority().check());
    servers.servers.pause(1).await.unwrap();
    clock.0.store(-300_000, Ordering::SeqCst);
    soon(its.over()).await;
    assert!(!its.authority().check());
    servers.servers.resume(1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k20_time_that_a_boot_clock_did_not_count_ends_authority_at_once() {
    let servers = common::servers(1).await;
    let _store = servers.store(1).await;
    let clock = Off::by(0);
    let its = start(&servers, "its", clock.clone(), Duration::from_secs(60)).await;
    let its = its.unwrap();
    // Nothing is renewed any more, so that the clock alone decides.
    servers.servers.pause(1).await.unwrap();
    let authority = its.authority();
    assert!(authority.check());
    // As after a suspension of the machine on a kernel whose boot clock stood still.
    clock.0.store(
        2 * i64::try_from(TTL.as_millis()).unwrap(),
        Ordering::SeqCst,
    );
    assert!(!authority.check());
    soon(its.over()).await;
    servers.servers.resume(1).await.unwrap();
}
