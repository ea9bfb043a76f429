//! What the bench says: a table with the ratios and the goals beside them, and the same as one line of JSON.

use serde::Serialize;

use crate::growth::{Beside, InRun};
use crate::load::{Cpu, Measured};
use crate::stats::{Range, Times};

/// One line of the table.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) width: usize,
    pub(crate) per_second: Range,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Milliseconds of CPU time a step.
    pub(crate) cpu_ms: Cpu,
    /// The floors that were measured in turns with these steps.
    pub(crate) in_turns: Vec<InTurns>,
    /// Steps a second in thirds of the floor's: three records a step.
    pub(crate) of_third_of_floor: Option<f64>,
}

/// The median of one write of the floor, while these steps were taken.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct InTurns {
    pub(crate) what: String,
    pub(crate) p50_ms: f64,
}

impl Row {
    /// All passes of one measurement.
    pub(crate) fn of(what: String, width: usize, passes: &[Measured]) -> Self {
        let mut times = Times::default();
        for pass in passes {
            times.append(&pass.times);
        }
        let over = |of: fn(&Measured) -> f64| Range::of(passes.iter().map(of));
        Self {
            what,
            width,
            per_second: over(|pass| pass.steps_per_second),
            p50_ms: times.percentile(50),
            p99_ms: times.percentile(99),
            cpu_ms: Cpu {
                runtime: over(|pass| pass.cpu.runtime).median,
                tool: over(|pass| pass.cpu.tool).median,
                server: over(|pass| pass.cpu.server).median,
            },
            in_turns: Vec::new(),
            of_third_of_floor: None,
        }
    }

    /// One write of the floor after the other.
    pub(crate) fn floor(what: &str, times: &Times) -> Self {
        let mean = times.mean_seconds();
        let rate = if mean > 0.0 { 1.0 / mean } else { 0.0 };
        let measured = Measured {
            steps_per_second: rate,
            times: times.clone(),
            ..Measured::default()
        };
        Self::of(what.to_owned(), 1, &[measured])
    }

    pub(crate) fn in_turns_with(mut self, what: &str, times: &Times) -> Self {
        self.in_turns.push(InTurns {
            what: what.to_owned(),
            p50_ms: times.percentile(50),
        });
        self
    }

    /// The step's median in writes of this floor, if it was measured in turns.
    pub(crate) fn in_floor(&self, what: &str) -> Option<f64> {
        let floor = self.in_turns.iter().find(|floor| floor.what == what)?;
        Some(self.ratio(floor))
    }

    fn ratio(&self, floor: &InTurns) -> f64 {
        self.p50_ms / floor.p50_ms.max(f64::MIN_POSITIVE)
    }

    fn ratios(&self) -> String {
        let in_turns = self.in_turns.iter();
        let in_turns = in_turns.map(|floor| format!("{:.1} {}", self.ratio(floor), floor.what));
        let of_floor = self
            .of_third_of_floor
            .map(|part| format!("{part:.2} of floor/3"));
        in_turns.chain(of_floor).collect::<Vec<_>>().join(", ")
    }
}

/// Everything that was measured.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) floor: Vec<Row>,
    pub(crate) rows: Vec<Row>,
    pub(crate) in_run: Vec<InRun>,
    pub(crate) beside: Vec<Beside>,
    /// What else was found, each a line.
    pub(crate) notes: Vec<String>,
    /// Each goal that was measured: which, reached or missed, with what figure.
    pub(crate) goals: Vec<String>,
}

impl Report {
    pub(crate) fn tell(&self, json: bool) -> anyhow::Result<()> {
        println!(
            "{:<44} {:>4} {:>22} {:>8} {:>8} {:>22} p50 in floor's, part of floor/3",
            "", "c", "per second (range)", "p50 ms", "p99 ms", "CPU ms run+tool+server",
        );
        for row in self.floor.iter().chain(&self.rows) {
            let (range, cpu) = (row.per_second, row.cpu_ms);
            println!(
                "{:<44} {:>4} {:>22} {:>8.2} {:>8.2} {:>22} {}",
                row.what,
                row.width,
                format!("{:.0} ({:.0}-{:.0})", range.median, range.min, range.max),
                row.p50_ms,
                row.p99_ms,
                format!("{:.2} + {:.2} + {:.2}", cpu.runtime, cpu.tool, cpu.server),
                row.ratios()
            );
        }
        self.tell_growth();
        for line in self.notes.iter().chain(&self.goals) {
            println!("{line}");
        }
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
}

pub(crate) fn reached(reached: bool) -> &'static str {
    if reached { "reached" } else { "missed" }
}
