//! Devices that refuse: read-only and full. Needs to mount; where it cannot, the tests say so.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{append, bodies, open, refusal, run};
use leasehold_embedded::OpenError;
use leasehold_protocol::Seq;
use leasehold_store::{AppendError, CallQueue, Inbox, RunLog, StoreError};

/// Unmounts when dropped.
struct Mount(PathBuf);

impl Mount {
    /// Mounts, or prints why the test was not run.
    fn new(test: &str, at: &Path, arguments: &[&str]) -> Option<Self> {
        let output = Command::new("mount").args(arguments).arg(at).output();
        match output {
            Ok(output) if output.status.success() => Some(Self(at.to_owned())),
            Ok(output) => {
                println!("{}", String::from_utf8_lossy(&output.stderr).trim());
                println!("SKIPPED needs: the right to mount file systems: {test}");
                None
            }
            Err(error) => {
                println!("mount: {error}");
                println!("SKIPPED needs: the command mount: {test}");
                None
            }
        }
    }

    fn again(&self, options: &str) {
        assert!(
            Command::new("mount")
                .args(["-o", options])
                .arg(&self.0)
                .status()
                .unwrap()
                .success()
        );
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_read_only_folder_is_refused_and_left_alone() {
    let folder = common::folder();
    let store = open(folder.path()).unwrap();
    append(&store, &run("r"), Seq::NONE, "one").await.unwrap();
    drop(store);
    let place = common::folder();
    let Some(mount) = Mount::new(
        "read-only",
        place.path(),
        &["--bind", folder.path().to_str().unwrap()],
    ) else {
        return;
    };
    mount.again("remount,bind,ro");
    let error = refusal(place.path());
    assert!(matches!(error, OpenError::ReadOnly { .. }), "{error}");
    assert!(error.to_string().contains("read-write"), "{error}");
    drop(mount);
    assert_eq!(
        bodies(&open(folder.path()).unwrap(), &run("r")).await,
        ["one"]
    );
}

/// A full disk stops the store: the writes in flight are unknown, everything after is refused, and after room was made nothing that was
/// acknowledged is missing.
#[tokio::test]
async fn a_full_disk_stops_the_store_and_loses_nothing_acknowledged() {
    let place = common::folder();
    let Some(mount) = Mount::new(
        "full disk",
        place.path(),
        &["-t", "tmpfs", "-o", "size=6m", "tmpfs"],
    ) else {
        return;
    };
    let folder = place.path().join("data");
    let store = open(&folder).unwrap();
    let mut acknowledged = Vec::new();
    let mut last = Seq::NONE;
    let error = loop {
        assert!(acknowledged.len() < 5000, "six megabytes never got full");
        let body = format!("{} {}", acknowledged.len(), "x".repeat(8000));
        match append(&store, &run("r"), last, body.clone()).await {
            Ok(seq) => {
                last = seq;
                acknowledged.push(body);
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(error, AppendError::Unknown(_)), "{error}");
    assert!(matches!(
        append(&store, &run("other"), Seq::NONE, "x").await,
        Err(AppendError::Unknown(_))
    ));
    let read = store.read_journal(&run("r"), Seq::NONE).await;
    assert!(matches!(read, Err(StoreError::Refuses(_))), "{read:?}");
    for waited in [
        store.next_call(&["t".to_owned()]).await.err(),
        store.next_message().await.err(),
    ] {
        assert!(matches!(waited, Some(StoreError::Refuses(_))), "{waited:?}");
    }
    drop(store);
    let error = refusal(&folder);
    assert!(matches!(error, OpenError::Full { .. }), "{error}");
    mount.again("remount,size=64m");
    let store = open(&folder).unwrap();
    let found = bodies(&store, &run("r")).await;
    assert!(
        found.len() >= acknowledged.len(),
        "{} acknowledged, {} found",
        acknowledged.len(),
        found.len()
    );
    assert!(
        found
            .iter()
            .zip(&acknowledged)
            .all(|(found, body)| found == body)
    );
    println!(
        "{} commits acknowledged before the disk was full, {} found after",
        acknowledged.len(),
        found.len()
    );
    drop(store);
}
