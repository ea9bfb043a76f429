//! What the tests of this folder share.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    reason = "test code; not every test uses everything"
)]

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use leasehold_embedded::{
    EmbeddedStore, LogbookOptions, OpenError, OpenOptions, OpenedLogbook, SledLogbook,
};
use leasehold_protocol::{
    Armed, ChainKey, ClaimId, Incarnation, JournalSubject, LogbookRecord, OutcomeBody, RunId, Seq,
    SessionId, WorkerId,
};
use leasehold_store::{AppendError, JournalAppend, RunLog};

/// A folder in memory where there is one: these tests open stores hundreds of times, and what they prove does not rest on a disk.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

pub(crate) fn options() -> OpenOptions {
    OpenOptions {
        session: SessionId::new("session").unwrap(),
        now: 1_700_000_000_000,
    }
}

pub(crate) fn open(folder: &Path) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(folder, options())
}

pub(crate) fn refusal(folder: &Path) -> OpenError {
    open(folder).err().expect("the folder must be refused")
}

pub(crate) fn worker() -> WorkerId {
    WorkerId::new("worker").unwrap()
}

pub(crate) fn logbook(folder: &Path, now: i64) -> OpenedLogbook {
    SledLogbook::open(
        folder,
        LogbookOptions {
            worker: worker(),
            now,
        },
    )
    .unwrap()
}

pub(crate) fn run(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

pub(crate) fn chain(run: &str, attempt: u32) -> ChainKey {
    ChainKey {
        run: self::run(run),
        tool: "pay".to_owned(),
        step: "1-0".parse().unwrap(),
        attempt: attempt.to_string().parse().unwrap(),
        origin: SessionId::new("session").unwrap(),
    }
}

pub(crate) async fn append(
    store: &EmbeddedStore,
    run: &RunId,
    expected: Seq,
    body: impl Into<Bytes>,
) -> Result<Seq, AppendError> {
    let write = JournalAppend {
        run: run.clone(),
        subject: JournalSubject::Note,
        expected,
        body: body.into(),
        call: None,
    };
    store.append(write).await.map(|appended| appended.seq)
}

pub(crate) async fn bodies(store: &EmbeddedStore, run: &RunId) -> Vec<String> {
    let journal = store.read_journal(run, Seq::NONE).await.unwrap();
    journal
        .iter()
        .map(|commit| String::from_utf8(commit.body.as_bytes().to_vec()).unwrap())
        .collect()
}

pub(crate) fn armed() -> Armed {
    Armed {
        claim: ClaimId::new("claim").unwrap(),
        incarnation: Incarnation::new("life").unwrap(),
        call: Seq(3),
    }
}

pub(crate) fn outcome() -> LogbookRecord {
    LogbookRecord::Outcome {
        armed: armed(),
        outcome: OutcomeBody::Aborted {
            detail: "stop".to_owned(),
        },
    }
}

/// A folder as a crash leaves it at this moment: copied file by file while it is open.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let place = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &place);
        } else {
            fs::copy(entry.path(), place).unwrap();
        }
    }
}

/// sled's log in a store's folder.
pub(crate) fn log_of(folder: &Path) -> PathBuf {
    folder.join("store/db")
}

pub(crate) fn length(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

pub(crate) fn cut(path: &Path, length: u64) {
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(length)
        .unwrap();
}
