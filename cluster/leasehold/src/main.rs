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
#[cfg(feature = "demo")]
mod payments;
mod say;
mod socket;
mod source;
mod table;
mod timeline;
mod variables;
mod view;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use leasehold_protocol::Decision;
use tracing_subscriber::EnvFilter;

use commands::{Context, DATA_FOLDER, DATA_VARIABLE};
use failure::{EXIT_CODES, Exit, Failure};

/// Runs of tool-calling agents that survive their process, and know what their tools did.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, after_help = EXIT_CODES)]
struct Cli {
    /// The data folder
    #[arg(
        long,
        global = true,
        env = DATA_VARIABLE,
        default_value = DATA_FOLDER,
        value_name = "DIR"
    )]
    data: PathBuf,
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
    Dump,
    /// Say who serves the data folder
    Status,
    /// Look at tools files
    #[command(subcommand)]
    Tools(commands::tools::ToolsCommand),
    /// Step recorded machines again and compare their commits
    #[command(hide = true)]
    ReplayInputs(commands::replay::ReplayArgs),
    /// The payments service of the demo
    #[cfg(feature = "demo")]
    #[command(hide = true)]
    Payments(payments::PaymentsArgs),
}

fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let named = matches.value_source("data") == Some(ValueSource::CommandLine);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    log();
    let json = cli.json;
    let exit = match start(cli, named) {
        Ok(exit) => exit,
        Err(failure) => {
            tell(&failure, json);
            failure.exit
        }
    };
    exit.into()
}

/// `named`: the data folder was named on the command line.
fn start(cli: Cli, named: bool) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Failure::broken(format!("the async runtime does not start: {error}")))?;
    let exit = runtime.block_on(run(cli, named));
    // Whoever still reads standard input must not keep the process.
    runtime.shutdown_background();
    exit
}

#[cfg_attr(
    not(feature = "demo"),
    expect(unused_variables, reason = "only the demo cares")
)]
async fn run(cli: Cli, named: bool) -> Result<Exit, Failure> {
    let context = Context {
        folder: &cli.data,
        json: cli.json,
    };
    match cli.command {
        // It wants a folder of its own: the usual one is not meant.
        #[cfg(feature = "demo")]
        Command::Demo(args) => demo::run(named.then_some(context.folder), context.json, args).await,
        Command::Dev(args) => dev::run(context.folder, args).await,
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
        Command::Dump => commands::dump::run(context).await,
        Command::Status => commands::status::run(context).await,
        Command::Tools(command) => commands::tools::run(context, command),
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
