//! `cargo xtask`: the project's own commands. The one test command, the pieces of which `.ci/run` is made, and the bench.

mod borders;
mod cargo;
mod chaos;
mod demo;
mod test;
mod tests_said;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's own commands
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run every test and say which ones could not run here, and why
    Test(test::TestArgs),
    /// Check which crate may depend on which
    Borders,
    /// Run the demo with its kills, check its numbers, and replay what was recorded
    Demo(demo::DemoArgs),
    /// Run the demo on a cluster of three NATS servers, three nodes and four workers, and check its numbers
    DemoCluster(demo::ClusterArgs),
    /// Run the demo with a rule left out, three times: each time it must notice
    Sabotages,
    /// Run the demo on a file with other columns
    ForeignFile(demo::ForeignArgs),
    /// Break a real cluster in seeded ways, and judge what came of it; exit code 3: it has shown too little
    Chaos(chaos::ChaosArgs),
    /// Measure; `bench embedded --help` and `bench nats --help` say what can be chosen
    Bench {
        /// What the bench is given
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "ARGS"
        )]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Test(args) => test::run(&args),
        Command::Borders => borders::run(),
        Command::Demo(args) => demo::run(&args),
        Command::DemoCluster(args) => demo::cluster(&args),
        Command::Sabotages => demo::sabotages(),
        Command::ForeignFile(args) => demo::foreign(&args),
        Command::Chaos(args) => match chaos::run(&args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Bench { arguments } => cargo::run_release("leasehold-bench", &arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
