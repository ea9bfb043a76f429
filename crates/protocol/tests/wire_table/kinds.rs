//! The kinds there are, and how a golden line of each is decoded and encoded again.

use leasehold_json::{AcceptedJson, Kept};
use leasehold_protocol::{
    Basis, CallEnvelope, CancelRequest, ClaimBody, Commit, DecideRequest, Decision, Event, Fate,
    Finding, InboxAnswer, LogbookRecord, Note, NoteKind, ObservationKind, Outcome, OutcomeBody,
    Payload, Question, Reason, RevokeReason, Sealed, Status, Submission, Verdict, WireError,
};
use leasehold_tools::{Failure, ResultTrust};
use std::collections::BTreeSet;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// One list for both: an exhaustive match (a new kind does not compile until it stands here), and the kinds that must have golden bytes.
macro_rules! kinds {
    ($all:ident, $kind:ident, $type:ty: $($pattern:pat => $name:literal),+ $(,)?) => {
        pub(crate) const $all: &[&str] = &[$($name),+];
        fn $kind(value: &$type) -> &'static str {
            match value { $($pattern => $name),+ }
        }
    };
}

kinds!(EVENTS, event, Event:
    Event::Submitted { .. } => "run.submitted",
    Event::Owned { .. } => "run.owned",
    Event::Decided { .. } => "turn.decided",
    Event::Invalid { .. } => "step.invalid",
    Event::Policy { .. } => "step.policy",
    Event::Requested { .. } => "approval.requested",
    Event::ApprovalDecided { .. } => "approval.decided",
    Event::Withdrawn { .. } => "approval.withdrawn",
    Event::Expired { .. } => "approval.expired",
    Event::Answered { .. } => "inbox.answered",
    Event::CancelRequested { .. } => "run.cancel_requested",
    Event::Dispatched { .. } => "step.dispatched",
    Event::Found { .. } => "attempt.finding",
    Event::Finished { .. } => "step.finished",
    Event::Ending { .. } => "run.ending",
    Event::Ended { .. } => "run.ended",
    Event::Parked { .. } => "run.parked",
    Event::Released { .. } => "run.released",
);
kinds!(CLAIMS, claim, ClaimBody: ClaimBody::Claim { .. } => "claim.claim", ClaimBody::Revoke { .. } => "claim.revoke");
kinds!(OUTCOMES, outcome, OutcomeBody:
    OutcomeBody::Done { .. } => "outcome.done",
    OutcomeBody::DoneUnusable { .. } => "outcome.done_unusable",
    OutcomeBody::Aborted { .. } => "outcome.aborted",
    OutcomeBody::NothingHappened { .. } => "outcome.nothing_happened",
    OutcomeBody::NotStarted { .. } => "outcome.not_started",
    OutcomeBody::Sealed { .. } => "outcome.sealed",
);
kinds!(SEALS, seal, Sealed:
    Sealed::ProbeDone { .. } => "probe_done",
    Sealed::ProbeNotDone => "probe_not_done",
    Sealed::Superseded => "superseded",
    Sealed::RunAgain { .. } => "run_again",
    Sealed::RecordedDone { .. } => "recorded_done",
    Sealed::Rejected { .. } => "rejected",
);
kinds!(NOTES, note, NoteKind:
    NoteKind::Unsure { .. } => "note.unsure",
    NoteKind::MayHaveHappened { .. } => "note.may_have_happened",
    NoteKind::MetSeal { .. } => "note.met_seal",
);
kinds!(LOGBOOK, logbook, LogbookRecord:
    LogbookRecord::Armed(_) => "logbook.armed",
    LogbookRecord::Outcome { .. } => "logbook.outcome",
    LogbookRecord::Tombstone { .. } => "logbook.tombstone",
);
kinds!(VERDICTS, verdict, Verdict:
    Verdict::Allow => "allow",
    Verdict::Deny { .. } => "deny",
    Verdict::RequireApproval { .. } => "require_approval",
    Verdict::Abort { .. } => "abort",
);
kinds!(QUESTIONS, question, Question:
    Question::Approve { .. } => "approve",
    Question::InterruptedSideEffect { .. } => "interrupted_side_effect",
    Question::Exhausted { .. } => "exhausted",
    Question::Quarantined { .. } => "quarantined",
);
kinds!(DECISIONS, decision, Decision:
    Decision::Approve => "approve",
    Decision::Reject => "reject",
    Decision::RunAgain => "run_again",
    Decision::Continue => "continue",
    Decision::RecordDone { .. } => "record_done",
);
kinds!(ANSWERS, answer, InboxAnswer:
    InboxAnswer::AlreadyDecided => "already_decided",
    InboxAnswer::Repeated => "repeated",
    InboxAnswer::UnknownQuestion => "unknown_question",
    InboxAnswer::NoLongerAsked => "no_longer_asked",
    InboxAnswer::HashDiffers => "hash_differs",
    InboxAnswer::ChoiceNotOffered => "choice_not_offered",
    InboxAnswer::AlreadyEnding => "already_ending",
    InboxAnswer::Unreadable { .. } => "unreadable",
);
kinds!(BASES, basis, Basis:
    Basis::First { .. } => "first",
    Basis::Proof { .. } => "proof",
    Basis::RunAgain { .. } => "run_again",
    Basis::Continue { .. } => "continue",
    Basis::Superseded => "superseded",
);
kinds!(PAYLOADS, payload, Payload: Payload::Json(_) => "json", Payload::Blob { .. } => "blob");
kinds!(KEPT, kept, Kept: Kept::Text(_) => "text", Kept::Base64(_) => "base64");
kinds!(FINDINGS, finding, Finding:
    Finding::Done => "done",
    Finding::NothingHappened => "nothing_happened",
    Finding::NotStarted => "not_started",
    Finding::Revoked => "revoked",
    Finding::ProbeDone => "probe_done",
    Finding::ProbeNotDone => "probe_not_done",
    Finding::Superseded => "superseded",
    Finding::RunAgain => "run_again",
    Finding::RecordedDone => "recorded_done",
    Finding::Rejected => "rejected",
    Finding::Unknown => "unknown",
    Finding::Conflict => "conflict",
);
kinds!(OBSERVATIONS, observation, ObservationKind:
    ObservationKind::ToolResult => "tool_result",
    ObservationKind::ToolError => "tool_error",
    ObservationKind::PolicyDenied => "policy_denied",
    ObservationKind::InvalidDecision => "invalid_decision",
    ObservationKind::Interrupted => "interrupted",
);
kinds!(STATUSES, status, Status:
    Status::Running => "running",
    Status::Waiting => "waiting",
    Status::Completed => "completed",
    Status::Failed => "failed",
    Status::Cancelled => "cancelled",
);
kinds!(REASONS, reason, Reason:
    Reason::GoalCompleted => "goal_completed",
    Reason::GoalFailed => "goal_failed",
    Reason::LimitSteps => "limit_steps",
    Reason::LimitActiveTime => "limit_active_time",
    Reason::LimitElapsedTime => "limit_elapsed_time",
    Reason::RepeatedToolFailures => "repeated_tool_failures",
    Reason::LoopDetected => "loop_detected",
    Reason::PolicyAbort => "policy_abort",
    Reason::ToolAbort => "tool_abort",
    Reason::ApprovalRejected => "approval_rejected",
    Reason::ApprovalExpired => "approval_expired",
    Reason::OperatorCancelled => "operator_cancelled",
    Reason::ReconcileConflict => "reconcile_conflict",
    Reason::AgentError => "agent_error",
    Reason::InternalError => "internal_error",
);
kinds!(FAILURES, failure, Failure:
    Failure::Error => "error",
    Failure::Panic => "panic",
    Failure::Timeout => "timeout",
    Failure::InvalidContent => "invalid_content",
    Failure::NoWorker => "no_worker",
    Failure::NoExecutor => "no_executor",
);
kinds!(FATES, fate, Fate:
    Fate::Done => "done",
    Fate::NotStarted => "not_started",
    Fate::InterruptedUnknown => "interrupted_unknown",
);
kinds!(REVOCATIONS, revocation, RevokeReason:
    RevokeReason::Ending => "ending",
    RevokeReason::QueueLimit => "queue_limit",
    RevokeReason::SpecChanged => "spec_changed",
);
kinds!(TRUST, trust, ResultTrust: ResultTrust::Trusted => "trusted", ResultTrust::Untrusted => "untrusted");

/// A golden line, decoded: its kinds as `<block>` or `<block>/<kind>`, and the bytes that the production types write.
pub(crate) struct Decoded {
    pub(crate) kinds: Vec<String>,
    pub(crate) again: Vec<u8>,
}

pub(crate) fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    let shape = |error: serde_json::Error| WireError::Shape {
        what: "part",
        detail: error.to_string(),
    };
    AcceptedJson::check(bytes)?.parse().map_err(shape)
}

fn part<T: DeserializeOwned + Serialize>(
    tag: &str,
    bytes: &[u8],
    kind: fn(&T) -> &'static str,
) -> Result<Decoded, WireError> {
    let value: T = parsed(bytes)?;
    Ok(Decoded {
        kinds: vec![format!("{tag}/{}", kind(&value))],
        again: serde_json::to_vec(&value).unwrap(),
    })
}

fn codes<T: DeserializeOwned + Serialize>(
    tag: &str,
    bytes: &[u8],
    kind: fn(&T) -> &'static str,
) -> Result<Decoded, WireError> {
    let values: Vec<T> = parsed(bytes)?;
    let kinds = values
        .iter()
        .map(|value| format!("{tag}/{}", kind(value)))
        .collect();
    Ok(Decoded {
        kinds,
        again: serde_json::to_vec(&values).unwrap(),
    })
}

pub(crate) fn decode(tag: &str, bytes: &[u8]) -> Result<Decoded, WireError> {
    let one = |kind: &str, again: Vec<u8>| Decoded {
        kinds: vec![kind.to_owned()],
        again,
    };
    Ok(match tag {
        "commit" => one(tag, Commit::decode(bytes)?.encode()),
        "call" => one(tag, CallEnvelope::decode(bytes)?.encode()),
        "submission" => one(tag, Submission::decode(bytes)?.encode()),
        "decide" => one(tag, DecideRequest::decode(bytes)?.encode()),
        "cancel" => one(tag, CancelRequest::decode(bytes)?.encode()),
        "verdict" => part(tag, bytes, verdict)?,
        "question" => part(tag, bytes, question)?,
        "decision" => part(tag, bytes, decision)?,
        "answer" => part(tag, bytes, answer)?,
        "basis" => part(tag, bytes, basis)?,
        "payload" => part(tag, bytes, payload)?,
        "kept" => part(tag, bytes, kept)?,
        "code.finding" => codes(tag, bytes, finding)?,
        "code.observation" => codes(tag, bytes, observation)?,
        "code.status" => codes(tag, bytes, status)?,
        "code.reason" => codes(tag, bytes, reason)?,
        "code.failure" => codes(tag, bytes, failure)?,
        "code.fate" => codes(tag, bytes, fate)?,
        "code.revoke" => codes(tag, bytes, revocation)?,
        "code.trust" => codes(tag, bytes, trust)?,
        _ if tag.starts_with("claim.") => {
            let body = ClaimBody::decode(bytes)?;
            one(claim(&body), body.encode())
        }
        _ if tag.starts_with("outcome.") => {
            let body = Outcome::decode(bytes)?;
            let mut decoded = one(outcome(&body.fact), body.encode());
            if let OutcomeBody::Sealed { finding, .. } = &body.fact {
                decoded.kinds.push(format!("sealed/{}", seal(finding)));
            }
            decoded
        }
        _ if tag.starts_with("note.") => {
            let body = Note::decode(bytes)?;
            one(note(&body.evidence), body.encode())
        }
        _ if tag.starts_with("logbook.") => {
            let record: LogbookRecord = parsed(bytes)?;
            one(logbook(&record), serde_json::to_vec(&record).unwrap())
        }
        _ => {
            let value: Event = parsed(bytes)?;
            one(event(&value), serde_json::to_vec(&value).unwrap())
        }
    })
}

/// Every kind that must have golden bytes, as [`Decoded::kinds`] names it.
pub(crate) fn all_kinds() -> BTreeSet<String> {
    let mut all: BTreeSet<String> = ["commit", "call", "submission", "decide", "cancel"]
        .iter()
        .map(|kind| (*kind).to_owned())
        .collect();
    for kinds in [EVENTS, CLAIMS, OUTCOMES, NOTES, LOGBOOK] {
        all.extend(kinds.iter().map(|kind| (*kind).to_owned()));
    }
    let parts = [
        ("sealed", SEALS),
        ("verdict", VERDICTS),
        ("question", QUESTIONS),
        ("decision", DECISIONS),
        ("answer", ANSWERS),
        ("basis", BASES),
        ("payload", PAYLOADS),
        ("kept", KEPT),
        ("code.finding", FINDINGS),
        ("code.observation", OBSERVATIONS),
        ("code.status", STATUSES),
        ("code.reason", REASONS),
        ("code.failure", FAILURES),
        ("code.fate", FATES),
        ("code.revoke", REVOCATIONS),
        ("code.trust", TRUST),
    ];
    for (tag, kinds) in parts {
        all.extend(kinds.iter().map(|kind| format!("{tag}/{kind}")));
    }
    all
}
