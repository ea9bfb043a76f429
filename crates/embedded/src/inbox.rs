//! The inbox: write-once subjects for clients and operators, and the line of messages that no commit has named yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_protocol::{ApprovalId, ClientId, OperatorId, RunId, Seq, SessionId};
use leasehold_store::{Inbox, InboxKind, InboxMessage, StoreError, SubmitError};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::EmbeddedStore;
use crate::content::{load, place};
use crate::keys::{self, INBOX, UNREAD};
use crate::record::{Content, Damage, Kind, Record};
use crate::store::Reads;
use crate::writer::Unacknowledged;

const SUBMIT: &str = "s";
const DECIDE: &str = "d";
const CANCEL: &str = "c";

/// A message of the line: where its record lies.
type Place = Vec<u8>;

/// Messages that were not acknowledged. One that was naked waits aside until its time has come and never holds up the others.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    line: Mutex<Line>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Line {
    all: BTreeMap<Seq, Place>,
    ready: BTreeSet<Seq>,
    delayed: BTreeSet<(Instant, Seq)>,
}

impl Line {
    fn enter(&mut self, seq: Seq, place: Place) {
        self.all.insert(seq, place);
        self.ready.insert(seq);
    }

    fn take(&mut self, now: Instant) -> Result<(Seq, Place), Option<Instant>> {
        while let Some((at, seq)) = self.delayed.first().copied().filter(|(at, _)| *at <= now) {
            self.delayed.remove(&(at, seq));
            self.ready.insert(seq);
        }
        match self
            .ready
            .pop_first()
            .and_then(|seq| Some((seq, self.all.get(&seq)?.clone())))
        {
            Some(taken) => Ok(taken),
            None => Err(self.delayed.first().map(|(at, _)| *at)),
        }
    }
}

impl Unread {
    /// What earlier processes left.
    pub(crate) fn load(reads: &Reads) -> Result<Self, StoreError> {
        let mut line = Line::default();
        for (key, record) in reads.scan_all(&[UNREAD])? {
            match record.content {
                Content::Inline(place) => line.enter(record.seq, place.to_vec()),
                Content::Spilled { .. } => {
                    return Err(Damage::new("an index entry without its key").of(&key));
                }
            }
        }
        Ok(Self {
            line: Mutex::new(line),
            changed: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, seq: Seq, place: Place) {
        self.lock().enter(seq, place);
        self.changed.notify_waiters();
    }
}

/// The tokens and the names of a kind.
fn parts(kind: &InboxKind) -> (Vec<String>, Vec<String>) {
    match kind {
        InboxKind::Submit(client) => (
            vec![SUBMIT.to_owned(), client.token()],
            vec![SUBMIT.to_owned(), client.as_str().to_owned()],
        ),
        InboxKind::Decide(approval, operator) => (
            vec![DECIDE.to_owned(), approval.token(), operator.token()],
            vec![
                DECIDE.to_owned(),
                approval.as_str().to_owned(),
                operator.as_str().to_owned(),
            ],
        ),
        InboxKind::Cancel(operator) => (
            vec![CANCEL.to_owned(), operator.token()],
            vec![CANCEL.to_owned(), operator.as_str().to_owned()],
        ),
    }
}

/// The kind in a record's names.
pub(crate) fn kind(record: &Record) -> Result<InboxKind, Damage> {
    let bad = |e: leasehold_protocol::IdError| Damage::new(e.to_string());
    match record.name(0)? {
        SUBMIT => Ok(InboxKind::Submit(
            ClientId::new(record.name(1)?).map_err(bad)?,
        )),
        DECIDE => Ok(InboxKind::Decide(
            ApprovalId::new(record.name(1)?).map_err(bad)?,
            OperatorId::new(record.name(2)?).map_err(bad)?,
        )),
        CANCEL => Ok(InboxKind::Cancel(
            OperatorId::new(record.name(1)?).map_err(bad)?,
        )),
        other => Err(Damage::new(format!("unknown inbox kind {other:?}"))),
    }
}

fn message(store: &EmbeddedStore, key: &[u8], record: Record) -> Result<InboxMessage, StoreError> {
    let run = keys::decode_run(key).map_err(|damage| damage.of(key))?;
    let kind = kind(&record).map_err(|damage| damage.of(key))?;
    Ok(InboxMessage {
        seq: record.seq,
        run,
        kind,
        body: load(store.blobs(), record.content)?,
    })
}

/// Ends at the moment; never without one.
async fn reaches(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

enum Put {
    Stored(Seq),
    There(Record),
}

#[async_trait]
impl Inbox for EmbeddedStore {
    async fn put(&self, run: &RunId, kind: InboxKind, body: Bytes) -> Result<Seq, SubmitError> {
        let content = place(self.blobs(), body)
            .await
            .map_err(|e| SubmitError::Unknown(e.to_string()))?;
        let (tokens, names) = parts(&kind);
        let run = run.token();
        let key = keys::names(
            INBOX,
            std::iter::once(run.as_str()).chain(tokens.iter().map(String::as_str)),
        );
        let unread = Arc::clone(self.unread());
        let wanted = content.clone();
        let put = self.writer().write(move |group| {
            if let Some(record) = group.get(&key)? {
                return Ok::<_, StoreError>(Put::There(record));
            }
            let seq = group.next_seq();
            group.append(
                key.clone(),
                &Record::new(Kind::Inbox, seq).names(names).content(content),
            );
            let place = Content::Inline(Bytes::copy_from_slice(&key));
            group.put(
                keys::at(vec![UNREAD], seq),
                &Record::new(Kind::Index, seq).content(place),
            );
            group.after(move || unread.enter(seq, key));
            Ok(Put::Stored(seq))
        });
        match put
            .await
            .map_err(|Unacknowledged(reason)| SubmitError::Unknown(reason))?
        {
            Ok(Put::Stored(seq)) => Ok(seq),
            // How a body is placed depends on its bytes alone.
            Ok(Put::There(record)) if record.content == wanted => Ok(record.seq),
            Ok(Put::There(record)) => {
                let body = load(self.blobs(), record.content)
                    .map_err(|e| SubmitError::Never(e.to_string()))?;
                Err(SubmitError::Exists {
                    seq: record.seq,
                    body,
                })
            }
            Err(error @ StoreError::Damaged { .. }) => Err(SubmitError::Never(error.to_string())),
            Err(error) => Err(SubmitError::Unknown(error.to_string())),
        }
    }

    async fn next_message(&self) -> Result<InboxMessage, StoreError> {
        loop {
            let changed = self.unread().changed.notified();
            self.reads().check()?;
            let taken = self.unread().lock().take(Instant::now());
            match taken {
                Ok((seq, key)) => {
                    // Nothing is awaited from here on: a caller that goes away has not been handed anything.
                    let record = self.reads().get(&key)?;
                    let record = record
                        .ok_or_else(|| Damage::new(format!("message {seq} is missing")).of(&key))?;
                    return message(self, &key, record);
                }
                Err(at) => {
                    tokio::select! {
                        () = changed => {}
                        () = self.reads().broken() => {}
                        () = reaches(at) => {}
                    }
                }
            }
        }
    }

    async fn ack_message(&self, _: &RunId, seq: Seq) -> Result<(), StoreError> {
        {
            let mut line = self.unread().lock();
            if line.all.remove(&seq).is_none() {
                return Ok(());
            }
            line.ready.remove(&seq);
            line.delayed.retain(|(_, delayed)| *delayed != seq);
        }
        self.writer()
            .lazily(move |group| group.remove(keys::at(vec![UNREAD], seq)))
            .await;
        Ok(())
    }

    async fn nak_message(&self, _: &RunId, seq: Seq, delay: Duration) -> Result<(), StoreError> {
        {
            let mut line = self.unread().lock();
            let waits = line.ready.contains(&seq)
                || line.delayed.iter().any(|(_, delayed)| *delayed == seq);
            if waits || !line.all.contains_key(&seq) {
                return Ok(());
            }
            let now = Instant::now();
            // A delay beyond what the clock can count is as good as the longest that it can.
            line.delayed
                .insert((now.checked_add(delay).unwrap_or(now), seq));
        }
        self.unread().changed.notify_waiters();
        Ok(())
    }

    async fn forward(&self, holder: &SessionId, _: &InboxMessage) -> Result<(), StoreError> {
        // One process, one session: a holder that is another one is dead.
        Err(StoreError::Unavailable(format!(
            "session {holder} does not run on this folder"
        )))
    }

    async fn submission(&self, run: &RunId) -> Result<Option<InboxMessage>, StoreError> {
        let prefix = keys::names(INBOX, [run.token().as_str(), SUBMIT]);
        let first = self
            .reads()
            .scan_all(&prefix)?
            .into_iter()
            .min_by_key(|(_, record)| record.seq);
        first
            .map(|(key, record)| message(self, &key, record))
            .transpose()
    }
}
