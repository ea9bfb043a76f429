//! Latency, throughput and CPU time of steps, on every configuration, with few and with many tools.

use leasehold_local::SyncInterval;
use leasehold_tools::SideEffect;

use super::floor::{APPEND, Floor, PUBLISH};
use super::rig::{LONG_TTL, Rig};
use super::{Config, NatsArgs};
use crate::echo::Echo;
use crate::load::{Alone, Load, Measured, Span, measure};
use crate::report::{Report, Row, reached};
use crate::setup::{CLASSES, Declared};
use crate::stats::{Range, Times};

/// Records that a mutation makes durable one after the other: the floor's rate is divided by it.
const RECORDS: f64 = 3.0;
/// G1: most publishes that a step's median may take, and milliseconds, and those of the 99th hundredth.
const G1: (f64, f64, f64) = (4.0, 3.0, 15.0);
/// G2: steps a second on one server and on three, and the part of the floor's third.
const G2: (f64, f64, f64) = (1300.0, 2000.0, 0.85);
/// G3: steps a second of read_only and of remote_mutation, and with how many tools.
const G3: (f64, f64, usize) = (8000.0, 5000.0, 50);
/// G5: milliseconds of CPU time a step.
const G5: f64 = 0.2;
/// The width at which most goals are meant.
const WIDE: usize = 256;

/// All passes of one measurement.
struct Series {
    config: Config,
    /// How many tools are declared.
    tools: usize,
    class: SideEffect,
    width: usize,
    passes: Vec<Measured>,
    /// Floors a second in the same pass, before the steps: publishes.
    floor: Vec<f64>,
    /// What was measured in turns: publishes, appends.
    in_turns: [Times; 2],
}

/// All passes of one floor.
struct FloorSeries {
    config: Config,
    what: &'static str,
    width: usize,
    passes: Vec<Measured>,
}

/// So many tools on one worker. Their names differ from set to set, so that no worker is handed what another one left.
fn declared(count: usize, classes: &[SideEffect]) -> Vec<Declared> {
    let measured = classes.iter().map(|class| Declared {
        name: format!("{class}_{count}"),
        class: *class,
    });
    let others = (classes.len()..count).map(|n| Declared {
        name: format!("other_{n}_{count}"),
        class: SideEffect::ReadOnly,
    });
    measured.chain(others).collect()
}

/// The classes that share a worker: with one tool declared there is one of it for each.
fn sets(count: usize) -> Vec<Vec<SideEffect>> {
    if count < CLASSES.len() {
        CLASSES.iter().map(|class| vec![*class]).collect()
    } else {
        vec![CLASSES.to_vec()]
    }
}

pub(super) async fn measure_all(
    args: &NatsArgs,
    echo: &Echo,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (mut series, mut floors) = (Vec::new(), Vec::new());
    for pass in 1..=args.passes {
        for config in args.configs() {
            eprintln!("{config}: pass {pass} of {}", args.passes);
            let folder = tempfile::tempdir_in(&args.disk)?;
            let rig = Rig::start(*config, folder.path(), args, echo).await?;
            let floor = Floor::new(&rig).await?;
            for count in &args.tools {
                for classes in sets(*count) {
                    let set = Set {
                        args,
                        echo,
                        rig: &rig,
                        floor: &floor,
                        count: *count,
                        classes,
                    };
                    set.measure(&mut series, &mut floors).await?;
                }
            }
            drop(floor);
            rig.down().await?;
        }
    }
    report.floor = floors.iter().map(floor_row).collect();
    report.rows = series.iter().map(row).collect();
    let goals = series.iter().zip(&report.rows);
    report.goals = goals
        .flat_map(|(series, row)| goals_of(series, row))
        .collect();
    Ok(())
}

/// One node and one worker with a set of tools.
struct Set<'a> {
    args: &'a NatsArgs,
    echo: &'a Echo,
    rig: &'a Rig,
    floor: &'a Floor,
    count: usize,
    classes: Vec<SideEffect>,
}

impl Set<'_> {
    async fn measure(
        &self,
        series: &mut Vec<Series>,
        floors: &mut Vec<FloorSeries>,
    ) -> anyhow::Result<()> {
        let (args, rig) = (self.args, self.rig);
        let tools = declared(self.count, &self.classes);
        let name = format!("worker-{}-{}", self.count, self.classes.len());
        let widest = args.widths.iter().copied().max().unwrap_or(1);
        let worker = rig.worker(&name, &tools, widest).await?;
        let mut node = rig.node("node", &tools, LONG_TTL).await?;
        let mut client = rig.client(&tools, &mut node).await?;
        let pids = rig.pids(&[&node, &worker], self.echo)?;
        for width in &args.widths {
            let span = args.span(0.25);
            let publishes = self.floor.publishes(*width, span).await?;
            let appends = self.floor.appends(*width, span).await?;
            let rate = publishes.steps_per_second;
            self.add_floor(floors, PUBLISH, *width, publishes);
            self.add_floor(floors, APPEND, *width, appends);
            for class in &self.classes {
                let load = Load {
                    name: format!("{class}-{}-{width}-{}", self.count, self.classes.len()),
                    tool: format!("{class}_{}", self.count),
                    width: *width,
                    span: Span::Time {
                        warm: args.span(0.5),
                        measured: args.span(1.0),
                    },
                };
                let mut in_turns = self.floor.in_turns()?;
                let measured = if *width == 1 {
                    measure(&mut client.bench, &load, &pids, &mut in_turns).await?
                } else {
                    measure(&mut client.bench, &load, &pids, &mut Alone).await?
                };
                let mine = self.series(series, *class, *width);
                mine.passes.push(measured);
                mine.floor.push(rate);
                for (all, these) in mine.in_turns.iter_mut().zip(&in_turns.times) {
                    all.append(these);
                }
            }
        }
        client.bench.runtime.abort().await;
        node.kill().await?;
        worker.kill().await
    }

    fn add_floor(
        &self,
        floors: &mut Vec<FloorSeries>,
        what: &'static str,
        width: usize,
        measured: Measured,
    ) {
        let config = self.rig.config;
        let found = floors
            .iter_mut()
            .find(|floor| (floor.config, floor.what, floor.width) == (config, what, width));
        match found {
            Some(floor) => floor.passes.push(measured),
            None => floors.push(FloorSeries {
                config,
                what,
                width,
                passes: vec![measured],
            }),
        }
    }

    fn series<'s>(
        &self,
        series: &'s mut Vec<Series>,
        class: SideEffect,
        width: usize,
    ) -> &'s mut Series {
        let key = (self.rig.config, self.count, class, width);
        let place = series
            .iter()
            .position(|its| (its.config, its.tools, its.class, its.width) == key);
        let place = place.unwrap_or(series.len());
        if place == series.len() {
            series.push(Series {
                config: self.rig.config,
                tools: self.count,
                class,
                width,
                passes: Vec::new(),
                floor: Vec::new(),
                in_turns: Default::default(),
            });
        }
        &mut series[place]
    }
}

fn floor_row(floor: &FloorSeries) -> Row {
    Row::of(
        format!("{} {}", floor.config, floor.what),
        floor.width,
        &floor.passes,
    )
}

fn row(series: &Series) -> Row {
    let what = format!("{} {}, {} tools", series.config, series.class, series.tools);
    let mut row = Row::of(what, series.width, &series.passes);
    let passes = series.passes.iter().zip(&series.floor);
    let parts = passes.map(|(pass, floor)| pass.steps_per_second / (floor / RECORDS).max(1.0));
    row.of_third_of_floor = Some(Range::of(parts).median);
    if series.width == 1 {
        let [publishes, appends] = &series.in_turns;
        row = row
            .in_turns_with(PUBLISH, publishes)
            .in_turns_with(APPEND, appends);
    }
    row
}

/// The goals that this measurement says something about.
fn goals_of(series: &Series, row: &Row) -> Vec<String> {
    let mut goals = Vec::new();
    let mut goal = |name: &str, is_reached: bool, figure: String| {
        let (what, width) = (&row.what, row.width);
        goals.push(format!(
            "{name} {}: {what} at c={width}: {figure}",
            reached(is_reached)
        ));
    };
    let is_mutation = series.class == SideEffect::RemoteMutation;
    let Config {
        servers,
        sync,
        shards,
    } = series.config;
    let rate = row.per_second.median;
    let part = row.of_third_of_floor.unwrap_or_default();
    let (p50, p99) = (row.p50_ms, row.p99_ms);
    match (sync, servers, shards, series.width) {
        (SyncInterval::Always, 1, _, 1) if is_mutation => {
            let ratio = row.in_floor(PUBLISH).unwrap_or(f64::INFINITY);
            goal(
                "G1",
                ratio <= G1.0 && p50 <= G1.1 && p99 <= G1.2,
                format!(
                    "p50 {ratio:.1} publishes (at most {}) and {p50:.1} ms (at most {}), p99 {p99:.1} ms (at most {})",
                    G1.0, G1.1, G1.2
                ),
            );
        }
        (SyncInterval::Always, 1, 8, 64 | WIDE) if is_mutation => goal(
            "G2",
            rate >= G2.0 && part >= G2.2,
            format!(
                "{rate:.0} steps/s (at least {}), {part:.2} of floor/3 (at least {})",
                G2.0, G2.2
            ),
        ),
        (SyncInterval::Always, 3, _, WIDE) if is_mutation => goal(
            "G2",
            rate >= G2.1,
            format!("{rate:.0} steps/s (at least {})", G2.1),
        ),
        (SyncInterval::Lazy, 1, _, WIDE) if series.tools == G3.2 => {
            let least = if is_mutation { G3.1 } else { G3.0 };
            goal(
                "G3",
                rate >= least,
                format!("{rate:.0} steps/s (at least {least})"),
            );
        }
        _ => {}
    }
    if series.width == WIDE && is_mutation {
        let cpu = row.cpu_ms.runtime;
        goal(
            "G5",
            cpu <= G5,
            format!("{cpu:.2} ms of CPU time a step in node and worker (at most {G5})"),
        );
    }
    goals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_tools_are_declared_as_is_said() {
        for count in [1, 2, 50] {
            for set in sets(count) {
                assert_eq!(declared(count, &set).len(), count);
            }
        }
    }
}
