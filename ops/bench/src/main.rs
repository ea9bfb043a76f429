//! `cargo xtask bench`: what a step costs on the embedded store, beside what the disk under it costs, and on NATS, beside what the servers
//! cost.
//!
//! Only a ratio measured side by side counts, so every pass measures the floor (append and `fdatasync`; publish and append) and then the
//! runtime, pass after pass, and the ratios stand beside the figures. The tool runs in another process: an HTTP service that answers with
//! what it is sent.

mod archive;
mod children;
mod echo;
mod embedded;
mod events;
mod floor;
mod growth;
mod load;
mod nats;
mod report;
mod setup;
mod stats;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::runtime::Builder;

/// Measures the runtime against the disk or the servers it runs on
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The embedded store: the floor, steps at several widths, and growth
    Embedded(EmbeddedArgs),
    /// Real nats-servers: the floor, steps at several widths, fail-over, idle cost; a few minutes, --passes 3 --seconds 10 for an hour
    Nats(nats::NatsArgs),
    /// The tool: a service that answers with what it is sent
    #[command(hide = true)]
    Echo,
    /// A node, or a worker
    #[command(hide = true)]
    Process(nats::ProcessArgs),
}

impl Command {
    fn runtime(&self) -> std::io::Result<tokio::runtime::Runtime> {
        let mut builder = match self {
            Command::Process(args) if args.threads == 1 => Builder::new_current_thread(),
            Command::Process(args) if args.threads > 1 => {
                let mut builder = Builder::new_multi_thread();
                builder.worker_threads(args.threads);
                builder
            }
            _ => Builder::new_multi_thread(),
        };
        builder.enable_all().build()
    }
}

/// Arguments of `bench embedded`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct EmbeddedArgs {
    /// How often everything is measured, in turns
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    passes: u32,
    /// How many runs are driven side by side
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256")]
    widths: Vec<usize>,
    /// How many steps each of these measurements takes at least
    #[arg(long, default_value_t = 4000)]
    steps: u64,
    /// How many ended runs lie in the store when growth is measured; 1000000 takes some minutes and gigabytes
    #[arg(long, default_value_t = 100_000)]
    archived: u64,
    /// Leave out growth
    #[arg(long)]
    no_growth: bool,
    /// Where the data folders are made: the disk that is measured
    #[arg(long, value_name = "DIR", default_value = "target")]
    disk: PathBuf,
    /// One line of JSON at the end
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = cli
        .command
        .runtime()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| {
            runtime.block_on(async {
                match cli.command {
                    Command::Embedded(args) => embedded::run(&args).await,
                    Command::Nats(args) => nats::run(&args).await,
                    Command::Echo => echo::serve().await,
                    Command::Process(args) => nats::serve(&args).await,
                }
            })
        });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
