//! A run whose owners die one after another: I16, K14, K42.

use leasehold_protocol::state::MAX_LOST_OWNERS;
use leasehold_protocol::{
    Decision, Event, HookAnswer, Input, JournalSubject, Question, Reason, Status, StopReason,
};

use crate::harness::World;
use crate::tools::{call, complete};
use crate::worker::{Hand, done, json_of};

/// The session TTL of all owners here, milliseconds.
pub(crate) const TTL_MS: u64 = 30_000;

/// A run whose agent ends the process of whoever asks it, after so many owners.
fn killed_by(owners: usize) -> World {
    let mut w = World::new().submit();
    for _ in 1..owners {
        w.takeover();
    }
    w
}

/// A run that has cost as many owners as it may, taken by one more.
fn quarantined() -> World {
    killed_by(MAX_LOST_OWNERS + 1)
}

fn first() -> Vec<String> {
    vec!["run.1".into()]
}

#[test]
fn i16_k42_a_run_that_kills_every_owner_is_held_by_the_one_after_the_third() {
    let w = killed_by(MAX_LOST_OWNERS);
    assert_eq!((w.views().len(), w.state().status()), (3, Status::Running));
    let w = quarantined();
    let state = w.state();
    assert_eq!((state.status(), state.parked), (Status::Waiting, true));
    assert!(state.is_quarantined());
    assert_eq!(w.stops().last(), Some(&StopReason::Parked));
    // The owner that found out did nothing that could have ended it.
    assert_eq!(w.views().len(), 3);
    let last = w.commits().pop().unwrap();
    assert_eq!(w.journal.last().unwrap().subject, JournalSubject::Own);
    let [
        Event::Owned { .. },
        Event::Requested {
            step: None,
            question: Question::Quarantined { lost },
            expires_at: None,
            ..
        },
        Event::Parked { wake_at: None },
    ] = &last.events[..]
    else {
        panic!("{last:?}")
    };
    let names: Vec<_> = lost
        .iter()
        .map(|owner| (owner.node.as_str(), owner.session.as_str()))
        .collect();
    assert_eq!(names, [("n-1", "s-1"), ("n-2", "s-2"), ("n-3", "s-3")]);
}

#[test]
fn k14_every_takeover_has_a_higher_epoch_and_a_quarantine_ends_by_an_answer_only() {
    let mut w = quarantined();
    let written = w.journal.len();
    w.pass(10 * TTL_MS);
    assert_eq!(w.journal.len(), written);
    for _ in 0..5 {
        w.takeover();
        assert_eq!((w.open(), w.views().len()), (first(), 3));
        assert!(w.state().parked);
    }
    let epochs = w.commits().into_iter().map(|commit| commit.epoch.get());
    let mut epochs: Vec<u64> = epochs.collect();
    epochs.dedup();
    assert_eq!(epochs, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn i16_approved_it_goes_on_rejected_or_cancelled_it_ends() {
    let mut w = quarantined();
    w.decides([call("pay"), complete()]);
    w.decide("run.1", Decision::Approve);
    assert_eq!(w.ended(), Some((Status::Completed, Reason::GoalCompleted)));
    assert_eq!(w.acted("1-0"), 1);

    let mut w = quarantined();
    w.decide("run.1", Decision::Reject);
    let rejected = Some((Status::Cancelled, Reason::ApprovalRejected));
    assert_eq!((w.ended(), w.views().len()), (rejected, 3));

    let mut w = quarantined();
    w.cancel();
    let cancelled = Some((Status::Cancelled, Reason::OperatorCancelled));
    assert_eq!((w.ended(), w.views().len()), (cancelled, 3));
}

#[test]
fn i16_a_run_that_goes_on_killing_is_held_again() {
    let mut w = quarantined();
    w.decide("run.1", Decision::Approve);
    assert_eq!((w.open().len(), w.views().len()), (0, 4));
    // The owner that folded the answer wrote it down: it counts with none of these.
    for _ in 0..MAX_LOST_OWNERS {
        w.takeover();
        assert_eq!(w.state().status(), Status::Running);
    }
    w.takeover();
    assert_eq!((w.open(), w.views().len()), (vec!["run.2".into()], 7));
}

#[test]
fn i16_an_owner_that_lived_on_committed_or_let_go_was_not_lost_to_the_run() {
    // Two lives of a session after it took the run, it is another matter.
    for (gap, held) in [(2 * TTL_MS - 1, true), (2 * TTL_MS, false)] {
        let mut w = World::new().submit();
        for _ in 0..MAX_LOST_OWNERS {
            w.pass(gap);
            w.takeover();
        }
        assert_eq!(w.state().is_quarantined(), held, "{gap}");
    }
    // One that lived on breaks the row.
    let mut w = killed_by(MAX_LOST_OWNERS);
    w.pass(2 * TTL_MS);
    for _ in 0..MAX_LOST_OWNERS {
        w.takeover();
        assert!(!w.state().is_quarantined());
    }
    w.takeover();
    assert!(w.state().is_quarantined());
    // Stopped in good order.
    let mut w = World::new().submit();
    for _ in 0..3 * MAX_LOST_OWNERS {
        w.tell(Input::Drain);
        w.takeover();
    }
    assert_eq!(w.state().status(), Status::Running);
    // Something came of each.
    let mut w = World::new();
    w.limits.max_consecutive_failures = 100;
    let mut w = w.submit();
    for turn in 1..=3 * MAX_LOST_OWNERS {
        w.decides((0..turn).map(|_| "no decision"));
        w.takeover();
        w.pass(leasehold_protocol::run::RIDE_MS);
    }
    assert_eq!(w.state().status(), Status::Running);
    // The same life takes the run again and again: nobody died.
    let mut w = World::new().submit();
    for _ in 0..3 * MAX_LOST_OWNERS {
        w.crash();
        w.start_again();
        w.go();
    }
    assert_eq!(w.state().status(), Status::Running);
}

#[test]
fn i16_i18_a_run_that_kills_its_owners_while_it_ends_is_held_and_ends_after_either_answer() {
    for answer in [Decision::Approve, Decision::Reject] {
        let mut w = World::deciding([call("pay")])
            .hand("pay", [Hand::Runs])
            .submit();
        w.cancel();
        for _ in 0..=MAX_LOST_OWNERS {
            assert_eq!(w.state().status(), Status::Running);
            w.takeover();
        }
        let state = w.state();
        assert_eq!((state.status(), state.parked), (Status::Waiting, true));
        assert_eq!(w.open(), first());
        w.decide("run.1", answer);
        assert!(!w.is_ended() && w.open().is_empty());
        let key = w.key("1-0", 1);
        w.returns(&key, done("{}"));
        w.pass(2_000);
        let cancelled = Some((Status::Cancelled, Reason::OperatorCancelled));
        assert_eq!((w.ended(), w.acted("1-0")), (cancelled, 1));
    }
}

#[test]
fn i16_s52_the_hook_is_asked_after_the_quarantine_and_has_a_question_of_its_own() {
    let mut w = World::new().submit();
    w.hook = Some(HookAnswer::Waiting {
        approval_kind: "failover".into(),
        capability: "go on".into(),
        presentation: json_of("{}"),
    });
    let hook = w.hook.take();
    for _ in 1..MAX_LOST_OWNERS {
        w.takeover();
    }
    w.hook = hook;
    w.takeover();
    let asked = |w: &World| {
        let asked = |effect: &&_| matches!(effect, leasehold_protocol::Effect::AskHook);
        w.seen.iter().filter(asked).count()
    };
    assert_eq!((w.open(), asked(&w)), (first(), 0));
    w.decide("run.1", Decision::Approve);
    assert_eq!((w.open(), asked(&w)), (vec!["run.2".into()], 1));
    assert_eq!(w.views().len(), 3);
    w.decides([complete()]);
    w.decide("run.2", Decision::Approve);
    assert_eq!(w.ended(), Some((Status::Completed, Reason::GoalCompleted)));
}

#[test]
fn i16_a_quarantine_never_expires() {
    let mut w = World::new();
    w.limits.approval_ttl_ms = 5_000;
    let mut w = w.submit();
    for _ in 0..MAX_LOST_OWNERS {
        w.takeover();
    }
    w.pass(100_000);
    assert_eq!((w.open(), w.timer), (first(), None));
}
