//! Effects against intentions: which rows of the books belong to which step, and what each step's records say about
//! whether its effect must be there, must not, or may.

use std::collections::{BTreeMap, BTreeSet};

use crate::World;
use crate::attempt::Attempt;
use crate::books::Row;
use crate::journal::Run;

/// Facts of an outcome register that say that the effect happened.
const HAPPENED: [&str; 4] = ["done", "done_unusable", "probe_done", "recorded_done"];

/// What the records say about a step's effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It happened: at least one row.
    Happened,
    /// It did not: no row.
    NotHappened,
    /// Nobody can say, or it is not over yet: any row is allowed that I1 allows.
    Unknown,
}

/// A step that was dispatched, with its rows in the books.
pub(crate) struct Effect<'a> {
    pub(crate) run: &'a Run,
    pub(crate) step: &'a str,
    pub(crate) tool: &'a str,
    pub(crate) key: String,
    pub(crate) fate: Fate,
    pub(crate) rows: Vec<&'a Row>,
}

impl Effect<'_> {
    /// Rows beyond the first.
    pub(crate) fn duplicates(&self) -> usize {
        self.rows.len().saturating_sub(1)
    }

    /// It is there, and that it is there was found out: from a register that nobody had heard of, a probe, or an operator.
    pub(crate) fn is_recovered(&self) -> bool {
        let found = |attempt: &&Attempt| {
            attempt.chain.step == self.step
                && matches!(
                    attempt.finding(),
                    Some("done" | "probe_done" | "recorded_done")
                )
        };
        self.fate == Fate::Happened
            && !self.rows.is_empty()
            && self.run.attempts.iter().any(|attempt| found(&attempt))
    }

    /// Rows beyond the first that an operator's word in the journal permits.
    pub(crate) fn excused(&self) -> usize {
        self.duplicates().min(self.run.run_agains(self.step))
    }
}

/// Every dispatched step of a tool whose effects stand in the books.
pub(crate) fn effects(world: &World) -> Vec<Effect<'_>> {
    let mut rows: BTreeMap<(&str, &str), Vec<&Row>> = BTreeMap::new();
    for row in &world.books.rows {
        rows.entry((&row.tool, &row.key)).or_default().push(row);
    }
    let mut effects = Vec::new();
    for run in &world.runs {
        let mut seen = BTreeSet::new();
        for attempt in &run.attempts {
            let (step, tool) = (attempt.chain.step.as_str(), attempt.chain.tool.as_str());
            if attempt.in_books && seen.insert(step) {
                let key = attempt.key();
                let rows = rows.get(&(tool, key.as_str())).cloned().unwrap_or_default();
                effects.push(Effect {
                    run,
                    step,
                    tool,
                    key,
                    fate: fate(run, step),
                    rows,
                });
            }
        }
    }
    effects
}

fn fate(run: &Run, step: &str) -> Fate {
    let attempts: Vec<&Attempt> = run
        .attempts
        .iter()
        .filter(|attempt| attempt.chain.step == step)
        .collect();
    let told = run.finished.get(step).is_some_and(|finished| {
        finished.kind == "tool_result" || finished.failure == "invalid_content"
    });
    if told
        || attempts
            .iter()
            .any(|attempt| HAPPENED.contains(&attempt.fact()))
    {
        return Fate::Happened;
    }
    let did_not =
        |attempt: &&&Attempt| attempt.proof().is_some() || attempt.fact() == "nothing_happened";
    if attempts.iter().filter(did_not).count() == attempts.len() {
        Fate::NotHappened
    } else {
        Fate::Unknown
    }
}

/// Rows whose key no envelope names.
pub(crate) fn strays<'a>(world: &'a World, effects: &[Effect<'_>]) -> Vec<&'a Row> {
    let known: BTreeSet<(&str, &str)> = effects
        .iter()
        .map(|effect| (effect.tool, effect.key.as_str()))
        .collect();
    world
        .books
        .rows
        .iter()
        .filter(|row| !known.contains(&(row.tool.as_str(), row.key.as_str())))
        .collect()
}
