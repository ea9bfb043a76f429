//! The run actor: one run's machine and what it asks for.
//!
//! The handler never awaits IO. It steps the machine and hands each effect to a task that casts the answer back; answers that need no
//! waiting (the policy's) are fed straight into the next step. Everything durable is in the journal: an actor that dies is simply started
//! again from it.

mod actor;
mod ask;
mod effects;
mod opening;

pub(crate) use actor::{LEFT, RunActor, RunArgs, RunMsg};
pub(crate) use ask::Inspector;
