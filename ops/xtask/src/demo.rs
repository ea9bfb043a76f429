//! The demo as CI runs it: its numbers are read and checked here a second time, its recording is replayed, and its negative controls have
//! to be noticed for the right reason.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use crate::cargo::{build_release, metadata, parse};

/// Ways in which an orphan that may have acted can be resolved; a run of the demo that misses one has shown too little.
const WAYS: [&str; 6] = [
    "adopted_outcome",
    "tombstone",
    "revoked",
    "probe_done",
    "probe_not_done",
    "operator",
];
/// The rules that are left out, one at a time.
const SABOTAGES: [&str; 3] = ["skip-claim", "retry-unknown", "no-seal"];
/// The seed and the kills of which the demo promises that every way occurs.
const SEED: &str = "1";
const KILLS: &str = "40";
/// The kills of the demo on a cluster: enough for every kind of process, few enough for CI.
const CLUSTER_KILLS: &str = "10";
/// The runtime's data folder inside the demo's.
const RUNTIME: &str = "runtime";
/// How the demo ends when it has run and something does not add up; another code means that it did not get so far.
const DOES_NOT_ADD_UP: i32 = 1;

/// Arguments of `cargo xtask demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// The seed
    #[arg(long, default_value = SEED)]
    seed: String,
    /// How many kills
    #[arg(long, default_value = KILLS)]
    kills: String,
}

/// Arguments of `cargo xtask demo-cluster`.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    /// The seed
    #[arg(long, default_value = SEED)]
    seed: String,
    /// How many kills
    #[arg(long, default_value = CLUSTER_KILLS)]
    kills: String,
}

/// Arguments of `cargo xtask foreign-file`.
#[derive(Debug, clap::Args)]
pub(crate) struct ForeignArgs {
    /// The file
    #[arg(long, value_name = "FILE")]
    orders: PathBuf,
    /// Which of its columns are which
    #[arg(long, default_value = "id=invoice_id,customer=customer,amount=total")]
    map: String,
}

/// One finished demo.
struct Ran {
    status: ExitStatus,
    line: Value,
}

pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<()> {
    let leasehold = build_release("leasehold-cli", "leasehold")?;
    let folder = fresh_folder("demo")?;
    let data = folder.join("data");
    let recording = folder.join("recording.jsonl");
    let ran = demo(
        &leasehold,
        &data,
        &[
            "--seed".as_ref(),
            args.seed.as_ref(),
            "--kills".as_ref(),
            args.kills.as_ref(),
            "--record".as_ref(),
            recording.as_os_str(),
        ],
    )?;
    adds_up(&ran)?;
    if (args.seed.as_str(), args.kills.as_str()) == (SEED, KILLS) {
        for way in WAYS {
            ensure!(
                count(&ran.line["resolved"], way)? > 0,
                "no orphan was resolved by way of {way}"
            );
        }
    }
    replay(&leasehold, &data.join(RUNTIME), &recording)
}

/// The demo on a cluster, recorded; it replays its recording itself.
pub(crate) fn cluster(args: &ClusterArgs) -> anyhow::Result<()> {
    let leasehold = build_release("leasehold-cli", "leasehold")?;
    let folder = fresh_folder("cluster")?;
    let recording = folder.join("recording.jsonl");
    let ran = demo(
        &leasehold,
        &folder.join("data"),
        &[
            "--cluster".as_ref(),
            "--seed".as_ref(),
            args.seed.as_ref(),
            "--kills".as_ref(),
            args.kills.as_ref(),
            "--record".as_ref(),
            recording.as_os_str(),
        ],
    )?;
    adds_up(&ran)?;
    for what in ["takeovers", "orphans"] {
        ensure!(count(&ran.line, what)? > 0, "there were no {what}");
    }
    for kind in ["nodes", "workers", "servers", "payments"] {
        let killed = count(&ran.line["kills_of"], kind)?;
        ensure!(killed > 0, "none of the {kind} was killed");
    }
    Ok(())
}

pub(crate) fn sabotages() -> anyhow::Result<()> {
    let leasehold = build_release("leasehold-cli", "leasehold")?;
    for sabotage in SABOTAGES {
        let folder = fresh_folder(sabotage)?;
        let ran = demo(
            &leasehold,
            &folder,
            &[
                "--seed".as_ref(),
                SEED.as_ref(),
                "--sabotage".as_ref(),
                sabotage.as_ref(),
            ],
        )?;
        ensure!(
            ran.status.code() == Some(DOES_NOT_ADD_UP),
            "the demo with {sabotage} ended with {} instead of noticing",
            ran.status
        );
        let duplicates = count(&ran.line, "duplicates")?;
        let mut broken: Vec<&str> = ran.line["violations"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|violation| violation["invariant"].as_str())
            .collect();
        broken.sort_unstable();
        broken.dedup();
        ensure!(
            duplicates > 0 || !broken.is_empty(),
            "the demo with {sabotage} failed for another reason: {}",
            ran.line
        );
        println!("{sabotage}: noticed: {duplicates} duplicates, broken invariants: {broken:?}");
    }
    Ok(())
}

pub(crate) fn foreign(args: &ForeignArgs) -> anyhow::Result<()> {
    let leasehold = build_release("leasehold-cli", "leasehold")?;
    let folder = fresh_folder("foreign")?;
    let ran = demo(
        &leasehold,
        &folder,
        &[
            "--orders".as_ref(),
            args.orders.as_os_str(),
            "--map".as_ref(),
            args.map.as_ref(),
        ],
    )?;
    adds_up(&ran)
}

/// Runs the demo and reads the last line that it prints.
fn demo(leasehold: &Path, folder: &Path, arguments: &[&std::ffi::OsStr]) -> anyhow::Result<Ran> {
    let output = Command::new(leasehold)
        .arg("--data")
        .arg(folder)
        .args(["demo", "--json"])
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("starting the demo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    println!("{last}");
    let line = parse(last.as_bytes())
        .with_context(|| format!("the demo ended with {} and no result", output.status))?;
    Ok(Ran {
        status: output.status,
        line,
    })
}

/// The demo says that all is well, and its numbers say so too.
fn adds_up(ran: &Ran) -> anyhow::Result<()> {
    let line = &ran.line;
    ensure!(ran.status.success(), "the demo ended with {}", ran.status);
    ensure!(count(line, "duplicates")? == 0, "there are duplicates");
    ensure!(count(line, "lost")? == 0, "there are lost refunds");
    ensure!(
        count(line, "applied")? == count(line, "expected")?,
        "expected and applied refunds differ"
    );
    let mut runs = 0;
    for state in ["completed", "failed", "cancelled", "waiting", "running"] {
        runs += count(&line["runs"], state)?;
    }
    ensure!(
        runs == count(line, "orders")?,
        "the runs do not add up to the orders"
    );
    Ok(())
}

fn count(line: &Value, field: &str) -> anyhow::Result<u64> {
    let count = line[field].as_u64();
    count.with_context(|| format!("the result has no number {field}"))
}

fn replay(leasehold: &Path, data: &Path, recording: &Path) -> anyhow::Result<()> {
    let status = Command::new(leasehold)
        .arg("--data")
        .arg(data)
        .arg("replay-inputs")
        .arg(recording)
        .stdin(Stdio::null())
        .status()
        .context("starting the replay")?;
    if !status.success() {
        bail!("the replay of {} ended with {status}", recording.display());
    }
    Ok(())
}

/// An empty folder under the target directory, so that what a failure leaves behind can be looked at.
pub(crate) fn fresh_folder(name: &str) -> anyhow::Result<PathBuf> {
    let metadata = metadata()?;
    let target = metadata["target_directory"].as_str();
    let target = target.context("cargo metadata names no target directory")?;
    let folder = Path::new(target).join("xtask").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder)
            .with_context(|| format!("emptying {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    Ok(folder)
}
