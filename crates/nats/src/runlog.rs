//! Journals: conditional publishes under one filter text, reads in order, and the lists of runs.

use std::collections::HashSet;

use async_nats::header::HeaderMap;
use async_trait::async_trait;
use bytes::Bytes;
use leasehold_protocol::{Body, JournalSubject, RunId, Seq, StoredCommit};
use leasehold_store::{
    AppendError, Appended, Blobs as _, JournalAppend, RunHead, RunLog, StoreError,
};

use crate::names::{self, Named, Shard};
use crate::store::NatsStore;
use crate::wire::{Stored, expecting};

/// Carries the call's envelope to workers, which are sent headers only.
const CALL: &str = "Lh-Call";
/// Instead of it where the envelope is too long for a header, or no single line: the SHA-256 of its bytes, which lie in the blob stream.
const CALL_BLOB: &str = "Lh-Call-Blob";
/// Longest envelope in a header. A server takes headers of 64 KiB at most, all of them together.
const MAX_HEADER_CALL: usize = 48 * 1024;
/// Room for subject and headers in the server's bound on a message.
const HEADROOM: usize = 64 * 1024;

impl NatsStore {
    async fn envelope_header(
        &self,
        headers: &mut HeaderMap,
        call: Bytes,
    ) -> Result<(), AppendError> {
        let line = std::str::from_utf8(&call).ok().filter(|text| {
            text.len() <= MAX_HEADER_CALL
                && !text.contains(['\r', '\n'])
                && text.trim() == *text
                && !text.is_empty()
        });
        match line {
            Some(line) => headers.insert(CALL, line),
            None => {
                let digest = self.put_blob(call).await;
                let digest = digest.map_err(|error| AppendError::Busy(error.to_string()))?;
                headers.insert(CALL_BLOB, digest.to_string());
            }
        }
        Ok(())
    }

    /// The envelope of a stored call.
    pub(crate) async fn envelope(&self, stored: &Stored) -> Result<Bytes, StoreError> {
        if let Some(line) = stored.header(CALL) {
            return Ok(Bytes::copy_from_slice(line.as_bytes()));
        }
        let damaged = |detail: &str| StoreError::Damaged {
            what: format!("call {}", stored.subject),
            detail: detail.to_owned(),
        };
        let digest = stored
            .header(CALL_BLOB)
            .ok_or_else(|| damaged("it carries no envelope"))?;
        let digest = digest
            .parse()
            .map_err(|_| damaged("its envelope's digest is none"))?;
        self.get_blob(&digest)
            .await?
            .ok_or_else(|| damaged("its envelope is missing from the blob stream"))
    }

    pub(crate) fn commit(stored: &Stored) -> Result<StoredCommit, StoreError> {
        match names::read(&stored.subject) {
            Ok(Named::Journal(_, subject)) => Ok(StoredCommit {
                seq: stored.seq,
                subject,
                body: Body::from(&stored.payload[..]),
            }),
            _ => Err(strange(stored)),
        }
    }

    async fn head(&self, shard: Shard, run: RunId) -> Result<Option<RunHead>, StoreError> {
        let last = self
            .wire()
            .last(&shard.stream(), &shard.journal_filter(&run))
            .await?;
        let Some(last) = last else { return Ok(None) };
        let commit = Self::commit(&last)?;
        Ok(Some(RunHead {
            run,
            last: commit.seq,
            subject: commit.subject,
        }))
    }

    /// The runs of a shard that have a commit of this kind.
    async fn with(&self, shard: Shard, kind: &str) -> Result<HashSet<RunId>, StoreError> {
        let filter = format!("lh.{shard}.run.*.j.{kind}");
        let subjects = self.wire().subjects(&shard.stream(), &filter).await?;
        let runs = subjects
            .iter()
            .filter_map(|subject| match names::read(subject) {
                Ok(Named::Journal(run, _)) => Some(run),
                _ => None,
            });
        Ok(runs.collect())
    }
}

/// A message that this version cannot place.
pub(crate) fn strange(stored: &Stored) -> StoreError {
    StoreError::Damaged {
        what: format!("message {} at {}", stored.seq, stored.subject),
        detail: "its subject is none that this version knows".to_owned(),
    }
}

#[async_trait]
impl RunLog for NatsStore {
    async fn read_journal(&self, run: &RunId, after: Seq) -> Result<Vec<StoredCommit>, StoreError> {
        let shard = self.shard(run);
        let from = Seq(after.0.saturating_add(1));
        let stored = self
            .records(&shard.stream(), &shard.journal_filter(run), from)
            .await?;
        stored.iter().map(Self::commit).collect()
    }

    async fn append(&self, write: JournalAppend) -> Result<Appended, AppendError> {
        let shard = self.shard(&write.run);
        match (&write.subject, &write.call) {
            (JournalSubject::Call(chain), Some(_)) if chain.run == write.run => {}
            (JournalSubject::Call(_), _) | (_, Some(_)) => {
                return Err(AppendError::Never(
                    "a call and its envelope go together, in the journal of their run".to_owned(),
                ));
            }
            _ => {}
        }
        let bound = self.wire().client.server_info().max_payload;
        if write.body.len().saturating_add(HEADROOM) > bound {
            return Err(AppendError::Never(format!(
                "a commit of {} bytes, and the server takes messages of {bound} bytes (max_payload) with {HEADROOM} of them for headers",
                write.body.len()
            )));
        }
        let mut headers = expecting(&shard.journal_filter(&write.run), write.expected);
        if let Some(call) = write.call {
            self.envelope_header(&mut headers, call).await?;
        }
        let subject = shard.journal(&write.run, &write.subject);
        let stored = self.wire().publish(subject, headers, write.body).await;
        stored
            .map(|seq| Appended { seq })
            .map_err(|error| error.append(write.expected))
    }

    async fn runs(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<RunHead>, StoreError> {
        let after = after.map(RunId::token);
        let mut runs = Vec::new();
        for shard in self.all_shards() {
            let mut found: HashSet<RunId> = HashSet::new();
            // A journal begins with `open`; one that does not is listed as well, so that it can be looked at.
            for kind in ["open", "own", "note", "end"] {
                found.extend(self.with(shard, kind).await?);
            }
            runs.extend(found.into_iter().map(|run| (run.token(), shard, run)));
        }
        runs.retain(|(token, ..)| after.as_ref().is_none_or(|after| token > after));
        runs.sort();
        let mut heads = Vec::new();
        for (_, shard, run) in runs.into_iter().take(limit) {
            heads.extend(self.head(shard, run).await?);
        }
        Ok(heads)
    }

    async fn open_runs(&self) -> Result<Vec<RunHead>, StoreError> {
        let mut heads = Vec::new();
        for shard in self.all_shards() {
            let mut open = self.with(shard, "open").await?;
            for ended in self.with(shard, "end").await? {
                open.remove(&ended);
            }
            for run in open {
                let head = self.head(shard, run).await?;
                heads.extend(head.filter(|head| head.subject != JournalSubject::End));
            }
        }
        Ok(heads)
    }
}
