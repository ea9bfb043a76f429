//! Recording of everything that run machines are told, in the order in which they are told it.
//!
//! A recording is one line of JSON per fact: first [`Recorded::Machine`], then each [`Recorded::Input`]. A machine of the same
//! configuration that is stepped with the inputs of its number, in order, asks for the same commits, byte for byte.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_protocol::{ClusterId, Input, NodeId, Now, RunId, SessionId};
use serde::{Deserialize, Serialize};

/// One line of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case", deny_unknown_fields)]
pub enum Recorded {
    /// A machine was made. Tools are not recorded: a replay brings the same ones.
    Machine {
        /// Its number, unique in the recording of one session.
        machine: u64,
        /// Its run.
        run: RunId,
        /// The cluster.
        cluster: ClusterId,
        /// The node.
        node: NodeId,
        /// The node's life.
        session: SessionId,
        /// Milliseconds.
        clock_bound_ms: u64,
        /// Milliseconds.
        session_ttl_ms: u64,
        /// Whether a hook is asked.
        hook: bool,
        /// Which deliberate weakening, in words.
        weakening: String,
    },
    /// A machine is about to be stepped.
    Input {
        /// Which.
        machine: u64,
        /// The session, which makes the number unique.
        session: SessionId,
        /// The clocks.
        now: Now,
        /// What it is told.
        input: Input,
    },
}

/// Is given every record before the machine is stepped. Called on the actor's own thread: must be quick.
pub trait Recorder: Send + Sync + 'static {
    /// Whether anything is to be recorded; if not, no record is made.
    fn on(&self) -> bool {
        true
    }
    /// Takes a record.
    fn record(&self, record: Recorded);
}

/// Records nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRecorder;

impl Recorder for NoRecorder {
    fn on(&self) -> bool {
        false
    }
    fn record(&self, _: Recorded) {}
}

/// Appends one line of JSON per record to a file. Each line is handed to the operating system before the machine is stepped: it survives
/// the process, not the machine.
#[derive(Debug)]
pub struct FileRecorder {
    file: Mutex<File>,
    failed: AtomicBool,
}

impl FileRecorder {
    /// Opens the file for appending, creates it if there is none.
    pub fn append(path: &Path) -> std::io::Result<Self> {
        let file = File::options().append(true).create(true).open(path)?;
        Ok(Self {
            file: Mutex::new(file),
            failed: AtomicBool::new(false),
        })
    }
}

impl Recorder for FileRecorder {
    fn on(&self) -> bool {
        !self.failed.load(Ordering::Relaxed)
    }

    fn record(&self, record: Recorded) {
        let written = serde_json::to_vec(&record)
            .map_err(std::io::Error::other)
            .and_then(|mut line| {
                line.push(b'\n');
                self.file
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .write_all(&line)
            });
        if let Err(error) = written
            && !self.failed.swap(true, Ordering::Relaxed)
        {
            // A gap would replay to something else: nothing more is recorded.
            tracing::error!(%error, "the recording has ended: its file cannot be written");
        }
    }
}
