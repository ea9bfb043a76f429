//! Turns, steps and attempts as the journal knows them.

use leasehold_json::{AcceptedJson, Digest, Kept};

use crate::ids::{ApprovalId, Attempt, Epoch, Seq, SessionId, StepId};
use crate::proposal::{Proposal, ProposedCall};
use crate::wire::{Basis, Decision, Finding, Observation, Verdict};

/// One decision of the agent and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// Its number, from 1.
    pub number: u32,
    /// The agent's bytes.
    pub decision: Kept,
    /// What they mean.
    pub proposal: Proposal,
    /// One step a call; one step for a decision that was unusable; none for an ending.
    pub steps: Vec<Step>,
}

/// One tool call of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Which.
    pub id: StepId,
    /// The call as proposed; absent if the decision was unusable.
    pub call: Option<ProposedCall>,
    /// The call as accepted and judged, latest judgement.
    pub accepted: Option<Accepted>,
    /// Its attempts, in order.
    pub attempts: Vec<AttemptState>,
    /// Where it stands.
    pub phase: Phase,
    /// Questions asked about it so far.
    pub questions: u32,
    /// The approval that permits its attempts, once granted.
    pub grant: Option<ApprovalId>,
    /// What the agent is told; set when finished.
    pub observation: Option<Observation>,
}

/// A call that passed the boundary, and the policy's word on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Accepted {
    /// The tool.
    pub tool: String,
    /// The arguments, exact bytes.
    pub arguments: AcceptedJson,
    /// The tool specification's hash.
    pub spec: Digest,
    /// Which policy judged.
    pub policy: String,
    /// How.
    pub verdict: Verdict,
}

/// One attempt as the journal knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptState {
    /// Which.
    pub attempt: Attempt,
    /// The session that dispatched it.
    pub origin: SessionId,
    /// The epoch in which it was dispatched.
    pub epoch: Epoch,
    /// What permits it.
    pub basis: Basis,
    /// What the ladder found, and the register message that holds the fact.
    pub finding: Option<FoundAt>,
}

/// A finding, and the register message that holds its fact.
pub type FoundAt = (Finding, Option<Seq>);

/// Where a step stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Decided by the agent; to be checked, judged and dispatched.
    Proposed,
    /// An operator is asked for permission.
    Asked(ApprovalId),
    /// Permission was given; to be judged again and dispatched.
    Granted(ApprovalId),
    /// The latest attempt is dispatched and not settled.
    InFlight,
    /// An operator is asked about the latest attempt: it may have acted.
    Interrupted(ApprovalId),
    /// An operator is asked about the latest attempt: it did not act, and the runtime will not try again by itself.
    Exhausted(ApprovalId),
    /// An operator has decided about the latest attempt.
    Decided {
        /// The question.
        approval: ApprovalId,
        /// The decision.
        decision: Decision,
        /// Whether the question was about an attempt that is proved not to have acted.
        exhausted: bool,
    },
    /// The latest attempt is proved not to have acted (or was given up, of a read_only tool): another one is due.
    Proven {
        /// The fact.
        register: Option<Seq>,
    },
    /// Over.
    Finished,
}

impl Phase {
    /// The open question, if the step waits for an operator.
    pub fn asks(&self) -> Option<&ApprovalId> {
        match self {
            Phase::Asked(approval) | Phase::Interrupted(approval) | Phase::Exhausted(approval) => {
                Some(approval)
            }
            _ => None,
        }
    }

    /// Whether the latest attempt's registers matter.
    pub fn has_open_attempt(&self) -> bool {
        matches!(
            self,
            Phase::InFlight | Phase::Interrupted(_) | Phase::Exhausted(_) | Phase::Decided { .. }
        )
    }
}

impl Step {
    pub(crate) fn new(id: StepId, call: Option<ProposedCall>) -> Self {
        Self {
            id,
            call,
            accepted: None,
            attempts: Vec::new(),
            phase: Phase::Proposed,
            questions: 0,
            grant: None,
            observation: None,
        }
    }

    /// The latest attempt.
    pub fn latest(&self) -> Option<&AttemptState> {
        self.attempts.last()
    }

    /// Attempts that are proved not to have acted.
    pub fn proven_not_done(&self) -> usize {
        self.attempts
            .iter()
            .filter(|attempt| {
                matches!(
                    attempt.finding,
                    Some((
                        Finding::NotStarted | Finding::Revoked | Finding::ProbeNotDone,
                        _
                    ))
                )
            })
            .count()
    }
}
