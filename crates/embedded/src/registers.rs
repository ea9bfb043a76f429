//! Claim and outcome registers, evidence notes, and the hints that tell a dispatching session of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_protocol::{
    ChainKey, ChainMessage, Hint, Link, MAX_NOTES, NoteMessage, Seq, SessionId, Writer,
};
use leasehold_store::{AppendError, Register, Registers, StoreError};
use tokio::sync::mpsc;

use crate::EmbeddedStore;
use crate::content::{load, place};
use crate::keys::{self, CHAIN, NOTE};
use crate::record::{Damage, Kind, Record};
use crate::runlog::body;
use crate::store::{expect, not_placed, not_staged};

/// Who wants to hear of stored registers and notes, by origin.
#[derive(Debug, Default)]
pub(crate) struct Hints(Mutex<HashMap<SessionId, Vec<mpsc::UnboundedSender<Hint>>>>);

impl Hints {
    fn subscribe(&self, origin: &SessionId) -> mpsc::UnboundedReceiver<Hint> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut subscribers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        subscribers.retain(|_, senders| {
            senders.retain(|sender| !sender.is_closed());
            !senders.is_empty()
        });
        subscribers.entry(origin.clone()).or_default().push(sender);
        receiver
    }

    /// Tells everybody who listens for the origin; receivers that were dropped are forgotten.
    fn tell(&self, hint: &Hint) {
        let mut subscribers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(senders) = subscribers.get_mut(&hint.chain.origin) {
            senders.retain(|sender| sender.send(hint.clone()).is_ok());
            if senders.is_empty() {
                subscribers.remove(&hint.chain.origin);
            }
        }
    }
}

/// The link that a record of a chain is.
pub(crate) fn link(kind: Kind) -> Option<Link> {
    match kind {
        Kind::LinkCall => Some(Link::Call),
        Kind::LinkClaim => Some(Link::Claim),
        Kind::LinkOutcome => Some(Link::Outcome),
        _ => None,
    }
}

#[async_trait]
impl Registers for EmbeddedStore {
    async fn read_chain(&self, chain: &ChainKey) -> Result<Vec<ChainMessage>, StoreError> {
        let mut messages: Vec<ChainMessage> = Vec::new();
        for (key, record) in self.reads().scan_all(&keys::chain(CHAIN, chain))? {
            let link = link(record.kind)
                .ok_or_else(|| Damage::new(format!("a {:?} in a chain", record.kind)).of(&key))?;
            if record.number != messages.last().map_or(0, |last| last.seq.0) {
                return Err(Damage::new(format!(
                    "it follows position {}, which is missing",
                    record.number
                ))
                .of(&key));
            }
            let expected = (link != Link::Call).then_some(Seq(record.number));
            let writer = record.name(0).map_err(|damage| damage.of(&key))?.to_owned();
            messages.push(ChainMessage {
                seq: record.seq,
                expected,
                link,
                writer,
                body: body(&load(self.blobs(), record.content)?),
            });
        }
        Ok(messages)
    }

    async fn write_register(
        &self,
        chain: &ChainKey,
        register: Register,
        writer: &Writer,
        expected: Seq,
        bytes: Bytes,
    ) -> Result<Seq, AppendError> {
        keys::bounded(chain)?;
        let (kind, link) = match register {
            Register::Claim => (Kind::LinkClaim, Link::Claim),
            Register::Outcome => (Kind::LinkOutcome, Link::Outcome),
        };
        let content = place(self.blobs(), bytes.clone())
            .await
            .map_err(|e| not_placed(&e))?;
        let (hints, chain, writer) = (Arc::clone(self.hub()), chain.clone(), writer.token());
        let stored = self.writer().write(move |group| {
            let prefix = keys::chain(CHAIN, &chain);
            let tail = group.last_under(&prefix).map_err(not_staged)?;
            expect(expected, tail.map(|record| record.seq))?;
            let seq = group.next_seq();
            let record = Record::new(kind, seq)
                .number(expected.0)
                .names([writer.clone()])
                .content(content);
            group.append(keys::at(prefix, seq), &record);
            group.after(move || {
                let message = ChainMessage {
                    seq,
                    expected: Some(expected),
                    link,
                    writer,
                    body: body(&bytes),
                };
                hints.tell(&Hint {
                    chain,
                    message: Some(message),
                });
            });
            Ok(seq)
        });
        stored.await?
    }

    async fn write_note(
        &self,
        chain: &ChainKey,
        writer: &Writer,
        bytes: Bytes,
        last_place: bool,
    ) -> Result<Seq, AppendError> {
        keys::bounded(chain)?;
        let content = place(self.blobs(), bytes)
            .await
            .map_err(|e| not_placed(&e))?;
        let (hints, chain, writer) = (Arc::clone(self.hub()), chain.clone(), writer.token());
        let stored = self.writer().write(move |group| {
            let prefix = keys::chain(NOTE, &chain);
            let room = if last_place { MAX_NOTES } else { MAX_NOTES.saturating_sub(1) };
            let before = group.count_under(&prefix).map_err(not_staged)?;
            if before >= room {
                return Err(AppendError::Never(format!("{chain} has all the evidence notes it may have ({MAX_NOTES}, the last kept for an outcome that met a seal)")));
            }
            let seq = group.next_seq();
            group.append(keys::at(prefix, seq), &Record::new(Kind::Note, seq).number(u64::try_from(before).unwrap_or(u64::MAX)).names([writer]).content(content));
            group.after(move || hints.tell(&Hint { chain, message: None }));
            Ok(seq)
        });
        stored.await?
    }

    async fn read_notes(&self, chain: &ChainKey) -> Result<Vec<NoteMessage>, StoreError> {
        let mut notes = Vec::new();
        for (key, record) in self.reads().scan_all(&keys::chain(NOTE, chain))? {
            let writer = record.name(0).map_err(|damage| damage.of(&key))?.to_owned();
            notes.push(NoteMessage {
                seq: record.seq,
                writer,
                body: body(&load(self.blobs(), record.content)?),
            });
        }
        Ok(notes)
    }

    fn hints(&self, origin: &SessionId) -> mpsc::UnboundedReceiver<Hint> {
        self.hub().subscribe(origin)
    }
}
