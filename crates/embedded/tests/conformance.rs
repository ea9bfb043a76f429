//! The embedded store passes the suite that every backend passes.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use leasehold_embedded::{EmbeddedStore, OpenOptions};
use leasehold_protocol::SessionId;
use leasehold_store::SharedBackend;
use leasehold_store::conformance::Rig;

struct Folder {
    folder: tempfile::TempDir,
    opened: AtomicU32,
}

impl Folder {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            opened: AtomicU32::new(0),
        }
    }
}

#[async_trait]
impl Rig for Folder {
    async fn open(&self) -> SharedBackend {
        self.opened.fetch_add(1, Ordering::Relaxed);
        Arc::new(
            EmbeddedStore::open(
                self.folder.path(),
                OpenOptions {
                    session: self.session(),
                    now: 1,
                },
            )
            .unwrap(),
        )
    }

    fn session(&self) -> SessionId {
        SessionId::new(format!("session {}", self.opened.load(Ordering::Relaxed))).unwrap()
    }
}

leasehold_store::conformance_tests!(Folder::new());
