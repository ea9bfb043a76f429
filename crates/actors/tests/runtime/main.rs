//! The runtime in one process, on the real embedded store: runs, approvals, tools that misbehave, and lives that end in the middle.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

mod approvals;
mod cases;
mod crashes;
mod faults;
mod lives;
mod runs;
mod takeover;
mod tools;
mod world;
