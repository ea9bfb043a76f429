//! The protocol as pure machines: inputs in, effects out. No IO, no clock, no randomness, no async.
//!
//! # The tour
//!
//! * [`Commit`], [`Event`] and the register bodies are what is written ([`wire`] explains encoding and versions).
//! * [`Chain`] reads an attempt's registers: which claim counts, which outcome.
//! * [`RunState`] is the fold of a journal: the same bytes give the same state everywhere.
//! * [`RunMachine`] is a run's owner: it takes an [`Input`] and answers with [`Effect`]s. It decides what to commit, when to ask the agent,
//!   the policy or an operator, and climbs the ladder for orphaned attempts.
//! * [`AttemptMachine`] is a worker's side of one attempt. The only way to its execute effect is a [`Recorded`] intent.
//! * [`Invariant`] numbers what must never break, and checks it over event logs.

mod approval;
pub mod attempt;
mod chain;
mod ids;
pub mod invariant;
pub mod policy;
pub mod proposal;
pub mod run;
pub mod state;
pub mod wire;

pub use attempt::{
    AttemptEffect, AttemptInput, AttemptMachine, Execution, Intent, LogbookAnswer, Recorded,
    ToolReturn, WorkerIdentity, WorkerWeakening, WriteAnswer,
};
pub use chain::{Chain, ChainMessage, Hint, Link, NoteMessage};
pub use ids::{
    ApprovalId, Attempt, ChainKey, ClaimId, ClientId, ClusterId, CommitId, Epoch, IdError,
    Incarnation, LogbookId, MAX_ID_CHARS, NodeId, OperatorId, RUNTIME_TOKEN, RunId, Seq, SessionId,
    StepId, WorkerId, Writer,
};
pub use invariant::{Effects, Invariant, RunRecord, Violation};
pub use policy::{DefaultPolicy, Policy, PolicyErrors, RulePolicy};
pub use proposal::{Proposal, ProposedCall};
pub use run::{
    AgentView, CommitRequest, Effect, HookAnswer, Input, InspectAnswer, Left, Now, PolicyRequest,
    ProbeReply, ProbeRequest, RegisterRequest, RunConfig, RunMachine, RunWeakening, StopReason,
};
pub use state::{Accepted, Approval, ApprovalState, FoldError, Phase, RunState, Step, Turn};
pub use wire::*;

/// Most evidence notes of one attempt; the last place is kept for an outcome that met a seal.
pub const MAX_NOTES: usize = 8;
