//! Real nodes and workers on a real nats-server, killed, suspended and stopped while they work.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "test code"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leasehold_json::AcceptedJson;
use leasehold_local::{
    NatsOptions, NatsServers, NodeOptions, Processes, Program, SyncInterval, WorkerOptions,
};
use leasehold_nats::{NatsStore, Options, Target};
use leasehold_protocol::{
    ClientId, Commit, Event, JournalSubject, Limits, Phase, RunId, RunState, Seq, Status,
    Submission, WIRE_VERSION,
};
use leasehold_store::{Inbox as _, InboxKind, Registers as _, RunLog as _, SystemClock};

#[path = "cluster/cases.rs"]
mod cases;

/// Longer than anything here takes on a busy machine: beyond it a test has failed.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long nodes and workers count as alive without a renewal, seconds.
const TTL: u64 = 2;

/// `append` appends its argument to the file `lines`, then waits until the test opens the gate.
const TOOLS: &str = r#"
[[tool]]
name = "append"
description = "Appends a line to a file, then waits."
side_effect = "local_mutation"
timeout = "120s"
trust = "authoritative"
input_schema = '''{"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"]}'''
[tool.command]
argv = ["sh", "-c", "read -r line; echo \"$line\" >> PLACE/lines; cat PLACE/gate > PLACE/null; echo '{}'"]
"#;

struct Cluster {
    processes: Processes,
    program: Program,
    store: NatsStore,
    folder: tempfile::TempDir,
    _servers: NatsServers,
}

impl Cluster {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = NatsOptions {
            sync: SyncInterval::Lazy,
            ..NatsOptions::new(1, folder.path().join("nats"))
        };
        let servers = NatsServers::start(options).await.unwrap();
        let program = Program {
            binary: PathBuf::from(env!("CARGO_BIN_EXE_leasehold")),
            nats: servers.urls().unwrap(),
        };
        let place = folder.path().display().to_string();
        std::fs::write(
            folder.path().join("tools.toml"),
            TOOLS.replace("PLACE", &place),
        )
        .unwrap();
        std::fs::write(folder.path().join("lines"), "").unwrap();
        std::os::unix::fs::symlink("/dev/null", folder.path().join("null")).unwrap();
        let gate = folder.path().join("gate");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&gate)
                .status()
                .unwrap()
                .success()
        );
        let processes = Processes::new(folder.path().join("processes")).unwrap();
        let tools = folder.path().join("tools.toml");
        let node = |name: &str| node(name, &tools);
        processes.start_node(&program, node("node-1")).unwrap();
        processes.says("node-1", "ready:", PATIENCE).await.unwrap();
        let options = Options::new(
            Target::at(program.nats.clone()),
            "test",
            Arc::new(SystemClock),
        );
        let store = NatsStore::open(options).await.unwrap();
        Self {
            processes,
            program,
            store,
            folder,
            _servers: servers,
        }
    }

    fn tools(&self) -> PathBuf {
        self.folder.path().join("tools.toml")
    }

    async fn node(&self, name: &str) {
        self.processes
            .start_node(&self.program, node(name, &self.tools()))
            .unwrap();
        self.processes.says(name, "ready:", PATIENCE).await.unwrap();
    }

    async fn worker(&self, name: &str, slots: usize) {
        let arguments = [
            "--slots",
            &slots.to_string(),
            "--session-ttl",
            &TTL.to_string(),
        ];
        let options = WorkerOptions {
            name: name.to_owned(),
            tools: self.tools(),
            arguments: arguments.map(str::to_owned).to_vec(),
            ..WorkerOptions::default()
        };
        self.processes.start_worker(&self.program, options).unwrap();
        self.processes.says(name, "ready:", PATIENCE).await.unwrap();
    }

    /// Submits so many runs, each of which makes one call, and waits until every call has acted.
    async fn submit(&self, count: usize) -> Vec<RunId> {
        let mut runs = Vec::new();
        for n in 0..count {
            let run = RunId::new(format!("run-{n}")).unwrap();
            let script = format!(
                r#"{{"script":[{{"kind":"tool_calls","calls":[{{"id":"c","tool":"append","arguments":{{"line":"{n}"}}}}]}}]}}"#
            );
            let submission = Submission {
                v: WIRE_VERSION,
                run: run.clone(),
                client: ClientId::new("test").unwrap(),
                agent: "script".to_owned(),
                goal: "append a line".to_owned(),
                input: Some(AcceptedJson::check_str(&script).unwrap()),
                tools: vec!["append".to_owned()],
                limits: Limits::default(),
            };
            let kind = InboxKind::Submit(submission.client.clone());
            self.store
                .put(&run, kind, Bytes::from(submission.encode()))
                .await
                .unwrap();
            runs.push(run);
        }
        self.until("every call has acted", async || self.lines().len() >= count)
            .await;
        runs
    }

    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join("lines")).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// Lets every call that waits at the gate, or comes to it while this lasts, go on.
    fn open_gate(&self) -> Gate {
        Gate::open(&self.folder.path().join("gate"))
    }

    async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let end = tokio::time::Instant::now() + PATIENCE;
        while !holds().await {
            assert!(
                tokio::time::Instant::now() < end,
                "not within {PATIENCE:?}: {what}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The run's journal. Where servers were away, the test's own connection is back a moment after them.
    async fn journal(&self, run: &RunId) -> Vec<leasehold_protocol::StoredCommit> {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            match self.store.read_journal(run, Seq::NONE).await {
                Err(leasehold_store::StoreError::Unavailable(_))
                    if tokio::time::Instant::now() < end =>
                {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                read => return read.unwrap(),
            }
        }
    }

    async fn state(&self, run: &RunId) -> RunState {
        let commits = self.journal(run).await;
        RunState::fold(run.clone(), &commits).unwrap()
    }

    async fn all(&self, runs: &[RunId], what: &str, holds: impl Fn(&RunState) -> bool) {
        self.until(what, async || {
            for run in runs {
                if !holds(&self.state(run).await) {
                    return false;
                }
            }
            true
        })
        .await;
    }

    /// Opens the gate until every run is completed.
    async fn complete(&self, runs: &[RunId]) {
        let gate = self.open_gate();
        self.all(runs, "every run is completed", completed).await;
        drop(gate);
    }

    /// Owners of the run in order: epoch, session, wall clock.
    async fn owners(&self, run: &RunId) -> Vec<(u64, String, i64)> {
        let commits = self.journal(run).await;
        let commits = commits
            .iter()
            .map(|commit| Commit::decode(commit.body.as_bytes()).unwrap());
        commits
            .flat_map(|commit| {
                let (epoch, at) = (commit.epoch.get(), commit.at);
                commit
                    .events
                    .into_iter()
                    .filter_map(move |event| match event {
                        Event::Owned { session, .. } => Some((epoch, session.to_string(), at)),
                        _ => None,
                    })
            })
            .collect()
    }

    /// What `leasehold verify` says of every journal.
    fn verify(&self) {
        let output = std::process::Command::new(&self.program.binary)
            .args(["--nats", &self.program.nats, "verify"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

fn node(name: &str, tools: &Path) -> NodeOptions {
    let ttl = TTL.to_string();
    let arguments = ["--session-ttl", &ttl, "--clock-bound", "0"];
    NodeOptions {
        name: name.to_owned(),
        tools: tools.to_owned(),
        arguments: arguments.map(str::to_owned).to_vec(),
        environment: BTreeMap::from([(
            "LEASEHOLD_LOG".to_owned(),
            "warn,leasehold_actors=debug".to_owned(),
        )]),
        ..NodeOptions::default()
    }
}

/// Holds the fifo open for writing, so that whoever reads it comes to its end.
struct Gate(
    Option<std::thread::JoinHandle<()>>,
    Arc<std::sync::atomic::AtomicBool>,
);

impl Gate {
    fn open(path: &Path) -> Self {
        let (path, stop) = (
            path.to_owned(),
            Arc::new(std::sync::atomic::AtomicBool::new(false)),
        );
        let stopped = stop.clone();
        let opening = std::thread::spawn(move || {
            while !stopped.load(std::sync::atomic::Ordering::Acquire) {
                // Open for reading as well, so that opening never waits for a reader.
                let held = std::fs::OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open(&path);
                std::thread::sleep(Duration::from_millis(20));
                drop(held);
            }
        });
        Self(Some(opening), stop)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.1.store(true, std::sync::atomic::Ordering::Release);
        let _ = self.0.take().map(std::thread::JoinHandle::join);
    }
}

fn completed(state: &RunState) -> bool {
    state.status() == Status::Completed
}

fn a_person_is_asked(state: &RunState) -> bool {
    let asks = |phase: &Phase| matches!(phase, Phase::Interrupted(_));
    state.parked && state.current_steps().iter().any(|step| asks(&step.phase))
}

fn each_once(lines: Vec<String>, count: usize) {
    let mut lines = lines;
    assert_eq!(lines.len(), count, "an effect happened twice, or never");
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), count, "an effect happened twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k13_k20_i3_i19_a_node_suspended_beyond_its_session_starts_nothing_and_writes_nothing() {
    let cluster = Cluster::start().await;
    cluster.worker("worker-1", 64).await;
    let runs = cluster.submit(50).await;
    let first = cluster.owners(&runs[0]).await[0].1.clone();
    cluster.node("node-2").await;
    cluster.processes.pause("node-1").await.unwrap();
    let paused = tokio::time::Instant::now();
    cluster
        .all(&runs, "the other node owns every run", |state| {
            state.epoch.get() == 2
        })
        .await;
    // The suspension is what is tested: three times the session's life.
    tokio::time::sleep_until(paused + 3 * Duration::from_secs(TTL)).await;
    cluster.processes.resume("node-1").await.unwrap();
    cluster
        .processes
        .says("node-1", "the session is over", PATIENCE)
        .await
        .unwrap();
    let log = cluster.folder.path().join("processes/node-1.log");
    cluster.complete(&runs).await;
    each_once(cluster.lines(), 50);
    for run in &runs {
        let owners = cluster.owners(run).await;
        assert_eq!(owners.len(), 2, "{run}: {owners:?}");
        let commits = cluster.journal(run).await;
        for commit in &commits {
            if let JournalSubject::Call(chain) = &commit.subject {
                assert_eq!(chain.origin.to_string(), first, "{run}: a second attempt");
            }
        }
    }
    // It did not even try: what is refused is said in its log.
    let log = std::fs::read_to_string(log).unwrap();
    assert!(!log.contains("a commit was not acknowledged"), "{log}");
    cluster.verify();
}

/// As many as a node drives when many agents wait for slow tools.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_five_hundred_runs_fail_over_at_once_and_act_once() {
    const RUNS: usize = 500;
    let cluster = Cluster::start().await;
    cluster.worker("worker-1", RUNS).await;
    let runs = cluster.submit(RUNS).await;
    cluster.node("node-2").await;
    cluster.node("node-3").await;
    let killed = SystemClock.now_wall();
    cluster.processes.kill("node-1").await.unwrap();
    cluster
        .all(&runs, "every run has another owner", |state| {
            state.epoch.get() == 2
        })
        .await;
    let mut waits = Vec::new();
    for run in &runs {
        waits.push(cluster.owners(run).await[1].2 - killed);
    }
    waits.sort_unstable();
    println!(
        "{RUNS} runs taken over after {} to {} ms, p99 {} ms; sessions live {TTL} s",
        waits[0],
        waits[RUNS - 1],
        waits[RUNS * 99 / 100]
    );
    cluster.complete(&runs).await;
    each_once(cluster.lines(), RUNS);
    cluster.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_told_to_stop_hands_its_runs_over() {
    let cluster = Cluster::start().await;
    cluster.worker("worker-1", 16).await;
    let runs = cluster.submit(10).await;
    cluster.node("node-2").await;
    assert!(
        cluster.processes.stop("node-1", PATIENCE).await.unwrap(),
        "it had to be killed"
    );
    for run in &runs {
        let commits = cluster.journal(run).await;
        let released = commits.iter().any(|commit| {
            let commit = Commit::decode(commit.body.as_bytes()).unwrap();
            commit
                .events
                .iter()
                .any(|event| matches!(event, Event::Released { .. }))
        });
        assert!(released, "{run} was not released");
    }
    cluster
        .all(&runs, "the other node owns every run", |state| {
            state.epoch.get() == 2
        })
        .await;
    cluster.complete(&runs).await;
    each_once(cluster.lines(), 10);
    cluster.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k17_p1_a_worker_killed_in_the_middle_of_a_call_settles_it_when_it_comes_back() {
    let cluster = Cluster::start().await;
    cluster.worker("worker-1", 4).await;
    let runs = cluster.submit(1).await;
    cluster.processes.kill("worker-1").await.unwrap();
    cluster.processes.restart("worker-1").await.unwrap();
    // It acted, and nobody can know what came of it: the new life says so at once, and a person is asked.
    cluster
        .all(&runs, "a person is asked", a_person_is_asked)
        .await;
    let commits = cluster.journal(&runs[0]).await;
    let chain = commits.iter().find_map(|commit| match &commit.subject {
        JournalSubject::Call(chain) => Some(chain.clone()),
        _ => None,
    });
    assert_eq!(
        cluster
            .store
            .read_notes(&chain.unwrap())
            .await
            .unwrap()
            .len(),
        1
    );
    assert_eq!(cluster.lines().len(), 1, "the effect happened again");
    cluster.verify();
}

/// Copies a folder as it lies on the disk.
fn copy(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(from)
        .arg(to)
        .status();
    assert!(copied.unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_on_an_old_state_of_its_disk_knows_that_it_does_not_know() {
    let cluster = Cluster::start().await;
    let processes = cluster.folder.path().join("processes");
    let (logbook, old) = (processes.join("worker-1"), processes.join("worker-1.old"));
    cluster.worker("worker-1", 4).await;
    assert!(cluster.processes.stop("worker-1", PATIENCE).await.unwrap());
    copy(&logbook, &old);
    cluster.processes.restart("worker-1").await.unwrap();
    cluster
        .processes
        .says("worker-1", "ready:", PATIENCE)
        .await
        .unwrap();
    let runs = cluster.submit(1).await;
    cluster.processes.kill("worker-1").await.unwrap();

    std::fs::remove_dir_all(&logbook).unwrap();
    copy(&old, &logbook);
    cluster.processes.restart("worker-1").await.unwrap();
    cluster
        .processes
        .says("worker-1", "not to be believed", PATIENCE)
        .await
        .unwrap();
    cluster
        .processes
        .says("worker-1", "ready:", PATIENCE)
        .await
        .unwrap();
    // The old state lacks the attempt; had it been believed, the worker would have said that it never began.
    cluster
        .all(&runs, "a person is asked", a_person_is_asked)
        .await;
    assert_eq!(cluster.lines().len(), 1, "the effect happened again");
}

trait Wall {
    fn now_wall(&self) -> i64;
}

impl Wall for SystemClock {
    fn now_wall(&self) -> i64 {
        use leasehold_store::Clock as _;
        self.now().wall
    }
}
