//! One schedule: from a seed to a verdict.

use leasehold_protocol::{Invariant, RunWeakening, Violation, WorkerWeakening};

use crate::store::StoreWeakening;
use crate::world::World;

/// What a schedule may contain.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Nodes.
    pub nodes: usize,
    /// Workers.
    pub workers: usize,
    /// Runs.
    pub runs: usize,
    /// Weakening of the owners.
    pub run: RunWeakening,
    /// Weakening of the workers.
    pub worker: WorkerWeakening,
    /// Weakening of the store.
    pub store: StoreWeakening,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            nodes: 2,
            workers: 2,
            runs: 2,
            run: RunWeakening::None,
            worker: WorkerWeakening::None,
            store: StoreWeakening::None,
        }
    }
}

/// How often what a schedule is about really occurred: a suite in which nothing was killed proves nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say what is counted")]
pub struct Tally {
    pub steps: u64,
    pub effects: u64,
    pub crashes: u64,
    pub takeovers: u64,
    pub fenced: u64,
    pub held: u64,
    pub quarantined: u64,
    pub orphans: u64,
    pub lost_acks: u64,
    pub late_writes: u64,
    pub redeliveries: u64,
    pub lost_logbooks: u64,
    pub tombstones: u64,
    pub revoked: u64,
    pub probe_done: u64,
    pub probe_not_done: u64,
    pub operator: u64,
    pub run_again: u64,
    pub met_seal: u64,
}

impl Tally {
    /// Adds another schedule's counts.
    pub fn add(&mut self, other: &Tally) {
        self.steps += other.steps;
        self.effects += other.effects;
        self.crashes += other.crashes;
        self.takeovers += other.takeovers;
        self.fenced += other.fenced;
        self.held += other.held;
        self.quarantined += other.quarantined;
        self.orphans += other.orphans;
        self.lost_acks += other.lost_acks;
        self.late_writes += other.late_writes;
        self.redeliveries += other.redeliveries;
        self.lost_logbooks += other.lost_logbooks;
        self.tombstones += other.tombstones;
        self.revoked += other.revoked;
        self.probe_done += other.probe_done;
        self.probe_not_done += other.probe_not_done;
        self.operator += other.operator;
        self.run_again += other.run_again;
        self.met_seal += other.met_seal;
    }
}

/// What came of a schedule.
#[derive(Debug)]
pub struct Outcome {
    /// The seed that replays it.
    pub seed: u64,
    /// Broken promises.
    pub violations: Vec<Violation>,
    /// What occurred.
    pub tally: Tally,
    /// The journals as text, for a person who looks into a violation.
    pub journals: Vec<String>,
}

impl Outcome {
    /// Whether this number is broken.
    pub fn breaks(&self, invariant: Invariant) -> bool {
        self.violations
            .iter()
            .any(|violation| violation.invariant == invariant)
    }
}

/// Runs one schedule. Its journals come along only if a promise is broken.
pub fn run_seed(seed: u64, config: Config) -> Outcome {
    run(seed, config, false)
}

/// Runs one schedule and brings its journals in any case.
pub fn trace_seed(seed: u64, config: Config) -> Outcome {
    run(seed, config, true)
}

fn run(seed: u64, config: Config, trace: bool) -> Outcome {
    let mut world = World::new(seed, config);
    world.run();
    let (violations, journals) = world.verdict(trace);
    Outcome {
        seed,
        violations,
        tally: world.tally,
        journals,
    }
}
