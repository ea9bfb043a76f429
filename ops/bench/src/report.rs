//! What the bench says: a table with the ratios and the goals beside them, and the same as one line of JSON.

use serde::Serialize;

use crate::growth::{Beside, InRun};
use crate::stats::{Range, Times};

/// The goal for one step at a time: at most so many durable writes, because three follow each other.
const GOAL_P50_IN_FSYNCS: f64 = 4.0;
/// The goal for many side by side, steps a second.
const GOAL_STEPS: f64 = 5000.0;
/// The width at which that goal is meant.
const GOAL_WIDTH: usize = 256;

/// One line of the table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) width: usize,
    pub(crate) per_second: Range,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) runtime_cpu_ms: f64,
    pub(crate) tool_cpu_ms: f64,
    /// The floor that was measured in turns with these steps.
    pub(crate) floor: Option<InTurns>,
}

/// One durable write, while these steps were taken.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct InTurns {
    pub(crate) append_p50_ms: f64,
    pub(crate) overwrite_p50_ms: f64,
}

impl Row {
    pub(crate) fn floor(what: &str, times: &Times) -> Self {
        let mean = times.mean_seconds();
        let rate = if mean > 0.0 { 1.0 / mean } else { 0.0 };
        Self {
            what: what.to_owned(),
            width: 1,
            per_second: Range::of([rate]),
            p50_ms: times.percentile(50),
            p99_ms: times.percentile(99),
            runtime_cpu_ms: 0.0,
            tool_cpu_ms: 0.0,
            floor: None,
        }
    }

    /// The step's median in durable writes: appended, written over. Only where both were measured in turns.
    fn in_fsyncs(&self) -> Option<(f64, f64)> {
        let floor = self.floor?;
        let ratio = |floor: f64| self.p50_ms / floor.max(f64::MIN_POSITIVE);
        Some((ratio(floor.append_p50_ms), ratio(floor.overwrite_p50_ms)))
    }
}

/// Everything that was measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    pub(crate) floor: Vec<Row>,
    pub(crate) rows: Vec<Row>,
    pub(crate) in_run: Vec<InRun>,
    pub(crate) beside: Vec<Beside>,
}

impl Report {
    pub(crate) fn tell(&self, json: bool) -> anyhow::Result<()> {
        println!(
            "{:<22} {:>4} {:>22} {:>8} {:>8} {:>16} {:>22}",
            "",
            "c",
            "per second (range)",
            "p50 ms",
            "p99 ms",
            "CPU ms run+tool",
            "p50/append, /overwrite"
        );
        for row in self.floor.iter().chain(&self.rows) {
            let range = row.per_second;
            let ratio = row
                .in_fsyncs()
                .map_or(String::new(), |(append, overwrite)| {
                    format!("{append:.1}, {overwrite:.1}")
                });
            println!(
                "{:<22} {:>4} {:>22} {:>8.2} {:>8.2} {:>16} {:>22}",
                row.what,
                row.width,
                format!("{:.0} ({:.0}-{:.0})", range.median, range.min, range.max),
                row.p50_ms,
                row.p99_ms,
                format!("{:.2} + {:.2}", row.runtime_cpu_ms, row.tool_cpu_ms),
                ratio
            );
        }
        self.tell_growth();
        self.tell_goals();
        if json {
            println!("{}", serde_json::to_string(self)?);
        }
        Ok(())
    }

    fn tell_growth(&self) {
        for at in &self.in_run {
            println!(
                "step {:>5} of a run: p50 {:.2} ms, p99 {:.2} ms",
                at.step, at.p50_ms, at.p99_ms
            );
        }
        for beside in &self.beside {
            println!(
                "beside {:>8} ended runs: p50 {:.2} ms, p99 {:.2} ms, {:.0} steps/s at 64; start {:.2} s (filled in {:.0} s)",
                beside.archived,
                beside.p50_ms,
                beside.p99_ms,
                beside.wide_steps_per_second,
                beside.start_seconds,
                beside.fill_seconds
            );
        }
    }

    fn tell_goals(&self) {
        for row in &self.rows {
            if let Some((_, ratio)) = row.in_fsyncs() {
                let reached = reached(ratio <= GOAL_P50_IN_FSYNCS);
                println!(
                    "goal {reached}: {} at c=1: p50 is {ratio:.1} times overwrite + fdatasync, at most {GOAL_P50_IN_FSYNCS}",
                    row.what
                );
            }
            if row.width == GOAL_WIDTH {
                let part = row.per_second.median / GOAL_STEPS;
                let reached = reached(part >= 1.0);
                println!(
                    "goal {reached}: {} at c={GOAL_WIDTH}: {part:.2} of {GOAL_STEPS} steps/s",
                    row.what
                );
            }
        }
    }
}

fn reached(reached: bool) -> &'static str {
    if reached { "reached" } else { "missed" }
}
