//! The chaos suite, built and started: `cargo xtask chaos`.
//!
//! What it says is passed through; its exit code becomes this program's own, so that a run that has shown too little is not taken for one
//! that failed.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context as _;

use crate::cargo::build_release;
use crate::demo::fresh_folder;

/// Arguments of `cargo xtask chaos`.
#[derive(Debug, clap::Args)]
pub(crate) struct ChaosArgs {
    /// What is done when follows from it
    #[arg(long, default_value = "1")]
    seed: String,
    /// How long faults are injected, in minutes
    #[arg(long, default_value = "2")]
    minutes: String,
    /// NATS servers: 1 or 3
    #[arg(long, default_value = "3")]
    nats: String,
    /// Which faults, with commas between them; all that are done here otherwise
    #[arg(long, value_name = "F1,F2")]
    faults: Option<String>,
    /// Print one line of JSON on standard output, and nothing else
    #[arg(long)]
    json: bool,
    /// Where everything is kept [default: xtask/chaos in the target folder, emptied first]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &ChaosArgs) -> anyhow::Result<ExitCode> {
    let leasehold = build_release("leasehold-cli", "leasehold")?;
    let chaos = build_release("leasehold-chaos", "leasehold-chaos")?;
    let out = match &args.out {
        Some(out) => out.clone(),
        None => fresh_folder("chaos")?,
    };
    let mut command = Command::new(&chaos);
    command
        .env("LEASEHOLD_COMMIT", commit())
        .args(["run", "--seed", &args.seed, "--minutes", &args.minutes])
        .args(["--nats", &args.nats])
        .arg("--leasehold")
        .arg(leasehold)
        .arg("--out")
        .arg(out)
        .stdin(Stdio::null());
    if let Some(faults) = &args.faults {
        command.args(["--faults", faults]);
    }
    if args.json {
        command.arg("--json");
    }
    let status = command
        .status()
        .with_context(|| format!("starting {}", chaos.display()))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// What is built, for the report; a tree without git has no name.
fn commit() -> String {
    let described = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .stdin(Stdio::null())
        .output();
    let described = described.ok().filter(|output| output.status.success());
    described.map_or_else(
        || "a tree without git".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
