//! A seeded simulator over the protocol's machines, and stateright models over the same transition functions.
//!
//! One schedule is one seed: N nodes, M workers, operators and a payments world, with crashes between any two messages, pauses, two owners
//! at once, lost acknowledgements, writes that land after their writer died, duplicate and late deliveries, lost logbooks, tools that act
//! late, hang or lie about it. Afterwards everything heals, and then every run must have ended and every invariant must hold over the stored
//! bytes. The same seed gives the same schedule on every machine.

mod checking;
mod model;
mod outside;
pub mod owners;
mod schedule;
mod store;
mod world;

pub use checking::{Checked, Settles};
pub use model::{Ack, Action, Bound, Crash, Returns, State};
pub use schedule::{Config, Outcome, Tally, run_seed, trace_seed};
pub use store::StoreWeakening;
