//! `bench embedded`: the passes, in turns.

use std::fs;

use anyhow::Context as _;
use leasehold_tools::SideEffect;

use crate::EmbeddedArgs;
use crate::echo::Echo;
use crate::floor::{Floor, FloorTimes};
use crate::growth;
use crate::load::{Alone, Load, Measured, Pids, Span, measure};
use crate::report::{Report, Row, reached};
use crate::setup::{Bench, CLASSES};

/// Durable writes of the floor in each pass, besides those that alternate with the steps.
const FLOOR_WRITES: u64 = 500;

/// The goal for one step at a time: at most so many durable writes, because three follow each other.
const GOAL_P50_IN_FSYNCS: f64 = 4.0;
/// The goal for many side by side, steps a second.
const GOAL_STEPS: f64 = 5000.0;
/// The width at which that goal is meant.
const GOAL_WIDTH: usize = 256;
/// The floor that goals are held against.
const OVERWRITE: &str = "overwrite";

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
    let pids = Pids {
        runtime: vec![std::process::id()],
        tool: vec![echo.pid()?],
        server: Vec::new(),
    };
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
            let is_alone = series.width == 1;
            let load = Load {
                name: "run".to_owned(),
                tool: series.class.to_string(),
                width: series.width,
                // One at a time takes longer and needs fewer to say the same.
                span: Span::Steps(if is_alone { args.steps / 4 } else { args.steps }),
            };
            let measured = if is_alone {
                let mut in_turns = (&mut floor, &mut series.floor);
                measure(&mut bench, &load, &pids, &mut in_turns).await?
            } else {
                measure(&mut bench, &load, &pids, &mut Alone).await?
            };
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
        ..Report::default()
    };
    report.goals = report.rows.iter().flat_map(goals).collect();
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
    let row = Row::of(series.class.to_string(), series.width, &series.passes);
    if series.floor.is_empty() {
        return row;
    }
    row.in_turns_with("append", &series.floor.append)
        .in_turns_with(OVERWRITE, &series.floor.overwrite)
}

fn goals(row: &Row) -> Vec<String> {
    let mut goals = Vec::new();
    if let Some(ratio) = row.in_floor(OVERWRITE) {
        goals.push(format!(
            "G4 {}: {} at c=1: p50 is {ratio:.1} times overwrite + fdatasync, at most {GOAL_P50_IN_FSYNCS}",
            reached(ratio <= GOAL_P50_IN_FSYNCS),
            row.what
        ));
    }
    if row.width == GOAL_WIDTH {
        let part = row.per_second.median / GOAL_STEPS;
        goals.push(format!(
            "G4 {}: {} at c={GOAL_WIDTH}: {part:.2} of {GOAL_STEPS} steps/s",
            reached(part >= 1.0),
            row.what
        ));
    }
    goals
}
