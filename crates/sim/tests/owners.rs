//! Who drives a run and who decides: one kind of fault at a time, at every moment, in every order; and weakenings that must be found.
//!
//! `LEASEHOLD_FAULTS=n` lets the kind occur n times (minutes, and gigabytes).

use leasehold_protocol::RunWeakening;
use leasehold_sim::owners::{Bound, Says, Weakening};

fn times() -> u8 {
    let wider = std::env::var("LEASEHOLD_FAULTS").ok();
    wider.and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Checks everything within the bound, says how much that was, and asks whether every state can come to rest.
fn exhaust(what: &str, bound: Bound) {
    let checked = bound.clone().check();
    println!(
        "{what}: at most {} faults, {} messages: {} states, {} transitions, depth {}, {} properties",
        bound.faults,
        bound.letters,
        checked.states,
        checked.transitions,
        checked.depth,
        checked.properties
    );
    assert!(checked.broken.is_empty(), "{what}: {:#?}", checked.broken);
    let settles = bound.settles();
    println!(
        "{what}: {} of {} states at rest",
        settles.settled, settles.states
    );
    assert!(settles.lost.is_none(), "{what}: {:#?}", settles.lost);
}

fn ownership() -> Bound {
    let mut bound = Bound::ownership(times()).without_faults();
    bound.says = vec![Says::Approve];
    bound
}

#[test]
fn a_without_a_fault_nobody_is_fenced_and_everything_ends() {
    let mut bound = Bound::ownership(0).without_faults();
    bound.says = vec![Says::Approve, Says::Reject, Says::Cancel];
    exhaust("ownership, no fault", bound);
}

#[test]
fn a_crash_of_an_owner_anywhere() {
    let mut bound = ownership();
    bound.crashes = times();
    exhaust("ownership, crash", bound);
}

#[test]
fn a_pause_beyond_the_sessions_time_anywhere() {
    let mut bound = ownership();
    bound.pauses = times();
    exhaust("ownership, pause", bound);
}

#[test]
fn a_lost_acknowledgement_anywhere() {
    let mut bound = ownership();
    bound.lost_acks = times();
    exhaust("ownership, lost acknowledgement", bound);
}

#[test]
fn a_message_delivered_twice_anywhere() {
    let mut bound = ownership();
    bound.redeliveries = times();
    exhaust("ownership, redelivery", bound);
}

#[test]
fn a_lease_deleted_by_hand_anywhere() {
    let mut bound = ownership();
    bound.deleted_leases = times();
    exhaust("ownership, deleted lease", bound);
}

#[test]
fn a_lost_bucket_anywhere() {
    let mut bound = ownership();
    bound.lost_buckets = times();
    exhaust("ownership, lost bucket", bound);
}

#[test]
fn c_two_operators_one_decision() {
    let mut bound = Bound::approval(0);
    bound.says = vec![Says::Approve, Says::Reject];
    bound.policies = 0;
    exhaust("approval, no fault", bound);
}

fn is_found(promise: &str, mut weak: Bound, run: RunWeakening, shell: Weakening) {
    (weak.run, weak.shell) = (run, shell);
    let checked = weak.find(promise);
    let found = checked
        .broken
        .iter()
        .any(|(name, _)| name.starts_with(promise));
    println!(
        "control {run:?} {shell:?}: {promise}: {found}, {} states",
        checked.states
    );
    assert!(found, "{promise} is not broken: {:#?}", checked.broken);
}

#[test]
fn control_an_epoch_that_is_never_raised_is_found() {
    is_found(
        "I4",
        Bound::ownership(0),
        RunWeakening::SameEpoch,
        Weakening::None,
    );
}

#[test]
fn control_an_acknowledgement_before_the_commit_is_found() {
    is_found(
        "mail",
        Bound::ownership(0),
        RunWeakening::None,
        Weakening::AckBeforeCommit,
    );
}

#[test]
fn control_a_submission_acknowledged_on_a_draft_is_found() {
    let mut bound = ownership();
    bound.lost_acks = 1;
    is_found("mail", bound, RunWeakening::None, Weakening::DraftCounts);
}

#[test]
fn control_a_lease_let_go_before_the_park_commit_is_found() {
    is_found(
        "one owner",
        Bound::ownership(0),
        RunWeakening::None,
        Weakening::LeaseBeforePark,
    );
}

#[test]
fn control_a_journal_without_a_fence_is_found() {
    let mut bound = ownership();
    bound.deleted_leases = 1;
    is_found("I3", bound, RunWeakening::None, Weakening::NoFence);
}

#[test]
fn control_a_write_without_a_look_at_the_authority_is_found() {
    let mut bound = ownership();
    bound.pauses = 1;
    is_found("I19", bound, RunWeakening::None, Weakening::NoAuthority);
}

#[test]
fn control_a_grant_matched_by_position_is_found() {
    is_found(
        "I7",
        Bound::approval(0),
        RunWeakening::ApprovalByPosition,
        Weakening::None,
    );
}
