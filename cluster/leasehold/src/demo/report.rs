//! What the demo has to say at the end: whether everything adds up, a table, one line of JSON, and the story of one orphan.
//!
//! The numbers come from the independent checker, which has read the payments database and a raw dump of the journals, and from the orders
//! compared with the payments database. Whatever does not add up is one plain sentence; none means success.

use std::collections::BTreeMap;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use leasehold_checker::{Orphan, Report, Resolved, Runs};
use serde::Serialize;

use super::books::Paid;
use super::orders::Job;
use super::scene::Tally;

/// Complaints of one kind that are shown one by one; the rest is counted.
const MAX_SHOWN: usize = 5;

/// All that is known at the end.
pub(super) struct Outcome<'a> {
    pub(super) job: &'a Job,
    pub(super) report: &'a Report,
    /// The books, by order.
    pub(super) paid: &'a BTreeMap<String, Vec<Paid>>,
    pub(super) kills: Tally,
    pub(super) pauses: Tally,
    /// As many as were asked for.
    pub(super) planned: usize,
    /// What has to have occurred.
    pub(super) shown: Shown,
    /// What else went wrong: a child that failed, a check of the runtime's own.
    pub(super) troubles: Vec<String>,
    pub(super) seed: u64,
    pub(super) seconds: f64,
}

/// What a demo has to have shown, beside that it adds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// Each of the ways that the orders allow for.
    EveryWay,
    /// Runs that were taken over, and orphans.
    TakeoversAndOrphans,
    /// Too little was killed to ask for anything.
    Anything,
}

/// The last line of `--json`. The names up to `seconds` are promised.
#[derive(Serialize)]
struct Line<'a> {
    orders: usize,
    expected: usize,
    applied: usize,
    duplicates: usize,
    lost: usize,
    runs: Runs,
    kills: usize,
    takeovers: u64,
    orphans: usize,
    resolved: Resolved,
    seconds: f64,
    seed: u64,
    kills_of: &'a Tally,
    pauses: &'a Tally,
    unexpected: usize,
    unknown_applied: usize,
    paid_twice: usize,
    violations: &'a [leasehold_checker::Violation],
    complaints: Vec<String>,
}

impl Outcome<'_> {
    /// Everything that does not add up, in plain sentences.
    pub(super) fn complaints(&self) -> Vec<String> {
        let report = self.report;
        let mut out = Vec::new();
        let mut must_be_none = |count: usize, text: &str| {
            if count > 0 {
                out.push(format!("{count} {text}"));
            }
        };
        must_be_none(
            report.duplicates,
            "refunds were paid a second time (duplicates)",
        );
        must_be_none(
            report.lost,
            "refunds are recorded as paid and are not in the payments database (lost)",
        );
        must_be_none(
            report.unexpected,
            "refunds are in the payments database though the journals say that nothing was paid (unexpected)",
        );
        must_be_none(
            report.paid_twice,
            "orders were paid under more than one key (paid twice)",
        );
        must_be_none(
            report.runs.waiting + report.runs.running,
            "runs did not come to an end",
        );
        must_be_none(report.runs.failed, "runs failed");
        if report.orders != self.job.orders.len() {
            out.push(format!(
                "{} orders were to be submitted, {} were",
                self.job.orders.len(),
                report.orders
            ));
        }
        if self.kills.sum() != self.planned {
            out.push(format!(
                "{} kills were asked for, {} were made",
                self.planned,
                self.kills.sum()
            ));
        }
        let broken = report
            .violations
            .iter()
            .map(|broken| match broken.run.as_str() {
                "" => format!("invariant {} is broken: {}", broken.invariant, broken.text),
                run => format!(
                    "invariant {} is broken in run {run}: {}",
                    broken.invariant, broken.text
                ),
            });
        out.extend(shortened(broken.collect()));
        out.extend(shortened(self.unpaid()));
        out.extend(self.unshown());
        out.extend(self.troubles.iter().cloned());
        out
    }

    /// What should have occurred and did not.
    fn unshown(&self) -> Vec<String> {
        match self.shown {
            Shown::Anything => Vec::new(),
            Shown::EveryWay => {
                let never = ways(&self.report.resolved)
                    .into_iter()
                    .filter(|(way, count)| *count == 0 && self.job.allows(way));
                let never = never.map(|(way, _)| {
                    format!(
                        "no orphan was resolved by way of {}: the kills did not show it",
                        way.replace('_', " ")
                    )
                });
                never.collect()
            }
            Shown::TakeoversAndOrphans => {
                let none = [
                    (self.report.takeovers == 0, "no run was taken over"),
                    (self.report.orphans == 0, "no call was orphaned"),
                ];
                let none = none.into_iter().filter(|(none, _)| *none);
                none.map(|(_, what)| format!("{what}: the kills did not show it"))
                    .collect()
            }
        }
    }

    /// Each customer's side: what they are owed against what they got, whatever any journal says.
    fn unpaid(&self) -> Vec<String> {
        let mut out = Vec::new();
        for order in &self.job.orders {
            let paid = self.paid.get(&order.id).map_or(&[][..], Vec::as_slice);
            let right = paid
                .iter()
                .all(|paid| paid.amount == order.amount && paid.currency == order.currency);
            let owed = if order.traits.refundable { 1 } else { 0 };
            if paid.len() > owed || (paid.len() < owed && !order.traits.withdrawn) {
                out.push(format!(
                    "order {} is owed {owed} refund and got {}",
                    order.id,
                    paid.len()
                ));
            } else if !right {
                out.push(format!(
                    "order {} is owed {} {} and got {paid:?}",
                    order.id, order.amount, order.currency
                ));
            }
        }
        out
    }

    /// The one line for programs.
    pub(super) fn line(&self, complaints: Vec<String>) -> anyhow::Result<String> {
        let report = self.report;
        Ok(serde_json::to_string(&Line {
            orders: report.orders,
            expected: report.expected,
            applied: report.applied,
            duplicates: report.duplicates,
            lost: report.lost,
            runs: report.runs,
            kills: self.kills.sum(),
            takeovers: report.takeovers,
            orphans: report.orphans,
            resolved: report.resolved,
            seconds: (self.seconds * 10.0).round() / 10.0,
            seed: self.seed,
            kills_of: &self.kills,
            pauses: &self.pauses,
            unexpected: report.unexpected,
            unknown_applied: report.unknown_applied,
            paid_twice: report.paid_twice,
            violations: &report.violations,
            complaints,
        })?)
    }

    /// The table for people.
    pub(super) fn table(&self) -> String {
        let report = self.report;
        let mut table = Table::new();
        table.load_preset(NOTHING);
        let mut row = |name: &str, value: String, meaning: &str| {
            table.add_row([name, &value, meaning]);
        };
        row("orders", report.orders.to_string(), "one run each");
        row(
            "refunds expected",
            report.expected.to_string(),
            "the journals say that the money went out",
        );
        row(
            "refunds applied",
            report.applied.to_string(),
            "the payments database says so",
        );
        if report.unknown_applied > 0 {
            let paid = report.unknown_applied.to_string();
            row(
                "  of them unclear",
                paid,
                "cancelled before anybody could say, and paid",
            );
        }
        row("duplicates", report.duplicates.to_string(), "must be 0");
        row("lost", report.lost.to_string(), "must be 0");
        let runs = report.runs;
        row("runs completed", runs.completed.to_string(), "");
        row(
            "runs cancelled",
            runs.cancelled.to_string(),
            "the customer took the request back",
        );
        row("runs failed", runs.failed.to_string(), "must be 0");
        row(
            "runs not over",
            (runs.waiting + runs.running).to_string(),
            "must be 0",
        );
        row("runs, all", runs.sum().to_string(), "must be the orders");
        row(
            "kills -9",
            self.kills.sum().to_string(),
            &self.kills.to_string(),
        );
        if self.pauses.sum() > 0 {
            let (pauses, of) = (self.pauses.sum().to_string(), self.pauses.to_string());
            row("pauses", pauses, &format!("beyond their session: {of}"));
        }
        row(
            "takeovers",
            report.takeovers.to_string(),
            "times somebody took over a run whose owner had not let go of it",
        );
        row(
            "orphans",
            report.orphans.to_string(),
            "calls whose fate had to be found out:",
        );
        for (way, count) in ways(&report.resolved) {
            row(
                &format!("  {}", way.replace('_', " ")),
                count.to_string(),
                meaning(way),
            );
        }
        row(
            "  made again",
            report.resolved.superseded.to_string(),
            "it only reads: another attempt changes nothing",
        );
        row(
            "  unknown",
            report.resolved.unknown.to_string(),
            "the run was cancelled before anybody could say",
        );
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }

    /// The orphan whose story is told: one of which only somebody else could say what had become of it.
    pub(super) fn story(&self) -> Option<&Orphan> {
        let told = [
            "probe_done",
            "probe_not_done",
            "operator",
            "adopted_outcome",
            "tombstone",
            "revoked",
        ];
        told.iter().find_map(|way| {
            self.report
                .orphaned
                .iter()
                .find(|orphan| orphan.resolved == *way)
        })
    }
}

/// The six ways in which an orphan that may have acted is resolved, with how often each occurred.
pub(super) fn ways(resolved: &Resolved) -> [(&'static str, usize); 6] {
    [
        ("adopted_outcome", resolved.adopted_outcome),
        ("tombstone", resolved.tombstone),
        ("revoked", resolved.revoked),
        ("probe_done", resolved.probe_done),
        ("probe_not_done", resolved.probe_not_done),
        ("operator", resolved.operator),
    ]
}

fn meaning(way: &str) -> &'static str {
    match way {
        "adopted_outcome" => "the outcome was on record, nobody had heard it",
        "tombstone" => "the dead worker had claimed it and never begun",
        "revoked" => "nobody had claimed it, and now nobody can",
        "probe_done" => "the service says that it happened",
        "probe_not_done" => "the service says that it did not and cannot",
        _ => "a person looked and decided",
    }
}

fn shortened(mut sentences: Vec<String>) -> Vec<String> {
    let more = sentences.len().saturating_sub(MAX_SHOWN);
    sentences.truncate(MAX_SHOWN);
    if more > 0 {
        sentences.push(format!("and {more} more of this kind"));
    }
    sentences
}

#[cfg(test)]
mod tests;
