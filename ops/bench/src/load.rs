//! Steps at a width: so many runs of ten steps side by side, a new one for each that has ended.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::Context as _;
use leasehold_protocol::RunId;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::events::Event;
use crate::setup::{Bench, submit};
use crate::stats::{Times, cpu_seconds, now};

/// Steps of one run: as many as in the figures of the peers.
pub(crate) const STEPS_PER_RUN: u32 = 10;
/// Silence after which a measurement has failed: far beyond any step on a busy machine.
const SILENCE: Duration = Duration::from_secs(60);

/// What is measured.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    /// What its runs' names begin with.
    pub(crate) name: String,
    pub(crate) tool: String,
    pub(crate) width: usize,
    pub(crate) span: Span,
}

/// How long.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Span {
    /// At least so many steps, from the first submission to the last end.
    Steps(u64),
    /// So long, after as long a start as `warm` says; what is in hand then still ends, uncounted.
    Time { warm: Duration, measured: Duration },
}

/// The processes whose CPU time counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pids {
    pub(crate) runtime: Vec<u32>,
    pub(crate) tool: Vec<u32>,
    pub(crate) server: Vec<u32>,
}

/// CPU time of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Cpu {
    pub(crate) runtime: f64,
    pub(crate) tool: f64,
    pub(crate) server: f64,
}

impl Cpu {
    /// Seconds since their starts.
    pub(crate) fn of(pids: &Pids) -> Self {
        let sum = |pids: &[u32]| pids.iter().filter_map(|pid| cpu_seconds(*pid)).sum();
        Self {
            runtime: sum(&pids.runtime),
            tool: sum(&pids.tool),
            server: sum(&pids.server),
        }
    }

    /// Milliseconds for each of so many, since `before`.
    pub(crate) fn each_since(self, before: Self, count: f64) -> Self {
        let each = |after: f64, before: f64| (after - before) * 1e3 / count.max(1.0);
        Self {
            runtime: each(self.runtime, before.runtime),
            tool: each(self.tool, before.tool),
            server: each(self.server, before.server),
        }
    }
}

/// What one measurement gave.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    pub(crate) steps_per_second: f64,
    pub(crate) times: Times,
    /// Milliseconds of CPU time a step.
    pub(crate) cpu: Cpu,
}

/// Something that is measured in turns with the steps of one run at a time, so that both see the same disk.
pub(crate) trait InTurns {
    /// So many of it.
    async fn turn(&mut self, count: u64) -> anyhow::Result<()>;
}

/// Nothing in turns.
pub(crate) struct Alone;

impl InTurns for Alone {
    async fn turn(&mut self, _: u64) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Runs that are submitted and what came of them.
struct Runs<'a> {
    bench: &'a mut Bench,
    load: &'a Load,
    /// Clients do not wait for each other.
    submitting: JoinSet<anyhow::Result<RunId>>,
    submitted: u64,
    /// Submitted and not ended. A run is told of again when something late wakes it.
    open: HashSet<String>,
    ended: u64,
}

impl Runs<'_> {
    fn submit(&mut self) {
        let (runtime, load) = (self.bench.runtime.clone(), self.load);
        let run = format!("{}-{}", load.name, self.submitted);
        self.open.insert(run.clone());
        self.submitting
            .spawn(submit(runtime, run, load.tool.clone(), STEPS_PER_RUN));
        self.submitted += 1;
    }

    async fn event(&mut self) -> anyhow::Result<Event> {
        loop {
            let heard = timeout(SILENCE, async {
                tokio::select! {
                    Some(answer) = self.submitting.join_next() => answer?.map(|_| None),
                    event = self.bench.events.recv() => {
                        event.context("the node is gone").map(Some)
                    }
                }
            });
            let heard = heard.await;
            let heard = heard.with_context(|| format!("nothing happens any more: {self}"))?;
            match heard? {
                Some(Event::Ended(run)) if !self.open.remove(run.as_str()) => {}
                Some(event) => {
                    self.ended += u64::from(matches!(event, Event::Ended(_)));
                    return Ok(event);
                }
                None => {}
            }
        }
    }
}

impl std::fmt::Display for Runs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = &self.load.name;
        write!(f, "{name}: {} of {} ended", self.ended, self.submitted)
    }
}

/// What was counted since a moment.
struct Window {
    cpu: Cpu,
    since: Instant,
    /// Before `since`, without what was done in turns.
    spent: Duration,
    times: Times,
}

impl Window {
    fn open(pids: &Pids) -> Self {
        Self {
            cpu: Cpu::of(pids),
            since: now(),
            spent: Duration::ZERO,
            times: Times::default(),
        }
    }

    fn spent(&self) -> Duration {
        self.spent + self.since.elapsed()
    }

    fn close(self, pids: &Pids) -> Measured {
        let (spent, count) = (self.spent(), self.times.len() as f64);
        Measured {
            steps_per_second: count / spent.as_secs_f64(),
            times: self.times,
            cpu: Cpu::of(pids).each_since(self.cpu, count),
        }
    }
}

/// Takes steps. At width 1 the pause after each run is used for as many of what is measured in turns.
pub(crate) async fn measure(
    bench: &mut Bench,
    load: &Load,
    pids: &Pids,
    in_turns: &mut impl InTurns,
) -> anyhow::Result<Measured> {
    let mut runs = Runs {
        bench,
        load,
        submitting: JoinSet::new(),
        submitted: 0,
        open: HashSet::new(),
        ended: 0,
    };
    // By count or by time: the other one never ends it.
    let (most, warm, measured) = match load.span {
        Span::Steps(steps) => {
            let runs = (steps / u64::from(STEPS_PER_RUN)).max(load.width as u64);
            (runs, Duration::ZERO, Duration::MAX)
        }
        Span::Time { warm, measured } => (u64::MAX, warm, measured),
    };
    let mut window = Window::open(pids);
    let mut is_warm = warm.is_zero();
    for _ in 0..load.width {
        runs.submit();
    }
    while !is_warm || (runs.ended < most && window.spent() < measured) {
        match runs.event().await? {
            Event::Step(_, time) => window.times.push(time),
            Event::Ended(_) => {
                if load.width == 1 {
                    window.spent = window.spent();
                    in_turns.turn(u64::from(STEPS_PER_RUN)).await?;
                    window.since = now();
                }
                if runs.submitted < most {
                    runs.submit();
                }
            }
        }
        if !is_warm && window.spent() >= warm {
            window = Window::open(pids);
            is_warm = true;
        }
    }
    let measured = window.close(pids);
    while runs.ended < runs.submitted {
        runs.event().await?;
    }
    Ok(measured)
}
