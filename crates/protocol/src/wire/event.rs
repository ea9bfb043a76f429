//! The events of a journal: what became true of a run. One kind each; the fold in `state` gives them their meaning.

use leasehold_json::{AcceptedJson, Digest, Kept};
use leasehold_tools::{Failure, ResultTrust};
use serde::{Deserialize, Serialize};

use crate::ids::{ApprovalId, Attempt, ClientId, NodeId, OperatorId, Seq, SessionId, StepId};

use super::{Payload, Question, tag_only};

/// Something that became true of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields)]
pub enum Event {
    /// The run exists. Only in the first commit, and always there.
    #[serde(rename = "run.submitted")]
    Submitted {
        /// Who asked for it.
        client: ClientId,
        /// Which agent decides.
        agent: String,
        /// What for; never blank.
        goal: String,
        /// What the agent starts from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<AcceptedJson>,
        /// Exactly the tools it may use, in the order in which the agent sees them.
        toolset: Vec<OfferedTool>,
        /// Its limits.
        limits: Limits,
        /// SHA-256 of the submission's stored bytes.
        request: Digest,
        /// The inbox message it came in.
        inbox: Seq,
    },
    /// The run changed hands. Fences every earlier epoch.
    #[serde(rename = "run.owned")]
    Owned {
        /// The new owner.
        node: NodeId,
        /// The new owner's life.
        session: SessionId,
    },
    /// The agent decided. Verbatim, ahead of what is made of it.
    #[serde(rename = "turn.decided")]
    Decided {
        /// The turn, from 1.
        turn: u32,
        /// The agent's bytes.
        decision: Kept,
    },
    /// The decision, or one call of it, is none that can be carried out.
    #[serde(rename = "step.invalid")]
    Invalid {
        /// The step.
        step: StepId,
        /// The exact text of the check.
        error: String,
    },
    /// What the policy said of a call.
    #[serde(rename = "step.policy")]
    Policy {
        /// The step.
        step: StepId,
        /// The tool.
        tool: String,
        /// The arguments as accepted: normalised, otherwise byte for byte.
        arguments: AcceptedJson,
        /// The whole tool specification's hash.
        spec: Digest,
        /// Which policy, in which version.
        policy: String,
        /// What it said.
        verdict: Verdict,
    },
    /// An operator is asked.
    #[serde(rename = "approval.requested")]
    Requested {
        /// The question's name.
        approval: ApprovalId,
        /// The step it is about; absent: the run itself, which may go on or not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<StepId>,
        /// What a decision must name.
        hash: Digest,
        /// What is asked.
        question: Question,
        /// When the wait ends, unix milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_at: Option<i64>,
    },
    /// An operator's decision was folded in: it has force from here.
    #[serde(rename = "approval.decided")]
    ApprovalDecided {
        /// The question.
        approval: ApprovalId,
        /// The decision.
        decision: Decision,
        /// Who decided.
        by: OperatorId,
        /// Why, in their words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        /// The inbox message it came in.
        inbox: Seq,
    },
    /// The question has lost its object: the truth arrived first, or what it asked about changed.
    #[serde(rename = "approval.withdrawn")]
    Withdrawn {
        /// The question.
        approval: ApprovalId,
        /// Why.
        why: String,
    },
    /// Nobody answered in time, or the grant was not used in time.
    #[serde(rename = "approval.expired")]
    Expired {
        /// The question.
        approval: ApprovalId,
    },
    /// An inbox message that changes nothing has been answered.
    #[serde(rename = "inbox.answered")]
    Answered {
        /// The message.
        inbox: Seq,
        /// The answer.
        answer: InboxAnswer,
    },
    /// An operator wants the run to end.
    #[serde(rename = "run.cancel_requested")]
    CancelRequested {
        /// Who.
        by: OperatorId,
        /// Why, in their words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        /// The inbox message it came in.
        inbox: Seq,
    },
    /// This commit dispatches the attempt: it is the intent and the message in one.
    #[serde(rename = "step.dispatched")]
    Dispatched {
        /// The step.
        step: StepId,
        /// The attempt.
        attempt: Attempt,
        /// SHA-256 of the call envelope stored with this commit.
        call: Digest,
        /// What permits this attempt.
        basis: Basis,
    },
    /// What the ladder found of an orphaned attempt.
    #[serde(rename = "attempt.finding")]
    Found {
        /// The step.
        step: StepId,
        /// The attempt.
        attempt: Attempt,
        /// The finding.
        finding: Finding,
        /// The rung of the ladder that gave it, 1 to 7.
        rung: u8,
        /// The register message that holds the fact.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        register: Option<Seq>,
        /// In words, for the person who reads the timeline.
        detail: String,
    },
    /// The step is over; this is what the agent is told.
    #[serde(rename = "step.finished")]
    Finished {
        /// The step.
        step: StepId,
        /// The attempt that settled it, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<Attempt>,
        /// What the agent is told.
        observation: Observation,
    },
    /// The run will end: nothing more is dispatched, what is claimed is waited for.
    #[serde(rename = "run.ending")]
    Ending {
        /// How it will end.
        status: Status,
        /// Why.
        reason: Reason,
        /// In words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
        /// The run's result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Payload>,
    },
    /// The run has ended. Nothing follows.
    #[serde(rename = "run.ended")]
    Ended {
        /// How.
        status: Status,
        /// Why.
        reason: Reason,
        /// What was in flight when the run was told to end, and what became of it.
        in_flight: Vec<InFlight>,
    },
    /// Only operators or time can move the run: it holds no lease from here.
    #[serde(rename = "run.parked")]
    Parked {
        /// The next moment at which time moves it, unix milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wake_at: Option<i64>,
    },
    /// The owner lets go in good order.
    #[serde(rename = "run.released")]
    Released {
        /// Why.
        why: String,
    },
}

/// A tool of a run's toolset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfferedTool {
    /// Its name.
    pub name: String,
    /// The hash of its whole specification when the run was submitted.
    pub spec: Digest,
}

/// Bounds of one run. All of them hold at once; the first one met, in the order of the fields, names the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Turns.
    pub max_steps: u32,
    /// Failed observations in a row.
    pub max_consecutive_failures: u32,
    /// Milliseconds during which the run did not wait for an operator.
    pub max_active_ms: u64,
    /// Milliseconds since the submission was folded.
    pub max_elapsed_ms: u64,
    /// The same tool with the same arguments and the same observation, in a row.
    pub max_repeats: u32,
    /// Calls of one turn that may be in flight side by side.
    pub max_parallel_calls: u32,
    /// Milliseconds an operator has to answer; 0: for ever.
    pub approval_ttl_ms: u64,
    /// Milliseconds within which a grant must be used; 0: for ever.
    pub grant_ttl_ms: u64,
    /// Milliseconds a call may wait for a worker; 0: for ever.
    pub queue_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        const HOUR_MS: u64 = 3_600_000;
        Self {
            max_steps: 50,
            max_consecutive_failures: 3,
            max_active_ms: HOUR_MS,
            // Approvals wait for people: a week covers a holiday weekend.
            max_elapsed_ms: 7 * 24 * HOUR_MS,
            max_repeats: 3,
            max_parallel_calls: 4,
            approval_ttl_ms: 0,
            grant_ttl_ms: 0,
            queue_ms: 0,
        }
    }
}

/// What a policy says of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case", deny_unknown_fields)]
pub enum Verdict {
    /// The call may be dispatched.
    #[serde(deserialize_with = "tag_only")]
    Allow,
    /// The call may not; the agent goes on.
    Deny {
        /// Told to the agent.
        reason: String,
    },
    /// A person decides.
    RequireApproval {
        /// Machine code of the kind of approval.
        approval_kind: String,
        /// What is granted, in the policy's words.
        capability: String,
        /// What the person is shown.
        presentation: AcceptedJson,
    },
    /// The run ends.
    Abort {
        /// Why.
        reason: String,
    },
}

/// What an operator decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "choice", rename_all = "snake_case", deny_unknown_fields)]
pub enum Decision {
    /// Make the call, or go on with the run.
    #[serde(deserialize_with = "tag_only")]
    Approve,
    /// End the run; of an unknown attempt: nothing further is attempted.
    #[serde(deserialize_with = "tag_only")]
    Reject,
    /// One more attempt, which may act a second time.
    #[serde(deserialize_with = "tag_only")]
    RunAgain,
    /// One more attempt, on the proof that nothing happened.
    #[serde(deserialize_with = "tag_only")]
    Continue,
    /// It happened; this is its result.
    RecordDone {
        /// The result that the agent is told.
        result: AcceptedJson,
    },
}

/// Why an inbox message changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case", deny_unknown_fields)]
pub enum InboxAnswer {
    /// Another decision came first.
    #[serde(deserialize_with = "tag_only")]
    AlreadyDecided,
    /// The same decision came first: an exact repeat.
    #[serde(deserialize_with = "tag_only")]
    Repeated,
    /// No such question.
    #[serde(deserialize_with = "tag_only")]
    UnknownQuestion,
    /// The question was withdrawn or has expired.
    #[serde(deserialize_with = "tag_only")]
    NoLongerAsked,
    /// The decision names another hash than the question's.
    #[serde(deserialize_with = "tag_only")]
    HashDiffers,
    /// The question does not offer this choice.
    #[serde(deserialize_with = "tag_only")]
    ChoiceNotOffered,
    /// The run was ending already.
    #[serde(deserialize_with = "tag_only")]
    AlreadyEnding,
    /// The message cannot be read.
    Unreadable {
        /// Why.
        error: String,
    },
}

/// What permits an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "basis", rename_all = "snake_case", deny_unknown_fields)]
pub enum Basis {
    /// The policy allows the step's first attempt, or an operator approved it.
    First {
        /// The approval spent, if one was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approval: Option<ApprovalId>,
    },
    /// The attempt before is proved not to have acted, by the named register message.
    Proof {
        /// The fact.
        register: Seq,
    },
    /// An operator permits one attempt more, which may act a second time.
    RunAgain {
        /// The question answered.
        approval: ApprovalId,
    },
    /// An operator permits one attempt more, and it is proved that the one before did not act.
    Continue {
        /// The question answered.
        approval: ApprovalId,
        /// The fact.
        register: Seq,
    },
    /// The tool is read-only and the attempt before was given up.
    #[serde(deserialize_with = "tag_only")]
    Superseded,
}

/// What the ladder found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// It happened: an outcome that was there is adopted.
    Done,
    /// The tool says that it failed without effect.
    NothingHappened,
    /// The worker never began the effect: a tombstone, or given up at the gate.
    NotStarted,
    /// Nobody claimed it and nobody can: the claim register holds a revocation.
    Revoked,
    /// The probe says that it happened.
    ProbeDone,
    /// The probe says that it did not and cannot happen.
    ProbeNotDone,
    /// A read-only attempt was given up for another.
    Superseded,
    /// An operator permits another attempt.
    RunAgain,
    /// An operator recorded it as done.
    RecordedDone,
    /// An operator rejected it.
    Rejected,
    /// Nobody can say.
    Unknown,
    /// The probe contradicts itself or the record.
    Conflict,
}

impl Finding {
    /// The rung of the ladder that gives it, 1 to 7.
    pub fn rung(self) -> u8 {
        match self {
            Finding::Done | Finding::NothingHappened => 1,
            Finding::Revoked => 2,
            Finding::NotStarted => 3,
            Finding::Superseded => 5,
            Finding::ProbeDone | Finding::ProbeNotDone | Finding::Conflict => 6,
            Finding::RunAgain | Finding::RecordedDone | Finding::Rejected | Finding::Unknown => 7,
        }
    }
}

/// What the agent is told about a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// Which kind.
    pub kind: ObservationKind,
    /// The content: a result, or an error as JSON.
    pub content: Payload,
    /// Whether the content may be believed.
    pub trust: ResultTrust,
    /// Machine code of the failure, of a tool_error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// The kinds of observation. All but the first count as failures in the streak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObservationKind {
    /// The tool's result.
    ToolResult,
    /// The tool, or the runtime in its place, says that it failed.
    ToolError,
    /// The policy does not allow the call.
    PolicyDenied,
    /// The decision could not be carried out.
    InvalidDecision,
    /// The run was told to end before the call was over.
    Interrupted,
}

/// Run status. The last three are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// An owner drives it, or will.
    Running,
    /// It waits for an operator.
    Waiting,
    /// The goal is reached.
    Completed,
    /// It ended otherwise.
    Failed,
    /// An operator, or time in an operator's place, ended it.
    Cancelled,
}

impl Status {
    /// Nothing follows.
    pub fn is_final(self) -> bool {
        matches!(self, Status::Completed | Status::Failed | Status::Cancelled)
    }
}

/// Why a run ended or will: machine codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "the codes are the documentation; the wire table explains each"
)]
pub enum Reason {
    GoalCompleted,
    GoalFailed,
    LimitSteps,
    LimitActiveTime,
    LimitElapsedTime,
    RepeatedToolFailures,
    LoopDetected,
    PolicyAbort,
    ToolAbort,
    ApprovalRejected,
    ApprovalExpired,
    OperatorCancelled,
    ReconcileConflict,
    AgentError,
    InternalError,
}

impl Reason {
    /// The status that a run ends with for this reason (S1).
    pub fn status(self) -> Status {
        match self {
            Reason::GoalCompleted => Status::Completed,
            Reason::ApprovalRejected | Reason::ApprovalExpired | Reason::OperatorCancelled => {
                Status::Cancelled
            }
            _ => Status::Failed,
        }
    }
}

/// A step that was in flight when its run was told to end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InFlight {
    /// The step.
    pub step: StepId,
    /// The attempt.
    pub attempt: Attempt,
    /// What became of it.
    pub fate: Fate,
}

/// What became of a step that was in flight at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It has an outcome.
    Done,
    /// It is proved not to have happened.
    NotStarted,
    /// Nobody can say.
    InterruptedUnknown,
}
