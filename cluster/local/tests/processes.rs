//! Nodes and workers as processes, with a stand-in for the binary: a script that says what it was given.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

#[path = "support/script.rs"]
mod script;

use std::fs;
use std::path::Path;
use std::time::Duration;

use leasehold_local::{
    Kind, LocalError, NatsOptions, NatsServers, NodeOptions, Processes, Program, State,
    WorkerOptions,
};
use script::script;

/// Far more than the script needs.
const SOON: Duration = Duration::from_secs(20);

/// Says its arguments and its variable, then that it is ready; ends at SIGTERM, unless it was told to be stubborn.
const SCRIPT: &str = r#"
[ "$STUBBORN" ] && trap '' TERM || trap 'echo drained; exit 0' TERM
for argument; do echo "argument $argument"; done
echo "variable $VARIABLE"
[ "$VARIABLE" = broken ] && exit 3
echo ready
while :; do sleep 0.05; done
"#;

fn program(folder: &Path) -> Program {
    let binary = script(folder, "leasehold", SCRIPT);
    Program {
        binary,
        nats: "nats://127.0.0.1:1,nats://127.0.0.1:2".to_owned(),
    }
}

fn node(name: &str) -> NodeOptions {
    NodeOptions {
        name: name.to_owned(),
        tools: "/tools.toml".into(),
        ..NodeOptions::default()
    }
}

fn worker(name: &str) -> WorkerOptions {
    WorkerOptions {
        name: name.to_owned(),
        tools: "/tools.toml".into(),
        ..WorkerOptions::default()
    }
}

fn states(processes: &Processes) -> Vec<(String, State)> {
    let all = processes.status().unwrap();
    all.into_iter()
        .map(|status| (status.name, status.state))
        .collect()
}

fn arguments(log: &Path) -> Vec<String> {
    let log = fs::read_to_string(log).unwrap();
    let said = log
        .lines()
        .filter_map(|line| line.strip_prefix("argument "));
    said.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_node_and_a_worker_get_their_arguments_and_a_log_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let program = program(&root);
    let processes = Processes::new(&root).unwrap();
    let node = NodeOptions {
        policy: Some("/policy.toml".into()),
        arguments: vec!["--slots".to_owned(), "4".to_owned()],
        environment: [("VARIABLE".to_owned(), "a value".to_owned())].into(),
        ..node("node-1")
    };
    processes.start_node(&program, node).unwrap();
    processes
        .start_worker(&program, worker("worker-1"))
        .unwrap();
    for name in ["node-1", "worker-1"] {
        assert_eq!(processes.says(name, "ready", SOON).await.unwrap(), "ready");
    }
    let nats = program.nats.as_str();
    assert_eq!(
        arguments(&root.join("node-1.log")),
        [
            "node",
            "--nats",
            nats,
            "--name",
            "node-1",
            "--tools",
            "/tools.toml",
            "--policy",
            "/policy.toml",
            "--slots",
            "4"
        ]
    );
    let data = root.join("worker-1");
    assert_eq!(
        arguments(&root.join("worker-1.log")),
        [
            "worker",
            "--nats",
            nats,
            "--name",
            "worker-1",
            "--tools",
            "/tools.toml",
            "--logbook",
            data.to_str().unwrap()
        ]
    );
    assert_eq!(
        processes.says("node-1", "variable", SOON).await.unwrap(),
        "variable a value"
    );

    let status = processes.status().unwrap();
    let shown = serde_json::to_value(&status[0]).unwrap();
    let wanted = serde_json::json!({
        "name": "node-1", "kind": "node", "pid": status[0].pid, "state": "running", "log": root.join("node-1.log"), "ports": {}
    });
    assert_eq!(shown, wanted);
    assert_eq!(status[1].kind, Kind::Worker);
}

#[tokio::test]
async fn a_killed_process_is_started_again_as_it_was_and_heard_anew() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let processes = Processes::new(folder.path()).unwrap();
    processes.start_node(&program, node("node-1")).unwrap();
    processes.says("node-1", "ready", SOON).await.unwrap();
    let before = processes.status().unwrap()[0].pid;
    processes.kill("node-1").await.unwrap();
    assert_eq!(states(&processes), [("node-1".to_owned(), State::Dead)]);

    // By another process, as it were.
    let other = Processes::open(folder.path()).unwrap();
    other.restart("node-1").await.unwrap();
    other.says("node-1", "ready", SOON).await.unwrap();
    drop(other);
    assert_ne!(processes.status().unwrap()[0].pid, before);
    let log = fs::read_to_string(folder.path().join("node-1.log")).unwrap();
    assert_eq!(log.matches("argument --nats").count(), 2);
    // The first life did not drain, and what it said is not taken for this one's.
    let silence = processes
        .says("node-1", "drained", Duration::ZERO)
        .await
        .unwrap_err();
    assert!(
        matches!(silence, LocalError::NotReady { .. }),
        "{silence:?}"
    );
    assert!(processes.stop("node-1", SOON).await.unwrap());
    processes.says("node-1", "drained", SOON).await.unwrap();
}

#[tokio::test]
async fn a_paused_process_is_resumed_and_a_stubborn_one_is_killed_in_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let processes = Processes::new(folder.path()).unwrap();
    let stubborn = NodeOptions {
        environment: [("STUBBORN".to_owned(), "1".to_owned())].into(),
        ..node("node-1")
    };
    processes.start_node(&program, stubborn).unwrap();
    processes.says("node-1", "ready", SOON).await.unwrap();
    processes.pause("node-1").await.unwrap();
    assert_eq!(states(&processes)[0].1, State::Paused);
    processes.resume("node-1").await.unwrap();
    assert_eq!(states(&processes)[0].1, State::Running);
    assert!(
        !processes
            .stop("node-1", Duration::from_millis(50))
            .await
            .unwrap()
    );
    assert_eq!(states(&processes)[0].1, State::Dead);
    assert!(matches!(
        processes.resume("node-1").await,
        Err(LocalError::Dead(_))
    ));
}

#[tokio::test]
async fn a_process_that_ends_while_it_is_waited_for_is_told_with_its_last_words() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let processes = Processes::new(folder.path()).unwrap();
    let broken = WorkerOptions {
        environment: [("VARIABLE".to_owned(), "broken".to_owned())].into(),
        ..worker("worker-1")
    };
    processes.start_worker(&program, broken).unwrap();
    let error = processes.says("worker-1", "ready", SOON).await.unwrap_err();
    assert!(matches!(error, LocalError::Ended { .. }), "{error:?}");
    assert!(error.to_string().ends_with("variable broken"), "{error}");
}

#[tokio::test]
async fn a_name_stands_for_one_process_and_fits_into_a_path() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let processes = Processes::new(folder.path()).unwrap();
    processes.start_node(&program, node("one")).unwrap();
    let twice = processes.start_node(&program, node("one")).unwrap_err();
    assert!(matches!(twice, LocalError::Running { .. }), "{twice:?}");
    processes.kill("one").await.unwrap();
    let kind = processes.start_worker(&program, worker("one")).unwrap_err();
    assert!(matches!(kind, LocalError::NameTaken(_)), "{kind:?}");
    for wrong in ["", "../one", "a b", "ä", &"x".repeat(65)] {
        let error = processes.start_node(&program, node(wrong)).unwrap_err();
        assert!(matches!(error, LocalError::Name(_)), "{error:?}");
    }
    let absent = Program {
        binary: "/nowhere/leasehold".into(),
        ..program
    };
    let error = processes.start_node(&absent, node("two")).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("starting two (/nowhere/leasehold): No such file"),
        "{error}"
    );
    assert_eq!(states(&processes), [("one".to_owned(), State::Dead)]);
}

#[tokio::test]
async fn down_takes_nodes_and_servers_down_and_a_dropped_handle_only_what_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let servers = NatsServers::start(NatsOptions::new(1, folder.path()))
        .await
        .unwrap();
    servers.leave_running();
    let first = Processes::new(folder.path()).unwrap();
    first.start_node(&program, node("node-1")).unwrap();
    first.says("node-1", "ready", SOON).await.unwrap();
    let second = Processes::new(folder.path()).unwrap();
    second.start_worker(&program, worker("worker-1")).unwrap();
    drop(second);
    let wanted = |nats, node| {
        [
            ("nats-1", nats),
            ("node-1", node),
            ("worker-1", State::Dead),
        ]
        .map(|(name, state)| (name.to_owned(), state))
    };
    assert_eq!(states(&first), wanted(State::Running, State::Running));
    first.kill("nats-1").await.unwrap();
    first.restart("nats-1").await.unwrap();
    assert_eq!(states(&first), wanted(State::Running, State::Running));

    assert!(
        Processes::open(folder.path())
            .unwrap()
            .down()
            .await
            .unwrap()
    );
    assert_eq!(states(&first), wanted(State::Dead, State::Dead));
    first.says("node-1", "drained", SOON).await.unwrap();
}

#[tokio::test]
async fn two_handles_that_start_at_once_lose_nothing_of_the_record() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let handles: Vec<Processes> = (0..4)
        .map(|_| Processes::new(folder.path()).unwrap())
        .collect();
    std::thread::scope(|scope| {
        for (n, handle) in handles.iter().enumerate() {
            let program = &program;
            scope.spawn(move || {
                for m in 0..3 {
                    handle
                        .start_node(program, node(&format!("node-{n}-{m}")))
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(handles[0].status().unwrap().len(), 12);
    drop(handles);
    let after = Processes::open(folder.path()).unwrap();
    assert!(
        states(&after)
            .iter()
            .all(|(_, state)| *state == State::Dead)
    );
}
