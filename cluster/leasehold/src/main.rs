//! The `leasehold` command: the runtime on a data folder, and everything that is asked of it.
//!
//! Each command is one file under `commands`; `dev` is the runtime; `socket` is how the former reach the latter.

mod commands;
#[cfg(feature = "demo")]
mod demo;
mod dev;
mod failure;
mod known_tools;
mod material;
mod node;
#[cfg(feature = "demo")]
mod payments;
mod place;
mod say;
mod socket;
mod source;
mod stop;
mod table;
mod timeline;
mod variables;
mod view;
mod waiting;
mod worker;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use leasehold_protocol::Decision;
use tracing_subscriber::EnvFilter;

use commands::Context;
use failure::{EXIT_CODES, Exit, Failure};
use place::PlaceArgs;

/// Runs of tool-calling agents that survive their process, and know what their tools did.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    place: PlaceArgs,
    /// Machine-readable output: one line of JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Refund 240 orders while runtime and payments service are killed again and again, and prove that each was paid once
    #[cfg(feature = "demo")]
    Demo(demo::DemoArgs),
    /// Run the runtime on the data folder until it is told to stop
    Dev(dev::DevArgs),
    /// Run a node of a cluster on NATS: it drives runs
    Node(node::NodeArgs),
    /// Run a worker of a cluster on NATS: it executes calls
    Worker(worker::WorkerArgs),
    /// A whole cluster on this machine, and whatever can happen to its processes
    #[command(subcommand)]
    Local(commands::local::LocalCommand),
    /// Submit a run
    Run(commands::run::RunArgs),
    /// List runs
    Runs(commands::runs::RunsArgs),
    /// Show a run: its timeline with evidence, and what to type next
    Show(commands::show::ShowArgs),
    /// List everything that waits for an operator
    Questions,
    /// Permit a call
    Approve(commands::decide::DecideArgs),
    /// Refuse a call: the run ends
    Reject(commands::decide::DecideArgs),
    /// Say what became of an attempt that may have acted
    Resolve(commands::decide::ResolveArgs),
    /// Ask a run to end
    Cancel(commands::cancel::CancelArgs),
    /// Check hash chain and invariants of every journal
    Verify(commands::verify::VerifyArgs),
    /// Write everything stored as lines of JSON
    Dump(commands::dump::DumpArgs),
    /// Say who serves the data folder
    Status,
    /// Write the NATS accounts of nodes, workers, clients and operators, as configuration for nats-server
    Accounts(commands::accounts::AccountsArgs),
    /// Look at tools files
    #[command(subcommand)]
    Tools(commands::tools::ToolsCommand),
    /// Write what a shell completes after `leasehold`
    Completions(commands::completions::CompletionsArgs),
    /// Write the manual pages
    Man(commands::man::ManArgs),
    /// Step recorded machines again and compare their commits
    #[command(hide = true)]
    ReplayInputs(commands::replay::ReplayArgs),
    /// The payments service of the demo
    #[cfg(feature = "demo")]
    #[command(hide = true)]
    Payments(payments::PaymentsArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    log();
    let json = cli.json;
    let exit = match start(cli) {
        Ok(exit) => exit,
        Err(failure) => {
            tell(&failure, json);
            failure.exit
        }
    };
    exit.into()
}

fn start(cli: Cli) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Failure::broken(format!("the async runtime does not start: {error}")))?;
    let exit = runtime.block_on(run(cli));
    // Whoever still reads standard input must not keep the process.
    runtime.shutdown_background();
    exit
}

async fn run(cli: Cli) -> Result<Exit, Failure> {
    let place = cli.place.place()?;
    let context = Context {
        place: &place,
        json: cli.json,
    };
    match cli.command {
        // It wants a folder of its own: the usual one is not meant.
        #[cfg(feature = "demo")]
        Command::Demo(args) => demo::run(cli.place.named_folder(), context.json, args).await,
        Command::Dev(args) => dev::run(place.folder()?, args).await,
        Command::Node(args) => node::run(place.target()?, args).await,
        Command::Worker(args) => worker::run(place.target()?, args).await,
        // The cluster of its folder is meant, wherever else NATS_URL points.
        Command::Local(command) => commands::local::run(context.json, command).await,
        Command::Run(args) => commands::run::run(context, args).await,
        Command::Runs(args) => commands::runs::run(context, args).await,
        Command::Show(args) => commands::show::run(context, args).await,
        Command::Questions => commands::questions::run(context).await,
        Command::Approve(args) => commands::decide::run(context, args, Decision::Approve).await,
        Command::Reject(args) => commands::decide::run(context, args, Decision::Reject).await,
        Command::Resolve(args) => {
            let (args, decision) = args.parts()?;
            commands::decide::run(context, args, decision).await
        }
        Command::Cancel(args) => commands::cancel::run(context, args).await,
        Command::Verify(args) => commands::verify::run(context, args).await,
        Command::Dump(args) => commands::dump::run(context, args).await,
        Command::Status => commands::status::run(context).await,
        Command::Accounts(args) => commands::accounts::run(&args),
        Command::Tools(command) => commands::tools::run(context, command),
        Command::Completions(args) => commands::completions::run(&args),
        Command::Man(args) => commands::man::run(&args),
        Command::ReplayInputs(args) => commands::replay::run(context, args).await,
        #[cfg(feature = "demo")]
        Command::Payments(args) => match payments::run(args).await {
            Ok(()) => Ok(Exit::Done),
            Err(error) => Err(Failure::usage(format!("{error:#}"))),
        },
    }
}

/// Logs go to standard error; `LEASEHOLD_LOG` says how much (for example `info` or `leasehold_actors=debug`).
fn log() {
    let filter =
        EnvFilter::try_from_env("LEASEHOLD_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
}

fn tell(failure: &Failure, json: bool) {
    if failure.message.is_empty() {
        return;
    }
    if json {
        let error =
            serde_json::json!({"error": {"exit": failure.exit as u8, "message": failure.message}});
        say::aside(&error.to_string());
    } else {
        say::aside(&format!("error: {}", failure.message));
    }
}
