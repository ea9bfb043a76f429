//! sled, kept on a short lead: opened without its background flusher, synced by our own `fdatasync`, its panics turned into errors.
//!
//! sled 0.34 ends a flush with `sync_file_range`, which neither writes metadata nor empties the device's cache; so a commit here is batch,
//! flush, then `fdatasync` on the one file that holds its log. Values above a quarter segment would go into files that sled never syncs;
//! [`MAX_INLINE_BODY`](crate::content::MAX_INLINE_BODY) and the segment size keep every page far below that.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{io, thread};

use leasehold_protocol::Seq;

use crate::OpenError;

/// sled's segment. A page (at most 17 records of at most 16 KiB body and 6 KiB key and names) must stay below a quarter of it.
const SEGMENT_SIZE: usize = 2 * 1024 * 1024;

/// sled's page cache: working sets are open runs, which are small.
const CACHE_BYTES: u64 = 128 * 1024 * 1024;

/// sled lets go of its file some moments after the last handle of the same process is dropped. Our own lock proves that nobody else has it.
const SLED_RELEASE_TRIES: u32 = 500;
/// The pause between two tries.
const SLED_RELEASE_PAUSE: Duration = Duration::from_millis(10);

/// Keys with their new values; `None` removes.
pub(crate) type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// An open sled store and the files around it.
pub(crate) struct Engine {
    db: sled::Db,
    log: File,
    head: Head,
}

impl Engine {
    /// Opens or creates the sled folder. A store that sled refuses, or panics over, is damaged; the files stay as they are.
    pub(crate) fn open(folder: &Path, head: &Path) -> Result<Self, OpenError> {
        let mut tries = 0;
        let db = loop {
            let config = sled::Config::new()
                .path(folder)
                .mode(sled::Mode::HighThroughput)
                .flush_every_ms(None)
                .segment_size(SEGMENT_SIZE)
                .cache_capacity(CACHE_BYTES);
            match guarded(|| config.open()) {
                Ok(db) => break db,
                Err(Failure::Sled(sled::Error::Io(error)))
                    if tries < SLED_RELEASE_TRIES
                        && error.to_string().contains("could not acquire lock") =>
                {
                    tries += 1;
                    thread::sleep(SLED_RELEASE_PAUSE);
                }
                Err(failure) => return Err(failure.opening(folder)),
            }
        };
        let path = folder.join("db");
        let log = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|e| OpenError::io(&path, &e))?;
        Ok(Self {
            db,
            log,
            head: Head::open(head)?,
        })
    }

    /// For reads. Dropped last by whoever clones it.
    pub(crate) fn db(&self) -> &sled::Db {
        &self.db
    }

    /// The position that was durable when the head was last written, if the head can be read.
    pub(crate) fn head(&self) -> Option<Seq> {
        self.head.read()
    }

    /// Makes the changes durable, all or none. After an error nobody knows which, and the engine must not be used again.
    pub(crate) fn commit(&self, changes: &Changes, last: Seq) -> Result<(), String> {
        let mut batch = sled::Batch::default();
        for (key, value) in changes {
            match value {
                Some(value) => batch.insert(key.as_slice(), value.as_slice()),
                None => batch.remove(key.as_slice()),
            }
        }
        guarded(|| {
            self.db.apply_batch(batch)?;
            self.db.flush()
        })
        .map_err(|e| e.to_string())?;
        self.log
            .sync_data()
            .map_err(|e| format!("fdatasync: {e}"))?;
        self.head.write(last).map_err(|e| format!("head: {e}"))
    }
}

/// The last durable position, beside the store.
///
/// Written in place after each commit and never synced, so it costs nothing and is never ahead of the store. At the next open a store that
/// ends before it has lost acknowledged records: cut off, or an older copy. After loss of power the head itself may be old, which only
/// makes this check weaker.
struct Head(File);

impl Head {
    const LENGTH: usize = 12;

    fn open(path: &Path) -> Result<Self, OpenError> {
        let io = |e: io::Error| OpenError::io(path, &e);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(io)?;
        if file.metadata().map_err(io)?.len() == 0 {
            // Allocated and synced once, so that later writes stay in place.
            let head = Self(file);
            head.write(Seq::NONE).map_err(io)?;
            head.0.sync_all().map_err(io)?;
            return Ok(head);
        }
        Ok(Self(file))
    }

    fn write(&self, last: Seq) -> io::Result<()> {
        let seq = last.0.to_be_bytes();
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&seq);
        bytes[8..].copy_from_slice(&crc32fast::hash(&seq).to_be_bytes());
        self.0.write_all_at(&bytes, 0)
    }

    fn read(&self) -> Option<Seq> {
        let mut bytes = [0; Self::LENGTH];
        self.0.read_exact_at(&mut bytes, 0).ok()?;
        let (seq, crc) = bytes.split_first_chunk::<8>()?;
        (crc32fast::hash(seq).to_be_bytes() == crc).then(|| Seq(u64::from_be_bytes(*seq)))
    }
}

/// What sled did instead of answering.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Sled(sled::Error),
    #[error("the store stopped with: {0}")]
    Panic(String),
}

impl Failure {
    fn opening(self, folder: &Path) -> OpenError {
        let path = PathBuf::from(folder);
        match self {
            // A file of the store that ends early or is missing is damage; any other refusal is the system's.
            Failure::Sled(sled::Error::Io(e))
                if !matches!(
                    e.kind(),
                    io::ErrorKind::UnexpectedEof
                        | io::ErrorKind::InvalidData
                        | io::ErrorKind::NotFound
                ) =>
            {
                OpenError::io(path, &e)
            }
            other => OpenError::Damaged {
                path,
                detail: other.to_string(),
            },
        }
    }
}

/// Calls sled; its panics become errors.
pub(crate) fn guarded<T>(call: impl FnOnce() -> sled::Result<T>) -> Result<T, Failure> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(Failure::Sled),
        Err(panic) => Err(Failure::Panic(panic_text(&*panic))),
    }
}

/// A panic's message.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
