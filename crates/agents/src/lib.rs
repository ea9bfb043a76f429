//! Agents: whatever decides the next turn of a run.
//!
//! An [`Agent`] is asked once per turn and keeps nothing between turns: all it may know stands in its [`AgentView`](leasehold_protocol::AgentView) (goal, input, earlier
//! turns with their observations, tools, what is left of the limits). It answers with bytes; the runtime records them verbatim before it
//! makes anything of them, so an agent may answer nonsense and nothing breaks. [`Agents`] finds one by name.
//!
//! [`ScriptAgent`] plays a script that the run's input carries: the reference for demos and tests, and a deterministic stand-in for a
//! model. [`FnAgent`] is a closure.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod agent;
mod closure;
mod script;

pub use agent::{Agent, AgentError, Agents, DuplicateAgent};
pub use closure::FnAgent;
pub use script::{SCRIPT, ScriptAgent};
