//! What stands beside the journal: claim and outcome registers, evidence notes, the call envelope, and the worker's logbook record.

use leasehold_json::{AcceptedJson, Digest, Kept};
use leasehold_tools::{Failure, ResultTrust};
use serde::{Deserialize, Serialize};

use super::{WIRE_VERSION, WireError, decode, encode, tag_only};
use crate::ids::{
    Attempt, ClaimId, Epoch, Incarnation, LogbookId, OperatorId, RunId, Seq, SessionId, StepId,
    WorkerId,
};

/// A value, or where it lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Payload {
    /// The value itself, exact bytes.
    Json(AcceptedJson),
    /// A value of more than [`MAX_INLINE`](super::MAX_INLINE) bytes, in the blob store.
    Blob {
        /// SHA-256 of its bytes.
        sha256: Digest,
        /// Its length in bytes.
        size: u64,
    },
}

impl Payload {
    /// What identifies the value: used to compare observations without their bytes.
    pub fn digest(&self) -> Digest {
        match self {
            Payload::Json(json) => json.bytes_digest(),
            Payload::Blob { sha256, .. } => *sha256,
        }
    }
}

/// The envelope that a worker receives: all it may know of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallEnvelope {
    /// Format version.
    pub v: u32,
    /// The run.
    pub run: RunId,
    /// The step.
    pub step: StepId,
    /// The attempt.
    pub attempt: Attempt,
    /// The dispatching owner's epoch.
    pub epoch: Epoch,
    /// The dispatching owner's session.
    pub origin: SessionId,
    /// The tool.
    pub tool: String,
    /// Hash of the tool's whole specification as the owner knows it.
    pub spec: Digest,
    /// The same on every attempt of the step and on every hop.
    pub idempotency_key: Digest,
    /// Milliseconds the call may take, on the worker's clock.
    pub timeout_ms: u64,
    /// The arguments, byte for byte as accepted and approved.
    pub arguments: AcceptedJson,
}

/// The claim register: which worker may execute an attempt, or that none ever will.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ClaimBody {
    /// This worker may.
    Claim {
        /// Format version.
        v: u32,
        /// Fresh random bits: tells this claim from every other, also from the same worker's.
        claim: ClaimId,
        /// The worker.
        worker: WorkerId,
        /// Its life.
        incarnation: Incarnation,
        /// The logbook in which it arms.
        logbook: LogbookId,
    },
    /// None ever will.
    Revoke {
        /// Format version.
        v: u32,
        /// The owner that revoked.
        by: SessionId,
        /// Why.
        why: RevokeReason,
    },
}

/// Why an unclaimed attempt had to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RevokeReason {
    /// The run is ending.
    Ending,
    /// No worker took it within the run's queue limit.
    QueueLimit,
    /// The tool's specification is not the one that was approved any more.
    SpecChanged,
}

/// The outcome register: what an attempt did. Stable facts only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Format version.
    pub v: u32,
    /// The claim it belongs to; absent of a read_only call and of a seal on an unclaimed attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimId>,
    /// The fact.
    pub fact: OutcomeBody,
}

/// The facts that an outcome register can hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum OutcomeBody {
    /// It happened.
    Done {
        /// The tool's result, usable.
        result: Payload,
    },
    /// It happened, and the result is no usable JSON: kept aside, never dropped.
    DoneUnusable {
        /// The tool's bytes.
        kept: Kept,
        /// Why they are unusable.
        error: String,
    },
    /// It happened as far as it did, and the tool says that the run must not go on.
    Aborted {
        /// Why.
        detail: String,
    },
    /// The tool failed without effect.
    NothingHappened {
        /// The failure's code.
        failure: Failure,
        /// In the tool's words.
        message: String,
    },
    /// The worker never began the effect, and never will.
    NotStarted {
        /// Why.
        why: String,
    },
    /// A finding that ends the attempt, written by the run's owner.
    Sealed {
        /// The finding.
        finding: Sealed,
        /// The owner that sealed.
        by: SessionId,
    },
}

/// Findings that can be sealed: stable whoever writes them. Never "unknown".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "finding", rename_all = "snake_case", deny_unknown_fields)]
pub enum Sealed {
    /// The probe says that it happened, with this result.
    ProbeDone {
        /// The result.
        result: Payload,
    },
    /// The probe says that it did not and cannot happen.
    #[serde(deserialize_with = "tag_only")]
    ProbeNotDone,
    /// Read-only, given up for another attempt.
    #[serde(deserialize_with = "tag_only")]
    Superseded,
    /// An operator permits another attempt although this one may have acted.
    RunAgain {
        /// Who.
        operator: OperatorId,
    },
    /// An operator recorded it as done, with this result.
    RecordedDone {
        /// Who.
        operator: OperatorId,
        /// The result.
        result: AcceptedJson,
    },
    /// An operator rejected it.
    Rejected {
        /// Who.
        operator: OperatorId,
    },
}

/// An evidence note: moves the ladder on and settles nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// Format version.
    pub v: u32,
    /// The claim it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimId>,
    /// What is known.
    pub evidence: NoteKind,
}

/// The kinds of evidence; each once per worker and attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum NoteKind {
    /// A successor found the attempt armed and without an outcome.
    Unsure {
        /// In words.
        detail: String,
    },
    /// The tool failed and cannot say that nothing happened, or the deadline passed.
    MayHaveHappened {
        /// The failure's code.
        failure: Failure,
        /// In the tool's words.
        message: String,
    },
    /// The outcome register was taken when the worker came to write: this is what it would have said.
    MetSeal {
        /// The outcome.
        outcome: OutcomeBody,
    },
}

/// One attempt in a worker's logbook. The first record of an attempt is create-if-absent; an outcome replaces an armed record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum LogbookRecord {
    /// The effect may begin any time from here.
    Armed(Armed),
    /// The effect's outcome; to be published if the register lacks it.
    Outcome {
        /// How it was armed.
        armed: Armed,
        /// The outcome.
        outcome: OutcomeBody,
    },
    /// The effect never began and never will.
    Tombstone {
        /// The claim that is thereby void.
        claim: ClaimId,
        /// Why.
        why: String,
    },
}

/// What a worker knew when it armed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Armed {
    /// The claim for which it armed.
    pub claim: ClaimId,
    /// Its life.
    pub incarnation: Incarnation,
    /// The call's position.
    pub call: Seq,
}

impl CallEnvelope {
    /// The bytes that travel with the call.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }
    /// Reads such bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        decode("call envelope", bytes)
    }
}

impl ClaimBody {
    /// The stored bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }
    /// Reads stored bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        decode("claim or revocation", bytes)
    }
}

impl Outcome {
    /// An outcome of this version.
    pub fn new(claim: Option<ClaimId>, fact: OutcomeBody) -> Self {
        Self {
            v: WIRE_VERSION,
            claim,
            fact,
        }
    }
    /// The stored bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }
    /// Reads stored bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        decode("outcome", bytes)
    }
}

impl Note {
    /// A note of this version.
    pub fn new(claim: Option<ClaimId>, evidence: NoteKind) -> Self {
        Self {
            v: WIRE_VERSION,
            claim,
            evidence,
        }
    }
    /// The stored bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }
    /// Reads stored bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        decode("evidence note", bytes)
    }
}

/// How much an outcome's content may be believed; a seal's comes from people and probes and is marked like a foreign result.
pub(crate) fn sealed_trust() -> ResultTrust {
    ResultTrust::Untrusted
}
