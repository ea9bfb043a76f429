//! The node: which runs this process drives, and what brings them here.
//!
//! Four things bring a run to a node: an inbox message, a sweep that finds it without an owner, a due timer, and a hint for a run that
//! nobody here drives (a late outcome). Each run then has one actor, until its machine stops. Loops that wait for the store run in tasks
//! and tell the node's actor what they found.

mod actor;
mod directory;
mod hints;
mod loops;

pub use actor::NodeStatus;
pub(crate) use actor::{Node, NodeArgs, NodeMsg};
pub(crate) use directory::Directory;
pub(crate) use hints::Hints;
