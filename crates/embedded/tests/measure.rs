//! What group commit brings; run with `--ignored --nocapture`, in release.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::sync::Arc;

use common::{append, open, run};
use leasehold_protocol::Seq;
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn appends_per_second() {
    for (writers, each) in [(1, 400), (16, 200), (64, 150), (256, 60)] {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(open(folder.path()).unwrap());
        let start = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for writer in 0..writers {
            let store = Arc::clone(&store);
            tasks.spawn(async move {
                let (run, mut last) = (run(&writer.to_string()), Seq::NONE);
                for _ in 0..each {
                    last = append(&store, &run, last, vec![b'x'; 600]).await.unwrap();
                }
            });
        }
        tasks.join_all().await;
        let rate = f64::from(writers * each) / start.elapsed().as_secs_f64();
        println!("{writers:>3} writers: {rate:>7.0} durable appends/s");
    }
}

#[tokio::test]
#[ignore = "a measurement"]
async fn opening_does_not_read_ended_runs() {
    use leasehold_protocol::JournalSubject;
    use leasehold_store::{JournalAppend, RunLog};
    let folder = common::folder();
    for total in [100, 1_000, 10_000] {
        let store = Arc::new(open(folder.path()).unwrap());
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..total {
            let store = Arc::clone(&store);
            tasks.spawn(async move {
                let run = run(&format!("{total} {n}"));
                let mut last = Seq::NONE;
                for _ in 0..4 {
                    last = append(&store, &run, last, vec![b'x'; 600]).await.unwrap();
                }
                let end = JournalAppend {
                    run,
                    subject: JournalSubject::End,
                    expected: last,
                    body: "end".into(),
                    call: None,
                };
                store.append(end).await.unwrap();
            });
        }
        tasks.join_all().await;
        drop(store);
        let start = Instant::now();
        drop(open(folder.path()).unwrap());
        let after_writes = start.elapsed();
        let start = Instant::now();
        let store = open(folder.path()).unwrap();
        let opened = start.elapsed();
        let start = Instant::now();
        assert_eq!(store.open_runs().await.unwrap().len(), 0);
        let swept = start.elapsed();
        let start = Instant::now();
        append(&store, &run(&format!("new {total}")), Seq::NONE, "x")
            .await
            .unwrap();
        let end = start.elapsed();
        println!(
            "{total:>6} more ended runs: open {after_writes:?}, again {opened:?}, open_runs {swept:?}, append {end:?}"
        );
        let end = JournalAppend {
            run: run(&format!("new {total}")),
            subject: JournalSubject::End,
            expected: store
                .runs(None, usize::MAX)
                .await
                .unwrap()
                .iter()
                .find(|head| head.run == run(&format!("new {total}")))
                .unwrap()
                .last,
            body: "end".into(),
            call: None,
        };
        store.append(end).await.unwrap();
    }
}
