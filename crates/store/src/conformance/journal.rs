//! Journals: compare-and-set, order, listing.

use std::sync::Arc;

use bytes::Bytes;
use leasehold_protocol::{JournalSubject, Seq};

use super::{Rig, append, bytes, chain, dispatch, one_winner, run, together, write};
use crate::{AppendError, JournalAppend};

/// A journal begins with an append that expects nothing.
pub async fn a_first_append_expects_nothing(rig: &dyn Rig) {
    let store = rig.open().await;
    let run = run("r");
    let seq = append(&*store, &run, JournalSubject::Open, Seq::NONE, "first").await;
    assert!(seq > Seq::NONE);
    let journal = store.read_journal(&run, Seq::NONE).await.unwrap();
    assert_eq!(journal.len(), 1);
    assert_eq!(
        (
            journal[0].seq,
            &journal[0].subject,
            journal[0].body.as_bytes()
        ),
        (seq, &JournalSubject::Open, &b"first"[..])
    );
}

/// Any other expectation than the last position is refused; nothing is stored, and the same expectation as before still works.
pub async fn a_wrong_expectation_is_refused_and_stores_nothing(rig: &dyn Rig) {
    let store = rig.open().await;
    let run = run("r");
    let first = append(&*store, &run, JournalSubject::Open, Seq::NONE, "1").await;
    let second = append(&*store, &run, JournalSubject::Own, first, "2").await;
    for wrong in [Seq::NONE, first, Seq(second.0 + 1), Seq(u64::MAX)] {
        match store
            .append(write(&run, JournalSubject::Note, wrong, "wrong"))
            .await
        {
            Err(AppendError::Refused { expected, last }) => {
                assert_eq!(expected, wrong);
                assert!(last.is_none_or(|last| last == second), "{last:?}");
            }
            other => panic!("expected {wrong}: {other:?}"),
        }
    }
    let third = append(&*store, &run, JournalSubject::Note, second, "3").await;
    assert!(first < second && second < third);
    assert_eq!(store.read_journal(&run, Seq::NONE).await.unwrap().len(), 3);
}

/// Of many writers that read the same end of a journal, one is stored; the others know that they are not.
pub async fn i8_of_many_writers_with_one_expectation_one_wins(rig: &dyn Rig) {
    let store = rig.open().await;
    let run = run("contested");
    let mut last = Seq::NONE;
    for round in 0..20 {
        let results = together((0..16).map(|racer| {
            let (store, run) = (Arc::clone(&store), run.clone());
            async move {
                store
                    .append(write(
                        &run,
                        JournalSubject::Note,
                        last,
                        &format!("{round} {racer}"),
                    ))
                    .await
                    .map(|appended| appended.seq)
            }
        }))
        .await;
        last = one_winner(results);
    }
    let journal = store.read_journal(&run, Seq::NONE).await.unwrap();
    assert_eq!(journal.len(), 20);
    assert_eq!(journal.last().unwrap().seq, last);
}

/// Commits come in order, whole from the start or from behind any position.
pub async fn commits_are_read_in_order_after_any_position(rig: &dyn Rig) {
    let store = rig.open().await;
    let (run, other) = (run("r"), super::run("other"));
    let (mut last, mut apart, mut all) = (Seq::NONE, Seq::NONE, Vec::new());
    for n in 0..30 {
        last = append(&*store, &run, JournalSubject::Note, last, &n.to_string()).await;
        all.push((last, n.to_string()));
        if n % 7 == 0 {
            apart = append(&*store, &other, JournalSubject::Note, apart, "elsewhere").await;
        }
    }
    for from in [
        Seq::NONE,
        all[0].0,
        all[10].0,
        Seq(all[10].0.0 + 1),
        all[29].0,
        Seq(u64::MAX),
    ] {
        let read = store.read_journal(&run, from).await.unwrap();
        let read: Vec<_> = read
            .iter()
            .map(|commit| {
                (
                    commit.seq,
                    String::from_utf8(commit.body.as_bytes().to_vec()).unwrap(),
                )
            })
            .collect();
        let wanted: Vec<_> = all.iter().filter(|(seq, _)| *seq > from).cloned().collect();
        assert_eq!(read, wanted, "after {from}");
    }
}

/// A writer that heard nothing offers the same bytes again. At the same position they are refused, also much later, and never taken for
/// known already; at the next position they are one more commit.
pub async fn k24_the_same_commit_again_is_refused_or_stored_and_never_a_duplicate(rig: &dyn Rig) {
    let store = rig.open().await;
    let run = run("r");
    let first = append(&*store, &run, JournalSubject::Open, Seq::NONE, "same").await;
    let again = write(&run, JournalSubject::Open, Seq::NONE, "same");
    let refused = |answer: Result<crate::Appended, AppendError>| {
        assert!(
            matches!(answer, Err(AppendError::Refused { .. })),
            "{answer:?}"
        );
    };
    refused(store.append(again.clone()).await);
    let second = append(&*store, &run, JournalSubject::Open, first, "same").await;
    drop(store);
    let store = rig.open().await;
    refused(store.append(again).await);
    let journal = store.read_journal(&run, Seq::NONE).await.unwrap();
    let stored: Vec<Seq> = journal.iter().map(|commit| commit.seq).collect();
    assert_eq!(stored, [first, second]);
}

/// A run that nobody wrote to has no commits, and reading it makes none.
pub async fn an_unknown_run_has_no_commits(rig: &dyn Rig) {
    let store = rig.open().await;
    append(&*store, &run("ra"), JournalSubject::Open, Seq::NONE, "1").await;
    for name in ["r", "rb", "ra-"] {
        assert_eq!(store.read_journal(&run(name), Seq::NONE).await.unwrap(), []);
    }
    assert_eq!(store.runs(None, 10).await.unwrap().len(), 1);
}

/// A call without envelope, an envelope without call, or a call of another run is never stored.
pub async fn a_call_and_its_envelope_go_together(rig: &dyn Rig) {
    let store = rig.open().await;
    let run = run("r");
    let call = |of| JournalSubject::Call(chain(&super::run(of), "t", "1-0"));
    for (subject, envelope) in [
        (call("r"), None),
        (JournalSubject::Note, Some(bytes("{}"))),
        (call("other"), Some(bytes("{}"))),
    ] {
        let wrong = JournalAppend {
            call: envelope,
            ..write(&run, subject.clone(), Seq::NONE, "x")
        };
        match store.append(wrong).await {
            Err(AppendError::Never(_)) => {}
            other => panic!("{subject:?}: {other:?}"),
        }
    }
    assert_eq!(store.read_journal(&run, Seq::NONE).await.unwrap(), []);
}

/// Bodies of any bytes and of sizes around every likely bound come back as they were written.
pub async fn bodies_come_back_byte_for_byte_after_reopening(rig: &dyn Rig) {
    let store = rig.open().await;
    let run = run("r");
    let sizes = [0, 1, 4096, 16 * 1024, 16 * 1024 + 1, 48 * 1024, 64 * 1024];
    let bodies: Vec<Bytes> = sizes
        .iter()
        .map(|size| {
            (0..*size)
                .map(|n: usize| (n % 251) as u8)
                .collect::<Vec<_>>()
                .into()
        })
        .collect();
    let mut last = Seq::NONE;
    for body in &bodies {
        let plain = JournalAppend {
            body: body.clone(),
            ..write(&run, JournalSubject::Note, last, "")
        };
        last = store.append(plain).await.unwrap().seq;
    }
    let chain = chain(&run, "t", "1-0");
    let envelope = "e".repeat(40 * 1024);
    let seq = dispatch(&*store, &chain, &envelope).await;
    drop(store);
    let store = rig.open().await;
    let journal = store.read_journal(&run, Seq::NONE).await.unwrap();
    assert_eq!(journal.len(), bodies.len() + 1);
    for (commit, body) in journal.iter().zip(&bodies) {
        assert!(
            commit.body.as_bytes() == body,
            "a body of {} bytes changed",
            body.len()
        );
    }
    let last = journal.last().unwrap();
    assert_eq!(
        (last.seq, &last.subject),
        (seq, &JournalSubject::Call(chain.clone()))
    );
    assert!(store.read_chain(&chain).await.unwrap()[0].body.as_bytes() == envelope.as_bytes());
}

/// A new process compares with what an earlier one stored.
pub async fn the_tail_is_compared_after_reopening(rig: &dyn Rig) {
    let store = rig.open().await;
    let run = run("r");
    let first = append(&*store, &run, JournalSubject::Open, Seq::NONE, "1").await;
    drop(store);
    let store = rig.open().await;
    assert!(matches!(
        store
            .append(write(&run, JournalSubject::Open, Seq::NONE, "x"))
            .await,
        Err(AppendError::Refused { .. })
    ));
    let second = append(&*store, &run, JournalSubject::Own, first, "2").await;
    assert!(second > first);
}

/// Pages of any size, put together, are all runs in the order of their tokens.
pub async fn runs_are_listed_in_pages_in_order_of_token(rig: &dyn Rig) {
    let store = rig.open().await;
    let mut names = ["b", "a", "a-1", "a b", "é", "Z", "a.b", "aa", "a\u{0}"]
        .map(run)
        .to_vec();
    let mut last = Vec::new();
    for name in &names {
        let first = append(&*store, name, JournalSubject::Open, Seq::NONE, "1").await;
        last.push((
            name.clone(),
            append(&*store, name, JournalSubject::Own, first, "2").await,
        ));
    }
    names.sort_by_key(|name| name.token());
    for limit in [1, 2, 4, 100] {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page = store.runs(after.as_ref(), limit).await.unwrap();
            assert!(page.len() <= limit);
            let Some(head) = page.last() else { break };
            after = Some(head.run.clone());
            listed.extend(page);
        }
        assert_eq!(
            listed
                .iter()
                .map(|head| head.run.clone())
                .collect::<Vec<_>>(),
            names,
            "pages of {limit}"
        );
        for head in listed {
            assert!(last.contains(&(head.run.clone(), head.last)), "{head:?}");
            assert_eq!(head.subject, JournalSubject::Own);
        }
    }
    // A place between two runs will do as well.
    let next = names
        .iter()
        .find(|name| name.token().as_str() > "a0")
        .unwrap();
    assert_eq!(store.runs(Some(&run("a0")), 1).await.unwrap()[0].run, *next);
}

/// A run is open until its journal has an end, also for a new process.
pub async fn open_runs_are_those_without_an_end(rig: &dyn Rig) {
    let store = rig.open().await;
    for n in 0..12 {
        let run = run(&format!("r{n}"));
        let first = append(&*store, &run, JournalSubject::Open, Seq::NONE, "1").await;
        if n % 3 != 0 {
            append(&*store, &run, JournalSubject::End, first, "2").await;
        }
    }
    let mut open: Vec<_> = store
        .open_runs()
        .await
        .unwrap()
        .into_iter()
        .map(|head| head.run.to_string())
        .collect();
    open.sort();
    assert_eq!(open, ["r0", "r3", "r6", "r9"]);
    drop(store);
    let store = rig.open().await;
    let open = store.open_runs().await.unwrap();
    assert_eq!(open.len(), 4);
    assert!(open.iter().all(|head| head.subject == JournalSubject::Open));
    assert_eq!(
        store
            .runs(None, 100)
            .await
            .unwrap()
            .iter()
            .filter(|head| head.subject == JournalSubject::End)
            .count(),
        8
    );
}

/// Runs written side by side do not disturb each other.
pub async fn i13_runs_side_by_side_keep_their_own_commits(rig: &dyn Rig) {
    let store = rig.open().await;
    let names: Vec<_> = (0..20).map(|n| format!("side {n}")).collect();
    together(names.clone().into_iter().map(|name| {
        let store = Arc::clone(&store);
        async move {
            let run = run(&name);
            let mut last = Seq::NONE;
            for n in 0..10 {
                last = append(
                    &*store,
                    &run,
                    JournalSubject::Note,
                    last,
                    &format!("{name} {n}"),
                )
                .await;
            }
        }
    }))
    .await;
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        let journal = store.read_journal(&run(&name), Seq::NONE).await.unwrap();
        assert_eq!(journal.len(), 10);
        for (n, commit) in journal.iter().enumerate() {
            assert_eq!(commit.body.as_bytes(), format!("{name} {n}").as_bytes());
            assert!(
                seen.insert(commit.seq),
                "position {} was given out twice",
                commit.seq
            );
        }
    }
}
