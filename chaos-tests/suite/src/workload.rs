//! The workload: runs over all classes of tools and all modes of the ledger, each made from the seed and its number alone.
//!
//! A run's agent is the scripted one, so the submission says everything that it will try. Most runs come to their end, some fail because
//! their script says so, some are refused or cancelled by people, and a few wait for an answer that nobody gives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client::{Client, Said};
use crate::ledger::Mode;
use crate::tools::{self, Tool};

/// One run of so many waits for an answer that nobody gives.
const LEFT_OPEN: u64 = 29;
/// Share of calls that meet a fault of the tool, where that is asked for.
const FAULTY: f64 = 0.35;
/// Share of scripts that end with a failure.
const FAILS: f64 = 0.08;
/// Failures in a row, and repetitions, that end a run: far more than a script makes.
const PATIENCE: u32 = 50;
/// How long a submission waits before it is sent again in the same words.
const AGAIN: Duration = Duration::from_millis(500);

/// A run by its number.
fn name(index: u64) -> String {
    format!("run-{index:05}")
}

/// Whether this run's approvals are left unanswered on purpose.
pub(crate) fn leaves_open(run: &str) -> bool {
    let index = run
        .strip_prefix("run-")
        .and_then(|text| text.parse::<u64>().ok());
    index.is_some_and(|index| index % LEFT_OPEN == LEFT_OPEN / 2)
}

/// The run file of a run.
fn run_file(seed: u64, index: u64, faulty: bool) -> (String, Value) {
    let name = name(index);
    let mut rng = StdRng::seed_from_u64(seed.rotate_left(32) ^ index);
    let mut script = Vec::new();
    let mut n = index * 100;
    let turns = rng.random_range(1..=3);
    for turn in 0..turns {
        let calls = if rng.random_bool(0.2) { 2 } else { 1 };
        let mut made = Vec::new();
        for call in 0..calls {
            n += 1;
            let first = turn == 0 && call == 0;
            made.push(if first && leaves_open(&name) {
                one_call("pay", n, Mode::Ok, true)
            } else {
                any_call(n, faulty, &mut rng)
            });
        }
        script.push(json!({"kind": "tool_calls", "calls": made, "origin": "plan"}));
    }
    if rng.random_bool(FAILS) {
        script.push(json!({"kind": "fail", "message": "the script says so", "origin": "plan"}));
    }
    let file = json!({
        "run": name, "goal": format!("chaos {index}"), "client": "chaos", "tools": tools::ALL.map(|tool| tool.name),
        "input": {"script": script},
        "limits": {"max_steps": PATIENCE * 4, "max_consecutive_failures": PATIENCE, "max_repeats": PATIENCE},
    });
    (name, file)
}

fn any_call(n: u64, faulty: bool, rng: &mut StdRng) -> Value {
    let tool = tools::ALL
        .choose(rng)
        .map_or("look", |tool: &Tool| tool.name);
    let mode = match faulty && rng.random_bool(FAULTY) {
        true => Mode::ALL.choose(rng).copied().unwrap_or(Mode::Ok),
        false => Mode::Ok,
    };
    let asks = rng.random_bool(0.3);
    one_call(tool, n, mode, asks)
}

fn one_call(tool: &str, n: u64, mode: Mode, asks: bool) -> Value {
    let ask = if asks { "yes" } else { "no" };
    json!({"tool": tool, "arguments": {"n": n, "mode": mode.name(), "ask": ask}})
}

/// What is known of each submission.
#[derive(Debug, Clone, Default)]
pub(crate) struct Submitted(Arc<Mutex<BTreeMap<String, Said>>>);

impl Submitted {
    fn put(&self, run: &str, said: Said) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(run.to_owned(), said);
    }

    /// Runs whose submission came to this.
    pub(crate) fn that(&self, wanted: Said) -> BTreeSet<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let those = all.iter().filter(|(_, said)| **said == wanted);
        those.map(|(run, _)| run.clone()).collect()
    }
}

/// Submits runs at a steady pace until told to stop; each is sent again until it is known whether it is stored.
pub(crate) async fn submit(
    client: Client,
    submitted: Submitted,
    seed: u64,
    faulty: bool,
    pace: Duration,
    stop: CancellationToken,
) {
    let under_way = TaskTracker::new();
    let mut ticks = interval(pace);
    // What an outage held up does not come all at once.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for index in 0.. {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = ticks.tick() => {}
        }
        let (run, file) = run_file(seed, index, faulty);
        let (client, submitted) = (client.clone(), submitted.clone());
        submitted.put(&run, Said::Info);
        under_way.spawn(async move {
            loop {
                match client.submit(&run, &file).await {
                    Said::Info => sleep(AGAIN).await,
                    said => return submitted.put(&run, said),
                }
            }
        });
    }
    under_way.close();
    under_way.wait().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_number_give_the_same_run_and_another_seed_another() {
        assert_eq!(run_file(1, 7, true), run_file(1, 7, true));
        assert_ne!(run_file(1, 7, true), run_file(2, 7, true));
    }

    #[test]
    fn every_tool_and_every_mode_occurs_and_without_tool_faults_only_the_good_one() {
        let calls = |faulty: bool| -> BTreeSet<(String, String)> {
            let files = (0..400).map(|index| run_file(3, index, faulty).1);
            let decisions =
                files.flat_map(|file| file["input"]["script"].as_array().unwrap().clone());
            let calls = decisions.filter_map(|decision| decision["calls"].as_array().cloned());
            calls
                .flatten()
                .map(|call| {
                    let mode = call["arguments"]["mode"].as_str().unwrap();
                    (call["tool"].as_str().unwrap().to_owned(), mode.to_owned())
                })
                .collect()
        };
        assert_eq!(calls(true).len(), tools::ALL.len() * Mode::ALL.len());
        assert!(calls(false).iter().all(|(_, mode)| mode == "ok"));
    }

    #[test]
    fn a_run_that_is_left_open_begins_with_a_call_that_asks() {
        let index = LEFT_OPEN / 2;
        let (name, file) = run_file(1, index, true);
        assert!(leaves_open(&name) && !leaves_open("run-00000") && !leaves_open("other"));
        let call = &file["input"]["script"][0]["calls"][0];
        assert_eq!(
            (&call["tool"], &call["arguments"]["ask"]),
            (&json!("pay"), &json!("yes"))
        );
    }
}
