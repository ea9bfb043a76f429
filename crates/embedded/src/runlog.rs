//! Journals. A run's tail is its last key, found by one seek, so a step costs the same at any length of journal and number of runs.

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_protocol::{Body, JournalSubject, RunId, Seq, StoredCommit};
use leasehold_store::{AppendError, Appended, JournalAppend, RunHead, RunLog, StoreError};

use crate::EmbeddedStore;
use crate::blobs::BlobFolder;
use crate::content::{load, place};
use crate::keys::{self, CHAIN, JOURNAL, OPEN_RUN, WAITING};
use crate::record::{Content, Damage, Kind, Record};
use crate::store::{Reads, expect, not_placed, not_staged};
use crate::writer::Group;

/// A body as the machines take it.
pub(crate) fn body(bytes: &Bytes) -> Body {
    Body::from(bytes.as_ref())
}

/// The record's kind and names for a journal subject.
fn subject_record(subject: &JournalSubject, seq: Seq) -> Record {
    let plain = |kind| Record::new(kind, seq);
    match subject {
        JournalSubject::Open => plain(Kind::JournalOpen),
        JournalSubject::Own => plain(Kind::JournalOwn),
        JournalSubject::Note => plain(Kind::JournalNote),
        JournalSubject::End => plain(Kind::JournalEnd),
        JournalSubject::Call(chain) => plain(Kind::JournalCall).names(call_names(chain)),
    }
}

/// A chain as names of a record; the run stands in front.
pub(crate) fn call_names(chain: &leasehold_protocol::ChainKey) -> [String; 5] {
    [
        chain.run.as_str().to_owned(),
        chain.tool.clone(),
        chain.step.to_string(),
        chain.attempt.to_string(),
        chain.origin.as_str().to_owned(),
    ]
}

/// The chain in the names of a record.
pub(crate) fn call_chain(record: &Record) -> Result<leasehold_protocol::ChainKey, Damage> {
    keys::chain_from_names(
        record.name(0)?,
        record.name(1)?,
        record.name(2)?,
        record.name(3)?,
        record.name(4)?,
    )
}

/// The journal subject of a record.
pub(crate) fn subject(record: &Record) -> Result<JournalSubject, Damage> {
    match record.kind {
        Kind::JournalOpen => Ok(JournalSubject::Open),
        Kind::JournalOwn => Ok(JournalSubject::Own),
        Kind::JournalNote => Ok(JournalSubject::Note),
        Kind::JournalEnd => Ok(JournalSubject::End),
        Kind::JournalCall => call_chain(record).map(JournalSubject::Call),
        other => Err(Damage::new(format!("a {other:?} among journals"))),
    }
}

/// Reads a journal and checks that each commit names the position before it: a lost record in the middle is damage, not a shorter journal.
fn read(
    reads: &Reads,
    blobs: &BlobFolder,
    run: &RunId,
    after: Seq,
) -> Result<Vec<StoredCommit>, StoreError> {
    let prefix = keys::run(JOURNAL, run);
    let from = keys::at(prefix.clone(), Seq(after.0.saturating_add(1)));
    let mut commits = Vec::new();
    let mut before = None;
    for (key, record) in reads.scan(&prefix, from)? {
        let gap = match before {
            Some(before) => record.number != before,
            None => record.number > after.0,
        };
        if gap {
            return Err(Damage::new(format!(
                "it follows position {}, which is missing",
                record.number
            ))
            .of(&key));
        }
        before = Some(record.seq.0);
        let subject = subject(&record).map_err(|damage| damage.of(&key))?;
        commits.push(StoredCommit {
            seq: record.seq,
            subject,
            body: body(&load(blobs, record.content)?),
        });
    }
    Ok(commits)
}

/// A write whose parts do not fit together would be stored and never understood.
fn well_formed(write: &JournalAppend) -> Result<(), AppendError> {
    let never = |detail: &str| {
        Err(AppendError::Never(format!(
            "journal write for {}: {detail}",
            write.run
        )))
    };
    match (&write.subject, &write.call) {
        (JournalSubject::Call(chain), Some(_)) if chain.run == write.run => keys::bounded(chain),
        (JournalSubject::Call(_), Some(_)) => never("the call belongs to another run"),
        (JournalSubject::Call(_), None) => never("a call without its envelope"),
        (_, Some(_)) => never("an envelope without a call"),
        (_, None) => Ok(()),
    }
}

struct Placed {
    run: RunId,
    subject: JournalSubject,
    expected: Seq,
    body: Content,
    call: Option<Content>,
}

fn stage(group: &mut Group<'_>, write: &Placed) -> Result<Seq, AppendError> {
    let prefix = keys::run(JOURNAL, &write.run);
    let tail = group.last_under(&prefix).map_err(not_staged)?;
    expect(write.expected, tail.as_ref().map(|record| record.seq))?;
    let call = match (&write.subject, &write.call) {
        (JournalSubject::Call(chain), Some(envelope)) => {
            let prefix = keys::chain(CHAIN, chain);
            let last = group
                .last_under(&prefix)
                .map_err(not_staged)?
                .map_or(Seq::NONE, |record| record.seq);
            Some((chain, prefix, last, envelope))
        }
        _ => None,
    };
    let seq = group.next_seq();
    if let Some((chain, prefix, last, envelope)) = call {
        let link = Record::new(Kind::LinkCall, seq)
            .number(last.0)
            .names(["_"])
            .content(envelope.clone());
        group.put(keys::at(prefix, seq), &link);
        group.put(
            keys::at(vec![WAITING], seq),
            &Record::new(Kind::Index, seq).names(call_names(chain)),
        );
    }
    let record = subject_record(&write.subject, seq)
        .number(write.expected.0)
        .content(write.body.clone());
    group.append(keys::at(prefix, seq), &record);
    let open = keys::run(OPEN_RUN, &write.run);
    match (&write.subject, tail) {
        (JournalSubject::End, _) => group.remove(open),
        (_, None) => group.put(open, &Record::new(Kind::Index, seq)),
        _ => {}
    }
    Ok(seq)
}

fn head(reads: &Reads, run: RunId) -> Result<Option<RunHead>, StoreError> {
    let Some((key, record)) = reads.last_under(&keys::run(JOURNAL, &run))? else {
        return Ok(None);
    };
    let subject = subject(&record).map_err(|damage| damage.of(&key))?;
    Ok(Some(RunHead {
        run,
        last: record.seq,
        subject,
    }))
}

/// One seek to the next run, one to its tail; what lies between is not read.
fn page(reads: &Reads, after: Option<&RunId>, limit: usize) -> Result<Vec<RunHead>, StoreError> {
    let mut from = after.map_or_else(
        || vec![JOURNAL],
        |run| keys::behind(&keys::run(JOURNAL, run)),
    );
    let mut heads = Vec::new();
    while heads.len() < limit
        && let Some(key) = reads.first_key(JOURNAL, &from)?
    {
        let run = keys::decode_run(&key).map_err(|damage| damage.of(&key))?;
        from = keys::behind(&keys::run(JOURNAL, &run));
        heads.extend(head(reads, run)?);
    }
    Ok(heads)
}

fn open_heads(reads: &Reads) -> Result<Vec<RunHead>, StoreError> {
    let mut heads = Vec::new();
    for (key, _) in reads.scan_all(&[OPEN_RUN])? {
        let run = keys::decode_run(&key).map_err(|damage| damage.of(&key))?;
        // Between the scan and this look the run may have ended.
        heads.extend(head(reads, run)?.filter(|head| head.subject != JournalSubject::End));
    }
    Ok(heads)
}

/// Reads that can be long stay off the async threads.
async fn aside<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(read)
        .await
        .map_err(|e| StoreError::Unavailable(e.to_string()))?
}

#[async_trait]
impl RunLog for EmbeddedStore {
    async fn read_journal(&self, run: &RunId, after: Seq) -> Result<Vec<StoredCommit>, StoreError> {
        if after != Seq::NONE {
            return read(self.reads(), self.blobs(), run, after);
        }
        let (reads, blobs, run) = (self.reads().clone(), self.blobs().clone(), run.clone());
        aside(move || read(&reads, &blobs, &run, after)).await
    }

    async fn append(&self, write: JournalAppend) -> Result<Appended, AppendError> {
        well_formed(&write)?;
        let body = place(self.blobs(), write.body)
            .await
            .map_err(|e| not_placed(&e))?;
        let call = match write.call {
            Some(call) => Some(
                place(self.blobs(), call)
                    .await
                    .map_err(|e| not_placed(&e))?,
            ),
            None => None,
        };
        let placed = Placed {
            run: write.run,
            subject: write.subject,
            expected: write.expected,
            body,
            call,
        };
        let waiting = std::sync::Arc::clone(self.waiting());
        let seq = self
            .writer()
            .write(move |group| {
                let seq = stage(group, &placed)?;
                if let JournalSubject::Call(chain) = placed.subject {
                    group.after(move || waiting.enter(seq, chain));
                }
                Ok::<_, AppendError>(seq)
            })
            .await??;
        Ok(Appended { seq })
    }

    async fn runs(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<RunHead>, StoreError> {
        let (reads, after) = (self.reads().clone(), after.cloned());
        aside(move || page(&reads, after.as_ref(), limit)).await
    }

    async fn open_runs(&self) -> Result<Vec<RunHead>, StoreError> {
        let reads = self.reads().clone();
        aside(move || open_heads(&reads)).await
    }
}
