//! Claim and outcome registers, evidence notes, and the server's republished word of them.

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use leasehold_protocol::{
    Body, ChainKey, ChainMessage, Hint, JournalSubject, Link, MAX_NOTES, NoteMessage, Seq,
    SessionId, Writer,
};
use leasehold_store::{AppendError, Register, Registers, StoreError};
use tokio::sync::mpsc;

use crate::asking::Question;
use crate::error::Unstored;
use crate::names::{self, Named};
use crate::runlog::strange;
use crate::store::NatsStore;
use crate::wire::{Stored, expected_of, expecting, position_of};

impl NatsStore {
    /// The chain's messages as they are stored.
    pub(crate) async fn stored_chain(&self, chain: &ChainKey) -> Result<Vec<Stored>, StoreError> {
        if self.wire().asks {
            let asked = Question::Chain(chain.clone());
            let answer = self.wire().ask(&asked, Bytes::new()).await;
            return answer.map_err(|error| error.store(&format!("the chain of {chain}")));
        }
        let shard = self.shard(&chain.run);
        let filter = shard.chain_filter(chain);
        self.records(&shard.stream(), &filter, Seq::NONE).await
    }

    /// The attempt's notes as they are stored.
    pub(crate) async fn stored_notes(&self, chain: &ChainKey) -> Result<Vec<Stored>, StoreError> {
        if self.wire().asks {
            let asked = Question::Notes(chain.clone());
            let answer = self.wire().ask(&asked, Bytes::new()).await;
            return answer.map_err(|error| error.store(&format!("the notes of {chain}")));
        }
        let shard = self.shard(&chain.run);
        let filter = shard.notes_filter(chain);
        self.records(&shard.stream(), &filter, Seq::NONE).await
    }

    async fn link(&self, stored: Stored) -> Result<ChainMessage, StoreError> {
        match names::read(&stored.subject) {
            Ok(Named::Journal(_, JournalSubject::Call(_))) => Ok(ChainMessage {
                seq: stored.seq,
                expected: None,
                link: Link::Call,
                // What stands at the writer's place of a call's subject.
                writer: "_".to_owned(),
                body: Body::from(&self.envelope(&stored).await?[..]),
            }),
            Ok(Named::Register(_, link, writer)) => Ok(ChainMessage {
                seq: stored.seq,
                expected: stored.expected(),
                link,
                writer,
                body: Body::from(&stored.payload[..]),
            }),
            _ => Err(strange(&stored)),
        }
    }
}

#[async_trait]
impl Registers for NatsStore {
    async fn read_chain(&self, chain: &ChainKey) -> Result<Vec<ChainMessage>, StoreError> {
        let stored = self.stored_chain(chain).await?;
        let mut messages = Vec::with_capacity(stored.len());
        for message in stored {
            messages.push(self.link(message).await?);
        }
        Ok(messages)
    }

    async fn write_register(
        &self,
        chain: &ChainKey,
        register: Register,
        writer: &Writer,
        expected: Seq,
        body: Bytes,
    ) -> Result<Seq, AppendError> {
        let shard = self.shard(&chain.run);
        let subject = shard.register(chain, register, &writer.token());
        let headers = expecting(&shard.chain_filter(chain), expected);
        let stored = self.wire().publish(subject, headers, body).await;
        stored.map_err(|error| error.append(expected))
    }

    async fn write_note(
        &self,
        chain: &ChainKey,
        writer: &Writer,
        body: Bytes,
        last_place: bool,
    ) -> Result<Seq, AppendError> {
        let shard = self.shard(&chain.run);
        let places = if last_place { MAX_NOTES } else { MAX_NOTES - 1 };
        let taken = self.read_notes(chain).await;
        let taken = taken
            .map_err(|error| AppendError::Busy(error.to_string()))?
            .len();
        for place in taken..places {
            let subject = shard.note(chain, &writer.token(), place);
            let headers = expecting(&shard.note_place_filter(chain, place), Seq::NONE);
            match self.wire().insist(subject, headers, body.clone()).await {
                // Somebody else has taken the place: the next one.
                Err(Unstored::WrongLast) => {}
                stored => return stored.map_err(|error| error.append(Seq::NONE)),
            }
        }
        Err(AppendError::Never(format!(
            "{chain} has all the evidence notes it may have ({MAX_NOTES}, the last kept for an outcome that met a seal)"
        )))
    }

    async fn read_notes(&self, chain: &ChainKey) -> Result<Vec<NoteMessage>, StoreError> {
        let stored = self.stored_notes(chain).await?;
        let note = |stored: &Stored| match names::read(&stored.subject) {
            Ok(Named::Note(_, writer)) => Ok(NoteMessage {
                seq: stored.seq,
                writer,
                body: Body::from(&stored.payload[..]),
            }),
            _ => Err(strange(stored)),
        };
        stored.iter().map(note).collect()
    }

    fn hints(&self, origin: &SessionId) -> mpsc::UnboundedReceiver<Hint> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (client, filter) = (self.wire().client.clone(), names::stored_filter(origin));
        self.spawn(async move {
            let mut republished = match client.subscribe(filter).await {
                Ok(republished) => republished,
                Err(error) => {
                    tracing::warn!(%error, "nothing is heard of stored outcomes; they are read");
                    return;
                }
            };
            while let Some(message) = republished.next().await {
                if let Some(hint) = hint(&message)
                    && sender.send(hint).is_err()
                {
                    return;
                }
            }
        });
        receiver
    }
}

fn hint(message: &async_nats::Message) -> Option<Hint> {
    let headers = message.headers.as_ref()?;
    match names::read(message.subject.as_str()).ok()? {
        Named::Register(chain, link, writer) => Some(Hint {
            chain,
            message: Some(ChainMessage {
                seq: position_of(headers)?,
                expected: expected_of(headers),
                link,
                writer,
                body: Body::from(&message.payload[..]),
            }),
        }),
        Named::Note(chain, _) => Some(Hint {
            chain,
            message: None,
        }),
        _ => None,
    }
}
