//! G7: runs that wait for a person, and what the node and the servers do meanwhile.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, bail};
use leasehold_protocol::JournalSubject;
use leasehold_store::RunLog as _;
use tokio::task::JoinSet;

use super::NatsArgs;
use super::rig::{Client, LONG_TTL, Rig};
use crate::echo::Echo;
use crate::load::Cpu;
use crate::report::{Report, reached};
use crate::setup::{HELD, submit};
use crate::stats::{now, resident_bytes};

/// Submissions side by side.
const WIDTH: usize = 64;
/// Pause between two looks, and how many of them may be in vain.
const LOOK: Duration = Duration::from_millis(500);
const LOOKS: u32 = 600;
/// How long the idle cluster is watched: longer than a sweep's period, so that one is in it.
const WATCH: Duration = Duration::from_secs(35);
/// What a parked run may leave behind in the node: nothing but its place in the sweep's memory.
const FLAT_BYTES: f64 = 1000.0;
/// As good as none, beside what the clock's own looks vary by.
const MOST_MESSAGES: f64 = 0.1;

/// What a quiet node and its servers do in a second.
struct Quiet {
    resident: u64,
    messages: f64,
    node_cpu_ms: f64,
    server_cpu_ms: f64,
}

pub(super) async fn measure(
    args: &NatsArgs,
    echo: &Echo,
    report: &mut Report,
) -> anyhow::Result<()> {
    let config = args.one_config();
    eprintln!("{config}: {} parked runs", args.parked);
    let folder = tempfile::tempdir_in(&args.disk)?;
    let rig = Rig::start(config, folder.path(), args, echo).await?;
    let tools = [format!("{HELD}:remote_mutation").parse()?];
    let mut node = rig.node("node", &tools, LONG_TTL).await?;
    let client = rig.client(&tools, &mut node).await?;
    let pids = rig.pids(&[&node], echo)?;
    let pid = node.pid()?;
    let watch = async || -> anyhow::Result<Quiet> {
        let (cpu, received, start) = (Cpu::of(&pids), rig.received().await?, now());
        tokio::time::sleep(WATCH).await;
        let seconds = start.elapsed().as_secs_f64();
        let cpu = Cpu::of(&pids).each_since(cpu, seconds);
        let received = rig.received().await?.saturating_sub(received);
        Ok(Quiet {
            resident: resident_bytes(pid).context("the node is gone")?,
            messages: received as f64 / seconds,
            node_cpu_ms: cpu.runtime,
            server_cpu_ms: cpu.server,
        })
    };
    let empty = watch().await?;
    // The first half leaves behind what any work leaves behind in a process; the second shows what each run adds.
    let half = args.parked.div_ceil(2);
    park(&rig, &client, 0..half).await?;
    let before = watch().await?;
    park(&rig, &client, half..half * 2).await?;
    let after = watch().await?;
    let each = after.resident.saturating_sub(before.resident) as f64 / half as f64;
    for (parked, quiet) in [(0, &empty), (half, &before), (half * 2, &after)] {
        report.notes.push(format!(
            "idle on {config}, {parked} parked runs: node {:.1} MB, {:.0} messages/s to the servers, CPU {:.1} ms/s of the node and {:.1} ms/s of the servers",
            quiet.resident as f64 / 1e6,
            quiet.messages,
            quiet.node_cpu_ms,
            quiet.server_cpu_ms,
        ));
    }
    // How many sweeps fall into a watch is chance; beside an empty cluster they stand out.
    let more = (after.messages - empty.messages) * WATCH.as_secs_f64() / (half * 2) as f64;
    report.goals.push(format!(
        "G7 {}: beside {half} parked runs, {half} more: {each:.0} bytes of the node's memory each (at most {FLAT_BYTES}), {more:.1} messages for each of all in {} s (one or two sweeps among them; 0 wanted)",
        reached(each <= FLAT_BYTES && more < MOST_MESSAGES),
        WATCH.as_secs(),
    ));
    client.bench.runtime.abort().await;
    node.kill().await?;
    rig.down().await
}

/// Submits these runs and waits until each is parked.
async fn park(rig: &Rig, client: &Client, runs: Range<usize>) -> anyhow::Result<()> {
    let mut submitting = JoinSet::new();
    let all = runs.end;
    for n in runs {
        if submitting.len() >= WIDTH
            && let Some(submitted) = submitting.join_next().await
        {
            submitted??;
        }
        let runtime = client.bench.runtime.clone();
        submitting.spawn(submit(runtime, format!("parked-{n}"), HELD.to_owned(), 1));
    }
    while let Some(submitted) = submitting.join_next().await {
        submitted??;
    }
    // Each stands still at the commit that parked it.
    let mut last = Vec::new();
    for _ in 0..LOOKS {
        let mut heads = rig.store.open_runs().await?;
        heads.retain(|head| head.subject == JournalSubject::Note);
        let mut stands: Vec<_> = heads
            .into_iter()
            .map(|head| (head.run, head.last))
            .collect();
        stands.sort_unstable();
        if stands.len() == all && stands == last {
            return Ok(());
        }
        last = stands;
        tokio::time::sleep(LOOK).await;
    }
    bail!("only {} of {all} runs are parked", last.len())
}
