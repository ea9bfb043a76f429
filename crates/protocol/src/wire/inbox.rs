//! What clients and operators write: submissions, decisions, cancellations. None has force before a commit names it.

use leasehold_json::{AcceptedJson, Digest};
use serde::{Deserialize, Serialize};

use super::{Decision, Limits, WireError, decode, encode};
use crate::ids::{ApprovalId, ClientId, OperatorId, RunId};

/// A client asks for a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// Format version.
    pub v: u32,
    /// The run's name: the same name and content twice is the same run.
    pub run: RunId,
    /// Who asks.
    pub client: ClientId,
    /// Which agent decides.
    pub agent: String,
    /// What for.
    pub goal: String,
    /// What the agent starts from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<AcceptedJson>,
    /// Exactly the tools it may use, in order.
    pub tools: Vec<String>,
    /// Its limits.
    #[serde(default)]
    pub limits: Limits,
}

/// An operator answers a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecideRequest {
    /// Format version.
    pub v: u32,
    /// The question.
    pub approval: ApprovalId,
    /// The hash that the operator was shown.
    pub hash: Digest,
    /// The decision.
    pub decision: Decision,
    /// Who decides.
    pub by: OperatorId,
    /// Why, in their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// An operator wants a run to end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    /// Format version.
    pub v: u32,
    /// Who.
    pub by: OperatorId,
    /// Why, in their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

macro_rules! body {
    ($type:ty, $what:literal) => {
        impl $type {
            /// The stored bytes.
            pub fn encode(&self) -> Vec<u8> {
                encode(self)
            }
            /// Reads stored bytes.
            pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
                decode($what, bytes)
            }
        }
    };
}

body!(Submission, "submission");
body!(DecideRequest, "decision");
body!(CancelRequest, "cancellation");
