//! The ractor shell around the protocol's machines: a thin layer of actors that does what the machines ask for.
//!
//! [`Runtime::start`] makes one process's worth of it: a node (which drives runs), one actor per driven run, a tool worker and one actor per
//! call. The machines decide; the shell reads clocks, writes to the store and runs foreign code. It knows the store's traits and no backend.
//!
//! * No handler awaits IO: it steps a machine and starts tracked tasks, which cast their answers back.
//! * [`Authority`] is read at the very moment before every commit, claim and execution.
//! * Whatever dies, dies silently: an actor that failed is started again from durable records ([`RestartPolicy`]), and a call whose actor
//!   failed is unknown until registers and logbook say otherwise.
//! * [`Clock`], [`Ids`], [`Points`] and [`Recorder`] come in from outside, so that runs can be recorded, replayed and killed at named
//!   moments.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod command;
mod hook;
mod ids;
mod mail;
mod node;
mod points;
mod recorder;
mod restart;
mod root;
mod run;
mod runtime;
mod shared;
mod submit;
mod tasks;
mod worker;

pub use command::{Answer, CommandError, ReadError, Until};
pub use hook::TakeoverHook;
pub use leasehold_store::{Authority, Clock, LocalAuthority, SystemClock};

pub use ids::{Ids, RandomIds};
pub use node::NodeStatus;
pub use points::{NoPoints, Place, Point, Points};
pub use recorder::{FileRecorder, NoRecorder, Recorded, Recorder};
pub use restart::{Failures, RestartPolicy};
pub use runtime::{Drained, Runtime, RuntimeOptions, StartError, Teller, WorkerOptions};
pub use shared::Progress;
pub use submit::{SubmitProblem, SubmitRefusal, Submitted};
pub use worker::pools;
