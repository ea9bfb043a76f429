//! Messages of durable pull consumers, one per shard, handed to whoever waits for one.
//!
//! Nothing is pulled for which nobody waits, so a busy process takes no work away from an idle one. What was pulled for somebody who went
//! away is handed to the next; once the server counts it as undelivered again it is dropped here, for then another process may have it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream;
use bytes::Bytes;
use futures_util::StreamExt as _;
use leasehold_protocol::Seq;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::names::Shard;
use crate::wire::{Stored, Wire};

/// How long the server keeps a pull open. Shorter than the response threshold that accounts for workers are given (65 s).
const EXPIRES: Duration = Duration::from_secs(30);
/// How often the server says that an open pull is still known to it.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Silence after which a pull counts as lost: its server died, or another one leads the consumer now.
const SILENCE: Duration = Duration::from_secs(11);
/// Pause after a pull that failed at once (no leader, no consumer): elections take seconds.
const RETRY: Duration = Duration::from_millis(250);
/// Most messages of one pull.
const MOST: usize = 256;
/// Acknowledgement subjects kept for messages that nobody has acknowledged; what is older is delivered again in any case.
const KEPT: usize = 65_536;

/// Makes a shard's consumer when it is missing.
#[async_trait::async_trait]
pub(crate) trait Provision: Send + Sync + 'static {
    /// Where messages are pulled from.
    fn place(&self, shard: Shard) -> (String, String);
    /// Makes the consumer unless it is there.
    async fn provide(&self, wire: &Wire, shard: Shard) -> Result<(), String>;
}

/// A message that was pulled.
#[derive(Debug, Clone)]
pub(crate) struct Pulled {
    pub(crate) shard: Shard,
    pub(crate) stored: Stored,
    pub(crate) redelivered: bool,
    /// Where it is acknowledged.
    pub(crate) reply: String,
    received: Instant,
}

/// See the module.
pub(crate) struct Feed {
    inner: Arc<Inner>,
    stop: CancellationToken,
}

struct Inner {
    wire: Wire,
    /// How long a pulled message is ours.
    ack_wait: Duration,
    ready: Mutex<VecDeque<Pulled>>,
    arrived: Notify,
    waiting: watch::Sender<usize>,
    replies: Mutex<HashMap<(Shard, Seq), String>>,
}

/// Counts a waiter for as long as it waits.
struct Waiter<'a>(&'a Inner);

impl<'a> Waiter<'a> {
    fn new(inner: &'a Inner) -> Self {
        inner
            .waiting
            .send_modify(|waiting| *waiting = waiting.saturating_add(1));
        Self(inner)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0
            .waiting
            .send_modify(|waiting| *waiting = waiting.saturating_sub(1));
    }
}

impl Feed {
    pub(crate) fn start(
        wire: Wire,
        shards: u16,
        ack_wait: Duration,
        provision: Arc<dyn Provision>,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Self {
        let inner = Arc::new(Inner {
            wire,
            ack_wait,
            ready: Mutex::default(),
            arrived: Notify::new(),
            waiting: watch::Sender::new(0),
            replies: Mutex::default(),
        });
        let stop = stop.child_token();
        for shard in (0..shards).map(Shard) {
            let (inner, provision, stop) = (inner.clone(), provision.clone(), stop.clone());
            let pulling = async move { inner.pull_for_ever(shard, shards, &*provision).await };
            tasks.spawn(async move { stop.run_until_cancelled(pulling).await });
        }
        Self { inner, stop }
    }

    /// The next message; waits until there is one.
    pub(crate) async fn next(&self) -> Pulled {
        let inner = &*self.inner;
        let _waiter = Waiter::new(inner);
        loop {
            let arrived = inner.arrived.notified();
            if let Some(pulled) = inner.take() {
                return pulled;
            }
            arrived.await;
        }
    }

    /// The message needs no more deliveries. Losing this is harmless.
    pub(crate) async fn ack(&self, shard: Shard, seq: Seq) {
        let reply = lock(&self.inner.replies).remove(&(shard, seq));
        if let Some(reply) = reply {
            self.inner.answer(reply, Bytes::from_static(b"+ACK")).await;
        }
    }

    /// The message is to be delivered again, not before `delay` has passed.
    pub(crate) async fn nak(&self, shard: Shard, seq: Seq, delay: Duration) {
        let reply = lock(&self.inner.replies).get(&(shard, seq)).cloned();
        if let Some(reply) = reply {
            let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
            let nak = format!("-NAK {}", serde_json::json!({"delay": nanos}));
            self.inner.answer(reply, nak.into()).await;
        }
    }

    /// Where the message is acknowledged, if it is in hand.
    pub(crate) fn reply(&self, shard: Shard, seq: Seq) -> Option<String> {
        lock(&self.inner.replies).get(&(shard, seq)).cloned()
    }

    /// Takes a message in that another process pulled.
    pub(crate) fn adopt(&self, shard: Shard, seq: Seq, reply: String) {
        self.inner.keep(shard, seq, reply);
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn take(&self) -> Option<Pulled> {
        let mut ready = lock(&self.ready);
        while let Some(pulled) = ready.pop_front() {
            if pulled.received.elapsed() < self.ack_wait {
                return Some(pulled);
            }
        }
        None
    }

    fn keep(&self, shard: Shard, seq: Seq, reply: String) {
        let mut replies = lock(&self.replies);
        if replies.len() >= KEPT {
            replies.clear();
        }
        replies.insert((shard, seq), reply);
    }

    async fn answer(&self, reply: String, answer: Bytes) {
        if let Err(error) = self.wire.client.publish(reply, answer).await {
            tracing::debug!(%error, "an acknowledgement was not sent; the message comes again");
        }
    }

    fn put(&self, pulled: Pulled) {
        self.keep(pulled.shard, pulled.stored.seq, pulled.reply.clone());
        lock(&self.ready).push_back(pulled);
        self.arrived.notify_one();
    }

    async fn pull_for_ever(&self, shard: Shard, shards: u16, provision: &dyn Provision) {
        let mut waiting = self.waiting.subscribe();
        loop {
            let wanted = waiting
                .wait_for(|waiting| *waiting > lock(&self.ready).len())
                .await;
            // The sender lives as long as this.
            let Ok(wanted) = wanted.map(|wanted| *wanted) else {
                return;
            };
            let wanted = wanted.saturating_sub(lock(&self.ready).len());
            let batch = wanted.div_ceil(usize::from(shards.max(1))).clamp(1, MOST);
            if let Err(why) = self.pull(shard, batch, provision).await {
                tracing::debug!(%shard, why, "a pull ended; pulling again");
                tokio::time::sleep(RETRY).await;
                if let Err(why) = provision.provide(&self.wire, shard).await {
                    tracing::debug!(%shard, why, "the consumer could not be looked after");
                }
            }
        }
    }

    /// One pull: ends once it is used up or has expired; an error if it was lost.
    async fn pull(
        &self,
        shard: Shard,
        batch: usize,
        provision: &dyn Provision,
    ) -> Result<(), String> {
        let (stream, consumer) = provision.place(shard);
        let client = &self.wire.client;
        let inbox = client.new_inbox();
        let subscribed = client.subscribe(inbox.clone()).await;
        let mut messages = subscribed.map_err(|error| error.to_string())?;
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let question = serde_json::json!({
            "batch": batch,
            "expires": nanos(EXPIRES),
            "idle_heartbeat": nanos(HEARTBEAT),
        });
        let next = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
        client
            .publish_with_reply(next, inbox, question.to_string().into())
            .await
            .map_err(|error| error.to_string())?;
        let mut got = 0;
        while got < batch {
            let message = tokio::time::timeout(SILENCE, messages.next())
                .await
                .map_err(|_| "the server is silent".to_owned())?
                .ok_or("the connection is gone")?;
            match message.status.map(|status| status.as_u16()) {
                // A heartbeat.
                Some(100) => {}
                // It has expired.
                Some(404 | 408) => return Ok(()),
                Some(status) => {
                    let why = message.description.unwrap_or_default();
                    return Err(format!("status {status} {why}"));
                }
                None => {
                    got += 1;
                    self.put(self.read(shard, message)?);
                }
            }
        }
        Ok(())
    }

    fn read(&self, shard: Shard, message: async_nats::Message) -> Result<Pulled, String> {
        let reply = message
            .reply
            .clone()
            .ok_or("a message without a reply subject")?;
        let message = jetstream::Message {
            message,
            context: self.wire.jetstream.clone(),
        };
        let info = message.info().map_err(|error| error.to_string())?;
        let (seq, delivered) = (info.stream_sequence, info.delivered);
        let message = message.message;
        Ok(Pulled {
            shard,
            stored: Stored {
                seq: Seq(seq),
                at: 0,
                subject: message.subject.to_string(),
                headers: message.headers.unwrap_or_default(),
                payload: message.payload,
            },
            redelivered: delivered > 1,
            reply: reply.to_string(),
            received: Instant::now(),
        })
    }
}
