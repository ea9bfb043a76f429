//! Many schedules, every invariant; and the weakenings, each of which must turn its own invariant red.

use leasehold_protocol::{Invariant, RunWeakening, WorkerWeakening};
use leasehold_sim::{Config, StoreWeakening, Tally, run_seed, trace_seed};

/// Schedules in the normal test run.
const SCHEDULES: u64 = 10_000;

/// `LEASEHOLD_SEEDS=from..to` replays a range, and says what happened in the first schedule that breaks something.
fn seeds() -> std::ops::Range<u64> {
    let range = std::env::var("LEASEHOLD_SEEDS").ok();
    let parsed = range
        .as_deref()
        .and_then(|text| text.split_once(".."))
        .and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    parsed.unwrap_or(0..SCHEDULES)
}

/// Runs a part of the schedules; the first that breaks something is told with everything needed to look into it.
fn run_part(seeds: impl Iterator<Item = u64>) -> Tally {
    let mut tally = Tally::default();
    for seed in seeds {
        let outcome = run_seed(seed, Config::default());
        tally.add(&outcome.tally);
        assert!(
            outcome.violations.is_empty(),
            "seed {seed}: {:#?}\n{}\nreplay: LEASEHOLD_SEEDS={seed}..{} cargo test -p leasehold-sim",
            outcome.violations,
            outcome.journals.join("\n"),
            seed + 1
        );
    }
    tally
}

#[test]
fn every_invariant_holds_in_ten_thousand_schedules() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut tally = Tally::default();
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|part| scope.spawn(move || run_part(seeds().skip(part).step_by(threads))))
            .collect();
        for part in parts {
            match part.join() {
                Ok(part) => tally.add(&part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    println!("{tally:#?}");
    // A suite in which nothing went wrong proves nothing.
    if seeds() == (0..SCHEDULES) {
        for (what, count) in [
            ("takeovers", tally.takeovers),
            ("fenced", tally.fenced),
            ("held", tally.held),
            ("quarantined", tally.quarantined),
            ("late writes", tally.late_writes),
            ("redeliveries", tally.redeliveries),
            ("lost logbooks", tally.lost_logbooks),
            ("tombstones", tally.tombstones),
            ("revoked", tally.revoked),
            ("probe done", tally.probe_done),
            ("probe not done", tally.probe_not_done),
            ("operator", tally.operator),
            ("run again", tally.run_again),
            ("outcomes that met a seal", tally.met_seal),
        ] {
            assert!(count >= 100, "{what} occurred {count} times only");
        }
    }
}

/// How many schedules a weakening may survive before it must have shown.
const CONTROL_SCHEDULES: u64 = 4_000;

fn turns_red(config: Config, invariant: Invariant) {
    let caught = (0..CONTROL_SCHEDULES).find(|seed| run_seed(*seed, config).breaks(invariant));
    assert!(
        caught.is_some(),
        "{config:?} broke {invariant} in none of {CONTROL_SCHEDULES} schedules"
    );
}

#[test]
fn control_skipping_the_claim_breaks_i1() {
    turns_red(
        Config {
            worker: WorkerWeakening::SkipClaim,
            ..Config::default()
        },
        Invariant::I1,
    );
}

#[test]
fn control_skipping_the_claim_breaks_i6() {
    turns_red(
        Config {
            worker: WorkerWeakening::SkipClaim,
            ..Config::default()
        },
        Invariant::I6,
    );
}

#[test]
fn control_reading_a_store_error_as_absence_breaks_i2() {
    turns_red(
        Config {
            worker: WorkerWeakening::ErrorIsAbsence,
            ..Config::default()
        },
        Invariant::I2,
    );
}

#[test]
fn control_reading_an_unclear_error_as_nothing_happened_breaks_i2() {
    turns_red(
        Config {
            worker: WorkerWeakening::ErrorIsNothing,
            ..Config::default()
        },
        Invariant::I2,
    );
}

#[test]
fn control_retrying_the_unknown_breaks_i1() {
    turns_red(
        Config {
            run: RunWeakening::RetryUnknown,
            ..Config::default()
        },
        Invariant::I1,
    );
}

#[test]
fn control_committing_without_a_seal_breaks_i20() {
    turns_red(
        Config {
            run: RunWeakening::NoSeal,
            ..Config::default()
        },
        Invariant::I20,
    );
}

#[test]
fn control_a_probe_that_only_observes_is_believed_breaks_i2() {
    turns_red(
        Config {
            run: RunWeakening::PlainProbeCounts,
            ..Config::default()
        },
        Invariant::I2,
    );
}

#[test]
fn control_a_journal_without_a_fence_breaks_i3() {
    turns_red(
        Config {
            store: StoreWeakening::NoFence,
            ..Config::default()
        },
        Invariant::I3,
    );
}

#[test]
fn control_registers_whose_last_message_counts_break_i1() {
    turns_red(
        Config {
            store: StoreWeakening::LastWins,
            ..Config::default()
        },
        Invariant::I1,
    );
}

#[test]
fn the_same_seed_is_the_same_schedule() {
    for seed in 0..20 {
        let (first, second) = (
            trace_seed(seed, Config::default()),
            trace_seed(seed, Config::default()),
        );
        assert_eq!(first.journals, second.journals, "seed {seed}");
        assert_eq!(first.tally, second.tally, "seed {seed}");
    }
}
