//! `leasehold-chaos`: breaks a real cluster in seeded ways while it works, heals it, and judges from outside what came of it.
//!
//! Everything is a process: NATS servers, nodes, workers, each with a proxy between it and whomever it talks to, and the ledger, which is
//! the world that the runtime's tools change. [`schedule`] says what is done when, [`faults`] does it, [`workload`] and [`operators`] are the
//! users, [`mod@exercise`] leads through it, [`verdict`] judges the raw streams against the ledger with the independent checker, [`report`] tells.
//! The suite shares no code with the runtime; it uses the product through its command, as its users do.

mod board;
mod client;
mod clock;
mod exercise;
mod faults;
mod json;
mod ledger;
mod nats;
mod operators;
mod proxy;
mod report;
mod schedule;
mod show;
mod system;
mod tools;
mod verdict;
mod workload;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::{Parser, Subcommand};

use exercise::Plan;
use faults::{Fault, Means};
use schedule::Schedule;
use system::{Folder, System};
use verdict::{Outcome, Verdict};

/// Exit codes, beside 0 for held.
const BROKEN: u8 = 1;
const FAILED: u8 = 2;
const INVALID: u8 = 3;

const EXIT_CODES: &str = "\
Exit codes:
  0  every promise held, and every armed fault took effect
  1  a promise is broken
  2  the exercise itself could not be carried out
  3  invalid: an armed fault never took effect, no run changed hands, or no call was orphaned";

/// Break a real cluster in seeded ways, and judge what came of it
#[derive(Debug, Parser)]
#[command(name = "leasehold-chaos", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Carry an exercise out
    Run(RunArgs),
    /// Print the schedule of an exercise, and do nothing
    Schedule(ScheduleArgs),
    /// List the faults: what each does, how it heals, and what is not done here
    Faults,
    /// The external effect ledger, which the runtime's tools change
    #[command(hide = true)]
    Ledger(ledger::LedgerArgs),
}

#[derive(Debug, Clone, clap::Args)]
struct ScheduleArgs {
    /// What is done when follows from it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long faults are injected, in minutes
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,
    /// NATS servers: 1 or 3
    #[arg(long, default_value_t = 3, value_parser = one_or_three)]
    nats: usize,
    /// Which faults, with commas between them; all that are done here otherwise
    #[arg(long, value_name = "F1,F2", value_delimiter = ',')]
    faults: Vec<Fault>,
}

#[derive(Debug, Clone, clap::Args)]
struct RunArgs {
    #[command(flatten)]
    schedule: ScheduleArgs,
    /// The `leasehold` program
    #[arg(long, value_name = "FILE")]
    leasehold: PathBuf,
    /// Where everything is kept: a folder that is fresh or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print one line of JSON on standard output, and nothing else
    #[arg(long)]
    json: bool,
    /// Have nodes and workers leave out one rule of the protocol: the verdict has to notice
    #[arg(long, value_name = "RULE", value_parser = ["skip-claim", "retry-unknown", "no-seal"])]
    sabotage: Option<String>,
}

fn one_or_three(text: &str) -> Result<usize, String> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        _ => Err("1 or 3".to_owned()),
    }
}

impl ScheduleArgs {
    fn schedule(&self) -> anyhow::Result<Schedule> {
        let length = Duration::try_from_secs_f64((self.minutes * 60.0).round());
        let length = length.context("--minutes is no length of time")?;
        ensure!(!length.is_zero(), "--minutes: there has to be some time");
        let mut armed = match self.faults.is_empty() {
            true => Fault::possible().collect(),
            false => self.faults.clone(),
        };
        armed.sort_unstable();
        armed.dedup();
        // The mix is a mix of something.
        if armed == [Fault::F24] {
            armed = Fault::possible().collect();
        }
        Ok(Schedule::new(
            self.seed,
            length,
            System::shape(self.nats),
            &armed,
        ))
    }
}

fn main() -> ExitCode {
    let done = tokio::runtime::Runtime::new()
        .context("starting the async runtime")
        .and_then(|runtime| {
            let done = runtime.block_on(run(Cli::parse().command));
            runtime.shutdown_background();
            done
        });
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("leasehold-chaos: {error:#}");
            FAILED.into()
        }
    }
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => {
            // Whatever was started ends with the future that started it.
            tokio::select! {
                code = exercise(args) => code,
                stopped = tokio::signal::ctrl_c() => {
                    stopped?;
                    anyhow::bail!("interrupted; nothing is left running")
                }
            }
        }
        Command::Schedule(args) => {
            say(&args.schedule()?.to_string())?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Faults => {
            for fault in Fault::all() {
                say(&match fault.means() {
                    Means::Not(why) => {
                        format!("{fault:<4} {}\n     not done here: {why}", fault.title())
                    }
                    _ => format!(
                        "{fault:<4} {}\n     does: {}\n     heals: {}",
                        fault.title(),
                        fault.does(),
                        fault.heals()
                    ),
                })?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Ledger(args) => ledger::run(args).await.map(|()| ExitCode::SUCCESS),
    }
}

async fn exercise(args: RunArgs) -> anyhow::Result<ExitCode> {
    let what = || format!("preparing {}", args.out.display());
    std::fs::create_dir_all(&args.out).with_context(what)?;
    let out = args.out.canonicalize().with_context(what)?;
    let is_empty = std::fs::read_dir(&out).with_context(what)?.next().is_none();
    ensure!(
        is_empty,
        "{} is not empty: an exercise wants a folder of its own",
        out.display()
    );
    let program = args.leasehold.canonicalize();
    let program = program.with_context(|| format!("finding {}", args.leasehold.display()))?;
    let plan = Plan {
        schedule: args.schedule.schedule()?,
        servers: args.schedule.nats,
        program,
        folder: Folder(out),
        sabotage: args.sabotage,
    };
    eprint!("{}", plan.schedule);
    let done = exercise::run(&plan).await?;
    let verdict = Verdict::of(&plan, &done)?;
    let (json, html) = report::write(&plan, &done, &verdict)?;
    eprintln!("{}\n", report::tables(&verdict));
    for complaint in &verdict.complaints {
        eprintln!("BROKEN: {complaint}");
    }
    for gap in &verdict.gaps {
        eprintln!("NOT SHOWN: {gap}");
    }
    eprintln!("{} and {}", json.display(), html.display());
    let (word, code) = match verdict.outcome {
        Outcome::Held => ("held", 0),
        Outcome::Broken => ("BROKEN", BROKEN),
        Outcome::Invalid => ("INVALID", INVALID),
    };
    match args.json {
        true => say(&report::one_line(&plan, &done, &verdict)?)?,
        false => say(&format!("seed {}: {word}", plan.schedule.seed))?,
    }
    Ok(code.into())
}

fn say(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{text}").context("writing to standard output")
}
