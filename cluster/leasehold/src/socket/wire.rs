//! What goes over the socket. Records of the protocol travel in their own form; everything else is defined here.

use leasehold_protocol::{
    CancelRequest, DecideRequest, InboxAnswer, RunId, Seq, StoredCommit, Submission,
};
use leasehold_tools::ToolSpec;
use serde::{Deserialize, Serialize};

/// Longest request in bytes: the largest submission that a runtime takes, with room for escapes.
pub(super) const MAX_REQUEST: usize = 2 * 1024 * 1024;
/// Longest answer in bytes: everything about one run at the largest limits that make sense. A bound against a broken peer, no more.
pub(super) const MAX_ANSWER: usize = 256 * 1024 * 1024;

/// What a command asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Who is there? Answer: [`Hello`].
    Hello,
    /// Answer: [`Receipt`].
    Submit { submission: Box<Submission> },
    /// Answer: [`Answered`].
    Decide {
        run: RunId,
        request: Box<DecideRequest>,
    },
    /// Answer: [`Answered`].
    Cancel { run: RunId, request: CancelRequest },
    /// Answer: all [`crate::view::RunSummary`].
    Runs,
    /// Answer: a [`crate::view::RunView`], or null.
    Run { run: RunId },
    /// Answer: the open [`crate::view::QuestionView`]s of all runs.
    Questions,
    /// Answer: a [`crate::material::Material`], or null.
    Material { run: RunId },
    /// Answer: [`Happening`]s for as long as the connection stands; the first is `subscribed`.
    Watch { run: Option<RunId> },
    /// Answer: the [`crate::view::RunSummary`] of each run with a call of this tool that is not settled.
    WaitingFor { tool: String },
    /// Answer: how many calls wait or run, per tool.
    Waiting,
    /// Answer: the lines of a raw dump, one item each.
    Dump,
}

/// One line of an answer. The last one is `done` or `refused`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reply<T> {
    Item(T),
    Done(T),
    Refused(Refusal),
}

/// Who serves.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) cluster: String,
    pub(crate) session: String,
    pub(crate) policy: String,
    pub(crate) agents: Vec<String>,
    pub(crate) tools: Vec<ToolSpec>,
}

/// A submission was taken; durable.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) run: RunId,
    /// Its inbox position.
    pub(crate) inbox: Seq,
    /// Whether the same submission had been taken before.
    pub(crate) repeated: bool,
}

/// What became of an operator's message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum Answered {
    /// It has force.
    Taken,
    /// It changed nothing.
    Unused { why: InboxAnswer },
    /// The run had ended before it was read.
    RunEnded,
    /// It is stored and not read yet.
    Stored,
}

/// Something happened to a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Happening {
    /// Everything from here on is told.
    Subscribed,
    /// A commit is stored.
    Committed { run: RunId, commit: StoredCommit },
    /// No actor drives the run now: it has ended, is parked or was let go.
    Left { run: RunId, reason: String },
    /// The run is left alone until the process is started again.
    Quarantined { run: RunId, why: String },
    /// Some were missed: read the journal.
    Missed { events: u64 },
}

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Refusal {
    pub(crate) code: RefusalCode,
    pub(crate) message: String,
    /// Everything that is wrong, one by one, of an invalid submission.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) problems: Vec<String>,
}

/// The kinds of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RefusalCode {
    /// The request is none.
    BadRequest,
    /// The submission is wrong; nothing was written.
    Invalid,
    /// The run id stands for another submission.
    IdUsed,
    /// There is no such run.
    UnknownRun,
    /// The operator has said something else before.
    SaidOtherwise,
    /// Stored or not, nobody knows: send the same again.
    Unknown,
    /// The store, or what it holds, does not permit it.
    Store,
}

impl Refusal {
    pub(super) fn new(code: RefusalCode, message: impl ToString) -> Self {
        Self {
            code,
            message: message.to_string(),
            problems: Vec::new(),
        }
    }
}
