//! kill -9 at random moments loses nothing that was acknowledged.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::{append, armed, bodies, chain, logbook, open, run};
use leasehold_protocol::{LogbookRecord, Seq};
use leasehold_store::{Logbook, RunLog};

/// Set for the child: the folder it writes to.
const FOLDER: &str = "LEASEHOLD_TEST_KILL_FOLDER";
/// Writers of a child, each with a run of its own.
const WRITERS: usize = 8;
/// Children that are killed.
const ROUNDS: usize = 10;

/// Not a test of its own: the process that is killed. It appends for ever and prints what was acknowledged.
#[test]
fn child() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(write_for_ever(Path::new(&folder)));
}

async fn write_for_ever(folder: &Path) {
    let store = Arc::new(open(folder).unwrap());
    let book = Arc::new(logbook(&folder.join("worker/worker"), 1).logbook);
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let (store, book) = (Arc::clone(&store), Arc::clone(&book));
        tasks.spawn(async move {
            let run = run(&format!("run {writer}"));
            let journal = store.read_journal(&run, Seq::NONE).await.unwrap();
            let (mut n, mut last) = (
                journal.len(),
                journal.last().map_or(Seq::NONE, |commit| commit.seq),
            );
            loop {
                let attempt = u32::try_from(n + 1).unwrap();
                book.create(
                    &chain(&format!("run {writer}"), attempt),
                    LogbookRecord::Armed(armed()),
                )
                .await
                .unwrap();
                say(&format!("armed {writer} {attempt}"));
                last = append(&store, &run, last, format!("{writer} {n}"))
                    .await
                    .unwrap();
                say(&format!("stored {writer} {n} {last}"));
                n += 1;
            }
        });
    }
    tasks.join_all().await;
}

fn say(line: &str) {
    // One write per line: a killed child never leaves half a line that reads as another number.
    std::io::stdout()
        .write_all(format!("{line} .\n").as_bytes())
        .unwrap();
}

#[tokio::test]
async fn kill_9_loses_nothing_acknowledged() {
    // On a real disk where there is one: the child syncs as in earnest.
    let folder = tempfile::tempdir().unwrap();
    let mut stored: BTreeMap<usize, Vec<Seq>> = BTreeMap::new();
    let mut armed_up_to: BTreeMap<usize, u32> = BTreeMap::new();
    let (mut acknowledged, mut random) = (0, 0x9e37_79b9_7f4a_7c15_u64);
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture", "--test-threads", "1"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut left = 20 + random % 150;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                ["stored", writer, n, seq, "."] => {
                    let positions = stored.entry(writer.parse().unwrap()).or_default();
                    let n: usize = n.parse().unwrap();
                    // Stored but not yet printed when an earlier child was killed: nobody was told of those.
                    positions.resize(n, Seq::NONE);
                    positions.push(Seq(seq.parse().unwrap()));
                    acknowledged += 1;
                }
                ["armed", writer, attempt, "."] => {
                    armed_up_to.insert(writer.parse().unwrap(), attempt.parse().unwrap());
                }
                _ => continue,
            }
            if left == 0 {
                child.kill().unwrap();
            }
            // Lines that were in the pipe when it died were acknowledged too.
            left = left.saturating_sub(1);
        }
        let status = child.wait().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9),
            "round {round}: {status}"
        );
        check(folder.path(), &stored, &armed_up_to).await;
    }
    println!("{ROUNDS} kills, {acknowledged} acknowledged commits, 0 lost");
    assert!(acknowledged > 100);
}

async fn check(
    folder: &Path,
    stored: &BTreeMap<usize, Vec<Seq>>,
    armed_up_to: &BTreeMap<usize, u32>,
) {
    let store = open(folder).unwrap();
    for (writer, positions) in stored {
        let run = run(&format!("run {writer}"));
        let journal = store.read_journal(&run, Seq::NONE).await.unwrap();
        for (n, body) in bodies(&store, &run).await.iter().enumerate() {
            assert_eq!(*body, format!("{writer} {n}"), "out of order or twice");
        }
        for (n, seq) in positions
            .iter()
            .enumerate()
            .filter(|(_, seq)| **seq != Seq::NONE)
        {
            assert_eq!(
                journal.get(n).map(|commit| commit.seq),
                Some(*seq),
                "commit {n} of writer {writer} was acknowledged"
            );
        }
    }
    let opened = logbook(&folder.join("worker/worker"), 1);
    assert!(opened.quarantined.is_none());
    for (writer, attempts) in armed_up_to {
        for attempt in 1..=*attempts {
            let record = opened
                .logbook
                .get(&chain(&format!("run {writer}"), attempt))
                .await
                .unwrap();
            assert!(
                record.is_some(),
                "attempt {attempt} of writer {writer} was armed"
            );
        }
    }
}
