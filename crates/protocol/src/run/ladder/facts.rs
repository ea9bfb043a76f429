//! What the registers say of an attempt, as a fact the ladder can act on.

use super::RunMachine;
use crate::ids::{Seq, StepId};
use crate::run::observe::{of_outcome, result};
use crate::wire::{ClaimBody, Finding, Observation, OutcomeBody, RevokeReason, Sealed};

/// A fact about an attempt, read from its registers.
pub(super) enum Fact {
    /// It is over; this is what the agent is told.
    Settled {
        seq: Seq,
        finding: Finding,
        observation: Observation,
        abort: Option<String>,
    },
    /// It did not act and never will.
    NotDone {
        seq: Seq,
        finding: Finding,
        detail: String,
    },
    /// Read-only, given up.
    Superseded { seq: Seq },
    /// An operator's decision is sealed.
    Operator { seq: Seq, sealed: Sealed },
}

impl RunMachine {
    pub(super) fn fact(&self, id: StepId) -> Option<Fact> {
        let watch = self.watches.get(&id)?;
        if let Some((seq, outcome)) = &watch.chain.outcome {
            return self.fact_of(*seq, &outcome.fact, &watch.key.tool);
        }
        match &watch.chain.claim {
            Some((seq, ClaimBody::Revoke { why, .. })) => {
                let why = match why {
                    RevokeReason::Ending => "the run is ending",
                    RevokeReason::QueueLimit => "no worker took it within the queue limit",
                    RevokeReason::SpecChanged => "the tool's specification changed",
                };
                Some(Fact::NotDone {
                    seq: *seq,
                    finding: Finding::Revoked,
                    detail: format!("revoked before anybody claimed it: {why}"),
                })
            }
            _ => None,
        }
    }

    pub(super) fn fact_of(&self, seq: Seq, fact: &OutcomeBody, tool: &str) -> Option<Fact> {
        let trust = self.trust(tool);
        Some(match fact {
            OutcomeBody::NotStarted { why } => Fact::NotDone {
                seq,
                finding: Finding::NotStarted,
                detail: why.clone(),
            },
            OutcomeBody::Sealed { finding, .. } => match finding {
                Sealed::ProbeDone { result: value } => Fact::Settled {
                    seq,
                    finding: Finding::ProbeDone,
                    observation: result(value.clone(), trust),
                    abort: None,
                },
                Sealed::ProbeNotDone => Fact::NotDone {
                    seq,
                    finding: Finding::ProbeNotDone,
                    detail: "the tool's probe says that it did not and cannot happen".to_owned(),
                },
                Sealed::Superseded => Fact::Superseded { seq },
                Sealed::RunAgain { .. } | Sealed::RecordedDone { .. } | Sealed::Rejected { .. } => {
                    Fact::Operator {
                        seq,
                        sealed: finding.clone(),
                    }
                }
            },
            tools_own => Fact::Settled {
                seq,
                finding: match tools_own {
                    OutcomeBody::NothingHappened { .. } => Finding::NothingHappened,
                    _ => Finding::Done,
                },
                observation: of_outcome(tools_own, trust)?,
                abort: match tools_own {
                    OutcomeBody::Aborted { detail } => Some(detail.clone()),
                    _ => None,
                },
            },
        })
    }
}
