//! The tool worker: pulls calls while it has room, runs each in a call actor of its own, and answers for its logbook.
//!
//! A call actor that fails takes nothing but its own call with it: its slot is free, its tool is told to stop, and its attempt is settled
//! from registers and logbook like one of an earlier life of the worker. At its start the worker settles what its predecessor left.

mod actor;
mod call;
mod effects;
mod inspector;
mod pull;
mod tool;

pub(crate) use actor::{ToolWorker, WorkerArgs, WorkerMsg};
pub(crate) use inspector::{AnyInspector, answer_others};
pub use pull::pools;
