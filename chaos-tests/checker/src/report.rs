//! What a check comes to, as numbers that must add up and as violations with their numbers.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::World;
use crate::effects::{Effect, Fate, effects, strays};
use crate::invariants;

/// The result of a check.
///
/// The effects add up: `applied` = `expected` - `lost` + `duplicates` + `unexpected` + `unknown_applied`. The runs add up
/// to `orders`, the ways in `resolved` to `orphans`; where anything does not, there is a violation.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Runs that were submitted.
    pub orders: usize,
    /// Steps whose records say that their effect happened: of the payments service its refunds, of a ledger all effects.
    pub expected: usize,
    /// Effects in the books.
    pub applied: usize,
    /// Effects in the books beyond the first of each key, excused or not.
    pub duplicates: usize,
    /// Of those, the ones that a run-again in the journal permits.
    pub excused: usize,
    /// Expected effects that are not in the books.
    pub lost: usize,
    /// Keys with an effect in the books though the records say that nothing happened, or that no call has.
    pub unexpected: usize,
    /// Keys with an effect in the books of which the records say that nobody can tell, or that are not over yet.
    pub unknown_applied: usize,
    /// Orders that were paid under more than one key.
    pub paid_twice: usize,
    /// The same numbers for each tool whose effects stand in the books.
    pub by_tool: BTreeMap<String, Effects>,
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

/// Effects of one tool. `applied` = `expected` - `lost` + `duplicates` + `unexpected` + `unknown_applied`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Effects {
    /// As in [`Report`].
    pub expected: usize,
    /// Of the expected ones that are there: those that were found out, rather than told by the worker that had them.
    pub recovered: usize,
    /// As in [`Report`].
    pub applied: usize,
    /// As in [`Report`].
    pub duplicates: usize,
    /// As in [`Report`].
    pub excused: usize,
    /// As in [`Report`].
    pub lost: usize,
    /// As in [`Report`].
    pub unexpected: usize,
    /// As in [`Report`].
    pub unknown_applied: usize,
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
        by_tool: BTreeMap::new(),
        runs: Runs::default(),
        takeovers: world.runs.iter().map(|run| run.takeovers).sum(),
        orphans: 0,
        resolved: Resolved::default(),
        violations: invariants::all(world, &effects),
        orphaned: Vec::new(),
    };
    report.count_effects(world, &effects);
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
    fn count_effects(&mut self, world: &World, effects: &[Effect<'_>]) {
        let tools = world.books.tools.iter();
        self.by_tool = tools
            .map(|tool| (tool.clone(), Effects::of(tool, world, effects)))
            .collect();
        let counted = self
            .by_tool
            .iter()
            .filter(|(tool, _)| world.books.counts(tool));
        for (_, sums) in counted {
            self.expected += sums.expected;
            self.applied += sums.applied;
            self.duplicates += sums.duplicates;
            self.excused += sums.excused;
            self.lost += sums.lost;
            self.unexpected += sums.unexpected;
            self.unknown_applied += sums.unknown_applied;
        }
    }

    fn must_add_up(&mut self) {
        let sums = [
            (
                self.by_tool.values().all(Effects::add_up),
                "the effects do not add up to what the books hold",
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

impl Effects {
    fn of(tool: &str, world: &World, effects: &[Effect<'_>]) -> Self {
        let rows = world.books.rows.iter().filter(|row| row.tool == tool);
        let mut sums = Self {
            applied: rows.count(),
            ..Self::default()
        };
        for effect in effects.iter().filter(|effect| effect.tool == tool) {
            let there = usize::from(!effect.rows.is_empty());
            sums.duplicates += effect.duplicates();
            sums.excused += effect.excused();
            sums.recovered += usize::from(effect.is_recovered());
            match effect.fate {
                Fate::Happened => {
                    sums.expected += 1;
                    sums.lost += 1 - there;
                }
                Fate::NotHappened => sums.unexpected += there,
                Fate::Unknown => sums.unknown_applied += there,
            }
        }
        let strays = strays(world, effects);
        let strays = strays.into_iter().filter(|row| row.tool == tool);
        let mut keys: Vec<&str> = strays.map(|row| row.key.as_str()).collect();
        let rows = keys.len();
        keys.sort_unstable();
        keys.dedup();
        sums.unexpected += keys.len();
        sums.duplicates += rows - keys.len();
        sums
    }

    fn add_up(&self) -> bool {
        let there = self.expected + self.duplicates + self.unexpected + self.unknown_applied;
        there.checked_sub(self.lost) == Some(self.applied)
    }
}

fn paid_twice(world: &World) -> usize {
    let mut paid: Vec<(&str, &str)> = world
        .books
        .rows
        .iter()
        .filter(|row| world.books.counts(&row.tool))
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
