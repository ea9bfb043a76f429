//! The simulated store: one sequence, journals, chains, notes and inbox, with the conditional writes of the real ones.
//!
//! It can be weakened ([`StoreWeakening`]), for the negative controls that show that the checkers see what a wrong store does.

use std::collections::BTreeMap;

use leasehold_protocol::{
    Body, ChainKey, ChainMessage, CommitRequest, JournalSubject, Link, MAX_NOTES, NoteMessage,
    RUNTIME_TOKEN, RegisterRequest, RunId, Seq, StoredCommit,
};

/// A deliberate weakening of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoreWeakening {
    /// None.
    #[default]
    None,
    /// Journal writes are taken whatever they expect.
    NoFence,
    /// Register writes are taken whatever they expect, and the last one counts.
    LastWins,
}

/// A call waiting for, or handed to, a worker.
#[derive(Debug, Clone)]
pub(crate) struct Queued {
    pub(crate) key: ChainKey,
    pub(crate) envelope: Body,
    pub(crate) acked: bool,
    pub(crate) deliveries: u32,
}

/// Everything that survives every crash.
#[derive(Debug, Default)]
pub(crate) struct Store {
    seq: u64,
    pub(crate) weakening: StoreWeakening,
    pub(crate) journals: BTreeMap<RunId, Vec<StoredCommit>>,
    pub(crate) chains: BTreeMap<ChainKey, Vec<ChainMessage>>,
    pub(crate) notes: BTreeMap<ChainKey, Vec<NoteMessage>>,
    pub(crate) calls: BTreeMap<Seq, Queued>,
    pub(crate) inbox: BTreeMap<Seq, Letter>,
}

/// An inbox message.
#[derive(Debug, Clone)]
pub(crate) struct Letter {
    pub(crate) run: RunId,
    pub(crate) kind: LetterKind,
    pub(crate) body: Body,
    pub(crate) acked: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LetterKind {
    Submit,
    Decide,
    Cancel,
}

impl Store {
    fn next(&mut self) -> Seq {
        self.seq += 1;
        Seq(self.seq)
    }

    pub(crate) fn append(&mut self, run: &RunId, write: &CommitRequest) -> Result<Seq, ()> {
        let last = self
            .journals
            .get(run)
            .and_then(|journal| journal.last())
            .map_or(Seq::NONE, |stored| stored.seq);
        if last != write.expected && self.weakening != StoreWeakening::NoFence {
            return Err(());
        }
        let seq = self.next();
        let stored = StoredCommit {
            seq,
            subject: write.subject.clone(),
            body: write.body.clone(),
        };
        self.journals.entry(run.clone()).or_default().push(stored);
        if let (JournalSubject::Call(key), Some(envelope)) = (&write.subject, &write.call) {
            let call = ChainMessage {
                seq,
                expected: None,
                link: Link::Call,
                writer: RUNTIME_TOKEN.into(),
                body: envelope.clone(),
            };
            self.chains.entry(key.clone()).or_default().push(call);
            self.calls.insert(
                seq,
                Queued {
                    key: key.clone(),
                    envelope: envelope.clone(),
                    acked: false,
                    deliveries: 0,
                },
            );
        }
        Ok(seq)
    }

    pub(crate) fn register(&mut self, write: &RegisterRequest, writer: &str) -> Result<Seq, ()> {
        let last = self
            .chains
            .get(&write.chain)
            .and_then(|chain| chain.last())
            .map_or(Seq::NONE, |message| message.seq);
        if last != write.expected && self.weakening != StoreWeakening::LastWins {
            return Err(());
        }
        let seq = self.next();
        let message = ChainMessage {
            seq,
            expected: Some(write.expected),
            link: write.link,
            writer: writer.to_owned(),
            body: write.body.clone(),
        };
        let chain = self.chains.entry(write.chain.clone()).or_default();
        if self.weakening == StoreWeakening::LastWins {
            chain.retain(|message| message.link != write.link);
        }
        chain.push(message);
        Ok(seq)
    }

    /// `false`: no room.
    pub(crate) fn note(
        &mut self,
        key: &ChainKey,
        writer: &str,
        body: Body,
        last_place: bool,
    ) -> bool {
        let seq = self.next();
        let notes = self.notes.entry(key.clone()).or_default();
        let room = if last_place { MAX_NOTES } else { MAX_NOTES - 1 };
        if notes.len() < room {
            notes.push(NoteMessage {
                seq,
                writer: writer.to_owned(),
                body,
            });
            true
        } else {
            false
        }
    }

    pub(crate) fn put(&mut self, run: &RunId, kind: LetterKind, body: Body) -> Seq {
        let seq = self.next();
        self.inbox.insert(
            seq,
            Letter {
                run: run.clone(),
                kind,
                body,
                acked: false,
            },
        );
        seq
    }

    pub(crate) fn journal_after(&self, run: &RunId, after: Seq) -> Vec<StoredCommit> {
        let journal = self
            .journals
            .get(run)
            .map(Vec::as_slice)
            .unwrap_or_default();
        journal
            .iter()
            .filter(|stored| stored.seq > after)
            .cloned()
            .collect()
    }

    pub(crate) fn chain(&self, key: &ChainKey) -> Vec<ChainMessage> {
        self.chains.get(key).cloned().unwrap_or_default()
    }

    pub(crate) fn notes(&self, key: &ChainKey) -> Vec<NoteMessage> {
        self.notes.get(key).cloned().unwrap_or_default()
    }
}
