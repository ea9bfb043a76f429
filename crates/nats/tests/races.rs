//! Races on three servers whose leaders step down: of two who write with one expectation, never two are stored.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod common;

use std::time::Duration;

use bytes::Bytes;
use leasehold_nats::NatsStore;
use leasehold_protocol::{JournalSubject, RunId, Seq};
use leasehold_store::{AppendError, JournalAppend, RunLog as _};

/// Rounds of the race.
const ROUNDS: usize = 2_000;
/// Rounds between two step-downs.
const STEP_DOWN_EVERY: usize = 250;

/// What a racer knows after its try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Knows {
    Stored(Seq),
    NotStored,
    Nothing,
}

async fn race(store: NatsStore, run: RunId, expected: Seq, who: usize, round: usize) -> Knows {
    let write = JournalAppend {
        run,
        subject: JournalSubject::Note,
        expected,
        body: Bytes::from(format!("{round} {who}")),
        call: None,
    };
    loop {
        match store.append(write.clone()).await {
            Ok(appended) => return Knows::Stored(appended.seq),
            Err(AppendError::Refused { .. }) => return Knows::NotStored,
            Err(AppendError::Busy(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(AppendError::Unknown(_)) => return Knows::Nothing,
            Err(AppendError::Never(why)) => panic!("{why}"),
        }
    }
}

/// The end of the journal, asked for until it can be read.
async fn read(store: &NatsStore, run: &RunId, after: Seq) -> Vec<(Seq, String)> {
    loop {
        if let Ok(commits) = store.read_journal(run, after).await {
            let text = |body: &[u8]| String::from_utf8(body.to_vec()).unwrap();
            return commits
                .iter()
                .map(|commit| (commit.seq, text(commit.body.as_bytes())))
                .collect();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k07_p5_of_two_racers_never_two_commit_while_leaders_step_down() {
    let servers = common::servers(3).await;
    let racers = [servers.store(1).await, servers.store(1).await];
    let nobody = async_nats::connect(servers.servers.url(1).unwrap())
        .await
        .unwrap();
    let run = RunId::new("raced for").unwrap();
    let (mut tail, mut unheard) = (Seq::NONE, 0);
    for round in 0..ROUNDS {
        // While the round is under way.
        let step_down = async {
            if round % STEP_DOWN_EVERY == STEP_DOWN_EVERY - 1 {
                let leader = "$JS.API.STREAM.LEADER.STEPDOWN.LH_0";
                // Whether it is heard of shows in the rounds.
                let _ = nobody.request(leader, Bytes::new()).await;
            }
        };
        let [one, two] = racers.clone();
        let (one, two, ()) = tokio::join!(
            race(one, run.clone(), tail, 1, round),
            race(two, run.clone(), tail, 2, round),
            step_down
        );
        let stored: Vec<Seq> = [one, two]
            .iter()
            .filter_map(|knows| match knows {
                Knows::Stored(seq) => Some(*seq),
                _ => None,
            })
            .collect();
        assert!(
            stored.len() < 2,
            "round {round}: both were acknowledged, at {stored:?}"
        );
        let commits = match (one, two) {
            (Knows::Nothing, _) | (_, Knows::Nothing) => {
                unheard += 1;
                read(&racers[0], &run, tail).await
            }
            _ => Vec::new(),
        };
        assert!(
            commits.len() < 2,
            "round {round}: two are stored: {commits:?}"
        );
        for (knows, who) in [(one, 1), (two, 2)] {
            if knows == Knows::NotStored {
                let its = format!("{round} {who}");
                assert!(
                    commits.iter().all(|(_, body)| *body != its),
                    "round {round}: {its} was refused and is stored"
                );
            }
        }
        let last = stored
            .first()
            .copied()
            .or(commits.first().map(|(seq, _)| *seq));
        tail = last.unwrap_or(tail);
    }
    let commits = read(&racers[1], &run, Seq::NONE).await;
    let mut rounds: Vec<&str> = commits
        .iter()
        .map(|(_, body)| body.split(' ').next().unwrap())
        .collect();
    let written = rounds.len();
    rounds.dedup();
    assert_eq!(rounds.len(), written, "a round has two commits");
    assert!(
        written > ROUNDS * 9 / 10,
        "only {written} rounds were written"
    );
    println!("{written} commits in {ROUNDS} rounds; {unheard} rounds with a lost acknowledgement");
}
