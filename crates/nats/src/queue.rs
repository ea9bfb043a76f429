//! Calls on their way to workers, and owners' questions to them.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_nats::Request;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_trait::async_trait;
use futures_util::StreamExt as _;
use leasehold_json::{AcceptedJson, Digest};
use leasehold_protocol::{ChainKey, InspectAnswer, JournalSubject, Seq, WorkerId};
use leasehold_store::{CallQueue, Delivery, Inspection, Inspections, StoreError};
use tokio::sync::{mpsc, oneshot};

use crate::error::unread;
use crate::feed::{Feed, Provision, Pulled};
use crate::names::{self, Named, Shard};
use crate::runlog::strange;
use crate::store::NatsStore;
use crate::wire::Wire;

/// How long a worker may take to settle what it is asked about; its answer is not needed for anything but `running`.
const INSPECT_WAIT: Duration = Duration::from_secs(4);
/// Most calls that are delivered and not acknowledged, over all workers of a pool and shard. A worker acknowledges once the claim is another
/// one's or the outcome is written, so this bounds calls in execution, not open questions.
const MAX_PENDING: i64 = 65_536;
/// Most pulls that wait at a consumer: workers times their slots.
const MAX_WAITING: i64 = 8_192;

/// Calls that are waited for side by side: each pull asks for a shard's part of them. A busy server answers a pull within milliseconds, and
/// one call a pull and shard would be the bound on a worker's rate.
const CALLERS: usize = 32;

/// How long a consumer that nobody pulls from is kept: longer than a pool of workers is down, shorter than tools files live.
const FORGOTTEN: Duration = Duration::from_secs(7 * 24 * 3600);

/// The durable consumer of the tools that are pulled together, on every shard: workers with the same tools share it.
pub(crate) struct Pool {
    consumer: String,
    tools: Vec<String>,
    ack_wait: Duration,
    /// Whether its state is kept in the servers' memory. On several servers one's loss does not lose it, and each delivery and
    /// acknowledgement written to a disk of each costs a good part of the rate. On one server a restart would hand out every call there
    /// ever was again.
    in_memory: bool,
}

impl Pool {
    fn new(domain: &str, tools: &[String], ack_wait: Duration, replicas: usize) -> Self {
        let mut tools = tools.to_vec();
        tools.sort();
        Self {
            consumer: consumer(domain, &tools),
            tools,
            ack_wait,
            in_memory: replicas > 1,
        }
    }

    /// The pool that has this name, if it is the one of these tools.
    pub(crate) fn named(
        consumer: &str,
        tools: &[String],
        ack_wait: Duration,
        replicas: usize,
    ) -> Option<Self> {
        let domain = consumer.strip_prefix("pool_")?.rsplit_once('_')?.0;
        let domain = leasehold_tools::from_subject_token(domain).ok()?;
        let pool = Self::new(&domain, tools, ack_wait, replicas);
        (pool.consumer == consumer && !tools.is_empty()).then_some(pool)
    }
}

/// The consumer of these tools, in the order of their names.
pub(crate) fn consumer(domain: &str, tools: &[String]) -> String {
    let hash = Digest::of(tools.join("\n").as_bytes()).to_string();
    names::pool(domain, hash.get(..16).unwrap_or(&hash))
}

#[async_trait]
impl Provision for Pool {
    fn place(&self, shard: Shard) -> (String, String) {
        (shard.stream(), self.consumer.clone())
    }

    async fn provide(&self, wire: &Wire, shard: Shard) -> Result<(), String> {
        if wire.asks {
            return wire.ask_for_pool(shard, &self.consumer, &self.tools).await;
        }
        let config = pull::Config {
            durable_name: Some(self.consumer.clone()),
            filter_subjects: self
                .tools
                .iter()
                .map(|tool| shard.calls_filter(tool))
                .collect(),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.ack_wait,
            max_deliver: -1,
            max_ack_pending: MAX_PENDING,
            max_waiting: MAX_WAITING,
            headers_only: true,
            inactive_threshold: FORGOTTEN,
            memory_storage: self.in_memory,
            ..pull::Config::default()
        };
        let made = wire
            .jetstream
            .create_consumer_on_stream(config, shard.stream())
            .await;
        made.map(|_| ()).map_err(|error| error.to_string())
    }
}

impl NatsStore {
    async fn pool(&self, tools: &[String]) -> Result<Arc<Feed>, StoreError> {
        let pools = || {
            self.inner
                .pools
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(feed) = pools().get(tools) {
            return Ok(feed.clone());
        }
        let pool = Arc::new(Pool::new(
            &self.inner.domain,
            tools,
            self.inner.ack_wait,
            self.inner.cluster.replicas,
        ));
        for shard in self.all_shards() {
            let provided = pool.provide(self.wire(), shard).await;
            provided.map_err(|error| unread("making the workers' consumer", error))?;
        }
        let mut pools = pools();
        // Somebody else may have been quicker; two feeds of one pool do no harm, one is tidier.
        let feed = pools.entry(tools.to_vec()).or_insert_with(|| {
            Arc::new(Feed::start(
                self.wire().clone(),
                self.shards(),
                self.inner.ack_wait,
                pool,
                &self.inner.tasks,
                &self.inner.stop,
            ))
        });
        Ok(feed.clone())
    }

    fn feeds(&self) -> Vec<Arc<Feed>> {
        let pools = self
            .inner
            .pools
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        pools.values().cloned().collect()
    }

    async fn delivery(&self, pulled: Pulled) -> Result<Delivery, StoreError> {
        match names::read(&pulled.stored.subject) {
            Ok(Named::Journal(_, JournalSubject::Call(chain))) => Ok(Delivery {
                seq: pulled.stored.seq,
                chain,
                call: self.envelope(&pulled.stored).await?,
                redelivered: pulled.redelivered,
            }),
            _ => Err(strange(&pulled.stored)),
        }
    }
}

#[async_trait]
impl CallQueue for NatsStore {
    async fn next_call(&self, tools: &[String]) -> Result<Delivery, StoreError> {
        let feed = self.pool(tools).await?;
        self.delivery(feed.next().await).await
    }

    fn callers(&self) -> usize {
        CALLERS
    }

    async fn ack_call(&self, chain: &ChainKey, seq: Seq) -> Result<(), StoreError> {
        for feed in self.feeds() {
            feed.ack(self.shard(&chain.run), seq).await;
        }
        Ok(())
    }

    async fn nak_call(&self, chain: &ChainKey, seq: Seq) -> Result<(), StoreError> {
        for feed in self.feeds() {
            feed.nak(self.shard(&chain.run), seq, Duration::ZERO).await;
        }
        Ok(())
    }
}

#[async_trait]
impl Inspections for NatsStore {
    async fn inspect(&self, chain: &ChainKey, worker: &WorkerId) -> InspectAnswer {
        let question = match AcceptedJson::from_serialize(chain) {
            Ok(question) => question.as_str().to_owned(),
            Err(_) => return InspectAnswer::NoAnswer,
        };
        let request = Request::new()
            .payload(question.into())
            .timeout(Some(INSPECT_WAIT));
        let subject = names::inspect(&self.inner.domain, worker);
        let answer = match self.wire().client.send_request(subject, request).await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::debug!(%chain, %worker, %error, "the worker did not answer");
                return InspectAnswer::NoAnswer;
            }
        };
        let answer = AcceptedJson::check(&answer.payload)
            .ok()
            .and_then(|json| json.parse().ok());
        answer.unwrap_or(InspectAnswer::NoAnswer)
    }

    fn inspections(&self, worker: &WorkerId) -> mpsc::UnboundedReceiver<Inspection> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let client = self.wire().client.clone();
        let subject = names::inspect(&self.inner.domain, worker);
        let tasks = self.inner.tasks.clone();
        self.spawn(async move {
            let mut questions = match client.subscribe(subject).await {
                Ok(questions) => questions,
                Err(error) => {
                    tracing::warn!(%error, "this worker cannot be asked about its attempts");
                    return;
                }
            };
            while let Some(question) = questions.next().await {
                let json = AcceptedJson::check(&question.payload).ok();
                let chain = json.and_then(|json| json.parse::<ChainKey>().ok());
                let (Some(chain), Some(reply)) = (chain, question.reply) else {
                    continue;
                };
                let (answer, answered) = oneshot::channel();
                if sender.send(Inspection { chain, answer }).is_err() {
                    return;
                }
                let client = client.clone();
                tasks.spawn(async move {
                    let answer = answered.await.unwrap_or(InspectAnswer::NoAnswer);
                    if let Ok(json) = AcceptedJson::from_serialize(&answer) {
                        // The asker may have stopped waiting.
                        let _ = client.publish(reply, json.as_str().to_owned().into()).await;
                    }
                });
            }
        });
        receiver
    }
}
