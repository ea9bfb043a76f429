//! The inbox: write-once subjects, one consumer that all nodes share, and the way from the node that was handed a message to the one that
//! holds its run.

use std::sync::Arc;
use std::time::Duration;

use async_nats::Request;
use async_nats::header::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use leasehold_protocol::{RunId, Seq, SessionId};
use leasehold_store::{Inbox, InboxKind, InboxMessage, StoreError, SubmitError};
use tokio::sync::mpsc;

use crate::error::{Unstored, unread};
use crate::feed::{Feed, Provision};
use crate::names::{self, Named, Shard};
use crate::runlog::strange;
use crate::store::NatsStore;
use crate::wire::{Stored, Wire, expecting_own};

/// The consumer that all nodes share, on every shard's inbox.
const CONSUMER: &str = "nodes";
/// Most messages that are delivered and named by no commit. Naked ones count, and must never hold the head of the line.
const MAX_PENDING: i64 = 1_000_000;
/// How long the holder of a run may take to say that it has a forwarded message.
const FORWARD_WAIT: Duration = Duration::from_secs(1);
/// A forwarded message's position.
const SEQ: &str = "Lh-Seq";
/// Its subject.
const SUBJECT: &str = "Lh-Subject";
/// Where it is acknowledged.
const REPLY: &str = "Lh-Ack";

struct Intake {
    ack_wait: Duration,
}

#[async_trait]
impl Provision for Intake {
    fn place(&self, shard: Shard) -> (String, String) {
        (shard.inbox_stream(), CONSUMER.to_owned())
    }

    async fn provide(&self, wire: &Wire, shard: Shard) -> Result<(), String> {
        let config = pull::Config {
            durable_name: Some(CONSUMER.to_owned()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.ack_wait,
            max_deliver: -1,
            max_ack_pending: MAX_PENDING,
            ..pull::Config::default()
        };
        let made = wire
            .jetstream
            .create_consumer_on_stream(config, shard.inbox_stream())
            .await;
        made.map(|_| ()).map_err(|error| error.to_string())
    }
}

fn message(stored: &Stored) -> Result<InboxMessage, StoreError> {
    match names::read(&stored.subject) {
        Ok(Named::Inbox(run, kind)) => Ok(InboxMessage {
            seq: stored.seq,
            run,
            kind,
            body: stored.payload.clone(),
        }),
        _ => Err(strange(stored)),
    }
}

impl NatsStore {
    async fn intake(&self) -> Result<&Feed, StoreError> {
        if let Some(feed) = self.inner.inbox.get() {
            return Ok(feed);
        }
        let intake = Arc::new(Intake {
            ack_wait: self.inner.ack_wait,
        });
        for shard in self.all_shards() {
            let provided = intake.provide(self.wire(), shard).await;
            provided.map_err(|error| unread("making the nodes' consumer", error))?;
        }
        Ok(self.inner.inbox.get_or_init(|| {
            Feed::start(
                self.wire().clone(),
                self.shards(),
                self.inner.ack_wait,
                intake,
                &self.inner.tasks,
                &self.inner.stop,
            )
        }))
    }

    /// Messages that other nodes hand to this one.
    fn forwarded(&self) -> mpsc::UnboundedReceiver<InboxMessage> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let Some(session) = &self.inner.session else {
            return receiver;
        };
        let (store, subject) = (Arc::downgrade(&self.inner), names::mail(session));
        let client = self.wire().client.clone();
        self.spawn(async move {
            let Ok(mut mail) = client.subscribe(subject).await else {
                tracing::warn!("no inbox message can be forwarded to this node; they come again");
                return;
            };
            while let Some(handed) = mail.next().await {
                let Some(inner) = store.upgrade() else { return };
                let store = NatsStore { inner };
                if let Some(message) = store.take_over(&handed)
                    && sender.send(message).is_ok()
                    && let Some(reply) = handed.reply
                {
                    // The forwarder may have given up.
                    let _ = client.publish(reply, Bytes::new()).await;
                }
            }
        });
        receiver
    }

    fn take_over(&self, handed: &async_nats::Message) -> Option<InboxMessage> {
        let headers = handed.headers.as_ref()?;
        let header = |name: &str| headers.get(name).map(|value| value.as_str());
        let stored = Stored {
            seq: Seq(header(SEQ)?.parse().ok()?),
            at: 0,
            subject: header(SUBJECT)?.to_owned(),
            headers: HeaderMap::new(),
            payload: handed.payload.clone(),
        };
        let message = message(&stored).ok()?;
        let reply = header(REPLY)?.to_owned();
        self.inner
            .inbox
            .get()?
            .adopt(self.shard(&message.run), message.seq, reply);
        Some(message)
    }
}

#[async_trait]
impl Inbox for NatsStore {
    async fn put(&self, run: &RunId, kind: InboxKind, body: Bytes) -> Result<Seq, SubmitError> {
        let shard = self.shard(run);
        let (stream, subject) = (shard.inbox_stream(), shard.inbox(run, &kind));
        let headers = expecting_own(Seq::NONE);
        match self
            .wire()
            .insist(subject.clone(), headers, body.clone())
            .await
        {
            Ok(seq) => Ok(seq),
            // Something stands there, or the stream is full: what stands there says which.
            Err(error @ (Unstored::WrongLast | Unstored::Full(_))) => {
                let last = self.wire().last(&stream, &subject).await;
                match last.map_err(|error| SubmitError::Unknown(error.to_string()))? {
                    Some(there) if there.payload == body => Ok(there.seq),
                    Some(there) => Err(SubmitError::Exists {
                        seq: there.seq,
                        body: there.payload,
                    }),
                    None => Err(SubmitError::Unknown(error.store().to_string())),
                }
            }
            Err(Unstored::Never(why)) => Err(SubmitError::Never(why)),
            Err(Unstored::Busy(why) | Unstored::Unknown(why)) => Err(SubmitError::Unknown(why)),
        }
    }

    async fn next_message(&self) -> Result<InboxMessage, StoreError> {
        let feed = self.intake().await?;
        let mut forwarded = self.inner.forwarded.lock().await;
        let forwarded = forwarded.get_or_insert_with(|| self.forwarded());
        tokio::select! {
            pulled = feed.next() => message(&pulled.stored),
            Some(handed) = forwarded.recv() => Ok(handed),
        }
    }

    async fn ack_message(&self, run: &RunId, seq: Seq) -> Result<(), StoreError> {
        if let Some(feed) = self.inner.inbox.get() {
            feed.ack(self.shard(run), seq).await;
        }
        Ok(())
    }

    async fn nak_message(&self, run: &RunId, seq: Seq, delay: Duration) -> Result<(), StoreError> {
        if let Some(feed) = self.inner.inbox.get() {
            feed.nak(self.shard(run), seq, delay).await;
        }
        Ok(())
    }

    async fn forward(&self, holder: &SessionId, message: &InboxMessage) -> Result<(), StoreError> {
        let shard = self.shard(&message.run);
        let lost = || StoreError::Unavailable("the message is not in hand any more".to_owned());
        let feed = self.inner.inbox.get().ok_or_else(lost)?;
        let reply = feed.reply(shard, message.seq).ok_or_else(lost)?;
        let mut headers = HeaderMap::new();
        headers.insert(SEQ, message.seq.0.to_string());
        headers.insert(SUBJECT, shard.inbox(&message.run, &message.kind));
        headers.insert(REPLY, reply);
        let request = Request::new()
            .headers(headers)
            .payload(message.body.clone())
            .timeout(Some(FORWARD_WAIT));
        let handed = self
            .wire()
            .client
            .send_request(names::mail(holder), request)
            .await;
        handed
            .map(|_| ())
            .map_err(|error| unread("forwarding an inbox message", error))
    }

    async fn submission(&self, run: &RunId) -> Result<Option<InboxMessage>, StoreError> {
        let shard = self.shard(run);
        let filter = shard.submissions_filter(run);
        let first = self.wire().first(&shard.inbox_stream(), &filter).await?;
        first.map(|stored| message(&stored)).transpose()
    }
}
