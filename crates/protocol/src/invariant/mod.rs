//! What must never break, numbered, in one enum: checked by the simulator, the models, `leasehold verify` and every chaos run.
//!
//! [`check()`] reads stored bytes and, where there is one, the external ledger of effects. Some numbers are about moments that leave no
//! record (I5, I14, I16 to I19, I21): the simulator checks those while it runs.

mod check;

use std::collections::BTreeMap;
use std::fmt;

use crate::chain::ChainMessage;
use crate::ids::{Attempt, ChainKey, RunId, StepId};
use crate::wire::StoredCommit;

pub use check::check;

/// A promise with its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[expect(missing_docs, reason = "`statement` says what each number means")]
pub enum Invariant {
    I1,
    I2,
    I3,
    I4,
    I5,
    I6,
    I7,
    I8,
    I9,
    I10,
    I11,
    I12,
    I13,
    I14,
    I15,
    I16,
    I17,
    I18,
    I19,
    I20,
    I21,
}

impl Invariant {
    /// Every number, in order.
    pub const ALL: [Invariant; 21] = {
        use Invariant::*;
        [
            I1, I2, I3, I4, I5, I6, I7, I8, I9, I10, I11, I12, I13, I14, I15, I16, I17, I18, I19,
            I20, I21,
        ]
    };

    /// What it says.
    pub fn statement(self) -> &'static str {
        match self {
            Invariant::I1 => {
                "effects of a non-read-only step are at most 1 + its run-again decisions"
            }
            Invariant::I2 => {
                "a step that is ok had its effect; an attempt proved not done had none"
            }
            Invariant::I3 => "nothing of an older epoch follows a newer owner",
            Invariant::I4 => "each takeover's epoch is higher than all before",
            Invariant::I5 => "no worker starts an attempt whose chain has moved on",
            Invariant::I6 => "intent precedes claim and armed; both precede the effect",
            Invariant::I7 => {
                "executed, journaled and approved bytes are the same; an approval is spent once"
            }
            Invariant::I8 => "acknowledged commits are all there, in order, linked, once",
            Invariant::I9 => "replay from zero gives the same state everywhere",
            Invariant::I10 => "nothing follows the end",
            Invariant::I11 => {
                "an error never becomes a finding: every finding names the register that holds its fact"
            }
            Invariant::I12 => "no effect and no event without a submitted run",
            Invariant::I13 => "nothing of one run stands in another",
            Invariant::I14 => "submitted = completed + failed + cancelled + waiting",
            Invariant::I15 => "every orphan gets one finding or one open question",
            Invariant::I16 => "poison is bounded and visible",
            Invariant::I17 => "work per run is bounded",
            Invariant::I18 => "every cancel ends",
            Invariant::I19 => "no dispatch, commit or claim after authority ended",
            Invariant::I20 => {
                "no further attempt without its fact or its decision in the register, sealed before the dispatch"
            }
            Invariant::I21 => "every inbox message is folded or answered",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// Of which run.
    pub run: RunId,
    /// What is wrong, with positions.
    pub text: String,
}

/// Effects that an external ledger saw: how often, per attempt.
pub type Effects = BTreeMap<(StepId, Attempt), u32>;

/// Everything stored about one run.
#[derive(Debug)]
pub struct RunRecord<'a> {
    /// The run.
    pub run: &'a RunId,
    /// Its journal, in order of position.
    pub commits: &'a [StoredCommit],
    /// Its chains.
    pub chains: &'a BTreeMap<ChainKey, Vec<ChainMessage>>,
    /// The external ledger, where there is one.
    pub effects: Option<&'a Effects>,
}
