//! G6: a node is killed while it drives many runs with a call in flight each; how long until each has its next owner.
//!
//! Read from the journals: the moment that the new owner's first commit says, on the one clock of this machine, against the moment of the
//! kill.

use std::time::Duration;

use anyhow::{Context as _, bail};
use leasehold_actors::{Clock as _, SystemClock};
use leasehold_nats::NatsStore;
use leasehold_protocol::{Commit, JournalSubject, RunId, Seq};
use leasehold_store::RunLog as _;
use tokio::task::JoinSet;

use super::NatsArgs;
use super::rig::{LONG_TTL, Rig};
use crate::echo::Echo;
use crate::report::{Report, reached};
use crate::setup::{SLOW, submit};
use crate::stats::{Times, now, resident_bytes};

/// What a takeover may take beyond the time to live of the dead node's session.
const GOAL_BEYOND: Duration = Duration::from_secs(1);
/// Longest wait until all runs have a call in flight, and until all have an owner again.
const LONGEST: Duration = Duration::from_secs(120);
/// Pause between two looks at the journals.
const LOOK: Duration = Duration::from_millis(500);
/// Journals that are read side by side.
const READERS: usize = 32;

pub(super) async fn measure(
    args: &NatsArgs,
    echo: &Echo,
    report: &mut Report,
) -> anyhow::Result<()> {
    let config = args.one_config();
    eprintln!("{config}: fail-over of {} runs", args.runs);
    let folder = tempfile::tempdir_in(&args.disk)?;
    let rig = Rig::start(config, folder.path(), args, echo).await?;
    let tools = [format!("{SLOW}:remote_mutation").parse()?];
    let worker = rig.worker("worker", &tools, args.runs + 1).await?;
    let mut first = rig.node("first", &tools, args.ttl).await?;
    let before = resident_bytes(first.pid()?).unwrap_or_default();
    let client = rig.client(&tools, &mut first).await?;
    let mut submitting = JoinSet::new();
    for n in 0..args.runs {
        let runtime = client.bench.runtime.clone();
        submitting.spawn(submit(runtime, format!("orphan-{n}"), SLOW.to_owned(), 1));
    }
    let mut runs = Vec::new();
    while let Some(run) = submitting.join_next().await {
        runs.push(run??);
    }
    in_flight(&rig.store, runs.len()).await?;
    let held = resident_bytes(first.pid()?).unwrap_or_default();
    let second = rig.node("second", &tools, LONG_TTL).await?;
    let killed = SystemClock.now().wall;
    first.kill().await?;
    tokio::time::sleep(Duration::from_secs(args.ttl) + GOAL_BEYOND * 2).await;

    let mut times = Times::default();
    let start = now();
    let mut left = runs;
    while !left.is_empty() && start.elapsed() < LONGEST {
        let mut still = Vec::new();
        for some in left.chunks(READERS) {
            for (run, owned) in owned(&rig.store, some).await? {
                match owned {
                    Some(at) => times.push(Duration::from_millis(
                        u64::try_from(at.saturating_sub(killed)).unwrap_or_default(),
                    )),
                    None => still.push(run),
                }
            }
        }
        left = still;
        tokio::time::sleep(LOOK).await;
    }
    let bound = (Duration::from_secs(args.ttl) + GOAL_BEYOND).as_secs_f64() * 1e3;
    let p99 = times.percentile(99);
    report.notes.push(format!(
        "fail-over on {config}: {} runs in flight, session ttl {} s: new owner after p50 {:.0} ms, p99 {p99:.0} ms, last {:.0} ms from the kill; {} without one after {} s",
        args.runs,
        args.ttl,
        times.percentile(50),
        times.percentile(100),
        left.len(),
        LONGEST.as_secs(),
    ));
    report.notes.push(format!(
        "held runs: {:.1} KB of the node's memory each",
        held.saturating_sub(before) as f64 / 1e3 / args.runs.max(1) as f64
    ));
    report.goals.push(format!(
        "G6 {}: p99 {p99:.0} ms from the kill (at most {bound:.0})",
        reached(left.is_empty() && p99 <= bound)
    ));
    client.bench.runtime.abort().await;
    second.kill().await?;
    worker.kill().await?;
    rig.down().await
}

/// Waits until every run's last commit is a call.
async fn in_flight(store: &NatsStore, runs: usize) -> anyhow::Result<()> {
    let start = now();
    loop {
        let heads = store.open_runs().await?;
        let calls = heads
            .iter()
            .filter(|head| matches!(head.subject, JournalSubject::Call(_)))
            .count();
        if calls == runs {
            return Ok(());
        }
        if start.elapsed() > LONGEST {
            bail!("only {calls} of {runs} runs have a call in flight");
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// When each of them got another owner, unix milliseconds.
async fn owned(store: &NatsStore, runs: &[RunId]) -> anyhow::Result<Vec<(RunId, Option<i64>)>> {
    let mut reading = JoinSet::new();
    for run in runs.iter().cloned() {
        let store = store.clone();
        reading.spawn(async move {
            let commits = store.read_journal(&run, Seq::NONE).await?;
            let own = commits
                .iter()
                .find(|commit| commit.subject == JournalSubject::Own);
            let at = own
                .map(|own| Commit::decode(own.body.as_bytes()).map(|commit| commit.at))
                .transpose()
                .context("reading an owner's commit")?;
            anyhow::Ok((run, at))
        });
    }
    let mut all = Vec::new();
    while let Some(read) = reading.join_next().await {
        all.push(read??);
    }
    Ok(all)
}
