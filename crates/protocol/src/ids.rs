//! The names of things: runs, steps, attempts, nodes, workers, and the positions and epochs that order them.
//!
//! Every identifier is a type of its own, so that a worker cannot be passed where a node is meant. Identifiers that the protocol derives
//! ([`StepId`], [`CommitId`], [`ApprovalId`], [`Epoch`]) have no public constructor from parts that a caller could invent: two owners that
//! fold the same journal derive the same ones.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use leasehold_tools::subject_token;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Longest identifier in characters. One subject token of at most four times this length, far below any server's subject limit.
pub const MAX_ID_CHARS: usize = 128;

/// Why a text is no identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Nothing but white space.
    #[error("a {0} must not be empty")]
    Empty(&'static str),
    /// Longer than [`MAX_ID_CHARS`].
    #[error("a {0} has at most {MAX_ID_CHARS} characters")]
    TooLong(&'static str),
    /// Not of the form the identifier has.
    #[error("{1:?} is no {0}")]
    Form(&'static str, String),
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks and wraps a text: not blank, at most [`MAX_ID_CHARS`] characters.
            pub fn new(text: impl AsRef<str>) -> Result<Self, IdError> {
                let text = text.as_ref();
                if text.trim().is_empty() {
                    return Err(IdError::Empty($what));
                }
                if text.chars().nth(MAX_ID_CHARS).is_some() {
                    return Err(IdError::TooLong($what));
                }
                Ok(Self(text.into()))
            }
            /// The text as it was given.
            pub fn as_str(&self) -> &str {
                &self.0
            }
            /// The identifier as one subject token (injective).
            pub fn token(&self) -> String {
                subject_token(&self.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&self.0)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                Self::new(String::deserialize(d)?).map_err(de::Error::custom)
            }
        }
    };
}

text_id!(
    /// One run, named by whoever submits it. The same name twice is the same run.
    RunId, "run id");
text_id!(
    /// A process that drives runs, named by its operator.
    NodeId, "node id");
text_id!(
    /// One life of a node: minted when its process starts.
    SessionId, "session id");
text_id!(
    /// A process that executes tool calls, named by its operator.
    WorkerId, "worker id");
text_id!(
    /// One life of a worker: minted when its process starts.
    Incarnation, "incarnation");
text_id!(
    /// One worker's logbook file: minted when the file is created.
    LogbookId, "logbook id");
text_id!(
    /// 128 fresh random bits, minted by a worker for one claim.
    ClaimId, "claim id");
text_id!(
    /// A person, or a person's automation, who approves, rejects, resolves or cancels.
    OperatorId, "operator id");
text_id!(
    /// Whoever submits a run.
    ClientId, "client id");
text_id!(
    /// The cluster that a run belongs to: minted when the store is created.
    ClusterId, "cluster id");
text_id!(
    /// Names one commit: derived from session, epoch and number, so that an owner knows its own after a lost acknowledgement.
    CommitId, "commit id");
text_id!(
    /// Names one question to an operator: derived from what it is about and a count.
    ApprovalId, "approval id");

impl CommitId {
    pub(crate) fn derive(session: &SessionId, epoch: Epoch, n: u64) -> Self {
        Self(format!("{session}.{}.{n}", epoch.0).into())
    }
}

impl OperatorId {
    /// Stands where a record names nobody; no operator can be called so, since it is blank.
    pub(crate) fn unnamed() -> Self {
        Self("".into())
    }
}

impl ApprovalId {
    /// The question of this number about the step or, without one, about the run.
    pub(crate) fn derive(step: Option<StepId>, count: u32) -> Self {
        Self(match step {
            Some(step) => format!("{step}.{count}").into(),
            None => format!("run.{count}").into(),
        })
    }
}

/// How often a run has changed hands; the fencing token. 0 before the first owner. Only folding a journal yields a higher one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(u64);

impl Epoch {
    /// Before any owner.
    pub const NONE: Epoch = Epoch(0);
    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
    /// As a number, for showing and for the tool's header.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A position in a store's stream: rises with every stored message, never reused. 0 means "nothing yet".
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// Before the first message.
    pub const NONE: Seq = Seq(0);
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One tool call of a turn: `<turn>-<index>`, turns from 1, indexes from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepId {
    /// The turn, from 1.
    pub turn: u32,
    /// The call's place in the turn, from 0.
    pub index: u32,
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.turn, self.index)
    }
}

impl FromStr for StepId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let form = || IdError::Form("step id", text.to_owned());
        let (turn, index) = text.split_once('-').ok_or_else(form)?;
        let step = StepId {
            turn: turn.parse().map_err(|_| form())?,
            index: index.parse().map_err(|_| form())?,
        };
        // One spelling only: "01-0" or "+1-0" would be another subject for the same step.
        if step.to_string() == text {
            Ok(step)
        } else {
            Err(form())
        }
    }
}

impl Serialize for StepId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StepId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

/// One permission to execute a step, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attempt(u32);

impl Attempt {
    /// The first attempt of every step.
    pub const FIRST: Attempt = Attempt(1);
    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
    /// As a number, for showing and for the tool's header.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Attempt {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        match text.parse::<u32>() {
            Ok(n) if n > 0 && n.to_string() == text => Ok(Self(n)),
            _ => Err(IdError::Form("attempt", text.to_owned())),
        }
    }
}

/// Who wrote a register or a note: a worker, or the runtime itself (`_rt`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Writer {
    /// The worker of that name.
    Worker(WorkerId),
    /// The reconciler of the run's owner.
    Runtime,
}

/// The runtime's token as a writer. No worker can have it: an encoded `_` is followed by two hex digits.
pub const RUNTIME_TOKEN: &str = "_rt";

impl Writer {
    /// As one subject token.
    pub fn token(&self) -> String {
        match self {
            Writer::Worker(worker) => worker.token(),
            Writer::Runtime => RUNTIME_TOKEN.to_owned(),
        }
    }
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Writer::Worker(worker) => worker.fmt(f),
            Writer::Runtime => f.write_str("runtime"),
        }
    }
}

/// The chain of one attempt: its call, claim and outcome share these tokens and one filter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainKey {
    /// The run.
    pub run: RunId,
    /// The tool's name.
    pub tool: String,
    /// The step.
    pub step: StepId,
    /// The attempt.
    pub attempt: Attempt,
    /// The session that dispatched it and listens for its outcome.
    pub origin: SessionId,
}

impl fmt::Display for ChainKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} step {} attempt {} ({})",
            self.run, self.step, self.attempt, self.tool
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_ids_have_one_spelling() {
        assert_eq!(
            "3-0".parse::<StepId>().unwrap(),
            StepId { turn: 3, index: 0 }
        );
        for bad in ["03-0", "+3-0", "3", "3-0-0", "", "3-", " 3-0"] {
            assert!(bad.parse::<StepId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn k58_ids_are_bounded_and_never_blank() {
        assert!(RunId::new("").is_err());
        assert!(RunId::new(" \n").is_err());
        assert!(RunId::new("é".repeat(128)).is_ok());
        assert!(RunId::new("é".repeat(129)).is_err());
    }

    #[test]
    fn k58_no_worker_can_take_the_runtimes_token() {
        assert_ne!(WorkerId::new("_rt").unwrap().token(), RUNTIME_TOKEN);
    }
}
