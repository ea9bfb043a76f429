//! What is refused when a folder is opened, and that nothing is deleted or started anew.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod common;

use std::fs;
use std::path::Path;

use common::{append, bodies, copy, folder, log_of, open, options, refusal, run};
use leasehold_embedded::{EmbeddedStore, OpenError};
use leasehold_protocol::Seq;
use leasehold_store::{RunLog, StoreError};

/// A folder with two commits of one run.
async fn written(folder: &Path) {
    let store = open(folder).unwrap();
    let first = append(&store, &run("r"), Seq::NONE, "one").await.unwrap();
    append(&store, &run("r"), first, "two").await.unwrap();
}

async fn still_whole(folder: &Path) {
    assert_eq!(
        bodies(&open(folder).unwrap(), &run("r")).await,
        ["one", "two"]
    );
}

#[tokio::test]
async fn a_second_opener_is_told_who_holds_the_folder() {
    let folder = folder();
    let store = open(folder.path()).unwrap();
    let error = refusal(folder.path());
    assert_eq!(
        error,
        OpenError::Locked {
            path: folder.path().to_owned(),
            pid: Some(std::process::id())
        }
    );
    assert!(
        error
            .to_string()
            .contains(&format!("process {}", std::process::id())),
        "{error}"
    );
    append(&store, &run("r"), Seq::NONE, "unharmed")
        .await
        .unwrap();
    drop(store);
    open(folder.path()).unwrap();
}

#[tokio::test]
async fn the_folder_keeps_its_cluster_id() {
    let (one, two) = (folder(), folder());
    let first = open(one.path()).unwrap().cluster().clone();
    assert_eq!(open(one.path()).unwrap().cluster(), &first);
    assert_ne!(open(two.path()).unwrap().cluster(), &first);
}

#[tokio::test]
async fn open_existing_creates_nothing() {
    let folder = folder();
    for place in [folder.path().to_owned(), folder.path().join("not there")] {
        let error = EmbeddedStore::open_existing(&place, options())
            .err()
            .unwrap();
        assert_eq!(
            error,
            OpenError::Missing {
                path: place.clone()
            }
        );
        assert!(!place.join("store").exists() && !place.join("leasehold.json").exists());
    }
    written(folder.path()).await;
    EmbeddedStore::open_existing(folder.path(), options()).unwrap();
}

#[tokio::test]
async fn a_newer_format_is_refused_and_left_alone() {
    let folder = folder();
    written(folder.path()).await;
    let marker = folder.path().join("leasehold.json");
    let before = fs::read_to_string(&marker).unwrap();
    fs::write(&marker, r#"{"format": 2, "of": ["another", "shape"]}"#).unwrap();
    assert_eq!(
        refusal(folder.path()),
        OpenError::NewerVersion {
            path: marker.clone(),
            found: 2,
            known: 1
        }
    );
    fs::write(&marker, before).unwrap();
    still_whole(folder.path()).await;
}

#[tokio::test]
async fn a_marker_that_cannot_be_read_is_damage() {
    let folder = folder();
    written(folder.path()).await;
    let marker = folder.path().join("leasehold.json");
    let before = fs::read_to_string(&marker).unwrap();
    let mixed = before.replace("\"kind\": \"store\"", "\"kind\": \"logbook\"");
    assert_ne!(mixed, before);
    for text in [
        "",
        "{",
        "[]",
        "{\"format\":1}",
        "{\"format\":1,\"format\":1}",
        &mixed,
        &"[".repeat(100_000),
        &" ".repeat(70_000),
    ] {
        fs::write(&marker, text).unwrap();
        assert!(
            matches!(refusal(folder.path()), OpenError::Damaged { .. }),
            "{text:.20}"
        );
    }
    fs::write(&marker, before).unwrap();
    still_whole(folder.path()).await;
}

#[tokio::test]
async fn k41_an_emptied_store_is_no_fresh_start() {
    let folder = folder();
    written(folder.path()).await;
    let (store, aside) = (folder.path().join("store"), folder.path().join("aside"));
    fs::rename(&store, &aside).unwrap();
    let emptied = |path: &Path| match refusal(path) {
        OpenError::Emptied { detail, .. } => detail,
        other => panic!("{other}"),
    };
    assert!(emptied(folder.path()).contains("store/ is missing"));
    assert!(!store.exists(), "a refused folder is not touched");
    fs::create_dir(&store).unwrap();
    emptied(folder.path());
    fs::write(store.join("db"), b"").unwrap();
    assert!(emptied(folder.path()).contains("no record"));
    fs::remove_dir_all(&store).unwrap();
    fs::rename(&aside, &store).unwrap();
    still_whole(folder.path()).await;
}

#[tokio::test]
async fn a_store_of_another_folder_is_refused() {
    let (one, two) = (folder(), folder());
    written(one.path()).await;
    written(two.path()).await;
    fs::rename(two.path().join("store"), two.path().join("own")).unwrap();
    copy(&one.path().join("store"), &two.path().join("store"));
    match refusal(two.path()) {
        OpenError::Damaged { detail, .. } => assert!(detail.contains("mixed"), "{detail}"),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_lost_marker_is_written_again_with_the_same_id() {
    let folder = folder();
    written(folder.path()).await;
    let marker = folder.path().join("leasehold.json");
    let before = fs::read_to_string(&marker).unwrap();
    fs::remove_file(&marker).unwrap();
    still_whole(folder.path()).await;
    assert_eq!(fs::read_to_string(&marker).unwrap(), before);
}

#[tokio::test]
async fn what_is_left_of_a_folder_without_marker_and_store_is_no_fresh_start() {
    let folder = folder();
    fs::create_dir_all(folder.path().join("worker/w")).unwrap();
    assert!(matches!(refusal(folder.path()), OpenError::Emptied { .. }));
}

#[tokio::test]
async fn k41_an_older_copy_of_the_store_is_noticed() {
    let folder = folder();
    let aside = common::folder();
    written(folder.path()).await;
    copy(&folder.path().join("store"), aside.path());
    let store = open(folder.path()).unwrap();
    append(
        &store,
        &run("other"),
        Seq::NONE,
        "acknowledged after the copy",
    )
    .await
    .unwrap();
    drop(store);
    fs::remove_dir_all(folder.path().join("store")).unwrap();
    copy(aside.path(), &folder.path().join("store"));
    match refusal(folder.path()) {
        OpenError::Damaged { detail, .. } => assert!(detail.contains("older copy"), "{detail}"),
        other => panic!("{other}"),
    }
}

/// Flips the byte at every place where the text stands in the file.
fn spoil(file: &Path, text: &[u8]) -> usize {
    let mut bytes = fs::read(file).unwrap();
    let places: Vec<_> = bytes
        .windows(text.len())
        .enumerate()
        .filter(|(_, window)| *window == text)
        .map(|(at, _)| at)
        .collect();
    for at in &places {
        bytes[*at] ^= 0x20;
    }
    fs::write(file, bytes).unwrap();
    places.len()
}

/// A body changed on the disk is an error that names its record, or the whole store is refused; never other content, never absence.
#[tokio::test]
async fn a_damaged_record_is_an_error_and_never_absent() {
    let folder = folder();
    let store = open(folder.path()).unwrap();
    let first = append(&store, &run("r"), Seq::NONE, "the first commit of this run")
        .await
        .unwrap();
    append(&store, &run("r"), first, "the second commit of this run")
        .await
        .unwrap();
    drop(store);
    assert!(spoil(&log_of(folder.path()), b"first commit of this run") > 0);
    match open(folder.path()) {
        Err(OpenError::Damaged { .. }) => {}
        Err(other) => panic!("{other}"),
        Ok(store) => match store.read_journal(&run("r"), Seq::NONE).await {
            Err(StoreError::Damaged { .. }) => {}
            other => panic!("{other:?}"),
        },
    }
}

/// Bit rot anywhere in the log of a killed process: refused, reported on reading, or without effect; never a shorter or another journal.
#[tokio::test]
async fn k41_a_flipped_bit_after_a_crash_is_never_a_shorter_journal() {
    flip_bits(false).await;
}

/// The same of records that an earlier opening has checked: those are behind sled's snapshot.
#[tokio::test]
async fn k41_a_flipped_bit_in_checked_records_is_never_a_shorter_journal() {
    flip_bits(true).await;
}

async fn flip_bits(checked: bool) {
    const RUNS: usize = 12;
    // Enough for several of sled's segments.
    const COMMITS: usize = 24;
    const FLIPS: usize = 80;
    let folder = folder();
    let store = open(folder.path()).unwrap();
    for n in 0..RUNS {
        let mut last = Seq::NONE;
        for commit in 0..COMMITS {
            last = append(
                &store,
                &run(&n.to_string()),
                last,
                format!("{n} {commit} {}", "x".repeat(9000)),
            )
            .await
            .unwrap();
        }
    }
    let store = if checked {
        drop(store);
        open(folder.path()).unwrap()
    } else {
        store
    };
    let image = common::folder();
    copy(folder.path(), image.path());
    drop(store);
    let whole = fs::read(log_of(image.path())).unwrap();
    let (mut refused, mut reported, mut harmless) = (0, 0, 0);
    for round in 0..FLIPS {
        let spoiled = common::folder();
        copy(image.path(), spoiled.path());
        let mut bytes = whole.clone();
        let at = round * bytes.len() / FLIPS + round % 7;
        bytes[at] ^= 1 << (round % 8);
        fs::write(log_of(spoiled.path()), bytes).unwrap();
        let store = match open(spoiled.path()) {
            Ok(store) => store,
            Err(OpenError::Damaged { .. } | OpenError::Emptied { .. }) => {
                refused += 1;
                continue;
            }
            Err(other) => panic!("byte {at}: {other}"),
        };
        let (mut errors, mut lost) = (0, Vec::new());
        for n in 0..RUNS {
            match store.read_journal(&run(&n.to_string()), Seq::NONE).await {
                Err(StoreError::Damaged { .. }) => errors += 1,
                Err(other) => panic!("byte {at}: {other}"),
                Ok(journal) if journal.len() == COMMITS => {}
                Ok(journal) => lost.push((n, journal.len())),
            }
        }
        assert_eq!(
            lost,
            [],
            "byte {at} of {}: runs came back shorter",
            whole.len()
        );
        if errors == 0 {
            harmless += 1
        } else {
            reported += 1
        }
    }
    println!(
        "checked {checked}: {FLIPS} flipped bits in {} bytes: {refused} refused at opening, {reported} reported on reading, {harmless} in unused bytes",
        whole.len()
    );
    assert!(refused + reported > 0);
}

/// Values of the largest size that is kept inside sled never end in the files that sled does not sync.
#[tokio::test]
async fn the_largest_records_stay_out_of_sleds_unsynced_files() {
    let folder = folder();
    let store = open(folder.path()).unwrap();
    let name = |n: usize| "é\u{1f600}".repeat(63) + &format!("{n:02}");
    for commit in 0..40 {
        for n in 0..3 {
            let journal = store.read_journal(&run(&name(n)), Seq::NONE).await.unwrap();
            let last = journal.last().map_or(Seq::NONE, |commit| commit.seq);
            append(
                &store,
                &run(&name(n)),
                last,
                vec![b'x'; 16 * 1024 - commit % 2],
            )
            .await
            .unwrap();
        }
    }
    assert_eq!(
        fs::read_dir(folder.path().join("store/blobs"))
            .unwrap()
            .count(),
        0
    );
    let journal = store.read_journal(&run(&name(1)), Seq::NONE).await.unwrap();
    assert_eq!(journal.len(), 40);
    // Above that bound a body is a file of its own.
    append(
        &store,
        &run(&name(1)),
        journal[39].seq,
        vec![b'y'; 16 * 1024 + 1],
    )
    .await
    .unwrap();
    assert_eq!(
        fs::read_dir(folder.path().join("blobs")).unwrap().count(),
        1
    );
    assert_eq!(
        fs::read_dir(folder.path().join("store/blobs"))
            .unwrap()
            .count(),
        0
    );
}
