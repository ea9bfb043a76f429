//! One server passes the suite that every backend passes.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

leasehold_store::conformance_tests!(common::Cluster::of(1));
