//! A store or logbook whose log was cut off at any byte of what was flushed last.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::fs;

use common::{
    append, armed, bodies, chain, copy, cut, folder, length, log_of, logbook, open, outcome, run,
};
use leasehold_embedded::OpenError;
use leasehold_protocol::{LogbookRecord, Seq};
use leasehold_store::{ArmAnswer, Logbook};

/// Cut anywhere inside the last group: if that group was acknowledged the store is refused, and if it was not, the store ends with the
/// last whole record. It is never empty and never silently shorter.
#[tokio::test]
async fn k41_a_store_cut_at_every_byte_of_the_last_group() {
    let (live, before, after) = (folder(), folder(), folder());
    let store = open(live.path()).unwrap();
    let first = append(&store, &run("r"), Seq::NONE, "one").await.unwrap();
    let second = append(&store, &run("r"), first, "two").await.unwrap();
    copy(live.path(), before.path());
    append(&store, &run("r"), second, "three").await.unwrap();
    copy(live.path(), after.path());
    drop(store);
    let (from, to) = (
        length(&log_of(before.path())),
        length(&log_of(after.path())),
    );
    assert!(
        from < to && to - from < 4096,
        "the last group is the region {from}..{to}"
    );
    let (mut two, mut three, mut damaged) = (0, 0, 0);
    for at in from..=to {
        let image = folder();
        copy(after.path(), image.path());
        cut(&log_of(image.path()), at);
        match open(image.path()) {
            Ok(store) => {
                assert_eq!(
                    bodies(&store, &run("r")).await,
                    ["one", "two", "three"],
                    "cut at {at}: an acknowledged commit is missing"
                );
                three += 1;
            }
            Err(OpenError::Damaged { .. }) => damaged += 1,
            Err(other) => panic!("cut at {at}: {other}"),
        }
        // The same log, of a process that died before it acknowledged the last group.
        let image = folder();
        copy(after.path(), image.path());
        cut(&log_of(image.path()), at);
        fs::copy(before.path().join("head"), image.path().join("head")).unwrap();
        let store = open(image.path()).unwrap_or_else(|e| panic!("cut at {at}: {e}"));
        let found = bodies(&store, &run("r")).await;
        match found.len() {
            2 => two += 1,
            3 => {}
            _ => panic!("cut at {at}: {found:?}"),
        }
        append(&store, &run("another"), Seq::NONE, "it goes on")
            .await
            .unwrap();
    }
    println!(
        "{} cuts: {damaged} refused, {three} whole; unacknowledged: {two} end with the record before",
        to - from + 1
    );
    assert!(damaged > 0 && three > 0 && two > 0);
}

/// Cut anywhere inside its last group a logbook holds everything it acknowledged, or it is set aside and another one takes its place.
#[tokio::test]
async fn k41_a_logbook_cut_at_every_byte_of_the_last_group() {
    let (live, before, after) = (folder(), folder(), folder());
    let opened = logbook(live.path(), 1);
    let book = opened.logbook;
    book.create(&chain("r", 1), LogbookRecord::Armed(armed()))
        .await
        .unwrap();
    copy(live.path(), before.path());
    book.create(&chain("r", 2), LogbookRecord::Armed(armed()))
        .await
        .unwrap();
    copy(live.path(), after.path());
    let id = book.id().clone();
    drop(book);
    let log = |folder: &std::path::Path| folder.join("current/log/db");
    let (from, to) = (length(&log(before.path())), length(&log(after.path())));
    let (mut whole, mut aside) = (0, 0);
    for at in from..=to {
        let image = folder();
        copy(after.path(), image.path());
        cut(&log(image.path()), at);
        let opened = logbook(image.path(), 77);
        let second = opened.logbook.get(&chain("r", 2)).await.unwrap();
        match opened.quarantined {
            None => {
                assert_eq!(opened.logbook.id(), &id);
                assert_eq!(
                    second,
                    Some(LogbookRecord::Armed(armed())),
                    "cut at {at}: an armed attempt was forgotten under the same id"
                );
                whole += 1;
            }
            Some((place, _)) => {
                assert_ne!(opened.logbook.id(), &id);
                assert_eq!(second, None);
                assert_eq!(place, image.path().join("quarantine-77"));
                assert!(place.join("log/db").exists(), "the old one is kept");
                aside += 1;
            }
        }
    }
    println!("{} cuts: {whole} whole, {aside} quarantined", to - from + 1);
    assert!(whole > 0 && aside > 0);
}

#[tokio::test]
async fn a_logbook_that_is_not_the_marked_one_is_quarantined_and_kept() {
    let folder = folder();
    let opened = logbook(folder.path(), 5);
    assert!(opened.quarantined.is_none() && opened.moved_from.is_none());
    let first = opened.logbook.id().clone();
    drop(opened);
    let marker = folder.path().join("current/logbook.json");
    let text = fs::read_to_string(&marker).unwrap();
    fs::write(&marker, text.replace(first.as_str(), "another id")).unwrap();
    let opened = logbook(folder.path(), 9);
    let (place, reason) = opened.quarantined.unwrap();
    assert_eq!(place, folder.path().join("quarantine-9"));
    assert!(reason.to_string().contains("mixed"), "{reason}");
    assert_ne!(opened.logbook.id(), &first);
    assert!(place.join("log/db").exists());
    drop(opened.logbook);
    // A second time at the same moment finds another name.
    fs::remove_file(folder.path().join("current/log/db")).unwrap();
    let (place, _) = logbook(folder.path(), 9).quarantined.unwrap();
    assert_eq!(place, folder.path().join("quarantine-10"));
}

#[tokio::test]
async fn a_logbook_in_use_is_refused_and_not_quarantined() {
    let folder = folder();
    let opened = logbook(folder.path(), 5);
    let options = leasehold_embedded::LogbookOptions {
        worker: common::worker(),
        now: 6,
    };
    let error = leasehold_embedded::SledLogbook::open(folder.path(), options)
        .err()
        .unwrap();
    assert!(
        matches!(error, OpenError::Locked { pid: Some(_), .. }),
        "{error}"
    );
    drop(opened);
    assert!(logbook(folder.path(), 7).quarantined.is_none());
}

#[tokio::test]
async fn a_logbook_keeps_first_records_and_takes_one_outcome() {
    let folder = folder();
    let opened = logbook(folder.path(), 1);
    let (book, one, two) = (&opened.logbook, chain("r", 1), chain("r", 2));
    let tombstone = LogbookRecord::Tombstone {
        claim: armed().claim,
        why: "never".to_owned(),
    };
    assert_eq!(
        book.create(&one, LogbookRecord::Armed(armed()))
            .await
            .unwrap(),
        ArmAnswer::Written
    );
    assert_eq!(
        book.create(&one, tombstone.clone()).await.unwrap(),
        ArmAnswer::Present(LogbookRecord::Armed(armed()))
    );
    assert_eq!(
        book.create(&two, tombstone.clone()).await.unwrap(),
        ArmAnswer::Written
    );
    assert_eq!(
        book.create(&two, LogbookRecord::Armed(armed()))
            .await
            .unwrap(),
        ArmAnswer::Present(tombstone.clone())
    );
    book.outcome(&one, outcome()).await.unwrap();
    book.outcome(&one, outcome()).await.unwrap();
    for (chain, wrong) in [
        (&two, outcome()),
        (&chain("r", 3), outcome()),
        (&one, tombstone.clone()),
    ] {
        assert!(book.outcome(chain, wrong).await.is_err(), "{chain}");
    }
    assert_eq!(
        book.open_attempts().await.unwrap(),
        [(one.clone(), outcome()), (two.clone(), tombstone.clone())]
    );
    book.published(&two).await.unwrap();
    let (id, boot) = (book.id().clone(), book.boots().to_vec());
    drop(opened);
    let opened = logbook(folder.path(), 2);
    let book = &opened.logbook;
    assert_eq!(book.id(), &id);
    assert_eq!(book.boots()[..boot.len()], boot, "openings are remembered");
    assert_eq!(book.boots().len(), boot.len() + 1);
    assert_eq!(
        book.open_attempts().await.unwrap(),
        [(one.clone(), outcome())]
    );
    assert_eq!(
        book.get(&two).await.unwrap(),
        Some(tombstone),
        "a published record stays"
    );
    assert_eq!(book.get(&chain("r", 4)).await.unwrap(), None);
}

#[tokio::test]
async fn of_many_that_arm_one_attempt_one_does() {
    let folder = folder();
    let book = std::sync::Arc::new(logbook(folder.path(), 1).logbook);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let book = std::sync::Arc::clone(&book);
        tasks.spawn(async move {
            book.create(&chain("r", 1), LogbookRecord::Armed(armed()))
                .await
                .unwrap()
        });
    }
    let answers = tasks.join_all().await;
    assert_eq!(
        answers
            .iter()
            .filter(|answer| **answer == ArmAnswer::Written)
            .count(),
        1
    );
}

/// A result of any size is kept, and never in the files that sled does not sync.
#[tokio::test]
async fn a_large_outcome_is_kept_in_a_file_of_its_own() {
    let folder = folder();
    let opened = logbook(folder.path(), 1);
    opened
        .logbook
        .create(&chain("r", 1), LogbookRecord::Armed(armed()))
        .await
        .unwrap();
    let large = LogbookRecord::Outcome {
        armed: armed(),
        outcome: leasehold_protocol::OutcomeBody::Aborted {
            detail: "x".repeat(60_000),
        },
    };
    opened
        .logbook
        .outcome(&chain("r", 1), large.clone())
        .await
        .unwrap();
    opened
        .logbook
        .outcome(&chain("r", 1), large.clone())
        .await
        .unwrap();
    drop(opened);
    let opened = logbook(folder.path(), 2);
    assert_eq!(
        opened.logbook.get(&chain("r", 1)).await.unwrap(),
        Some(large)
    );
    assert_eq!(
        fs::read_dir(folder.path().join("current/log/blobs"))
            .unwrap()
            .count(),
        0
    );
    assert_eq!(
        fs::read_dir(folder.path().join("current/blobs"))
            .unwrap()
            .count(),
        1
    );
}
