//! The verdict: exact counts that must add up, every invariant, and whether the exercise has shown anything at all.
//!
//! Three verdicts. *Broken*: a promise does not hold, or something went wrong that should not. *Invalid*: all is well as far as it was
//! tried, but an armed fault never took effect, no run changed hands, or no call was orphaned, so it has shown too little to be called green.
//! *Held*: neither.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use leasehold_checker::{Effects, Moment, Report, Violation};
use serde::Serialize;

use crate::exercise::{Done, Plan};
use crate::faults::{Fault, Means};
use crate::ledger::{Ledger, LineOf};
use crate::tools;
use crate::workload;

/// Complaints of one kind that are told one by one; the rest is counted.
const SHOWN: usize = 12;
/// The good mode of the ledger.
const OK: &str = "ok";

/// How an exercise ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// Every promise held, and it was tried.
    Held,
    /// A promise is broken.
    Broken,
    /// Too little was tried.
    Invalid,
}

/// One armed fault.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Armed {
    pub(crate) fault: Fault,
    pub(crate) title: &'static str,
    /// Steps that took effect.
    pub(crate) fired: usize,
    /// Steps that did not.
    pub(crate) missed: usize,
    /// By what it is known.
    pub(crate) evidence: String,
}

/// Runs by what is known of them. `submitted` = the other five.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Runs {
    pub(crate) submitted: usize,
    pub(crate) completed: usize,
    pub(crate) failed: usize,
    pub(crate) cancelled: usize,
    /// For an answer that nobody gives, on purpose.
    pub(crate) waiting: usize,
    pub(crate) running: usize,
}

/// Effects of the tools of one class. `seen` = `told` + `recovered` + `duplicated` + `unexpected` + `unknown`, and `expected` = `told` +
/// `recovered` + `lost`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    /// Steps whose records say that the effect happened.
    pub(crate) expected: usize,
    /// Of those, the ones that the worker told and that are in the ledger.
    pub(crate) told: usize,
    /// Of those, the ones that were found out and that are in the ledger.
    pub(crate) recovered: usize,
    /// Of those, the ones that are not in the ledger.
    pub(crate) lost: usize,
    /// Effects in the ledger.
    pub(crate) seen: usize,
    /// Beyond the first of a step.
    pub(crate) duplicated: usize,
    /// Of those, the ones that an operator's run-again permits.
    pub(crate) excused: usize,
    /// Although the records say that nothing happened, or that no call has the key.
    pub(crate) unexpected: usize,
    /// Of steps of which the records say that nobody can tell.
    pub(crate) unknown: usize,
}

/// Everything that the report shows.
pub(crate) struct Verdict {
    pub(crate) outcome: Outcome,
    pub(crate) runs: Runs,
    pub(crate) by_tool: BTreeMap<&'static str, Counts>,
    pub(crate) armed: Vec<Armed>,
    /// Why it is broken, in sentences.
    pub(crate) complaints: Vec<String>,
    /// Why it is invalid, in sentences.
    pub(crate) gaps: Vec<String>,
    pub(crate) checked: Report,
    pub(crate) moments: Vec<Moment>,
    pub(crate) ledger: Vec<LineOf>,
}

impl Counts {
    fn of(effects: &Effects) -> Self {
        let there = effects.expected - effects.lost;
        Self {
            expected: effects.expected,
            told: there.saturating_sub(effects.recovered),
            recovered: effects.recovered,
            lost: effects.lost,
            seen: effects.applied,
            duplicated: effects.duplicates,
            excused: effects.excused,
            unexpected: effects.unexpected,
            unknown: effects.unknown_applied,
        }
    }

    fn add_up(&self) -> bool {
        self.seen == self.told + self.recovered + self.duplicated + self.unexpected + self.unknown
            && self.expected == self.told + self.recovered + self.lost
    }
}

impl Verdict {
    /// Judges what an exercise has left in its files.
    pub(crate) fn of(plan: &Plan, done: &Done) -> anyhow::Result<Self> {
        let (dump, ledger) = (plan.folder.dump(), plan.folder.ledger());
        let moments = leasehold_checker::moments(&dump).context("reading the dump")?;
        let known: BTreeSet<&str> = moments.iter().map(|moment| moment.run.as_str()).collect();
        // Of those that nobody can say, the ones that are there were submitted.
        let unsure = done
            .unsure
            .iter()
            .filter(|run| known.contains(run.as_str()));
        let submitted: Vec<String> = done.stored.iter().chain(unsure).cloned().collect();
        let checked = leasehold_checker::check(&dump, &ledger, &submitted)
            .context("checking the dump against the ledger")?;
        let mut ledger = Ledger::new(ledger);
        ledger.read()?;
        let ledger = ledger.read()?.to_vec();
        let runs = Runs {
            submitted: submitted.len(),
            completed: checked.runs.completed,
            failed: checked.runs.failed,
            cancelled: checked.runs.cancelled,
            waiting: checked.runs.waiting,
            running: checked.runs.running,
        };
        let named = |(tool, effects): (&String, &Effects)| {
            Some((tools::Tool::named(tool)?.name, Counts::of(effects)))
        };
        let by_tool = checked.by_tool.iter().filter_map(named).collect();
        let mut verdict = Self {
            outcome: Outcome::Held,
            runs,
            by_tool,
            armed: Vec::new(),
            complaints: done.troubles.clone(),
            gaps: Vec::new(),
            checked,
            moments,
            ledger,
        };
        verdict.armed = verdict.armed(plan, done);
        verdict.complain(done);
        verdict.look_for_gaps();
        verdict.outcome = match (verdict.complaints.is_empty(), verdict.gaps.is_empty()) {
            (false, _) => Outcome::Broken,
            (true, false) => Outcome::Invalid,
            (true, true) => Outcome::Held,
        };
        Ok(verdict)
    }

    /// The violations, those of one run together.
    pub(crate) fn violations(&self) -> &[Violation] {
        &self.checked.violations
    }

    fn complain(&mut self, done: &Done) {
        let runs = self.runs;
        let sum = runs.completed + runs.failed + runs.cancelled + runs.waiting + runs.running;
        let mut complaints = Vec::new();
        let mut must = |right: bool, text: String| {
            if !right {
                complaints.push(text);
            }
        };
        must(
            sum == runs.submitted,
            format!(
                "{} runs were submitted and {sum} are accounted for",
                runs.submitted
            ),
        );
        must(
            runs.running == 0,
            format!("{} runs are still running", runs.running),
        );
        for (tool, counts) in &self.by_tool {
            must(
                counts.add_up(),
                format!("the effects of {tool} do not add up: {counts:?}"),
            );
            must(
                counts.lost == 0,
                format!("{} effects of {tool} are lost", counts.lost),
            );
            must(
                counts.unexpected == 0,
                format!("{} effects of {tool} are unexpected", counts.unexpected),
            );
            let twice = counts.duplicated - counts.excused;
            must(
                twice == 0,
                format!("{twice} effects of {tool} are duplicates"),
            );
        }
        must(
            done.unsure.is_empty(),
            format!(
                "of {} submissions nobody can say whether they are stored",
                done.unsure.len()
            ),
        );
        for run in done.parked.iter().filter(|run| !workload::leaves_open(run)) {
            must(
                false,
                format!("run {run} waits for an answer that nobody gave it"),
            );
        }
        let violations = self.violations().iter();
        complaints.extend(violations.clone().take(SHOWN).map(|broken| {
            format!(
                "{} is broken in run {}: {}",
                broken.invariant, broken.run, broken.text
            )
        }));
        let more = violations.count().saturating_sub(SHOWN);
        if more > 0 {
            complaints.push(format!("{more} more violations"));
        }
        self.complaints.extend(complaints);
    }

    fn look_for_gaps(&mut self) {
        let silent = self.armed.iter().filter(|armed| armed.fired == 0);
        let mut gaps: Vec<String> = silent
            .map(|armed| {
                format!(
                    "{} was armed and never took effect: {}",
                    armed.fault, armed.evidence
                )
            })
            .collect();
        if self.checked.takeovers == 0 {
            gaps.push("no run changed hands without its owner having let go of it".to_owned());
        }
        if self.checked.orphans == 0 {
            gaps.push("no call was orphaned".to_owned());
        }
        self.gaps = gaps;
    }

    fn armed(&self, plan: &Plan, done: &Done) -> Vec<Armed> {
        let armed = plan.schedule.armed.iter().map(|fault| {
            let steps = done.injected.iter().filter(|one| one.fault == *fault);
            let (fired, missed): (Vec<_>, Vec<_>) = steps.partition(|one| one.fired);
            let (fired, missed, evidence) = match fault.means() {
                Means::Workload => {
                    let (count, evidence) = self.tool_faults(*fault);
                    (count, 0, evidence)
                }
                Means::Mix => {
                    let (count, evidence) = mix(plan, done);
                    (count, 0, evidence)
                }
                _ => {
                    let told = fired.first().or(missed.first());
                    let told = told.map_or("no step of it was drawn".to_owned(), |one| {
                        format!("{}: {}", one.what, one.evidence)
                    });
                    (fired.len(), missed.len(), told)
                }
            };
            Armed {
                fault: *fault,
                title: fault.title(),
                fired,
                missed,
                evidence,
            }
        });
        armed.collect()
    }

    /// Requests that met a fault of the tool, by the ledger's own lines.
    fn tool_faults(&self, fault: Fault) -> (usize, String) {
        let mut modes: BTreeMap<&str, usize> = BTreeMap::new();
        for line in self.ledger.iter().filter(|line| line.kind == "request") {
            let lost = matches!(line.mode.as_str(), "effect_then_reset" | "late_effect");
            if line.mode != OK && (fault == Fault::F20 || lost) {
                *modes.entry(&line.mode).or_default() += 1;
            }
        }
        let told: Vec<String> = modes
            .iter()
            .map(|(mode, count)| format!("{mode} {count}"))
            .collect();
        (
            modes.values().sum(),
            format!("in the ledger: {}", told.join(", ")),
        )
    }
}

/// Periods with several faults that took effect, beside a quiet one.
fn mix(plan: &Plan, done: &Done) -> (usize, String) {
    let periods = &plan.schedule.periods;
    let quiet = periods
        .iter()
        .filter(|period| period.actions.is_empty())
        .count();
    let mixed = periods
        .iter()
        .filter(|period| period.faults().len() > 1)
        .count();
    let fired: BTreeSet<Fault> = done
        .injected
        .iter()
        .filter(|one| one.fired)
        .map(|one| one.fault)
        .collect();
    let evidence = format!(
        "{} kinds of faults took effect; of {} periods {quiet} were quiet and {mixed} had several faults",
        fired.len(),
        periods.len()
    );
    (
        if fired.len() > 1 && quiet > 0 {
            fired.len()
        } else {
            0
        },
        evidence,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_effects_add_up_or_it_is_seen() {
        let effects = Effects {
            expected: 5,
            recovered: 2,
            applied: 6,
            duplicates: 1,
            excused: 1,
            lost: 1,
            unexpected: 0,
            unknown_applied: 1,
        };
        let counts = Counts::of(&effects);
        assert!(counts.add_up());
        assert_eq!((counts.told, counts.recovered), (2, 2));
        let wrong = Effects {
            applied: 7,
            ..effects
        };
        assert!(!Counts::of(&wrong).add_up());
    }
}
