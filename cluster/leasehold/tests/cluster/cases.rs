//! Reported cases on real processes: K01, K04, K11, K18, K31, K42, K43.

use std::time::Duration;

use leasehold_protocol::{Commit, JournalSubject, RunId};
use leasehold_store::{Leases as _, Registers as _};

use super::{Cluster, PATIENCE, TTL, a_person_is_asked, completed, each_once};

const LIFETIME: Duration = Duration::from_secs(TTL);

impl Cluster {
    /// How often a call of the run was dispatched, and how many notes its workers wrote beside it.
    async fn dispatched(&self, run: &RunId) -> (usize, usize) {
        let (mut calls, mut notes) = (0, 0);
        for commit in self.journal(run).await {
            if let JournalSubject::Call(chain) = &commit.subject {
                calls += 1;
                notes += self.store.read_notes(chain).await.unwrap().len();
            }
        }
        (calls, notes)
    }

    async fn starts_again(&self, name: &str) {
        self.processes.restart(name).await.unwrap();
        self.processes.says(name, "ready:", PATIENCE).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k01_k42_a_call_of_four_lifetimes_is_left_alone_by_the_nodes_and_workers_that_come() {
    let cluster = Cluster::start().await;
    cluster.worker("worker-1", 4).await;
    let runs = cluster.submit(3).await;
    cluster.node("node-2").await;
    cluster.worker("worker-2", 4).await;
    // The length of the call is what is tested.
    tokio::time::sleep(4 * LIFETIME).await;
    cluster.complete(&runs).await;
    each_once(cluster.lines(), 3);
    for run in &runs {
        assert_eq!(cluster.owners(run).await.len(), 1, "{run} was taken over");
        assert_eq!(cluster.dispatched(run).await, (1, 0), "{run}");
    }
    cluster.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k04_k11_an_owner_whose_lease_was_taken_from_it_writes_nothing_beside_the_next_owner() {
    let cluster = Cluster::start().await;
    cluster.worker("worker-1", 4).await;
    let runs = cluster.submit(1).await;
    let run = &runs[0];
    cluster.node("node-2").await;
    let lease = cluster.store.lease(run).await.unwrap();
    assert!(lease.record.is_some());
    cluster
        .store
        .put_lease(run, lease.revision, None)
        .await
        .unwrap();
    cluster
        .until("the other node has taken the run", async || {
            // Told to one of the nodes at a time; the one that drives the run needs no telling.
            cluster.store.wake(run).await;
            cluster.state(run).await.epoch.get() == 2
        })
        .await;
    // The first owner is alive, believes in its session, and is the one that hears of the outcome.
    let gate = cluster.open_gate();
    cluster
        .processes
        .says("node-1", "somebody else drives the run", PATIENCE)
        .await
        .unwrap();
    cluster.all(&runs, "the run is completed", completed).await;
    drop(gate);
    each_once(cluster.lines(), 1);
    let epochs: Vec<u64> = cluster
        .journal(run)
        .await
        .iter()
        .map(|commit| Commit::decode(commit.body.as_bytes()).unwrap().epoch.get())
        .collect();
    assert!(epochs.is_sorted(), "{epochs:?}");
    assert_eq!(cluster.owners(run).await.len(), 2);
    assert_eq!(cluster.dispatched(run).await, (1, 0));
    cluster.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k18_a_worker_that_is_told_to_stop_stays_until_a_call_of_two_lifetimes_is_written() {
    let cluster = Cluster::start().await;
    cluster.worker("worker-1", 4).await;
    let runs = cluster.submit(1).await;
    let stopping = cluster.processes.stop("worker-1", PATIENCE);
    let going_on = async {
        tokio::time::sleep(2 * LIFETIME).await;
        cluster.complete(&runs).await;
    };
    let (by_itself, ()) = tokio::join!(stopping, going_on);
    assert!(by_itself.unwrap(), "it had to be killed");
    each_once(cluster.lines(), 1);
    assert_eq!(
        cluster.dispatched(&runs[0]).await,
        (1, 0),
        "nobody was unsure"
    );
    cluster.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k31_nodes_and_server_that_are_away_for_three_lifetimes_find_the_call_still_running() {
    let cluster = Cluster::start().await;
    cluster.worker("worker-1", 4).await;
    let runs = cluster.submit(2).await;
    cluster.processes.kill("node-1").await.unwrap();
    cluster._servers.kill(1).await.unwrap();
    // Their absence is what is tested.
    tokio::time::sleep(3 * LIFETIME).await;
    cluster._servers.restart(1).await.unwrap();
    cluster.starts_again("node-1").await;
    cluster
        .all(&runs, "every run has an owner again", |state| {
            state.epoch.get() == 2
        })
        .await;
    cluster.complete(&runs).await;
    each_once(cluster.lines(), 2);
    for run in &runs {
        assert_eq!(cluster.dispatched(run).await, (1, 0), "{run}");
    }
    cluster.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k43_after_the_death_of_everything_each_run_waits_for_a_person_by_name_or_is_over() {
    const RUNS: usize = 20;
    let cluster = Cluster::start().await;
    cluster.worker("worker-1", RUNS).await;
    let runs = cluster.submit(RUNS).await;
    for name in ["worker-1", "node-1"] {
        cluster.processes.kill(name).await.unwrap();
    }
    cluster._servers.kill(1).await.unwrap();
    cluster._servers.restart(1).await.unwrap();
    for name in ["node-1", "worker-1"] {
        cluster.starts_again(name).await;
    }
    // Each call had acted, and nobody lived who could say so.
    cluster
        .all(
            &runs,
            "a person is asked about every run",
            a_person_is_asked,
        )
        .await;
    each_once(cluster.lines(), RUNS);
    for run in &runs {
        assert_eq!(cluster.dispatched(run).await, (1, 1), "{run}");
        assert_eq!(cluster.store.lease(run).await.unwrap().record, None);
    }
    cluster.verify();
}
