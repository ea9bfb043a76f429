//! The commit: the events of one run that become true together, linked to the commit before it by hash.

use leasehold_json::Digest;
use serde::{Deserialize, Serialize};

use super::{Body, Event, WIRE_VERSION, WireError, decode, encode};
use crate::ids::{ChainKey, CommitId, Epoch, RunId, Seq};

/// One journal record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// Format version.
    pub v: u32,
    /// The run it belongs to.
    pub run: RunId,
    /// Its number in the run, from 1; counts valid commits only.
    pub n: u64,
    /// The epoch of its writer.
    pub epoch: Epoch,
    /// Tells the writer's own commit from another's.
    pub id: CommitId,
    /// The writer's wall clock, unix milliseconds. Orders nothing; limits and expiries are judged by it.
    pub at: i64,
    /// SHA-256 of the previous commit's stored bytes; zeros in the first.
    pub prev: Digest,
    /// What became true, in order.
    pub events: Vec<Event>,
}

impl Commit {
    /// The stored bytes.
    pub fn encode(&self) -> Vec<u8> {
        debug_assert_eq!(self.v, WIRE_VERSION);
        encode(self)
    }
    /// Reads stored bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        decode("commit", bytes)
    }
}

/// Which journal subject a commit is stored under. A call's subject is the head of its attempt's chain.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalSubject {
    /// The first commit.
    Open,
    /// An owner's first commit.
    Own,
    /// Dispatches a call.
    Call(ChainKey),
    /// Anything else.
    Note,
    /// The last commit.
    End,
}

/// A journal message as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredCommit {
    /// Its position.
    pub seq: Seq,
    /// Its subject.
    pub subject: JournalSubject,
    /// Its bytes.
    pub body: Body,
}
