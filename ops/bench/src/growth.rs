//! Growth: whether a step costs more late in a long run, or beside many runs that have ended.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use leasehold_tools::SideEffect;
use serde::Serialize;

use crate::archive::fill;
use crate::echo::Echo;
use crate::events::Event;
use crate::load::{Alone, Load, Pids, Span, measure};
use crate::setup::{Bench, submit};
use crate::stats::{Times, now};

/// Steps of the long run.
const LONG_RUN: u32 = 1000;
/// Long runs whose steps are taken together.
const LONG_RUNS: u32 = 3;
/// The steps at which the cost is read, and how many on either side are read with each.
const AT: [u32; 3] = [10, 100, 1000];
const AROUND: u32 = 9;
/// The class of every step here.
const CLASS: SideEffect = SideEffect::RemoteMutation;
/// The width at which throughput beside ended runs is read.
const WIDE: usize = 64;

/// Step n of a run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct InRun {
    pub(crate) step: u32,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

/// Steps beside so many ended runs.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Beside {
    pub(crate) archived: u64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) wide_steps_per_second: f64,
    /// Opening the store and starting the runtime, seconds.
    pub(crate) start_seconds: f64,
    /// Writing the ended runs, seconds.
    pub(crate) fill_seconds: f64,
}

/// The cost of step n, over long runs one after the other.
pub(crate) async fn in_run(folder: &Path, echo: &Echo) -> anyhow::Result<Vec<InRun>> {
    let mut bench = Bench::start(folder, &echo.url).await?;
    let mut taken = Vec::new();
    for n in 0..LONG_RUNS {
        let (runtime, name) = (bench.runtime.clone(), format!("long-{n}"));
        submit(runtime, name, CLASS.to_string(), LONG_RUN).await?;
        while let Event::Step(number, time) =
            bench.events.recv().await.context("the runtime stopped")?
        {
            taken.push((number, time));
        }
    }
    bench.runtime.abort().await;
    Ok(AT.iter().map(|at| near(*at, &taken)).collect())
}

fn near(at: u32, taken: &[(u32, Duration)]) -> InRun {
    let near = at.saturating_sub(AROUND)..=at.saturating_add(AROUND);
    let mut times = Times::default();
    let here = taken.iter().filter(|(step, _)| near.contains(step));
    times.extend(here.map(|(_, time)| *time));
    InRun {
        step: at,
        p50_ms: times.percentile(50),
        p99_ms: times.percentile(99),
    }
}

/// The cost of a step without ended runs and beside so many, each in a store of its own.
pub(crate) async fn beside(
    disk: &Path,
    echo: &Echo,
    archived: u64,
    steps: u64,
) -> anyhow::Result<Vec<Beside>> {
    let mut out = Vec::new();
    for archived in [0, archived] {
        let folder = tempfile::tempdir_in(disk)?;
        let filling = now();
        fill(folder.path(), archived).await?;
        let fill_seconds = filling.elapsed().as_secs_f64();
        let starting = now();
        let mut bench = Bench::start(folder.path(), &echo.url).await?;
        let start_seconds = starting.elapsed().as_secs_f64();
        let load = |name: &str, width: usize, steps: u64| Load {
            name: name.to_owned(),
            tool: CLASS.to_string(),
            width,
            span: Span::Steps(steps),
        };
        let (one, many) = (load("narrow", 1, steps / 4), load("wide", WIDE, steps));
        let pids = Pids::default();
        let narrow = measure(&mut bench, &one, &pids, &mut Alone).await?;
        let wide = measure(&mut bench, &many, &pids, &mut Alone).await?;
        bench.runtime.abort().await;
        out.push(Beside {
            archived,
            p50_ms: narrow.times.percentile(50),
            p99_ms: narrow.times.percentile(99),
            wide_steps_per_second: wide.steps_per_second,
            start_seconds,
            fill_seconds,
        });
    }
    Ok(out)
}
