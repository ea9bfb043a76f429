//! The embedded store: journals, registers, queues and leases of one process in one folder, on sled; and the worker's logbook.
//!
//! # What is promised
//!
//! * A write that was answered `Ok` survives kill -9 and, as far as the device keeps its word, loss of power: one writer thread applies
//!   everything that is queued as one batch, flushes it, calls `fdatasync` on the log file itself (sled's own flush does not), and only
//!   then answers.
//! * Conditions are evaluated on that thread, in order. Readers see durable records only.
//! * Every record carries a version and a checksum over its key and content. A damaged record is an error, never an absent one.
//! * A store that lost acknowledged records (cut off, emptied, replaced by an older copy, a gap in its positions) is refused; nothing is
//!   deleted or started anew. A logbook in that state is renamed to `quarantine-<unix ms>` and a new one with a new id takes its place.
//! * After a failed write the store refuses everything until it is opened again.
//!
//! # The data folder
//!
//! ```text
//! leasehold.json    marker: format, cluster id, created; written last when the folder is made
//! lock              held exclusively by the one process that has the folder open; contains its pid
//! head              the last durable position, written after each group without a sync of its own
//! store/            sled
//! blobs/            values by SHA-256, each its own fsynced file
//! worker/<name>/    one folder per logbook: lock, current/{logbook.json, head, log/}, quarantine-<unix ms>/
//! ```
//!
//! [`EmbeddedStore::dump`] and [`dump_folder`] write everything as lines of JSON for checkers that share no code with this crate.

mod blobs;
mod content;
mod dump;
mod engine;
mod error;
mod files;
mod folder;
mod inbox;
mod keys;
mod leases;
mod lock;
mod logbook;
mod marker;
mod queue;
mod record;
mod registers;
mod runlog;
mod store;
mod timers;
mod writer;

pub use dump::{DumpError, dump_folder, dump_logbook};
pub use error::OpenError;
pub use logbook::{LogbookOptions, OpenedLogbook, SledLogbook};
pub use store::{EmbeddedStore, OpenOptions};
