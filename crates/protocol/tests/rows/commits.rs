//! Commits that are lost, doubted, refused or not ours: K25, K07, fencing, and letting go.

use leasehold_protocol::{
    Effect, Event, FoldError, Input, JournalSubject, RunState, Status, StopReason, StoredCommit,
};

use crate::harness::{Fault, World};
use crate::tools::{call, calls, complete};

fn scenario(fault: Option<(usize, Fault)>) -> World {
    let mut w = World::deciding([
        calls(&[("look", "{}"), ("pay", "{}")]),
        call("note"),
        complete(),
    ]);
    if let Some((at, fault)) = fault {
        w.faults.extend(std::iter::repeat_n(Fault::Fine, at));
        w.faults.push_back(fault);
    }
    let mut w = w.submit();
    // What was republished before the commit was known to be stored is read later.
    w.pass(60_000);
    w
}

/// What became true, whichever commits it was shared out over: an outcome may be heard before a late acknowledgement.
fn what(w: &World) -> Vec<String> {
    let mut texts: Vec<String> = w
        .events()
        .iter()
        .map(|event| format!("{event:?}"))
        .collect();
    texts.sort();
    texts
}

fn bodies(w: &World) -> Vec<&[u8]> {
    w.journal
        .iter()
        .map(|stored| stored.body.as_bytes())
        .collect()
}

#[test]
fn k25_a_lost_acknowledgement_neither_doubles_nor_loses_a_commit() {
    let clean = scenario(None);
    assert!(clean.is_ended());
    for at in 0..clean.journal.len() {
        for fault in [Fault::LostAck, Fault::Vanished] {
            let w = scenario(Some((at, fault)));
            for (made, wanted) in what(&w).iter().zip(what(&clean)) {
                assert_eq!(*made, wanted, "{fault:?} at commit {at}");
            }
            assert_eq!(w.events().len(), clean.events().len());
            assert!(w.state().void.is_empty());
            assert_eq!(w.executed.len(), clean.executed.len());
            assert!(
                w.seen
                    .iter()
                    .any(|effect| matches!(effect, Effect::ReadJournal { .. }))
            );
        }
    }
}

#[test]
fn k07_a_busy_commit_is_tried_again_with_the_same_expectation() {
    let clean = scenario(None);
    for at in 0..clean.journal.len() {
        let w = scenario(Some((at, Fault::Busy)));
        assert_eq!(bodies(&w), bodies(&clean));
        let requests: Vec<_> = w
            .seen
            .iter()
            .filter_map(|effect| match effect {
                Effect::Commit(request) => Some(request),
                _ => None,
            })
            .collect();
        assert_eq!(
            requests[at],
            requests[at + 1],
            "the same bytes, the same expected position"
        );
        assert_eq!(w.stops(), [StopReason::Ended], "never taken for a fence");
    }
}

#[test]
fn k11_i3_an_owner_that_meets_a_higher_epoch_stops_and_writes_nothing() {
    let mut w = World::new().submit();
    let mut old = w.owner.take().unwrap();
    w.start();
    w.go();
    assert_eq!(w.state().epoch.get(), 2);
    let (now, length) = (w.now, w.journal.len());
    let decision = leasehold_json::Kept::from_bytes(call("pay").as_bytes());
    let asks = old.step(now, Input::AgentDecided { turn: 1, decision });
    let [Effect::AskPolicy(request), ..] = &asks[..] else {
        panic!("{asks:?}")
    };
    let verdict = Ok(leasehold_protocol::Verdict::Allow);
    let effects = old.step(
        now,
        Input::Judged {
            step: request.step,
            policy: "p".into(),
            verdict,
        },
    );
    let [Effect::Commit(request), ..] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert!(
        request.expected < w.journal.last().unwrap().seq,
        "the store refuses it"
    );
    assert!(matches!(request.subject, JournalSubject::Call(_)));
    let read = old.step(now, Input::CommitDoubtful);
    assert!(matches!(read[..], [Effect::ReadJournal { .. }]), "{read:?}");
    let stop = old.step(
        now,
        Input::JournalRead {
            commits: w.journal.clone(),
        },
    );
    assert!(
        matches!(&stop[..], [Effect::Stop(StopReason::Fenced(_))]),
        "{stop:?}"
    );
    for input in [
        Input::Tick,
        Input::CommitBusy,
        Input::CommitDoubtful,
        Input::Drain,
    ] {
        assert_eq!(old.step(now, input), []);
    }
    assert_eq!(w.journal.len(), length);
}

#[test]
fn i8_a_strangers_bytes_in_the_journal_are_passed_over_and_seen() {
    let mut w = World::deciding([call("pay"), complete()]);
    w.faults.extend([Fault::Fine, Fault::Held]);
    let mut w = w.submit();
    let held = w.held.take().unwrap();
    w.broken = true;
    let stranger = StoredCommit {
        seq: w.next(),
        subject: JournalSubject::Note,
        body: b"{\"v\":1}".as_slice().into(),
    };
    w.journal.push(stranger.clone());
    w.commit_now(held.clone(), true);
    w.go();
    assert!(w.is_ended());
    assert_eq!(w.executed.len(), 1);
    let state = w.state();
    assert_eq!(
        state.void.iter().map(|void| void.seq).collect::<Vec<_>>(),
        [stranger.seq]
    );
    let again = w.seen.iter().filter_map(|effect| match effect {
        Effect::Commit(request) if request.body == held.body => Some(request.expected),
        _ => None,
    });
    assert_eq!(again.collect::<Vec<_>>(), [held.expected, stranger.seq]);
}

#[test]
fn i9_a_commit_of_a_newer_version_is_never_skipped() {
    let mut w = World::deciding([call("pay"), complete()]);
    w.faults.extend([Fault::Fine, Fault::Held]);
    let mut w = w.submit();
    let held = w.held.take().unwrap();
    w.broken = true;
    let seq = w.next();
    let (subject, body) = (
        JournalSubject::Note,
        b"{\"v\":2,\"news\":true}".as_slice().into(),
    );
    w.journal.push(StoredCommit { seq, subject, body });
    w.commit_now(held, true);
    w.go();
    assert!(matches!(&w.stops()[..], [StopReason::Unreadable(_)]));
    assert!(w.executed.is_empty());
    assert!(matches!(
        RunState::fold(w.run.clone(), &w.journal),
        Err(FoldError::Newer { .. })
    ));
}

#[test]
fn drain_lets_go_in_good_order_and_the_next_owner_goes_on() {
    let mut w = World::new().submit();
    w.tell(Input::Drain);
    assert_eq!(w.stops(), [StopReason::Released]);
    assert!(matches!(w.events().last(), Some(Event::Released { .. })));
    w.decides([complete()]);
    w.takeover();
    assert_eq!(w.state().status(), Status::Completed);
}

#[test]
fn i19_after_authority_is_lost_nothing_is_written() {
    let mut w = World::deciding([call("pay")]);
    w.judge = Box::new(|_| None);
    let mut w = w.submit();
    let effects = w.ask(Input::AuthorityLost);
    assert_eq!(effects, [Effect::Stop(StopReason::AuthorityLost)]);
    let (step, policy) = ("1-0".parse().unwrap(), "p".to_owned());
    let verdict = Ok(leasehold_protocol::Verdict::Allow);
    assert_eq!(
        w.ask(Input::Judged {
            step,
            policy,
            verdict
        }),
        []
    );
    assert_eq!(w.ask(Input::Tick), []);
}
