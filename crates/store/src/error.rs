//! The errors of a store, by what they say about the world.

use leasehold_protocol::Seq;

/// A read failed, or the store cannot serve. Says nothing about what is stored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached or has stopped; trying again may help.
    #[error("the store does not answer: {0}")]
    Unavailable(String),
    /// A record is there and cannot be believed (checksum, version, shape).
    #[error("damaged record {what}: {detail}; the store was not changed")]
    Damaged {
        /// Which record.
        what: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The device refuses: full, read-only, input/output error. The store has stopped accepting writes.
    #[error("the store refuses writes: {0}; free space or repair the device, then restart")]
    Refuses(String),
}

/// A conditional write was not acknowledged.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// Definitely not stored: the last position is another than expected.
    #[error("not stored: the last position is {last:?}, expected {expected}")]
    Refused {
        /// What the writer expected.
        expected: Seq,
        /// What was there, where the store says so.
        last: Option<Seq>,
    },
    /// Definitely not stored, for a reason that passes (another write in flight): try again with the same expectation.
    #[error("not stored, try again: {0}")]
    Busy(String),
    /// Definitely not stored, and it never will be: too large, malformed, no room for another note.
    #[error("not stored and never will be: {0}")]
    Never(String),
    /// Stored or not, nobody knows: read, and look for the own message.
    #[error("unknown whether stored: {0}")]
    Unknown(String),
}

/// A write-once inbox subject refused, or failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SubmitError {
    /// Something else stands there. Definitely not stored.
    #[error("already written at position {seq}, with other content")]
    Exists {
        /// Where.
        seq: Seq,
        /// What stands there.
        body: bytes::Bytes,
    },
    /// Definitely not stored, and it never will be.
    #[error("not stored: {0}")]
    Never(String),
    /// Stored or not, nobody knows: send the same again.
    #[error("unknown whether stored: {0}; send the same again")]
    Unknown(String),
}
