//! What goes into a run's machine and what comes out of it.
//!
//! Inputs serialise, so that a process can record every one of them and the record can be replayed to the same commits, byte for byte.
//! Every answer names what it answers; a late or repeated answer is recognised and changes nothing.

use std::sync::Arc;

use leasehold_json::{AcceptedJson, Kept};
use serde::{Deserialize, Serialize};

use crate::chain::{ChainMessage, Hint, NoteMessage};
use crate::ids::{Attempt, ChainKey, RunId, Seq, StepId, WorkerId};
use crate::state::{Approval, Turn};
use crate::wire::{Body, JournalSubject, Limits, StoredCommit, Verdict, tag_only};

/// The two clocks, read once per input by the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Now {
    /// Wall clock, unix milliseconds: stamps records; expiries are judged by it.
    pub wall: i64,
    /// A clock that counts suspension and never steps back (CLOCK_BOOTTIME), milliseconds: waits are measured by it.
    pub boot: u64,
}

/// Something that a run's machine is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "input", rename_all = "snake_case", deny_unknown_fields)]
pub enum Input {
    /// The whole journal, and the submission if there is no journal yet. The first input of every machine.
    Load {
        /// All commits in order of position.
        commits: Vec<StoredCommit>,
        /// The submission's position and bytes.
        submission: Option<(Seq, Body)>,
    },
    /// A decision of an operator came in.
    Decide {
        /// Its inbox position.
        inbox: Seq,
        /// Its bytes.
        body: Body,
    },
    /// An operator wants the run to end.
    Cancel {
        /// Its inbox position.
        inbox: Seq,
        /// Its bytes.
        body: Body,
    },
    /// The commit asked for is stored at this position.
    CommitStored {
        /// Where.
        seq: Seq,
    },
    /// The commit asked for was refused, or nobody knows: read.
    #[serde(deserialize_with = "tag_only")]
    CommitDoubtful,
    /// The commit asked for is definitely not stored and the reason passes: ask again.
    #[serde(deserialize_with = "tag_only")]
    CommitBusy,
    /// The journal after the last applied position, as asked for.
    JournalRead {
        /// All commits since, in order.
        commits: Vec<StoredCommit>,
    },
    /// The store republished something of one of the run's attempts.
    Hint(Hint),
    /// A chain and its notes, as asked for.
    ChainRead {
        /// The step.
        step: StepId,
        /// The attempt.
        attempt: Attempt,
        /// The chain.
        messages: Vec<ChainMessage>,
        /// The notes.
        notes: Vec<NoteMessage>,
    },
    /// The register write asked for came to an end: stored, refused or unknown. What stands there is read in any case.
    RegisterTried {
        /// The step.
        step: StepId,
        /// The attempt.
        attempt: Attempt,
    },
    /// The lock holder of the claim's logbook was asked.
    Inspected {
        /// The step.
        step: StepId,
        /// The attempt.
        attempt: Attempt,
        /// What it said. Never believed as to the outcome: that is read from the registers.
        answer: InspectAnswer,
    },
    /// The tool's probe was asked.
    Probed {
        /// The step.
        step: StepId,
        /// The attempt.
        attempt: Attempt,
        /// What it said.
        answer: ProbeReply,
    },
    /// The agent decided.
    AgentDecided {
        /// The turn.
        turn: u32,
        /// Its bytes, whatever they are.
        decision: Kept,
    },
    /// The agent cannot decide.
    AgentFailed {
        /// The turn.
        turn: u32,
        /// Why.
        error: String,
    },
    /// The policy answered.
    Judged {
        /// The step.
        step: StepId,
        /// Which policy, in which version.
        policy: String,
        /// What it said, or why it could not.
        verdict: Result<Verdict, String>,
    },
    /// The takeover hook answered.
    HookAnswered(HookAnswer),
    /// The durable timer asked for is set.
    #[serde(deserialize_with = "tag_only")]
    TimerSet,
    /// Time passed.
    #[serde(deserialize_with = "tag_only")]
    Tick,
    /// The process is told to stop: let go in good order.
    #[serde(deserialize_with = "tag_only")]
    Drain,
    /// The process may not act any more.
    #[serde(deserialize_with = "tag_only")]
    AuthorityLost,
}

/// What the holder of a logbook's lock says of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InspectAnswer {
    /// It is being executed.
    Running,
    /// It is not, and whatever is known has been written.
    Settled,
    /// Nobody answered.
    NoAnswer,
}

/// What a probe said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "probe", rename_all = "snake_case", deny_unknown_fields)]
pub enum ProbeReply {
    /// It happened, with this result (already stored, if large).
    Done {
        /// The result.
        result: crate::wire::Payload,
    },
    /// It did not happen.
    #[serde(deserialize_with = "tag_only")]
    NotDone,
    /// The service cannot say.
    Unknown {
        /// In its words.
        detail: String,
    },
    /// The service contradicts itself.
    Conflict {
        /// In its words.
        detail: String,
    },
    /// The probe could not be asked, or its answer is none.
    Failed {
        /// Why.
        error: String,
    },
}

/// What a consumer's hook says when a run changes hands (S52).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "hook", rename_all = "snake_case", deny_unknown_fields)]
pub enum HookAnswer {
    /// Go on as the journal says.
    #[serde(deserialize_with = "tag_only")]
    Continue,
    /// The run is over; this is its result.
    Completed {
        /// The result.
        result: AcceptedJson,
    },
    /// The run waits until an operator lets it go on; rejected or not answered in time, it ends.
    Waiting {
        /// Machine code of the kind of approval.
        approval_kind: String,
        /// What is granted, in the hook's words.
        capability: String,
        /// What the operator is shown.
        presentation: AcceptedJson,
    },
    /// The world and the journal contradict each other.
    Conflict {
        /// In the hook's words.
        detail: String,
    },
    /// The hook failed or answered something else.
    Error {
        /// Why.
        error: String,
    },
}

/// Something that a run's machine wants done. Nothing in it is an execution: a call is dispatched by the commit that records it.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Store this commit, if authority still holds; answer with [`Input::CommitStored`], [`Input::CommitDoubtful`] or
    /// [`Input::CommitBusy`].
    Commit(CommitRequest),
    /// Read the journal after this position; answer with [`Input::JournalRead`].
    ReadJournal {
        /// After which position.
        after: Seq,
    },
    /// Read a chain and its notes; answer with [`Input::ChainRead`].
    ReadChain {
        /// The chain.
        chain: ChainKey,
    },
    /// Write a register as the runtime; answer with [`Input::RegisterTried`].
    WriteRegister(RegisterRequest),
    /// Ask whoever holds the claim's logbook; answer with [`Input::Inspected`].
    Inspect {
        /// The chain.
        chain: ChainKey,
        /// The claim's worker.
        worker: WorkerId,
    },
    /// Ask the tool's probe; answer with [`Input::Probed`].
    Probe(ProbeRequest),
    /// Ask the agent; answer with [`Input::AgentDecided`] or [`Input::AgentFailed`].
    AskAgent(AgentView),
    /// Ask the policy; answer with [`Input::Judged`].
    AskPolicy(PolicyRequest),
    /// Ask the takeover hook; answer with [`Input::HookAnswered`].
    AskHook,
    /// The inbox message needs no more deliveries.
    AckInbox {
        /// Its position.
        inbox: Seq,
    },
    /// Set the run's durable timer; answer with [`Input::TimerSet`].
    SetTimer {
        /// Unix milliseconds.
        at: i64,
    },
    /// Send [`Input::Tick`] at this moment of the boot clock; replaces an earlier wish.
    WakeAt {
        /// Milliseconds.
        boot: u64,
    },
    /// The machine does nothing more.
    Stop(StopReason),
}

/// Why a machine stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// The run has ended.
    Ended,
    /// The run waits for an operator or for time: let go of the lease.
    Parked,
    /// The process is told to stop and the journal says so: let go of the lease.
    Released,
    /// Somebody else drives the run.
    Fenced(String),
    /// The journal cannot be folded by this binary.
    Unreadable(String),
    /// Authority is lost.
    AuthorityLost,
}

/// A commit to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitRequest {
    /// Its subject.
    pub subject: JournalSubject,
    /// The run's last journal position as this owner knows it.
    pub expected: Seq,
    /// The commit's bytes.
    pub body: Body,
    /// The call envelope's bytes, of a dispatch.
    pub call: Option<Body>,
}

/// A register to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterRequest {
    /// The chain.
    pub chain: ChainKey,
    /// Claim (a revocation) or outcome (a seal).
    pub link: crate::chain::Link,
    /// The chain's last position.
    pub expected: Seq,
    /// The bytes.
    pub body: Body,
}

/// A probe to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeRequest {
    /// The attempt.
    pub chain: ChainKey,
    /// The step's key.
    pub idempotency_key: leasehold_json::Digest,
    /// The arguments, exact bytes.
    pub arguments: AcceptedJson,
}

/// All an agent is told: it keeps nothing between turns (S7).
#[derive(Debug, Clone, PartialEq)]
pub struct AgentView {
    /// The run.
    pub run: RunId,
    /// Which agent.
    pub agent: String,
    /// The turn to decide.
    pub turn: u32,
    /// What for.
    pub goal: String,
    /// What it starts from.
    pub input: Option<AcceptedJson>,
    /// All earlier turns with their observations.
    pub turns: Vec<Arc<Turn>>,
    /// The tools it may use, in declared order.
    pub tools: Vec<String>,
    /// What is left.
    pub left: Left,
}

/// What is left of the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Turns, this one included.
    pub steps: u32,
    /// Failures in a row that end the run.
    pub failures: u32,
    /// Milliseconds of active time.
    pub active_ms: u64,
    /// Milliseconds of elapsed time.
    pub elapsed_ms: u64,
}

/// All a policy is told (S31).
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyRequest {
    /// The run.
    pub run: RunId,
    /// The step.
    pub step: StepId,
    /// The attempt that the verdict is about.
    pub attempt: u32,
    /// The tool.
    pub tool: String,
    /// The arguments as accepted.
    pub arguments: AcceptedJson,
    /// What the run is for.
    pub goal: String,
    /// All turns so far, this one included.
    pub turns: Vec<Arc<Turn>>,
    /// Earlier questions and decisions of this run.
    pub approvals: Vec<Approval>,
    /// The limits.
    pub limits: Limits,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_input_with_an_unknown_field_is_refused() {
        for text in [
            r#"{"input":"commit_doubtful"}"#,
            r#"{"input":"commit_busy"}"#,
            r#"{"input":"timer_set"}"#,
            r#"{"input":"tick"}"#,
            r#"{"input":"drain"}"#,
            r#"{"input":"authority_lost"}"#,
            r#"{"input":"commit_stored","seq":4}"#,
            r#"{"input":"probed","step":"1-0","attempt":1,"answer":{"probe":"not_done"}}"#,
            r#"{"input":"hook_answered","hook":"continue"}"#,
        ] {
            let read = |text: &str| AcceptedJson::check_str(text).unwrap().parse::<Input>();
            let input = read(text).unwrap();
            assert_eq!(serde_json::to_string(&input).unwrap(), text);
            for (at, _) in text.match_indices('}') {
                let (before, after) = text.split_at(at);
                let more = format!(r#"{before},"zzz":1{after}"#);
                assert!(read(&more).is_err(), "{more}");
            }
        }
    }
}
