//! What a check comes to, as numbers that must add up and as violations with their numbers.

use serde::Serialize;

use crate::World;
use crate::effects::{Effect, Fate, effects, strays};
use crate::invariants;

/// The tool whose effects are counted as money.
const REFUND: &str = "refund_order";

/// The result of a check.
///
/// The refunds add up: `applied` = `expected` - `lost` + `duplicates` + `unexpected` + `unknown_applied`. The runs add up
/// to `orders`, the ways in `resolved` to `orphans`; where anything does not, there is a violation.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Runs that were submitted.
    pub orders: usize,
    /// Refund steps whose records say that the refund was paid.
    pub expected: usize,
    /// Refunds in the books.
    pub applied: usize,
    /// Refunds in the books beyond the first of each key, excused or not.
    pub duplicates: usize,
    /// Of those, the ones that a run-again in the journal permits.
    pub excused: usize,
    /// Expected refunds that are not in the books.
    pub lost: usize,
    /// Keys with a refund in the books though the records say that nothing was paid, or that no call has.
    pub unexpected: usize,
    /// Keys with a refund in the books of which the records say that nobody can tell, or that are not over yet.
    pub unknown_applied: usize,
    /// Orders that were paid under more than one key.
    pub paid_twice: usize,
    /// Submitted runs by final state.
    pub runs: Runs,
    /// Times a run changed hands without its owner having let go of it.
    pub takeovers: u64,
    /// Attempts whose fate had to be found out.
    pub orphans: usize,
    /// How.
    pub resolved: Resolved,
    /// Broken promises, in order of invariant.
    pub violations: Vec<Violation>,
    /// The orphans one by one, for showing one of them.
    #[serde(skip)]
    pub orphaned: Vec<Orphan>,
}

/// Runs by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the names are the run states")]
pub struct Runs {
    pub completed: usize,
    pub failed: usize,
    pub cancelled: usize,
    pub waiting: usize,
    pub running: usize,
}

/// Orphans by the way in which they were resolved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Resolved {
    /// The outcome register had been written.
    pub adopted_outcome: usize,
    /// The worker never began, and said so.
    pub tombstone: usize,
    /// Revoked before anybody claimed it.
    pub revoked: usize,
    /// The probe said that it happened.
    pub probe_done: usize,
    /// The probe said that it did not and cannot.
    pub probe_not_done: usize,
    /// A person decided.
    pub operator: usize,
    /// Read-only: made again.
    pub superseded: usize,
    /// The run ended and nobody could say.
    pub unknown: usize,
}

/// One orphan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// Its run.
    pub run: String,
    /// Its step.
    pub step: String,
    /// Its attempt.
    pub attempt: u64,
    /// The name in [`Resolved`] of the way in which it was resolved.
    pub resolved: &'static str,
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Its number, for example `I1`.
    pub invariant: String,
    /// The run in which it shows.
    pub run: String,
    /// What is wrong, in words.
    pub text: String,
}

impl Runs {
    fn count(&mut self, status: &str) {
        match status {
            "completed" => self.completed += 1,
            "failed" => self.failed += 1,
            "cancelled" => self.cancelled += 1,
            "waiting" => self.waiting += 1,
            _ => self.running += 1,
        }
    }

    /// All of them.
    pub fn sum(&self) -> usize {
        self.completed + self.failed + self.cancelled + self.waiting + self.running
    }
}

impl Resolved {
    fn count(&mut self, finding: &str) -> &'static str {
        let (count, name) = match finding {
            "done" | "nothing_happened" => (&mut self.adopted_outcome, "adopted_outcome"),
            "not_started" => (&mut self.tombstone, "tombstone"),
            "revoked" => (&mut self.revoked, "revoked"),
            "probe_done" => (&mut self.probe_done, "probe_done"),
            "probe_not_done" => (&mut self.probe_not_done, "probe_not_done"),
            "run_again" | "recorded_done" | "rejected" => (&mut self.operator, "operator"),
            "superseded" => (&mut self.superseded, "superseded"),
            _ => (&mut self.unknown, "unknown"),
        };
        *count += 1;
        name
    }

    /// All of them.
    pub fn sum(&self) -> usize {
        self.adopted_outcome
            + self.tombstone
            + self.revoked
            + self.probe_done
            + self.probe_not_done
            + self.operator
            + self.superseded
            + self.unknown
    }
}

/// Counts and checks.
pub(crate) fn of(world: &World) -> Report {
    let effects = effects(world);
    let mut report = Report {
        orders: world.submitted.len(),
        expected: 0,
        applied: 0,
        duplicates: 0,
        excused: 0,
        lost: 0,
        unexpected: 0,
        unknown_applied: 0,
        paid_twice: paid_twice(world),
        runs: Runs::default(),
        takeovers: world.runs.iter().map(|run| run.takeovers).sum(),
        orphans: 0,
        resolved: Resolved::default(),
        violations: invariants::all(world, &effects),
        orphaned: Vec::new(),
    };
    for effect in effects.iter().filter(|effect| effect.tool == REFUND) {
        report.refund(effect);
    }
    report.strays(world, &effects);
    report.applied = world
        .books
        .rows
        .iter()
        .filter(|row| row.tool == REFUND)
        .count();
    for run in world
        .runs
        .iter()
        .filter(|run| world.submitted.binary_search(&run.id).is_ok())
    {
        report.runs.count(run.status());
    }
    for run in &world.runs {
        for attempt in &run.attempts {
            if let Some(finding) = attempt.finding() {
                report.orphans += 1;
                let resolved = report.resolved.count(finding);
                report.orphaned.push(Orphan {
                    run: run.id.clone(),
                    step: attempt.chain.step.clone(),
                    attempt: attempt.chain.attempt,
                    resolved,
                });
            }
        }
    }
    report.must_add_up();
    report
}

impl Report {
    fn refund(&mut self, effect: &Effect<'_>) {
        let there = usize::from(!effect.rows.is_empty());
        self.duplicates += effect.duplicates();
        self.excused += effect.excused();
        match effect.fate {
            Fate::Happened => {
                self.expected += 1;
                self.lost += 1 - there;
            }
            Fate::NotHappened => self.unexpected += there,
            Fate::Unknown => self.unknown_applied += there,
        }
    }

    fn strays(&mut self, world: &World, effects: &[Effect<'_>]) {
        let mut keys: Vec<&str> = strays(world, effects)
            .into_iter()
            .filter(|row| row.tool == REFUND)
            .map(|row| row.key.as_str())
            .collect();
        let rows = keys.len();
        keys.sort_unstable();
        keys.dedup();
        self.unexpected += keys.len();
        self.duplicates += rows - keys.len();
    }

    fn must_add_up(&mut self) {
        let refunds = (self.expected + self.duplicates + self.unexpected + self.unknown_applied)
            .checked_sub(self.lost);
        let sums = [
            (
                refunds == Some(self.applied),
                "the refunds do not add up to what the books hold",
            ),
            (
                self.runs.sum() == self.orders,
                "the runs by state do not add up to the runs submitted",
            ),
            (
                self.resolved.sum() == self.orphans,
                "the ways of resolution do not add up to the orphans",
            ),
        ];
        for (_, text) in sums.into_iter().filter(|(right, _)| !right) {
            self.violations.push(Violation {
                invariant: "I14".to_owned(),
                run: String::new(),
                text: text.to_owned(),
            });
        }
    }
}

fn paid_twice(world: &World) -> usize {
    let mut paid: Vec<(&str, &str)> = world
        .books
        .rows
        .iter()
        .filter(|row| row.tool == REFUND)
        .map(|row| (row.order.as_str(), row.key.as_str()))
        .collect();
    paid.sort_unstable();
    paid.dedup();
    let mut orders: Vec<&str> = paid
        .windows(2)
        .filter(|pair| pair[0].0 == pair[1].0)
        .map(|pair| pair[0].0)
        .collect();
    orders.dedup();
    orders.len()
}
