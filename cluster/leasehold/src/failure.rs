//! How a command ends: an exit code for a script, and a text that says what happened, to what, and what to do.

use std::process::ExitCode;

use leasehold_embedded::{DumpError, OpenError};
use leasehold_protocol::Status;

/// Shown by `leasehold --help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done; with `run --wait`: the run has completed
  1  a promise is broken (`verify`), or something failed that should not
  2  wrong usage or bad input: nothing was changed
  3  the run has failed
  4  the run was cancelled
  5  the run waits for an operator
  6  no `leasehold dev` runs on the data folder, or it went away
  7  the data folder is refused: in use, read-only, full, damaged, newer";

/// The exit code, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done = 0,
    Broken = 1,
    Usage = 2,
    RunFailed = 3,
    RunCancelled = 4,
    Waits = 5,
    NoRuntime = 6,
    FolderRefused = 7,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

impl From<Status> for Exit {
    fn from(status: Status) -> Self {
        match status {
            Status::Completed | Status::Running => Exit::Done,
            Status::Failed => Exit::RunFailed,
            Status::Cancelled => Exit::RunCancelled,
            Status::Waiting => Exit::Waits,
        }
    }
}

/// A command that did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Empty: there is nobody left to tell.
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
        }
    }

    pub(crate) fn broken(message: impl ToString) -> Self {
        Self::new(Exit::Broken, message.to_string())
    }

    pub(crate) fn usage(message: impl ToString) -> Self {
        Self::new(Exit::Usage, message.to_string())
    }

    /// Standard output cannot be written. A reader that has seen enough (`| head`) is no failure.
    pub(crate) fn output(error: &std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::new(Exit::Done, "");
        }
        Self::broken(format!("standard output cannot be written: {error}"))
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        Self::new(Exit::FolderRefused, error.to_string())
    }
}

impl From<DumpError> for Failure {
    fn from(error: DumpError) -> Self {
        match error {
            DumpError::Open(error) => error.into(),
            DumpError::Write(error) => Self::output(&error),
            DumpError::Store(error) => Self::broken(error),
        }
    }
}
