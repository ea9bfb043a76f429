//! `leasehold demo`: 240 refunds while the runtime and the payments service are killed again and again, and the proof that each customer
//! was paid exactly once.
//!
//! The demo drives the runtime from outside only: as child processes, as its clients do, with signals. The runtime is a [`scene`]: one
//! process on a data folder, or with `--cluster` a cluster on NATS. [`plan`] says what is killed and when, [`job`] does it, [`operator`]
//! plays the people. What comes of it is then judged from the payments database and a raw dump of
//! everything stored, by a checker that shares no code with the runtime; [`report`] turns that into sentences, a table and an exit code.

mod board;
mod books;
mod children;
mod clerk;
mod cluster;
mod dev;
mod job;
mod members;
mod operator;
mod orders;
mod plan;
mod report;
mod scene;
mod servers;
mod show;

pub(crate) use clerk::RefundClerk;

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use leasehold_actors::{Clock as _, SystemClock};
use leasehold_checker::Report;
use leasehold_protocol::OperatorId;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::failure::{Exit, Failure};
use crate::payments::ColumnMap;
use crate::say;
use crate::stop::Signals;
use board::Board;
use books::Books;
use children::{Folder, Payments, run_to_file};
use cluster::Cluster;
use dev::Dev;
use job::Work;
use operator::{Operator, Troubles, Withdrawals};
use orders::Job;
use plan::{Made, Plan};
use report::{Outcome, Shown};
use scene::{Scene, Tally, Who};
use show::Show;

const ORDERS: &str = include_str!("../../../../examples/refund-desk/orders.csv");
const TOOLS: &str = include_str!("../../../../examples/refund-desk/tools.toml");
const POLICY: &str = include_str!("../../../../examples/refund-desk/policy.toml");

/// Kills of a demo, and from how many on each way of resolution has to have occurred.
const KILLS: usize = 40;
/// Kills of a demo on a cluster, and from how many on takeovers and orphans have to have occurred. Fewer, because each costs seconds: a
/// session has to lapse, or an election to be over.
const CLUSTER_KILLS: usize = 30;
const TELLING_KILLS: usize = 8;
/// Kills and orders of a demo whose rules are left out on purpose: it only has to go wrong once.
const SABOTAGED_KILLS: usize = 12;
const SABOTAGED_ORDERS: usize = 60;

/// Arguments of `leasehold demo`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DemoArgs {
    /// What is killed and when follows from it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// On a cluster: three NATS servers, three nodes and four workers, which are killed and paused
    #[arg(long)]
    cluster: bool,
    /// How many kills with SIGKILL, of runtime and payments service together [default: 40; 30 with --cluster; 12 with --sabotage]
    #[arg(long)]
    kills: Option<usize>,
    /// Orders of your own, as a CSV file with a header row
    #[arg(long, value_name = "FILE")]
    orders: Option<PathBuf>,
    /// Which columns of that file mean what
    #[arg(
        long,
        default_value = "",
        value_name = "id=COLUMN,customer=COLUMN,amount=COLUMN"
    )]
    map: ColumnMap,
    /// Leave out one rule of the protocol: the demo has to notice (takes the first 60 orders)
    #[arg(long, value_parser = ["skip-claim", "retry-unknown", "no-seal"])]
    sabotage: Option<String>,
    /// Keep the data folder
    #[arg(long)]
    keep: bool,
    /// Record every input of every run's machine in this file, and replay it at the end
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// Runs the demo in a folder that is fresh or empty; without one, in a temporary folder that is removed again.
pub(crate) async fn run(
    folder: Option<&Path>,
    json: bool,
    args: DemoArgs,
) -> Result<Exit, Failure> {
    let given = folder.is_some();
    let folder = prepare(folder, &args).map_err(failed)?;
    say::aside(&format!("data: {}", folder.0.display()));
    let demo = Demo { folder, json, args };
    let mut signals = Signals::new()?;
    // Whatever was started ends with the future that started it.
    let exit = tokio::select! {
        exit = demo.run() => exit.map_err(failed),
        name = signals.next() => Err(Failure::broken(format!("{name}: stopped; nothing is left running"))),
    };
    let remove = !given && !demo.args.keep && matches!(exit, Ok(Exit::Done));
    if remove {
        // What cannot be removed is only a temporary folder.
        let _ = fs::remove_dir_all(&demo.folder.0);
    } else {
        say::aside(&format!("kept: {}", demo.folder.0.display()));
    }
    exit
}

fn failed(error: anyhow::Error) -> Failure {
    Failure::broken(format!("{error:#}"))
}

/// Makes the folder and puts the example's files into it.
fn prepare(folder: Option<&Path>, args: &DemoArgs) -> anyhow::Result<Folder> {
    let folder = match folder {
        Some(folder) => folder.to_owned(),
        None => std::env::temp_dir().join(format!(
            "leasehold-demo-{}-{}",
            std::process::id(),
            SystemClock.now().wall
        )),
    };
    let what = || format!("preparing the folder {}", folder.display());
    fs::create_dir_all(&folder).with_context(what)?;
    let folder = folder.canonicalize().with_context(what)?;
    let empty = fs::read_dir(&folder).with_context(what)?.next().is_none();
    ensure!(
        empty,
        "{} is not empty: the demo wants a folder of its own; name another one with --data",
        folder.display()
    );
    let folder = Folder(folder);
    for (path, text) in [(folder.tools(), TOOLS), (folder.policy(), POLICY)] {
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    if args.orders.is_none() {
        fs::write(folder.orders(), ORDERS)
            .with_context(|| format!("writing {}", folder.orders().display()))?;
    }
    Ok(folder)
}

struct Demo {
    folder: Folder,
    json: bool,
    args: DemoArgs,
}

/// What is left when the children are gone.
struct Done {
    scene: Box<dyn Scene>,
    kills: Tally,
    pauses: Tally,
    troubles: Vec<String>,
    seconds: f64,
}

impl Demo {
    async fn run(&self) -> anyhow::Result<Exit> {
        let sabotaged = self.args.sabotage.is_some();
        let kills = self.args.kills.unwrap_or(match (sabotaged, self.made()) {
            (true, _) => SABOTAGED_KILLS,
            (false, Made::OneProcess) => KILLS,
            (false, Made::Cluster) => CLUSTER_KILLS,
        });
        let orders = self
            .args
            .orders
            .clone()
            .unwrap_or_else(|| self.folder.orders());
        let most = (sabotaged && self.args.orders.is_none()).then_some(SABOTAGED_ORDERS);
        let job = Job::read(&orders, &self.args.map, most)?;
        let plan = Plan::new(self.made(), self.args.seed, kills, &job.traits());
        let mut done = self.work(&job, &plan, &orders, kills).await?;
        let report = self
            .check(&job, done.scene.as_ref(), &mut done.troubles)
            .await?;
        let last = Troubles::default();
        done.scene.down(&last).await?;
        done.troubles.extend(last.take());
        let paid = Books::open(&self.folder.books())?.paid()?;
        let outcome = Outcome {
            job: &job,
            report: &report,
            paid: &paid,
            kills: done.kills,
            pauses: done.pauses,
            planned: kills,
            shown: match self.made() {
                Made::OneProcess if kills >= KILLS => Shown::EveryWay,
                Made::Cluster if kills >= TELLING_KILLS => Shown::TakeoversAndOrphans,
                Made::OneProcess | Made::Cluster => Shown::Anything,
            },
            troubles: done.troubles,
            seed: self.args.seed,
            seconds: done.seconds,
        };
        self.tell(&outcome)
    }

    /// Children, people and plan, from the first order to the last.
    async fn work(
        &self,
        job: &Job,
        plan: &Plan,
        orders: &Path,
        kills: usize,
    ) -> anyhow::Result<Done> {
        let began = Instant::now();
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let payments = Payments::start(&self.folder, orders, &self.args.map, &tasks).await?;
        let scene = self.scene(plan, payments.address(), &tasks).await?;
        let place = scene.place();
        let (board, troubles, withdrawals) =
            (Board::new(), Troubles::default(), Withdrawals::default());
        let (arrivals, arriving) = mpsc::unbounded_channel();
        let me = OperatorId::new("operator")?;
        let operator = Operator::new(
            place.clone(),
            self.folder.books(),
            board.clone(),
            withdrawals.clone(),
            troubles.clone(),
            me,
        );
        tasks.spawn(
            stop.clone()
                .run_until_cancelled_owned(board.clone().follow(place.clone())),
        );
        tasks.spawn(stop.clone().run_until_cancelled_owned(operator::client(
            place,
            arriving,
            board.clone(),
            troubles.clone(),
        )));
        tasks.spawn(stop.clone().run_until_cancelled_owned(operator.work()));
        let mut work = Work {
            job,
            scene,
            payments,
            changes: board.changes(),
            board,
            arrivals,
            withdrawals,
            troubles: troubles.clone(),
            show: Show::new(job.orders.len(), kills),
            kills: Tally::of(self.kinds()),
            pauses: Tally::default(),
            deaths_due: 0,
            told: Vec::new(),
        };
        let ended = work.through(plan).await;
        work.show.done();
        stop.cancel();
        ended?;
        let told = self.folder.0.join("kills.txt");
        for (run, why) in work.board.look(|seen| seen.stuck.clone()) {
            troubles.add(format!("run {run} was left alone by the runtime: {why}"));
        }
        work.scene.stop(&troubles).await?;
        let lines = work.told.iter().chain(work.scene.diary());
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        fs::write(&told, text).with_context(|| format!("writing {}", told.display()))?;
        work.payments.kill().await?;
        tasks.close();
        tasks.wait().await;
        Ok(Done {
            scene: work.scene,
            kills: work.kills,
            pauses: work.pauses,
            troubles: troubles.take(),
            seconds: began.elapsed().as_secs_f64(),
        })
    }

    fn made(&self) -> Made {
        if self.args.cluster {
            Made::Cluster
        } else {
            Made::OneProcess
        }
    }

    /// What is killed.
    fn kinds(&self) -> &'static [Who] {
        match self.made() {
            Made::OneProcess => &[Who::Runtime, Who::Payments],
            Made::Cluster => &[Who::Nodes, Who::Workers, Who::Servers, Who::Payments],
        }
    }

    /// The runtime, started.
    async fn scene(
        &self,
        plan: &Plan,
        payments: SocketAddr,
        tasks: &TaskTracker,
    ) -> anyhow::Result<Box<dyn Scene>> {
        let sabotage = self.args.sabotage.clone();
        let stall = |who| job::stall(&plan.stages, who);
        if self.args.cluster {
            let setting = members::Setting {
                folder: self.folder.clone(),
                payments,
                sabotage,
                record: self.record().is_some(),
            };
            let cluster = Cluster::start(setting, self.args.seed, stall, tasks).await?;
            return Ok(Box::new(cluster));
        }
        let setting = dev::Setting {
            folder: self.folder.clone(),
            payments,
            sabotage,
            record: self.record(),
        };
        let dev = Dev::start(setting, stall(Who::Runtime), tasks).await?;
        Ok(Box::new(dev))
    }

    /// Where inputs are recorded, if at all.
    fn record(&self) -> Option<PathBuf> {
        let kept = self.args.keep.then(|| self.folder.0.join("inputs.jsonl"));
        self.args.record.clone().or(kept)
    }

    /// Dumps what is stored and has it checked: by the independent checker, by the runtime's own `verify`, and by a replay.
    async fn check(
        &self,
        job: &Job,
        scene: &dyn Scene,
        troubles: &mut Vec<String>,
    ) -> anyhow::Result<Report> {
        let command = |command: &str, more: Vec<OsString>| -> Vec<OsString> {
            let command = std::iter::once(OsString::from(command));
            command.chain(scene.reach()).chain(more).collect()
        };
        let logbooks = scene.logbooks();
        let logbooks = logbooks.into_iter();
        let logbooks = logbooks.flat_map(|folder| ["--logbook".into(), folder.into()]);
        if !run_to_file(&command("dump", logbooks.collect()), &self.folder.dump()).await? {
            troubles.push("the dump of what is stored failed".to_owned());
        }
        let verified = self.folder.0.join("verify.txt");
        if !run_to_file(&command("verify", Vec::new()), &verified).await? {
            troubles.push(format!(
                "`leasehold verify` found broken invariants: see {}",
                verified.display()
            ));
        }
        if let Some(record) = self.record() {
            scene
                .gather(&record)
                .with_context(|| format!("writing {}", record.display()))?;
            let replayed = self.folder.0.join("replay.txt");
            if !run_to_file(&command("replay-inputs", vec![record.into()]), &replayed).await? {
                troubles.push(format!(
                    "a replay of the recorded inputs gave other commits: see {}",
                    replayed.display()
                ));
            }
        }
        let submitted: Vec<String> = job.orders.iter().map(orders::OrderOf::run).collect();
        let (dump, books) = (self.folder.dump(), self.folder.books());
        tokio::task::spawn_blocking(move || leasehold_checker::check(&dump, &books, &submitted))
            .await?
    }

    fn tell(&self, outcome: &Outcome<'_>) -> anyhow::Result<Exit> {
        let complaints = outcome.complaints();
        // With --json standard output has nothing but the last line.
        let show = |text: &str| {
            if self.json {
                say::aside(text)
            } else {
                drop(say::line(text))
            }
        };
        show(&outcome.table());
        if let Some(orphan) = outcome.story() {
            show(&format!(
                "\nOne orphan: run {}, step {}, attempt {} ({})",
                orphan.run,
                orphan.step,
                orphan.attempt,
                orphan.resolved.replace('_', " ")
            ));
            for line in leasehold_checker::timeline(&self.folder.dump(), &orphan.run)? {
                show(&line);
            }
        }
        let verdict = match complaints.len() {
            0 => format!("\nEverything adds up, after {:.0} s.", outcome.seconds),
            _ => format!("\nNot everything adds up:\n  {}", complaints.join("\n  ")),
        };
        show(&verdict);
        let exit = if complaints.is_empty() {
            Exit::Done
        } else {
            Exit::Broken
        };
        if self.json {
            say::line(&outcome.line(complaints)?)?;
        }
        Ok(exit)
    }
}
