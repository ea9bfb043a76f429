//! The store as a whole: opening it, and what its parts share.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold_protocol::{ClusterId, Seq, SessionId, WorkerId};
use leasehold_store::{AppendError, StoreError};

use crate::OpenError;
use crate::blobs::BlobFolder;
use crate::engine::guarded;
use crate::files::create_folder;
use crate::folder::{Fresh, Layout, Opened, open};
use crate::inbox::Unread;
use crate::keys;
use crate::lock::Lock;
use crate::queue::Waiting;
use crate::record::Record;
use crate::registers::Hints;
use crate::timers::Pending;
use crate::writer::{Health, Unacknowledged, Writer, unavailable};

/// What a store is opened with.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// The session of this process: the only one that is alive, since the folder's lock proves every earlier process dead.
    pub session: SessionId,
    /// Wall clock, unix milliseconds; stands in the marker of a new folder and orders nothing.
    pub now: i64,
}

/// The embedded backend: every store trait, on one folder. Cheap to clone; the folder is released when the last clone is dropped.
#[derive(Clone)]
pub struct EmbeddedStore {
    shared: Arc<Shared>,
}

struct Shared {
    // Dropped in this order: the writer commits what is queued, sled closes, and only then the lock is released.
    writer: Writer,
    reads: Reads,
    hints: Arc<Hints>,
    waiting: Arc<Waiting>,
    unread: Arc<Unread>,
    timers: Arc<Pending>,
    blobs: BlobFolder,
    session: SessionId,
    cluster: ClusterId,
    folder: PathBuf,
    _lock: Lock,
}

/// What readers use: sled, up to the last durable position.
#[derive(Clone)]
pub(crate) struct Reads {
    db: sled::Db,
    health: Arc<Health>,
}

impl EmbeddedStore {
    /// Opens the folder, or creates it. Blocks (recovery reads the store's log; open calls, messages, timers are loaded, journals are not).
    pub fn open(folder: impl AsRef<Path>, options: OpenOptions) -> Result<Self, OpenError> {
        Self::open_or(folder.as_ref(), options, true)
    }

    /// Opens the folder; one without a store is [`OpenError::Missing`].
    pub fn open_existing(
        folder: impl AsRef<Path>,
        options: OpenOptions,
    ) -> Result<Self, OpenError> {
        Self::open_or(folder.as_ref(), options, false)
    }

    fn open_or(folder: &Path, options: OpenOptions, create: bool) -> Result<Self, OpenError> {
        if create {
            create_folder(folder).map_err(|e| OpenError::io(folder, &e))?;
        } else if !folder.is_dir() {
            return Err(OpenError::Missing {
                path: folder.to_owned(),
            });
        }
        let lock = Lock::take(folder)?;
        let layout = Layout {
            folder: folder.to_owned(),
            marker: "leasehold.json",
            store: "store",
            kind: "store",
            traces: &["blobs", "worker"],
        };
        let Opened {
            engine,
            marker,
            last,
            ..
        } = open(
            &layout,
            &Fresh {
                now: options.now,
                worker: None,
            },
            create,
        )?;
        let store_folder = folder.join(layout.store);
        let damaged = |e: StoreError| OpenError::Damaged {
            path: store_folder.clone(),
            detail: e.to_string(),
        };
        let cluster = ClusterId::new(&marker.id).map_err(|e| OpenError::Damaged {
            path: folder.join(layout.marker),
            detail: e.to_string(),
        })?;
        let db = engine.db().clone();
        let writer = Writer::start("leasehold-store", engine, last)
            .map_err(|e| OpenError::io(folder, &e))?;
        let reads = Reads {
            db,
            health: Arc::clone(writer.health()),
        };
        let shared = Shared {
            hints: Arc::default(),
            waiting: Arc::new(Waiting::load(&reads).map_err(damaged)?),
            unread: Arc::new(Unread::load(&reads).map_err(damaged)?),
            timers: Arc::new(Pending::load(&reads).map_err(damaged)?),
            blobs: BlobFolder::new(folder.join("blobs")),
            session: options.session,
            cluster,
            folder: folder.to_owned(),
            writer,
            reads,
            _lock: lock,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// The cluster id, minted when the folder was created.
    pub fn cluster(&self) -> &ClusterId {
        &self.shared.cluster
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.shared.folder
    }

    /// Where the logbook of a worker that runs beside this store belongs.
    pub fn logbook_folder(&self, worker: &WorkerId) -> PathBuf {
        self.shared.folder.join("worker").join(worker.token())
    }

    pub(crate) fn writer(&self) -> &Writer {
        &self.shared.writer
    }
    pub(crate) fn reads(&self) -> &Reads {
        &self.shared.reads
    }
    pub(crate) fn hub(&self) -> &Arc<Hints> {
        &self.shared.hints
    }
    pub(crate) fn waiting(&self) -> &Arc<Waiting> {
        &self.shared.waiting
    }
    pub(crate) fn unread(&self) -> &Arc<Unread> {
        &self.shared.unread
    }
    pub(crate) fn timers(&self) -> &Arc<Pending> {
        &self.shared.timers
    }
    pub(crate) fn blobs(&self) -> &BlobFolder {
        &self.shared.blobs
    }
    pub(crate) fn session(&self) -> &SessionId {
        &self.shared.session
    }
}

impl Reads {
    pub(crate) fn new(db: sled::Db, health: Arc<Health>) -> Self {
        Self { db, health }
    }

    /// Refuses once a commit has failed.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.health.check()
    }

    /// Ends once a commit has failed.
    pub(crate) async fn broken(&self) {
        self.health.broken().await;
    }

    /// The record under a key, if it is durable.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Record>, StoreError> {
        self.check()?;
        let value = guarded(|| self.db.get(key)).map_err(unavailable)?;
        let record = value.map(|value| Record::decode(key, &value)).transpose()?;
        Ok(record.filter(|record| record.seq <= self.health.durable()))
    }

    /// All durable records from `from` on whose key begins with the prefix, in order of key.
    pub(crate) fn scan(
        &self,
        prefix: &[u8],
        from: Vec<u8>,
    ) -> Result<Vec<(sled::IVec, Record)>, StoreError> {
        self.page(prefix, from, usize::MAX)
    }

    /// The first `limit` of them.
    pub(crate) fn page(
        &self,
        prefix: &[u8],
        from: Vec<u8>,
        limit: usize,
    ) -> Result<Vec<(sled::IVec, Record)>, StoreError> {
        self.check()?;
        let durable = self.health.durable();
        let mut found = Vec::new();
        let mut entries = self.db.range(from..keys::behind(prefix));
        while found.len() < limit
            && let Some((key, value)) =
                guarded(|| entries.next().transpose()).map_err(unavailable)?
        {
            let record = Record::decode(&key, &value)?;
            if record.seq <= durable {
                found.push((key, record));
            }
        }
        Ok(found)
    }

    /// All durable records whose key begins with the prefix.
    pub(crate) fn scan_all(&self, prefix: &[u8]) -> Result<Vec<(sled::IVec, Record)>, StoreError> {
        self.scan(prefix, prefix.to_vec())
    }

    /// The last durable record whose key begins with the prefix.
    pub(crate) fn last_under(
        &self,
        prefix: &[u8],
    ) -> Result<Option<(sled::IVec, Record)>, StoreError> {
        self.check()?;
        let durable = self.health.durable();
        let mut bound = keys::behind(prefix);
        loop {
            match guarded(|| self.db.get_lt(&bound)).map_err(unavailable)? {
                Some((key, value)) if key.starts_with(prefix) => {
                    let record = Record::decode(&key, &value)?;
                    if record.seq <= durable {
                        return Ok(Some((key, record)));
                    }
                    bound = key.to_vec();
                }
                _ => return Ok(None),
            }
        }
    }

    /// The first key of this kind at or behind `from`.
    pub(crate) fn first_key(
        &self,
        kind: u8,
        from: &[u8],
    ) -> Result<Option<sled::IVec>, StoreError> {
        self.check()?;
        let mut entries = self.db.range(from.to_vec()..vec![kind.saturating_add(1)]);
        let first = guarded(|| entries.next().transpose()).map_err(unavailable)?;
        Ok(first.map(|(key, _)| key))
    }
}

/// What an operation on the writer thread could not read, as a write's answer: it staged nothing.
pub(crate) fn not_staged(error: StoreError) -> AppendError {
    match error {
        StoreError::Damaged { .. } => AppendError::Never(error.to_string()),
        StoreError::Unavailable(_) | StoreError::Refuses(_) => {
            AppendError::Unknown(error.to_string())
        }
    }
}

/// A body that could not be placed: the write was never tried.
pub(crate) fn not_placed(error: &StoreError) -> AppendError {
    AppendError::Busy(error.to_string())
}

impl From<Unacknowledged> for AppendError {
    fn from(Unacknowledged(reason): Unacknowledged) -> Self {
        AppendError::Unknown(reason)
    }
}

impl From<Unacknowledged> for StoreError {
    fn from(Unacknowledged(reason): Unacknowledged) -> Self {
        StoreError::Refuses(reason)
    }
}

/// The conditional part of every write: the last position is the expected one.
pub(crate) fn expect(expected: Seq, last: Option<Seq>) -> Result<(), AppendError> {
    let last = last.unwrap_or(Seq::NONE);
    if last == expected {
        Ok(())
    } else {
        Err(AppendError::Refused {
            expected,
            last: Some(last),
        })
    }
}
