//! What users test their tools and workers with.
//!
//! [`worker`] is the suite that a worker passes, in whatever language it is written: it starts the process on a real nats-server, plays the
//! node towards it, kills it at named moments, and counts what it did.

pub mod worker;
