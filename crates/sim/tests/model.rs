//! The model at its bound: no promise broken, nothing stuck, everything it is about seen; and weakenings that it finds.
//!
//! `LEASEHOLD_FAULTS=n` checks a wider bound (minutes, and gigabytes).

use leasehold_protocol::{RunWeakening, WorkerWeakening};
use leasehold_sim::Bound;

/// Faults together in the normal test run: every one of them, at every moment, alone.
const FAULTS: u8 = 1;

/// Faults together in a control: what it takes to see it, and no more.
const CONTROL_FAULTS: u8 = 2;

fn faults() -> u8 {
    let wider = std::env::var("LEASEHOLD_FAULTS").ok();
    wider.and_then(|text| text.parse().ok()).unwrap_or(FAULTS)
}

/// Checks everything within the bound and says how much that was.
fn exhaust(tool: &str, fencing: bool) {
    let bound = Bound::new(faults(), fencing);
    let said = format!("{tool}, two workers, at most {} faults", bound.faults);
    let checked = bound.check();
    println!(
        "{said}: {} states, {} transitions, depth {}",
        checked.states, checked.transitions, checked.depth
    );
    assert!(
        checked.broken.is_empty(),
        "{said}: {}",
        traces(&checked.broken)
    );
    // A model in which nothing went wrong proves nothing.
    assert!(
        checked.never.is_empty(),
        "{said}: never seen: {:?}",
        checked.never
    );
}

fn traces(broken: &[(&str, Vec<leasehold_sim::Action>)]) -> String {
    let lines = broken.iter().map(|(name, trace)| {
        let steps: Vec<String> = trace.iter().map(|action| format!("  {action:?}")).collect();
        format!("{name} is broken by\n{}", steps.join("\n"))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn without_a_probe_every_order_with_at_most_one_fault_keeps_every_promise() {
    exhaust("no probe", false);
}

#[test]
fn with_a_fencing_probe_every_order_with_at_most_one_fault_keeps_every_promise() {
    exhaust("fencing probe", true);
}

fn is_found(promise: &str, run: RunWeakening, worker: WorkerWeakening) {
    let mut weak = Bound::new(CONTROL_FAULTS, false);
    (weak.run, weak.worker) = (run, worker);
    let checked = weak.find(promise);
    let found = checked
        .broken
        .iter()
        .any(|(name, _)| name.starts_with(promise));
    assert!(
        found,
        "{promise} is not broken: {}",
        traces(&checked.broken)
    );
}

#[test]
fn control_a_decision_that_is_not_sealed_is_found() {
    is_found("moments", RunWeakening::NoSeal, WorkerWeakening::None);
}

#[test]
fn control_a_worker_that_skips_the_claim_is_found() {
    is_found("I1", RunWeakening::None, WorkerWeakening::SkipClaim);
}

#[test]
fn control_an_unknown_that_is_simply_retried_is_found() {
    is_found("I1", RunWeakening::RetryUnknown, WorkerWeakening::None);
}
