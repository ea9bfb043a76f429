//! What operators are asked. A decision is bound to the question's bytes, so whatever stands in one is what the operator was shown.

use leasehold_json::AcceptedJson;
use serde::{Deserialize, Serialize};

use crate::ids::{Attempt, NodeId, SessionId};

/// What an operator is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Question {
    /// May this call be made, or this run go on? Answers: approve, reject.
    Approve {
        /// Machine code of the kind of approval.
        approval_kind: String,
        /// What is granted.
        capability: String,
        /// What the person is shown.
        presentation: AcceptedJson,
    },
    /// The attempt may have acted and nobody can say. Answers: run_again, record_done, reject.
    InterruptedSideEffect {
        /// The attempt.
        attempt: Attempt,
        /// The evidence, for the person who decides.
        evidence: Vec<String>,
    },
    /// The attempt is proved not to have acted, for the last time that the runtime tries by itself. Answers: continue, record_done, reject.
    Exhausted {
        /// The attempt.
        attempt: Attempt,
        /// The fact that proves it.
        fact: String,
    },
    /// One owner after another was lost right after it took the run; may the run try once more? Answers: approve, reject.
    Quarantined {
        /// The owners that were lost, in order.
        lost: Vec<LostOwner>,
    },
}

/// An owner of which nothing came: its life was over before it committed anything but that it owns the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LostOwner {
    /// The node.
    pub node: NodeId,
    /// The life of it that was lost.
    pub session: SessionId,
    /// When it took the run, unix milliseconds by its own clock.
    pub at: i64,
}
