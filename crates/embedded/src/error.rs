//! Why a data folder or a logbook does not open. Each text says what happened, to what, and what to do.

use std::io;
use std::path::{Path, PathBuf};

/// The folder was not opened. Nothing in it was deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Asked to open, not to create, and there is nothing.
    #[error(
        "{path} holds no leasehold data; check the path, or start the runtime on it to create it"
    )]
    Missing {
        /// The folder.
        path: PathBuf,
    },
    /// Another process has it open.
    #[error("{path} is in use by {}; stop that process first, or use another folder", holder(.pid))]
    Locked {
        /// The folder.
        path: PathBuf,
        /// Who holds the lock, if it says so.
        pid: Option<u32>,
    },
    /// The folder cannot be written to.
    #[error(
        "{path} cannot be written to ({detail}); mount it read-write or fix its permissions, then start again"
    )]
    ReadOnly {
        /// What could not be written.
        path: PathBuf,
        /// The system's words.
        detail: String,
    },
    /// No space is left.
    #[error(
        "no space is left for {path} ({detail}); free some, then start again; nothing that was acknowledged is lost"
    )]
    Full {
        /// What could not be written.
        path: PathBuf,
        /// The system's words.
        detail: String,
    },
    /// A newer binary wrote it.
    #[error("{path} is of format {found}, this binary knows up to {known}; use a newer binary")]
    NewerVersion {
        /// The marker.
        path: PathBuf,
        /// The format found.
        found: u32,
        /// The newest format known.
        known: u32,
    },
    /// The marker is there and what it marks is gone or empty (or the other way round).
    #[error(
        "{path} was emptied: {detail}; put the missing files back from a complete copy, or use a new folder"
    )]
    Emptied {
        /// The folder.
        path: PathBuf,
        /// What was expected and what is there.
        detail: String,
    },
    /// Something is there and cannot be believed.
    #[error(
        "{path} is damaged: {detail}; nothing was changed: restore a complete copy of the folder, or use a new one"
    )]
    Damaged {
        /// The damaged file or folder.
        path: PathBuf,
        /// Where and how.
        detail: String,
    },
    /// Anything else that the system refused.
    #[error("{path}: {detail}")]
    Io {
        /// What was asked for.
        path: PathBuf,
        /// The system's words.
        detail: String,
    },
}

fn holder(pid: &Option<u32>) -> String {
    pid.map_or_else(
        || "another process".to_owned(),
        |pid| format!("process {pid}"),
    )
}

impl OpenError {
    /// Sorts a system error by what its reader has to do about it.
    pub(crate) fn io(path: impl AsRef<Path>, error: &io::Error) -> Self {
        let (path, detail) = (path.as_ref().to_owned(), error.to_string());
        match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                Self::ReadOnly { path, detail }
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full { path, detail }
            }
            _ => Self::Io { path, detail },
        }
    }

    /// Whether what is stored cannot be believed, as opposed to circumstances that pass. A logbook is quarantined exactly then.
    pub(crate) fn condemns(&self) -> bool {
        matches!(self, Self::Emptied { .. } | Self::Damaged { .. })
    }
}
