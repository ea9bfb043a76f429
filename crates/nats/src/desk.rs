//! What a process without a node needs to serve people: who the nodes are, and what happens to runs.

use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use bytes::Bytes;
use futures_util::StreamExt as _;
use leasehold_protocol::{RunId, StoredCommit};
use leasehold_store::StoreError;
use tokio::sync::mpsc;

use crate::error::unread;
use crate::names::Shard;
use crate::store::NatsStore;

/// Where nodes say who they are; each question goes to one of them.
const HELLO: &str = "lh.hello";
impl NatsStore {
    /// Says who this node is to everybody who asks, in these words, until the store is closed.
    ///
    /// # Errors
    /// Why these words can never be said: they are longer than the servers' largest message.
    pub fn introduce(&self, words: Bytes) -> Result<(), String> {
        let client = self.wire().client.clone();
        let most = client.server_info().max_payload;
        if words.len() > most {
            return Err(format!(
                "the specifications of all tools have {} bytes together, more than the NATS server's largest message ({most}, max_payload); raise it, or split the tools over clusters",
                words.len()
            ));
        }
        self.spawn(async move {
            let Ok(mut questions) = client.queue_subscribe(HELLO, "nodes".to_owned()).await else {
                tracing::warn!("commands will not find this node");
                return;
            };
            while let Some(question) = questions.next().await {
                if let Some(reply) = question.reply {
                    // The asker may have gone.
                    let _ = client.publish(reply, words.clone()).await;
                }
            }
        });
        Ok(())
    }

    /// The words of some node; none if none is there.
    pub async fn introduction(&self) -> Result<Option<Bytes>, StoreError> {
        use async_nats::client::RequestErrorKind;
        match self.wire().client.request(HELLO, Bytes::new()).await {
            Ok(answer) => Ok(Some(answer.payload)),
            Err(error) if error.kind() == RequestErrorKind::NoResponders => Ok(None),
            Err(error) => Err(unread("asking who the nodes are", error)),
        }
    }

    /// Commits that are stored from now on, of one run or of all; at most once each, possibly never: whoever follows reads the journal when
    /// it matters. Everything stored after this has returned is told.
    pub async fn follow(
        &self,
        run: Option<&RunId>,
    ) -> Result<mpsc::UnboundedReceiver<(RunId, StoredCommit)>, StoreError> {
        let (sender, receiver) = mpsc::unbounded_channel();
        match run {
            Some(run) => {
                let shard = self.shard(run);
                self.follow_filter(shard, shard.journal_filter(run), &sender)
                    .await?;
            }
            None => {
                for shard in self.all_shards() {
                    self.follow_filter(shard, format!("lh.{shard}.run.*.j.>"), &sender)
                        .await?;
                }
            }
        }
        Ok(receiver)
    }

    async fn follow_filter(
        &self,
        shard: Shard,
        filter: String,
        told: &mpsc::UnboundedSender<(RunId, StoredCommit)>,
    ) -> Result<(), StoreError> {
        let failed = |error: &dyn std::fmt::Display| unread("following journals", error);
        let config = pull::OrderedConfig {
            filter_subject: filter,
            deliver_policy: DeliverPolicy::New,
            ..pull::OrderedConfig::default()
        };
        let stream = self.wire().stream(&shard.stream()).await?;
        let consumer = stream
            .create_consumer(config)
            .await
            .map_err(|error| failed(&error))?;
        let mut messages = consumer.messages().await.map_err(|error| failed(&error))?;
        let told = told.clone();
        self.spawn(async move {
            loop {
                let message = tokio::select! {
                    () = told.closed() => return,
                    message = messages.next() => message,
                };
                let stored = match message {
                    None => return,
                    Some(Ok(message)) => crate::wire::delivered(message),
                    Some(Err(error)) => {
                        tracing::debug!(%error, "following journals was interrupted");
                        continue;
                    }
                };
                let named = stored.and_then(|stored| {
                    let commit = Self::commit(&stored).ok()?;
                    Some((crate::names::run_of(&stored.subject)?, commit))
                });
                if let Some(named) = named
                    && told.send(named).is_err()
                {
                    return;
                }
            }
        });
        Ok(())
    }
}
