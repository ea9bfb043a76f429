//! One test per row of the run, tool, policy, approval, limit and takeover tables, and per reported case that the machines decide.
//!
//! Each test drives the real machines through a small world that stores what they write and answers what they ask. A world that is dropped
//! checks every invariant over what it stored, so each test also shows that nothing else broke.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that meets the unexpected fails"
)]

mod approvals;
mod attempts;
mod cases;
mod commits;
mod crashes;
mod effects;
mod ending;
mod forge;
mod harness;
mod ladder;
mod limits;
mod operators;
mod outcomes;
mod policies;
mod probes;
mod quarantine;
mod runs;
mod store;
mod takeover;
mod tools;
mod turns;
mod view;
mod worker;
