//! What goes into an attempt's machine and what comes out of it.

use leasehold_json::Kept;
use leasehold_tools::Failure;
use serde::{Deserialize, Serialize};

use super::WorkerWeakening;
use crate::chain::ChainMessage;
use crate::ids::{ChainKey, ClaimId, Incarnation, LogbookId, Seq, WorkerId};
use crate::wire::{Body, CallEnvelope, LogbookRecord, Payload};

/// Who executes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerIdentity {
    /// The worker's name.
    pub worker: WorkerId,
    /// Its life.
    pub incarnation: Incarnation,
    /// Its logbook file.
    pub logbook: LogbookId,
    /// The machine on which that file was made, if it is another one than this: of what earlier lives claimed, the file's lock and its silence
    /// prove nothing here, because the life that claimed may still run there.
    pub moved_from: Option<String>,
    /// A negative control.
    pub weakening: WorkerWeakening,
}

/// Something that is durably recorded. Only this crate can say so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded<T>(T);

impl<T> Recorded<T> {
    pub(super) fn of(value: T) -> Self {
        Self(value)
    }
    /// What is recorded.
    pub fn get(&self) -> &T {
        &self.0
    }
}

/// The permission to have an effect: a stored call, claimed by this worker (of a read_only call: with nothing else in its chain).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// The attempt.
    pub chain: ChainKey,
    /// The call's position.
    pub call: Seq,
    /// The claim; absent of a read_only call.
    pub claim: Option<ClaimId>,
}

/// An execution to begin at once: nothing is awaited before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    /// The proof that the intent is recorded.
    pub intent: Recorded<Intent>,
    /// What to execute.
    pub envelope: CallEnvelope,
    /// Milliseconds until the deadline.
    pub time_left_ms: u64,
    /// The same deadline on this host's wall clock, unix milliseconds.
    pub deadline_wall: i64,
}

/// The end of a conditional write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteAnswer {
    /// Stored, durably.
    Stored(Seq),
    /// Definitely not stored: the chain has moved on.
    Refused,
    /// Nobody knows.
    Unknown,
}

/// The end of a create-if-absent in the logbook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogbookAnswer {
    /// Written, durably.
    Written,
    /// A record was there.
    Present(LogbookRecord),
    /// Not durable.
    Failed(String),
}

/// What became of a tool's call, before its class gives it a meaning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolReturn {
    /// A usable result.
    Done(Payload),
    /// A result that is no usable JSON.
    Unusable {
        /// The bytes.
        kept: Kept,
        /// Why.
        error: String,
    },
    /// The tool says that the run must end.
    Abort {
        /// Why.
        detail: String,
    },
    /// The tool says that it failed without effect.
    NothingHappened {
        /// The code.
        failure: Failure,
        /// In its words.
        message: String,
    },
    /// The tool failed and something may have happened, or it says nothing about it.
    MayHaveHappened {
        /// The code.
        failure: Failure,
        /// In its words.
        message: String,
    },
}

/// Something that an attempt's machine is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "input", content = "value", rename_all = "snake_case")]
pub enum AttemptInput {
    /// The chain, as asked for.
    ChainRead {
        /// Its messages.
        messages: Vec<ChainMessage>,
    },
    /// The claim asked for came to an end.
    ClaimTried(WriteAnswer),
    /// The logbook record asked for (armed or tombstone) came to an end.
    LogbookTried(LogbookAnswer),
    /// The tool returned.
    Returned(ToolReturn),
    /// The deadline has passed.
    Deadline,
    /// The outcome asked for came to an end.
    OutcomeTried(WriteAnswer),
    /// The logbook's outcome came to an end.
    OutcomeLogged(Result<(), String>),
    /// The note asked for came to an end.
    NoteTried,
    /// The logbook's record, as asked for.
    LogbookRead(Result<Option<LogbookRecord>, String>),
}

/// Something that an attempt's machine wants done. Those of one answer may be done side by side, except that `Execute` is begun at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptEffect {
    /// Read the chain.
    ReadChain,
    /// Write the claim register, if authority holds.
    WriteClaim {
        /// The chain's last position.
        expected: Seq,
        /// The claim.
        body: Body,
    },
    /// Create the logbook's record of this attempt if there is none.
    CreateRecord {
        /// Armed or tombstone.
        record: LogbookRecord,
    },
    /// Have the effect.
    Execute(Execution),
    /// Tell the tool to stop. Its answer is still wanted.
    CancelTool,
    /// Write the outcome register.
    WriteOutcome {
        /// The chain's last position.
        expected: Seq,
        /// The outcome.
        body: Body,
    },
    /// Replace the armed record in the logbook.
    LogOutcome {
        /// The outcome.
        record: LogbookRecord,
    },
    /// Write an evidence note.
    WriteNote {
        /// The note.
        body: Body,
        /// Whether it may take the place that is kept for an outcome that met a seal.
        last_place: bool,
    },
    /// Read the logbook's record of this attempt.
    ReadRecord,
    /// The register holds what the logbook holds: nothing is left to publish.
    Published,
    /// The call needs no more deliveries.
    AckCall {
        /// Its position.
        seq: Seq,
    },
    /// The machine does nothing more.
    Over,
}
