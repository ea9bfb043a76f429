//! A whole cluster on one machine: real nats-servers with the shipped configuration, nodes and workers, each a child process.
//!
//! For tests, demos and the command `leasehold local`. Everything of one cluster lies in one folder; its `local.json` says which processes
//! belong to it, so another process can find, kill, pause, start and stop them.
//!
//! ```no_run
//! # async fn example() -> Result<(), leasehold_local::LocalError> {
//! use leasehold_local::{NatsOptions, NatsServers};
//!
//! let servers = NatsServers::start(NatsOptions::new(3, "cluster")).await?;
//! println!("clients connect to {}", servers.urls()?);
//! if let Some(leader) = servers.meta_leader().await? {
//!     servers.kill(leader).await?;
//!     servers.restart(leader).await?;
//!     servers.ready().await?;
//! }
//! servers.down().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The children are killed when their owner is dropped, and also when the owner is killed. Linux only.

mod binary;
mod children;
mod config;
mod error;
mod fleet;
mod guard;
mod http;
mod log;
mod package;
mod ports;
mod process;
mod processes;
mod record;
mod servers;

pub use binary::ServerBinary;
pub use children::Status;
pub use config::SyncInterval;
pub use error::LocalError;
pub use fleet::{Doing, Fleet, Member, Recipe, Stall, Tended};
pub use process::State;
pub use processes::{NodeOptions, Processes, Program, WorkerOptions};
pub use record::Kind;
pub use servers::{NatsOptions, NatsServers};
