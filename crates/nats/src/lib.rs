//! The JetStream backend: the store's traits on streams and buckets, many nodes, many workers.
//!
//! * [`NatsStore`] is the store. What is *stored*, *definitely not stored* and *unknown* follows from the server's answers alone (see
//!   `error`); nothing is believed without an acknowledgement.
//! * [`Session`] is a process's life, and the [`SessionAuthority`] that follows from it.
//! * [`AccountPlan`] writes the servers' accounts: what nodes, workers, clients and operators may reach.
//! * [`Target`] says where the servers are and who we are to them.
//!
//! It is the only crate that names `async-nats`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod accounts;
mod asking;
mod blobs;
mod connect;
mod deaths;
mod desk;
mod dump;
mod error;
mod feed;
mod floor;
mod inbox;
mod leases;
mod mark;
mod names;
mod queue;
mod registers;
mod runlog;
mod session;
mod store;
mod streams;
mod timers;
mod wire;

pub use accounts::{AccountPlan, DomainPlan, PlanError};
pub use connect::{Account, StartError, Target};
pub use dump::DumpError;
pub use floor::PlainStreams;
pub use mark::LogbookMark;
pub use names::Shard;
pub use session::{
    DEFAULT_TTL, Record, Role, SHORTEST_TTL, Session, SessionAuthority, SessionOptions,
};
pub use store::{ACK_WAIT, DEFAULT_DOMAIN, NatsStore, Options};
pub use streams::{Shape, Wish};
