//! The raw dump: everything stored, as lines of JSON, for checkers that share no code with the runtime.
//!
//! One line per stored message, in order of `seq` (a position is used once; those of leases and timers, which are no messages, are left out). Fields, absent ones left out:
//!
//! | field | of | meaning |
//! |---|---|---|
//! | `seq` | all | position in the store |
//! | `stream` | all | `journal`: a commit; `call`: a commit that dispatches a call (also a commit of the run's journal); `claim`, `outcome`: a register; `evidence`: a note; `inbox`: a submission, decision or cancellation; `logbook`: an attempt in a worker's logbook |
//! | `subject` | all but `logbook` | the subject of `docs/protocol.md`, shard 0, for example `lh.0.run.<run>.j.call.<tool>.<step>.<attempt>.<origin>._` |
//! | `run` | all but `logbook` | the run id, decoded |
//! | `chain` | `call`, `claim`, `outcome`, `evidence`, `logbook` | `{run, tool, step, attempt, origin}`, decoded |
//! | `writer` | `claim`, `outcome`, `evidence` | the writer's subject token; `_rt` is the runtime |
//! | `expected` | `journal`, `call`, `claim`, `outcome` | the last position its writer expected (of the run's journal, or of the chain); 0: none |
//! | `body` | all | the exact bytes as text |
//! | `body_base64` | all | instead of `body` where the bytes are no UTF-8 |
//! | `call`, `call_base64` | `call` | the envelope that the worker receives, in the same way |
//! | `worker`, `logbook` | `logbook` | the worker and the logbook's id |
//! | `published` | `logbook` | whether the worker knows that the register holds it |
//!
//! Logbook lines follow all others, in order of `seq` within their logbook; an attempt has one line, its latest record. The `body` of a
//! commit is what the next commit's `prev` is the SHA-256 of.

use std::io::{self, Write};
use std::path::Path;

use bytes::Bytes;
use leasehold_protocol::{ChainKey, RunId, Seq};
use leasehold_store::{InboxKind, Logbook, StoreError};
use serde::Serialize;

use crate::content::load;
use crate::keys::{self, CHAIN, LEASE, NOTE, ORDER, TIMER};
use crate::record::{Content, Damage, Kind, Record};
use crate::runlog::call_chain;
use crate::{EmbeddedStore, OpenError, OpenOptions, SledLogbook};

/// Entries of the order that are held in memory at a time.
const PAGE: usize = 1024;

/// The dump ended early.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The folder or a logbook in it does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A record cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The dump cannot be written.
    #[error("the dump could not be written: {0}")]
    Write(#[from] io::Error),
}

#[derive(Default, Serialize)]
struct Line<'a> {
    seq: u64,
    stream: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'a RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logbook: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chain: Option<&'a ChainKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    writer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_base64: Option<String>,
}

/// The bytes as text, or as base64.
fn text(bytes: &Bytes) -> (Option<&str>, Option<String>) {
    use base64::Engine;
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(_) => (
            None,
            Some(base64::engine::general_purpose::STANDARD.encode(bytes)),
        ),
    }
}

fn write_line(out: &mut impl Write, line: &Line<'_>) -> Result<(), DumpError> {
    serde_json::to_writer(&mut *out, line).map_err(io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}

/// Dumps a folder that no process has open: the store and every logbook in it. Takes the folder's lock.
pub fn dump_folder(
    folder: impl AsRef<Path>,
    options: OpenOptions,
    out: &mut impl Write,
) -> Result<(), DumpError> {
    let store = EmbeddedStore::open_existing(folder, options)?;
    store.dump(out)?;
    let workers = store.folder().join("worker");
    let mut folders = match workers.read_dir() {
        Ok(entries) => entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<Vec<_>>>()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(OpenError::io(&workers, &error).into()),
    };
    folders.sort();
    for folder in folders {
        match dump_logbook(&folder, out) {
            // Its process died between setting one aside and making the next.
            Err(DumpError::Open(OpenError::Missing { .. })) => {}
            dumped => dumped?,
        }
    }
    Ok(())
}

/// Dumps the logbook of a folder that no process has open. Takes the folder's lock.
pub fn dump_logbook(folder: &Path, out: &mut impl Write) -> Result<(), DumpError> {
    SledLogbook::open_existing(folder)?.dump(out)
}

impl EmbeddedStore {
    /// Dumps what is durable at this moment. Logbooks beside the store are dumped by [`SledLogbook::dump`].
    pub fn dump(&self, out: &mut impl Write) -> Result<(), DumpError> {
        let mut seq = Seq::NONE;
        loop {
            let page = self.reads().page(
                &[ORDER],
                keys::at(vec![ORDER], Seq(seq.0.saturating_add(1))),
                PAGE,
            )?;
            let Some((_, last)) = page.last() else {
                return Ok(out.flush()?);
            };
            seq = last.seq;
            for (key, entry) in page {
                let Content::Inline(target) = entry.content else {
                    return Err(Damage::new("an entry without its key").of(&key).into());
                };
                // Leases and timers are no messages.
                if !matches!(target.first(), Some(&LEASE | &TIMER)) {
                    let record = self
                        .reads()
                        .get(&target)?
                        .ok_or_else(|| Damage::new("the record is missing").of(&target))?;
                    self.dump_record(&target, record, out)?;
                }
            }
        }
    }

    fn dump_record(
        &self,
        key: &[u8],
        record: Record,
        out: &mut impl Write,
    ) -> Result<(), DumpError> {
        let of_key = |damage: Damage| damage.of(key);
        let run = keys::decode_run(key).map_err(of_key)?;
        let chain = match (key.first(), record.kind) {
            (Some(&CHAIN | &NOTE), _) => Some(keys::decode_chain(key).map_err(of_key)?),
            (_, Kind::JournalCall) => Some(call_chain(&record).map_err(of_key)?),
            _ => None,
        };
        let (stream, subject) = name(&run, chain.as_ref(), &record).map_err(of_key)?;
        let envelope = match &chain {
            Some(chain) if stream == "call" => {
                let key = keys::at(keys::chain(CHAIN, chain), record.seq);
                let record = self
                    .reads()
                    .get(&key)?
                    .ok_or_else(|| Damage::new("the call's envelope is missing").of(&key))?;
                Some(load(self.blobs(), record.content)?)
            }
            _ => None,
        };
        let body = load(self.blobs(), record.content)?;
        let (body, body_base64) = text(&body);
        let (call, call_base64) = envelope.as_ref().map_or((None, None), text);
        let line = Line {
            seq: record.seq.0,
            stream,
            subject: Some(subject),
            run: Some(&run),
            chain: chain.as_ref(),
            writer: matches!(stream, "claim" | "outcome" | "evidence")
                .then(|| record.names.first().map(String::as_str))
                .flatten(),
            expected: matches!(stream, "journal" | "call" | "claim" | "outcome")
                .then_some(record.number),
            body,
            body_base64,
            call,
            call_base64,
            ..Line::default()
        };
        write_line(out, &line)
    }
}

/// Stream and subject of a record.
fn name(
    run: &RunId,
    chain: Option<&ChainKey>,
    record: &Record,
) -> Result<(&'static str, String), Damage> {
    let run = run.token();
    let journal = |last: &str| Ok(("journal", format!("lh.0.run.{run}.j.{last}")));
    let attempt = || {
        let chain = chain.ok_or_else(|| Damage::new("a record of an attempt without its chain"))?;
        let [_, tool, step, attempt, origin] = keys::chain_tokens(chain);
        Ok::<_, Damage>(format!("{tool}.{step}.{attempt}.{origin}"))
    };
    match record.kind {
        Kind::JournalOpen => journal("open"),
        Kind::JournalOwn => journal("own"),
        Kind::JournalNote => journal("note"),
        Kind::JournalEnd => journal("end"),
        Kind::JournalCall => Ok(("call", format!("lh.0.run.{run}.j.call.{}._", attempt()?))),
        Kind::LinkClaim => Ok((
            "claim",
            format!("lh.0.run.{run}.w.claim.{}.{}", attempt()?, record.name(0)?),
        )),
        Kind::LinkOutcome => Ok((
            "outcome",
            format!(
                "lh.0.run.{run}.w.outcome.{}.{}",
                attempt()?,
                record.name(0)?
            ),
        )),
        Kind::Note => Ok((
            "evidence",
            format!(
                "lh.0.run.{run}.w.evidence.{}.{}.{}",
                attempt()?,
                record.name(0)?,
                record.number
            ),
        )),
        Kind::Inbox => {
            let subject = match crate::inbox::kind(record)? {
                InboxKind::Submit(client) => format!("lh.0.in.{run}.{}", client.token()),
                InboxKind::Decide(approval, operator) => {
                    format!("lh.0.d.{run}.{}.{}", approval.token(), operator.token())
                }
                InboxKind::Cancel(operator) => format!("lh.0.c.{run}.{}", operator.token()),
            };
            Ok(("inbox", subject))
        }
        other => Err(Damage::new(format!("a {other:?} where a message belongs"))),
    }
}

impl SledLogbook {
    /// Dumps what is durable at this moment.
    pub fn dump(&self, out: &mut impl Write) -> Result<(), DumpError> {
        for (seq, chain, bytes, published) in self.all()? {
            let (body, body_base64) = text(&bytes);
            let line = Line {
                seq: seq.0,
                stream: "logbook",
                worker: Some(self.worker().as_str()),
                logbook: Some(self.id().as_str()),
                chain: Some(&chain),
                published: Some(published),
                body,
                body_base64,
                ..Line::default()
            };
            write_line(out, &line)?;
        }
        Ok(out.flush()?)
    }
}
