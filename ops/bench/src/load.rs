//! Steps at a width: so many runs of ten steps side by side, a new one for each that completes.

use anyhow::Context as _;
use leasehold_actors::Until;
use leasehold_tools::SideEffect;
use tokio::task::JoinSet;

use crate::floor::{Floor, FloorTimes};
use crate::setup::{Bench, submit};
use crate::stats::{Times, cpu_seconds, now};

/// Steps of one run: as many as in the figures of the peers.
pub(crate) const STEPS_PER_RUN: u32 = 10;

/// What one measurement gave.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    pub(crate) steps_per_second: f64,
    pub(crate) times: Times,
    /// Milliseconds of CPU time a step, of the runtime's process.
    pub(crate) runtime_cpu_ms: f64,
    /// The same of the tool's process.
    pub(crate) tool_cpu_ms: f64,
}

/// Takes at least so many steps, `width` runs at a time. At width 1 a pause after each run is used for as many durable writes of the floor,
/// so that both see the same disk.
pub(crate) async fn measure(
    bench: &mut Bench,
    name: &str,
    class: SideEffect,
    width: usize,
    steps: u64,
    tool: Option<u32>,
    mut floor: Option<(&mut Floor, &mut FloorTimes)>,
) -> anyhow::Result<Measured> {
    let runs = (steps / u64::from(STEPS_PER_RUN)).max(width as u64);
    let cpu = |pid: Option<u32>| pid.and_then(cpu_seconds).unwrap_or_default();
    let own = Some(std::process::id());
    let (own_before, tool_before) = (cpu(own), cpu(tool));
    bench.take_steps();
    let mut spent = std::time::Duration::ZERO;
    let mut start = now();
    // Clients do not wait for each other.
    let mut submitting = JoinSet::new();
    let mut submitted = 0;
    let mut next = |submitting: &mut JoinSet<_>| {
        if submitted < runs {
            let run = format!("{name}-{submitted}");
            submitting.spawn(submit(bench.runtime.clone(), run, class, STEPS_PER_RUN));
            submitted += 1;
        }
    };
    for _ in 0..width {
        next(&mut submitting);
    }
    let mut completed = Vec::new();
    while (completed.len() as u64) < runs {
        tokio::select! {
            Some(answer) = submitting.join_next() => { answer??; }
            run = bench.completing.recv() => {
                let run = run.context("the runtime stopped")?;
                if let Some((floor, times)) = &mut floor {
                    bench.runtime.wait(&run, Until::Ended).await?;
                    spent += start.elapsed();
                    floor.write(u64::from(STEPS_PER_RUN), times)?;
                    start = now();
                }
                completed.push(run);
                next(&mut submitting);
            }
        }
    }
    for run in completed.iter().rev().take(width) {
        bench.runtime.wait(run, Until::Ended).await?;
    }
    spent += start.elapsed();
    let taken = bench.take_steps();
    let count = taken.len() as f64;
    let mut times = Times::default();
    times.extend(taken.into_iter().map(|(_, time)| time));
    Ok(Measured {
        steps_per_second: count / spent.as_secs_f64(),
        times,
        runtime_cpu_ms: (cpu(own) - own_before) * 1e3 / count,
        tool_cpu_ms: (cpu(tool) - tool_before) * 1e3 / count,
    })
}
