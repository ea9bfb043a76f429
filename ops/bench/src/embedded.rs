//! `bench embedded`: the passes, in turns.

use std::fs;

use anyhow::Context as _;
use leasehold_tools::SideEffect;

use crate::EmbeddedArgs;
use crate::echo::Echo;
use crate::floor::{Floor, FloorTimes};
use crate::growth;
use crate::load::{Measured, measure};
use crate::report::{InTurns, Report, Row};
use crate::setup::{Bench, CLASSES};
use crate::stats::{Range, Times};

/// Durable writes of the floor in each pass, besides those that alternate with the steps.
const FLOOR_WRITES: u64 = 500;

/// All passes of one class at one width.
struct Series {
    class: SideEffect,
    width: usize,
    passes: Vec<Measured>,
    /// Writes of the floor that alternated with these steps.
    floor: FloorTimes,
}

pub(crate) async fn run(args: &EmbeddedArgs) -> anyhow::Result<()> {
    fs::create_dir_all(&args.disk).with_context(|| args.disk.display().to_string())?;
    let echo = Echo::start().await?;
    let mut floor_times = FloorTimes::default();
    let mut series: Vec<Series> = CLASSES
        .iter()
        .flat_map(|class| {
            args.widths.iter().map(|width| Series {
                class: *class,
                width: *width,
                passes: Vec::new(),
                floor: FloorTimes::default(),
            })
        })
        .collect();
    for pass in 1..=args.passes {
        eprintln!("pass {pass} of {}", args.passes);
        let folder = tempfile::tempdir_in(&args.disk)?;
        let mut floor = Floor::new(folder.path())?;
        floor.write(FLOOR_WRITES, &mut floor_times)?;
        for (n, series) in series.iter_mut().enumerate() {
            // Each starts on an empty store, so that none pays for what another has left behind.
            let data = folder.path().join(n.to_string());
            let mut bench = Bench::start(&data, &echo.url).await?;
            let alternating = (series.width == 1).then_some((&mut floor, &mut series.floor));
            // One at a time takes longer and needs fewer to say the same.
            let steps = if series.width == 1 {
                args.steps / 4
            } else {
                args.steps
            };
            let measured = measure(
                &mut bench,
                "run",
                series.class,
                series.width,
                steps,
                echo.pid(),
                alternating,
            )
            .await?;
            bench.runtime.abort().await;
            series.passes.push(measured);
        }
    }
    let mut report = Report {
        floor: vec![
            Row::floor("append + fdatasync", &floor_times.append),
            Row::floor("overwrite + fdatasync", &floor_times.overwrite),
        ],
        rows: series.iter().map(row).collect(),
        in_run: Vec::new(),
        beside: Vec::new(),
    };
    if !args.no_growth {
        eprintln!("growth in a run");
        let folder = tempfile::tempdir_in(&args.disk)?;
        report.in_run = growth::in_run(folder.path(), &echo).await?;
        eprintln!("growth beside {} ended runs", args.archived);
        report.beside = growth::beside(&args.disk, &echo, args.archived, args.steps).await?;
    }
    report.tell(args.json)
}

fn row(series: &Series) -> Row {
    let mut times = Times::default();
    for pass in &series.passes {
        times.append(&pass.times);
    }
    let over = |of: fn(&Measured) -> f64| Range::of(series.passes.iter().map(of));
    Row {
        what: series.class.to_string(),
        width: series.width,
        per_second: over(|pass| pass.steps_per_second),
        p50_ms: times.percentile(50),
        p99_ms: times.percentile(99),
        runtime_cpu_ms: over(|pass| pass.runtime_cpu_ms).median,
        tool_cpu_ms: over(|pass| pass.tool_cpu_ms).median,
        floor: (!series.floor.is_empty()).then(|| InTurns {
            append_p50_ms: series.floor.append.percentile(50),
            overwrite_p50_ms: series.floor.overwrite.percentile(50),
        }),
    }
}
