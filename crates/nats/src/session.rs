//! A process's session: its liveness record with a time to live, renewed on a thread and a connection of its own, and the authority that
//! follows from it.
//!
//! Authority lasts until the send time of the last acknowledged renewal plus the time to live minus a margin, on the boot clock: whoever
//! looks at the record waits longer before the session counts as dead. It also ends when the wall clock has run past that moment, in case
//! the boot clock does not count what the machine slept. A node's session that was refused or missed is over for good (others may have
//! taken its runs); a worker's goes on once it is renewed, for nothing is taken from a worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use async_nats::header::HeaderMap;
use backon::BackoffBuilder as _;
use bytes::Bytes;
use leasehold_json::AcceptedJson;
use leasehold_protocol::{NodeId, Seq, SessionId, WorkerId};
use leasehold_store::{Authority, Clock, StoreError};
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};

use crate::connect::{StartError, Target};
use crate::error::Unstored;
use crate::leases::{DELETED, OPERATION, is_mark};
use crate::names;
use crate::streams::{LIVENESS, MARKER_TTL, SESSIONS};
use crate::wire::{TTL, Wire, expecting_own, patience};

/// A session's time to live unless said otherwise.
pub const DEFAULT_TTL: Duration = Duration::from_secs(30);
/// The shortest; below it a busy machine loses sessions that are well. For tests only: production stays at 15 s or more.
pub const SHORTEST_TTL: Duration = Duration::from_secs(1);
/// The part of the time to live that authority ends before it: what a clock may drift and a thread may be late.
const MARGIN: u32 = 10;
/// What is granted beyond the bound on clocks: the record's way to the server and back.
const CLOCK_SLACK: Duration = Duration::from_secs(2);
/// How often a renewal is tried again before it is due the next time.
const TRIES: u32 = 3;

/// A session's record, as it lies in the bucket (nodes) or the liveness stream (workers).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Format version.
    pub v: u32,
    /// The life.
    pub session: SessionId,
    /// The process's name.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// Its program's version.
    pub version: String,
    /// How long the record lives without a renewal, milliseconds.
    pub ttl_ms: u64,
    /// How often it was renewed: tells the own renewal, whose acknowledgement was lost, from another writer's record.
    pub renewal: u64,
}

impl Record {
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }
}

/// Whose session it is.
#[derive(Debug, Clone)]
pub enum Role {
    /// A node's: over for good once it was missed.
    Node(NodeId),
    /// A worker's of this domain: goes on once it is renewed.
    Worker {
        /// Its domain.
        domain: String,
        /// Its name.
        worker: WorkerId,
    },
}

/// What a session is made of.
#[derive(Clone)]
pub struct SessionOptions {
    /// The servers.
    pub target: Target,
    /// Whose it is.
    pub role: Role,
    /// This life.
    pub session: SessionId,
    /// Its time to live; at least [`SHORTEST_TTL`].
    pub ttl: Duration,
    /// How far this machine's clock may be from the servers'.
    pub clock_bound: Duration,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

pub(crate) fn session_key(session: &SessionId) -> String {
    format!("$KV.LH_SESSIONS.{}", session.token())
}

/// A running session. Dropping it ends it: its record is taken away at once, so that others need not wait for its time to run out.
pub struct Session {
    shared: Arc<Shared>,
    over: watch::Receiver<Option<String>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// What the renewing thread and everybody who asks share.
struct Shared {
    clock: Arc<dyn Clock>,
    /// End of authority on the boot clock, milliseconds; 0: none.
    until_boot: AtomicU64,
    /// And on the wall clock.
    until_wall: AtomicI64,
    lost: AtomicBool,
    over: watch::Sender<Option<String>>,
}

impl Shared {
    fn check(&self) -> bool {
        if self.lost.load(Ordering::Acquire) {
            return false;
        }
        let now = self.clock.now();
        now.boot < self.until_boot.load(Ordering::Acquire)
            && now.wall < self.until_wall.load(Ordering::Acquire)
    }

    fn end(&self, why: &str) {
        if !self.lost.swap(true, Ordering::AcqRel) {
            tracing::error!(
                why,
                "this session is over: the process may not act any more"
            );
            self.over.send_replace(Some(why.to_owned()));
        }
    }

    /// A renewal sent at this moment was acknowledged.
    fn renewed(&self, sent: leasehold_protocol::Now, ttl: Duration) {
        let lasts = millis(ttl - ttl / MARGIN);
        let wall = sent
            .wall
            .saturating_add(i64::try_from(lasts).unwrap_or(i64::MAX));
        self.until_wall.store(wall, Ordering::Release);
        self.until_boot
            .store(sent.boot.saturating_add(lasts), Ordering::Release);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A session's authority, to be handed to whoever acts.
#[derive(Clone)]
pub struct SessionAuthority(Arc<Shared>);

impl Authority for SessionAuthority {
    fn check(&self) -> bool {
        self.0.check()
    }
    fn lose(&self, why: &str) {
        self.0.end(why);
    }
}

impl Session {
    /// Starts the session; it is alive, and holds authority, once this returns.
    pub async fn start(options: SessionOptions) -> Result<Self, StartError> {
        if options.ttl < SHORTEST_TTL {
            return Err(StartError::Shape(format!(
                "a session lives at least {} s without a renewal, not {:?}",
                SHORTEST_TTL.as_secs(),
                options.ttl
            )));
        }
        let (over_sender, over) = watch::channel(None);
        let shared = Arc::new(Shared {
            clock: options.clock.clone(),
            until_boot: AtomicU64::new(0),
            until_wall: AtomicI64::new(0),
            lost: AtomicBool::new(false),
            over: over_sender,
        });
        let (started, has_started) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let its = shared.clone();
        let thread = std::thread::Builder::new()
            .name("leasehold-session".to_owned())
            .spawn(move || on_thread(options, its, started, stopped))
            .map_err(|error| StartError::api("the session's thread did not start", error))?;
        let session = Self {
            shared,
            over,
            stop: Some(stop),
            thread: Some(thread),
        };
        match has_started.await {
            Ok(result) => result.map(|()| session),
            Err(_) => Err(StartError::api(
                "the session did not start",
                "its thread ended",
            )),
        }
    }

    /// The authority that it gives.
    pub fn authority(&self) -> Arc<SessionAuthority> {
        Arc::new(SessionAuthority(self.shared.clone()))
    }

    /// Returns, with the reason, once the session is over for good.
    pub async fn over(&self) -> String {
        let mut over = self.over.clone();
        let why = over
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|why| why.clone());
        why.unwrap_or_else(|| "the session's thread ended".to_owned())
    }

    /// Ends it in good order: no authority from here on, and the record is taken away.
    pub fn end(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        self.shared.lost.store(true, Ordering::Release);
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended as well.
            let _ = thread.join();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.finish();
    }
}

fn on_thread(
    options: SessionOptions,
    shared: Arc<Shared>,
    started: oneshot::Sender<Result<(), StartError>>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = started.send(Err(StartError::api(
                "the session's thread did not start",
                error,
            )));
            return;
        }
    };
    runtime.block_on(async {
        let renewing = Renewing::start(options, shared).await;
        match renewing {
            Ok(renewing) => {
                let _ = started.send(Ok(()));
                renewing.run(stopped).await;
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        }
    });
}

struct Renewing {
    wire: Wire,
    shared: Arc<Shared>,
    key: String,
    stream: &'static str,
    is_for_good: bool,
    ttl: Duration,
    record: Record,
    revision: Seq,
}

impl Renewing {
    async fn start(options: SessionOptions, shared: Arc<Shared>) -> Result<Self, StartError> {
        let (key, stream, is_for_good, name) = match &options.role {
            Role::Node(node) => (
                session_key(&options.session),
                SESSIONS,
                true,
                node.to_string(),
            ),
            Role::Worker { domain, worker } => (
                names::live(domain, worker),
                LIVENESS,
                false,
                worker.to_string(),
            ),
        };
        let connection = options.target.connect(&format!("{name} session")).await?;
        let mut renewing = Self {
            wire: Wire::new(&connection),
            shared,
            key,
            stream,
            is_for_good,
            ttl: options.ttl,
            record: Record {
                v: leasehold_protocol::WIRE_VERSION,
                session: options.session,
                name,
                pid: std::process::id(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                ttl_ms: millis(options.ttl),
                renewal: 0,
            },
            revision: Seq::NONE,
        };
        let begun = connection.permitted(async {
            let begun = renewing.begin().await;
            begun.map_err(|error| StartError::api("the session could not begin", error))?;
            renewing.compare_clocks(options.clock_bound).await
        });
        begun.await?;
        Ok(renewing)
    }

    /// Writes the first record over whatever an earlier life left.
    async fn begin(&mut self) -> Result<(), StoreError> {
        let mut pauses = patience().build();
        loop {
            let refused = match self.wire.last(self.stream, &self.key).await {
                Ok(last) => {
                    self.revision = last.map_or(Seq::NONE, |last| last.seq);
                    match self.renew().await {
                        Ok(()) => return Ok(()),
                        Err(Refused::Taken(why) | Refused::Unanswered(why)) => {
                            StoreError::Unavailable(why)
                        }
                    }
                }
                Err(error) => error,
            };
            match pauses.next() {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(refused),
            }
        }
    }

    /// The record that was just written tells the server's time.
    async fn compare_clocks(&self, bound: Duration) -> Result<(), StartError> {
        let stored = self.wire.last(self.stream, &self.key).await;
        let stored = stored.map_err(|error| StartError::api("the session's record", error))?;
        let Some(stored) = stored else { return Ok(()) };
        let off = self.shared.clock.now().wall.saturating_sub(stored.at) / 1000;
        if off.unsigned_abs() > (bound + CLOCK_SLACK).as_secs() {
            self.take_away().await;
            return Err(StartError::Clock {
                off,
                bound: bound.as_secs(),
            });
        }
        Ok(())
    }

    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let pause = self.ttl / 3;
        loop {
            tokio::select! {
                _ = &mut stopped => return self.take_away().await,
                () = tokio::time::sleep(pause) => {}
            }
            if self.shared.lost.load(Ordering::Acquire) {
                // Authority was lost for another reason: others may as well know.
                return self.take_away().await;
            }
            let mut wait = pause / (TRIES * 4);
            for tries_left in (0..TRIES).rev() {
                match self.renew().await {
                    Ok(()) => break,
                    Err(Refused::Taken(why)) if self.is_for_good => {
                        return self.shared.end(&why);
                    }
                    Err(Refused::Taken(why) | Refused::Unanswered(why)) => {
                        tracing::warn!(why, tries_left, "the session was not renewed");
                    }
                }
                tokio::time::sleep(wait).await;
                wait *= 2;
            }
            if self.is_for_good && !self.shared.check() {
                return self
                    .shared
                    .end("its renewals were missed for longer than it lives");
            }
        }
    }

    async fn renew(&mut self) -> Result<(), Refused> {
        self.record.renewal = self.record.renewal.saturating_add(1);
        let json = AcceptedJson::from_serialize(&self.record)
            .map_err(|error| Refused::Taken(error.to_string()))?;
        let body = Bytes::copy_from_slice(json.as_bytes());
        let mut headers = expecting_own(self.revision);
        headers.insert(TTL, format!("{}s", self.ttl.as_secs().max(1)));
        let sent = self.shared.clock.now();
        match self.wire.publish(self.key.clone(), headers, body).await {
            Ok(revision) => {
                // A renewal that was acknowledged after the time to live may have been rolled up by the expiry's mark.
                if self.shared.clock.now().boot.saturating_sub(sent.boot) < millis(self.ttl) {
                    self.revision = revision;
                    self.shared.renewed(sent, self.ttl);
                }
                Ok(())
            }
            Err(Unstored::WrongLast) => self.look().await,
            Err(error) => Err(Refused::Unanswered(error.store().to_string())),
        }
    }

    /// Somebody wrote before us: ourselves, unheard; the server, because our time had run out; or another life.
    async fn look(&mut self) -> Result<(), Refused> {
        let last = self.wire.last(self.stream, &self.key).await;
        let last = last.map_err(|error| Refused::Unanswered(error.to_string()))?;
        let Some(last) = last else {
            self.revision = Seq::NONE;
            return Err(Refused::Taken("its record is gone".to_owned()));
        };
        self.revision = last.seq;
        if is_mark(&last) {
            return Err(Refused::Taken("its time to live had run out".to_owned()));
        }
        let record = AcceptedJson::check(&last.payload)
            .ok()
            .and_then(|json| json.parse::<Record>().ok());
        match record {
            Some(record) if record.session == self.record.session => Err(Refused::Unanswered(
                "an earlier renewal was stored unheard".to_owned(),
            )),
            _ => Err(Refused::Taken(
                "another process has written its record".to_owned(),
            )),
        }
    }

    async fn take_away(&self) {
        let mut headers: HeaderMap = expecting_own(self.revision);
        headers.insert(OPERATION, DELETED);
        headers.insert(TTL, format!("{}s", MARKER_TTL.as_secs()));
        if let Err(error) = self
            .wire
            .publish(self.key.clone(), headers, Bytes::new())
            .await
        {
            let why = error.store();
            tracing::debug!(%why, "the session's record stays until its time has run out");
        }
    }
}

enum Refused {
    /// By what stands there.
    Taken(String),
    /// Or nobody knows.
    Unanswered(String),
}
