//! The worker's logbook: its own fsynced record of what it armed and what came of it. Evidence and outbox, never a to-do list.

use async_trait::async_trait;
use leasehold_protocol::{ChainKey, LogbookId, LogbookRecord};

/// The logbook cannot serve. Whatever it was asked is then unknown, never "it did not happen".
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogbookError {
    /// Not durable, and the file is in doubt: no effect may follow.
    #[error("the logbook could not write durably: {0}")]
    NotDurable(String),
    /// A record is there and cannot be believed.
    #[error("damaged logbook record of {chain}: {detail}")]
    Damaged {
        /// Which attempt.
        chain: Box<ChainKey>,
        /// What is wrong.
        detail: String,
    },
}

/// What create-if-absent found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArmAnswer {
    /// The record is written, durably.
    Written,
    /// A record was there: do not execute.
    Present(LogbookRecord),
}

/// A worker's logbook. Every method is durable once it has returned `Ok`.
#[async_trait]
pub trait Logbook: Send + Sync + 'static {
    /// The id minted when its file was created.
    fn id(&self) -> &LogbookId;
    /// Writes the first record of the attempt (armed or a tombstone) if there is none: one compare-and-set.
    async fn create(
        &self,
        chain: &ChainKey,
        record: LogbookRecord,
    ) -> Result<ArmAnswer, LogbookError>;
    /// Replaces the armed record with its outcome.
    async fn outcome(&self, chain: &ChainKey, record: LogbookRecord) -> Result<(), LogbookError>;
    /// The attempt's record.
    async fn get(&self, chain: &ChainKey) -> Result<Option<LogbookRecord>, LogbookError>;
    /// Attempts not marked published, in order of chain: what a new incarnation resolves.
    async fn open_attempts(&self) -> Result<Vec<(ChainKey, LogbookRecord)>, LogbookError>;
    /// The register holds what the record says: nothing is left to do for it. The record stays.
    async fn published(&self, chain: &ChainKey) -> Result<(), LogbookError>;
}
