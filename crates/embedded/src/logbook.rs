//! The worker's logbook on sled: its own folder, lock, id, writer thread and sync; the same rules as the store's.
//!
//! A logbook that cannot be believed (it does not open, it ends before what it had acknowledged, it is not the one its marker names) is
//! renamed to `quarantine-<unix ms>` beside it and a new one with a new id is made. What the old one knew is then unknown: claims name the
//! logbook they were armed in, so nobody takes the new one's silence for an answer about them. Circumstances that pass (in use, read-only,
//! full) condemn nothing.

use std::fs;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use leasehold_json::AcceptedJson;
use leasehold_protocol::{ChainKey, LogbookId, LogbookRecord, Seq, WorkerId};
use leasehold_store::{ArmAnswer, Logbook, LogbookError, StoreError};

use crate::OpenError;
use crate::blobs::BlobFolder;
use crate::content::{load, place};
use crate::files::{create_folder, sync_folder};
use crate::folder::{Fresh, Layout, Opened, open};
use crate::keys::{self, ATTEMPT, UNPUBLISHED};
use crate::lock::Lock;
use crate::marker::machine_id;
use crate::record::{Content, Kind, Record};
use crate::store::Reads;
use crate::writer::{Unacknowledged, Writer};

/// What a logbook is opened with.
#[derive(Debug, Clone)]
pub struct LogbookOptions {
    /// Whose it is.
    pub worker: WorkerId,
    /// Wall clock, unix milliseconds; names a quarantine and stands in a new marker.
    pub now: i64,
}

/// An opened logbook, and what was found on the way.
pub struct OpenedLogbook {
    /// The logbook.
    pub logbook: SledLogbook,
    /// Where an earlier one that could not be believed was moved, and why; its attempts are unknown.
    pub quarantined: Option<(PathBuf, OpenError)>,
    /// The machine on which it was made, if that is not known to be this one: the folder's lock proves nothing about attempts claimed there.
    pub moved_from: Option<String>,
}

/// A worker's logbook.
pub struct SledLogbook {
    // In this order: the writer stops and sled closes before the lock is released.
    writer: Writer,
    reads: Reads,
    blobs: BlobFolder,
    id: LogbookId,
    worker: WorkerId,
    boots: Vec<String>,
    _lock: Lock,
}

/// The folder of the logbook in use, beside those in quarantine.
const CURRENT: &str = "current";

fn layout(folder: &Path) -> Layout {
    Layout {
        folder: folder.join(CURRENT),
        marker: "logbook.json",
        store: "log",
        kind: "logbook",
        traces: &[],
    }
}

impl SledLogbook {
    /// Opens or creates the logbook in its folder. Blocks.
    pub fn open(
        folder: impl AsRef<Path>,
        options: LogbookOptions,
    ) -> Result<OpenedLogbook, OpenError> {
        let folder = folder.as_ref();
        create_folder(folder).map_err(|e| OpenError::io(folder, &e))?;
        let lock = Lock::take(folder)?;
        let layout = layout(folder);
        let fresh = Fresh {
            now: options.now,
            worker: Some(options.worker.as_str().to_owned()),
        };
        let (opened, quarantined) = match Self::open_checked(&layout, &fresh) {
            Err(reason) if reason.condemns() => {
                tracing::warn!(%reason, "logbook quarantined");
                let place = quarantine(folder, &layout.folder, options.now)?;
                (open(&layout, &fresh, true)?, Some((place, reason)))
            }
            other => (other?, None),
        };
        Self::start(folder, options.worker, lock, opened, quarantined)
    }

    /// Opens an existing logbook for reading it out; quarantines nothing.
    pub(crate) fn open_existing(folder: &Path) -> Result<Self, OpenError> {
        let lock = Lock::take(folder)?;
        let layout = layout(folder);
        let opened = open(
            &layout,
            &Fresh {
                now: 0,
                worker: None,
            },
            false,
        )?;
        let damaged = |detail: String| OpenError::Damaged {
            path: layout.folder.clone(),
            detail,
        };
        let worker = opened
            .marker
            .worker
            .clone()
            .ok_or_else(|| damaged("its marker names no worker".to_owned()))?;
        let worker = WorkerId::new(worker).map_err(|e| damaged(e.to_string()))?;
        Ok(Self::start(folder, worker, lock, opened, None)?.logbook)
    }

    fn open_checked(layout: &Layout, fresh: &Fresh) -> Result<Opened, OpenError> {
        let opened = open(layout, fresh, true)?;
        if opened.marker.worker != fresh.worker {
            let detail = format!(
                "it is the logbook of {:?}, not of {:?}",
                opened.marker.worker, fresh.worker
            );
            return Err(OpenError::Damaged {
                path: layout.folder.clone(),
                detail,
            });
        }
        Ok(opened)
    }

    fn start(
        folder: &Path,
        worker: WorkerId,
        lock: Lock,
        opened: Opened,
        quarantined: Option<(PathBuf, OpenError)>,
    ) -> Result<OpenedLogbook, OpenError> {
        let Opened {
            engine,
            marker,
            last,
            boots,
        } = opened;
        let id = LogbookId::new(&marker.id).map_err(|e| OpenError::Damaged {
            path: folder.to_owned(),
            detail: e.to_string(),
        })?;
        let db = engine.db().clone();
        let writer = Writer::start("leasehold-logbook", engine, last)
            .map_err(|e| OpenError::io(folder, &e))?;
        let reads = Reads::new(db, writer.health().clone());
        let moved_from = marker
            .machine
            .filter(|made| machine_id().as_ref() != Some(made));
        let logbook = Self {
            writer,
            reads,
            blobs: BlobFolder::new(folder.join(CURRENT).join("blobs")),
            id,
            worker,
            boots,
            _lock: lock,
        };
        Ok(OpenedLogbook {
            logbook,
            quarantined,
            moved_from,
        })
    }

    /// Random ids of the last openings, oldest first; the last one is this opening's. Durable before anything else is written.
    pub fn boots(&self) -> &[String] {
        &self.boots
    }

    /// The last durable position.
    pub fn head(&self) -> Seq {
        self.writer.health().durable()
    }

    /// Closes a logbook that is not to be believed for a reason that lies outside its files (another copy of it has run, or has run further),
    /// moves it to quarantine and opens a new one with a new id. Blocks.
    pub fn condemn(
        self,
        folder: impl AsRef<Path>,
        options: LogbookOptions,
    ) -> Result<OpenedLogbook, OpenError> {
        let folder = folder.as_ref();
        drop(self);
        // The lock is free for a moment: whoever takes it then opens what is condemned again, and is told the same.
        let lock = Lock::take(folder)?;
        quarantine(folder, &layout(folder).folder, options.now)?;
        drop(lock);
        Self::open(folder, options)
    }

    /// Whose it is.
    pub fn worker(&self) -> &WorkerId {
        &self.worker
    }

    /// The stored form of a record; a large one lies in a file of its own, durable when this returns.
    async fn place(
        &self,
        chain: &ChainKey,
        record: &LogbookRecord,
    ) -> Result<Content, LogbookError> {
        let bytes = serde_json::to_vec(record).map_err(|e| LogbookError::Damaged {
            chain: Box::new(chain.clone()),
            detail: e.to_string(),
        })?;
        place(&self.blobs, bytes.into())
            .await
            .map_err(|e| LogbookError::NotDurable(e.to_string()))
    }

    /// All attempts with their records and whether they are published, in order of position.
    pub(crate) fn all(&self) -> Result<Vec<(Seq, ChainKey, bytes::Bytes, bool)>, StoreError> {
        let mut all = Vec::new();
        for (key, record) in self.reads.scan_all(&[ATTEMPT])? {
            let chain = keys::decode_chain(&key).map_err(|damage| damage.of(&key))?;
            let published = self.reads.get(&keys::chain(UNPUBLISHED, &chain))?.is_none();
            let body = load(&self.blobs, record.content)?;
            all.push((record.seq, chain, body, published));
        }
        all.sort_by_key(|(seq, ..)| *seq);
        Ok(all)
    }
}

/// Moves a logbook aside; nothing in it is touched.
fn quarantine(folder: &Path, current: &Path, now: i64) -> Result<PathBuf, OpenError> {
    let io = |e: std::io::Error| OpenError::io(folder, &e);
    let mut at = now;
    loop {
        let place = folder.join(format!("quarantine-{at}"));
        if !place.exists() {
            fs::rename(current, &place)
                .and_then(|()| sync_folder(folder))
                .map_err(io)?;
            return Ok(place);
        }
        at = at.saturating_add(1);
    }
}

fn read(
    blobs: &BlobFolder,
    chain: &ChainKey,
    record: Record,
) -> Result<LogbookRecord, LogbookError> {
    let damaged = |detail: String| LogbookError::Damaged {
        chain: Box::new(chain.clone()),
        detail,
    };
    let bytes = load(blobs, record.content).map_err(|e| unread(chain, e))?;
    AcceptedJson::check(&bytes)
        .map_err(|e| damaged(e.to_string()))?
        .parse()
        .map_err(|e| damaged(e.to_string()))
}

impl From<Unacknowledged> for LogbookError {
    fn from(Unacknowledged(reason): Unacknowledged) -> Self {
        LogbookError::NotDurable(reason)
    }
}

/// What a failed read of the attempt's record means.
fn unread(chain: &ChainKey, error: StoreError) -> LogbookError {
    match error {
        StoreError::Damaged { detail, .. } => LogbookError::Damaged {
            chain: Box::new(chain.clone()),
            detail,
        },
        other => LogbookError::NotDurable(other.to_string()),
    }
}

#[async_trait]
impl Logbook for SledLogbook {
    fn id(&self) -> &LogbookId {
        &self.id
    }

    async fn create(
        &self,
        chain: &ChainKey,
        record: LogbookRecord,
    ) -> Result<ArmAnswer, LogbookError> {
        let content = self.place(chain, &record).await?;
        let (blobs, chain) = (self.blobs.clone(), chain.clone());
        let created = self.writer.write(move |group| {
            let key = keys::chain(ATTEMPT, &chain);
            if let Some(there) = group.get(&key).map_err(|e| unread(&chain, e))? {
                return read(&blobs, &chain, there).map(ArmAnswer::Present);
            }
            let seq = group.next_seq();
            group.append(key, &Record::new(Kind::Attempt, seq).content(content));
            group.put(
                keys::chain(UNPUBLISHED, &chain),
                &Record::new(Kind::Index, seq),
            );
            Ok(ArmAnswer::Written)
        });
        created.await?
    }

    async fn outcome(&self, chain: &ChainKey, record: LogbookRecord) -> Result<(), LogbookError> {
        let content = self.place(chain, &record).await?;
        let (blobs, chain) = (self.blobs.clone(), chain.clone());
        let written = self.writer.write(move |group| {
            let key = keys::chain(ATTEMPT, &chain);
            let there = group.get(&key).map_err(|e| unread(&chain, e))?.map(|there| read(&blobs, &chain, there)).transpose()?;
            match (&there, &record) {
                // Said before: nothing to add.
                (Some(there), _) if *there == record => Ok(()),
                (Some(LogbookRecord::Armed(was)), LogbookRecord::Outcome { armed, .. }) if was == armed => {
                    let seq = group.next_seq();
                    group.append(key, &Record::new(Kind::Attempt, seq).content(content));
                    Ok(())
                }
                _ => {
                    let detail = "an outcome replaces the armed record it belongs to, which does not stand here; nothing was changed".to_owned();
                    Err(LogbookError::Damaged { chain: Box::new(chain), detail })
                }
            }
        });
        written.await?
    }

    async fn get(&self, chain: &ChainKey) -> Result<Option<LogbookRecord>, LogbookError> {
        let (blobs, chain) = (self.blobs.clone(), chain.clone());
        // Records are replaced in place; asked on the writer thread, the answer is the durable one.
        let found = self.writer.write(move |group| {
            let record = group
                .get(&keys::chain(ATTEMPT, &chain))
                .map_err(|e| unread(&chain, e))?;
            record
                .map(|record| read(&blobs, &chain, record))
                .transpose()
        });
        found.await?
    }

    async fn open_attempts(&self) -> Result<Vec<(ChainKey, LogbookRecord)>, LogbookError> {
        let unreadable = |e: StoreError| LogbookError::NotDurable(e.to_string());
        let mut open = Vec::new();
        for (key, _) in self.reads.scan_all(&[UNPUBLISHED]).map_err(unreadable)? {
            let chain = keys::decode_chain(&key).map_err(|damage| unreadable(damage.of(&key)))?;
            let record = self.get(&chain).await?;
            let missing = || LogbookError::Damaged {
                chain: Box::new(chain.clone()),
                detail: "its record is missing".to_owned(),
            };
            let record = record.ok_or_else(missing)?;
            open.push((chain, record));
        }
        open.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(open)
    }

    async fn published(&self, chain: &ChainKey) -> Result<(), LogbookError> {
        let key = keys::chain(UNPUBLISHED, chain);
        Ok(self.writer.write(move |group| group.remove(key)).await?)
    }
}
