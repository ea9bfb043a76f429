//! What is wrong with servers and streams is said at the start, with what to do; what they refuse later loses nothing.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "test code"
)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use bytes::Bytes;
use common::server;
use leasehold_nats::{NatsStore, Options, StartError, Target, Wish};
use leasehold_protocol::{JournalSubject, RunId, Seq};
use leasehold_store::{AppendError, JournalAppend, RunLog as _, SystemClock};

fn options(target: Target) -> Options {
    Options {
        make: Some(Wish {
            shards: Some(2),
            replicas: None,
        }),
        ..Options::new(target, "test", Arc::new(SystemClock))
    }
}

async fn refusal(target: Target) -> StartError {
    match NatsStore::open(options(target)).await {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_address_says_what_was_tried() {
    let error = refusal(Target::at("nats://127.0.0.1:1")).await;
    assert!(matches!(error, StartError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("nats://127.0.0.1:1"), "{error}");
    let error = refusal(Target::at("nats://no-such-host.invalid:4222")).await;
    assert!(matches!(error, StartError::Unreachable { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_credentials_and_missing_permissions_are_told_apart() {
    let server = server(
        r#"jetstream { store_dir: "STORE/js" }
        authorization { users: [
            { user: all, password: p }
            { user: little, password: p, permissions: { publish: ["x"], subscribe: ["_INBOX.>"] } }
        ] }"#,
    )
    .await;
    let as_user = |user: &str, password: &str| Target {
        user: Some(user.to_owned()),
        password: Some(password.to_owned()),
        ..Target::at(server.url.clone())
    };
    let error = refusal(as_user("all", "wrong")).await;
    assert!(matches!(error, StartError::Refused { .. }), "{error}");
    let error = refusal(Target::at(server.url.clone())).await;
    assert!(matches!(error, StartError::Refused { .. }), "{error}");
    let error = refusal(as_user("little", "p")).await;
    assert!(matches!(error, StartError::NotPermitted { .. }), "{error}");
    NatsStore::open(options(as_user("all", "p"))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_jetstream_is_refused_with_what_to_switch_on() {
    let server = server("").await;
    let error = refusal(Target::at(server.url.clone())).await;
    assert!(matches!(error, StartError::NoJetStream), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_foreign_other_missing_or_mixed_are_refused_by_name() {
    let server = server(r#"jetstream { store_dir: "STORE/js" }"#).await;
    let target = || Target::at(server.url.clone());
    let nats = jetstream::new(async_nats::connect(&server.url).await.unwrap());

    let foreign = jetstream::stream::Config {
        name: "LH_0".to_owned(),
        subjects: vec!["lh.0.run.>".to_owned()],
        ..Default::default()
    };
    nats.create_stream(foreign).await.unwrap();
    let error = refusal(target()).await;
    assert!(
        matches!(error, StartError::Foreign { ref stream } if stream == "LH_0"),
        "{error}"
    );
    nats.delete_stream("LH_0").await.unwrap();

    NatsStore::open(options(target())).await.unwrap();
    let config = async |name: &str| {
        nats.get_stream(name)
            .await
            .unwrap()
            .cached_info()
            .config
            .clone()
    };

    let mut other = config("LH_1").await;
    other.max_age = Duration::from_secs(3600);
    nats.update_stream(&other).await.unwrap();
    let error = refusal(target()).await;
    assert!(
        matches!(error, StartError::Configured { ref stream, .. } if stream == "LH_1"),
        "{error}"
    );
    assert!(error.to_string().contains("max_age"), "{error}");
    other.max_age = Duration::ZERO;
    nats.update_stream(&other).await.unwrap();

    let mut mixed = config("LHI_1").await;
    let shards = mixed
        .metadata
        .insert("leasehold.shards".to_owned(), "3".to_owned())
        .unwrap();
    nats.update_stream(&mixed).await.unwrap();
    let error = refusal(target()).await;
    assert!(
        matches!(error, StartError::Mixed { ref stream, .. } if stream == "LHI_1"),
        "{error}"
    );
    mixed.metadata.insert("leasehold.shards".to_owned(), shards);
    nats.update_stream(&mixed).await.unwrap();
    NatsStore::open(options(target())).await.unwrap();

    // Its history is gone: no empty stream may take its place.
    nats.delete_stream("LH_1").await.unwrap();
    let error = refusal(target()).await;
    assert!(
        matches!(error, StartError::Missing { ref stream } if stream == "LH_1"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_node_there_is_no_cluster_and_none_is_made() {
    let server = server(r#"jetstream { store_dir: "STORE/js" }"#).await;
    let looking = Options {
        make: None,
        ..options(Target::at(server.url.clone()))
    };
    for _ in 0..2 {
        match NatsStore::open(looking.clone()).await {
            Err(StartError::NoCluster) => {}
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("a cluster out of nothing"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_first_nodes_at_once_make_one_cluster() {
    let server = server(r#"jetstream { store_dir: "STORE/js" }"#).await;
    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..6 {
        opening.spawn(NatsStore::open(options(Target::at(server.url.clone()))));
    }
    let mut ids: Vec<_> = opening
        .join_all()
        .await
        .into_iter()
        .map(|store| {
            store
                .unwrap_or_else(|error| panic!("{error}"))
                .cluster()
                .clone()
        })
        .collect();
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
}

fn write(run: &RunId, expected: Seq, size: usize) -> JournalAppend {
    JournalAppend {
        run: run.clone(),
        subject: JournalSubject::Note,
        expected,
        body: Bytes::from("x".repeat(size)),
        call: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_stream_stores_nothing_and_goes_on_once_there_is_room() {
    let server = server(r#"jetstream { store_dir: "STORE/js" }"#).await;
    let store = NatsStore::open(options(Target::at(server.url.clone())))
        .await
        .unwrap();
    let nats = jetstream::new(async_nats::connect(&server.url).await.unwrap());
    let limit = async |bytes: i64| {
        for stream in ["LH_0", "LH_1"] {
            let mut config = nats
                .get_stream(stream)
                .await
                .unwrap()
                .cached_info()
                .config
                .clone();
            config.max_bytes = bytes;
            nats.update_stream(&config).await.unwrap();
        }
    };
    limit(10_000).await;
    // The limits are the operator's own: no difference that a start refuses.
    let store_again = NatsStore::open(options(Target::at(server.url.clone()))).await;
    drop(store_again.map_err(|error| panic!("{error}")));
    let run = RunId::new("r").unwrap();
    let first = store
        .append(write(&run, Seq::NONE, 6_000))
        .await
        .unwrap()
        .seq;
    let refused = store.append(write(&run, first, 6_000)).await;
    let Err(AppendError::Busy(why)) = refused else {
        panic!("{refused:?}")
    };
    assert!(why.contains("takes no more"), "{why}");
    assert_eq!(store.read_journal(&run, Seq::NONE).await.unwrap().len(), 1);
    limit(-1).await;
    store.append(write(&run, first, 6_000)).await.unwrap();
    assert_eq!(store.read_journal(&run, Seq::NONE).await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k57_a_commit_beyond_the_servers_largest_message_is_never_sent() {
    let server = server("max_payload: 100000\njetstream { store_dir: \"STORE/js\" }").await;
    let store = NatsStore::open(options(Target::at(server.url.clone())))
        .await
        .unwrap();
    let run = RunId::new("r").unwrap();
    let refused = store.append(write(&run, Seq::NONE, 90_000)).await;
    let Err(AppendError::Never(why)) = refused else {
        panic!("{refused:?}")
    };
    assert!(why.contains("max_payload"), "{why}");
    store.append(write(&run, Seq::NONE, 1_000)).await.unwrap();
}
