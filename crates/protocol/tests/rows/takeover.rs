//! A run that changes hands: S19, S50, S52.

use leasehold_protocol::{Event, Finding, HookAnswer, ObservationKind, Reason, Status};

use crate::harness::World;
use crate::tools::{call, complete};
use crate::worker::{Hand, done, json_of, payload};

#[test]
fn s19_the_outcome_of_a_call_whose_owner_died_is_not_lost() {
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::Runs])
        .submit();
    w.takeover();
    // It keeps running, and the new owner believes that it does.
    assert_eq!(w.inspected(), 1);
    let key = w.key("1-0", 1);
    w.returns(&key, done(r#"{"paid":1}"#));
    w.pass(30_000);
    assert_eq!(w.observation("1-0").content, payload(r#"{"paid":1}"#));
    assert_eq!(w.findings("1-0"), [Some(Finding::Done)]);
    assert_eq!((w.executed.len(), w.acted("1-0")), (1, 1));
    assert_eq!(w.state().status(), Status::Completed);
}

#[test]
fn s50_a_run_that_was_deciding_decides_anew() {
    let mut w = World::new().submit();
    assert_eq!(w.views().len(), 1);
    w.decides([call("pay"), complete()]);
    w.takeover();
    let turns: Vec<u32> = w.views().iter().map(|view| view.turn).collect();
    assert_eq!(turns, [1, 1, 2]);
    let decided = w
        .events()
        .into_iter()
        .filter(|event| matches!(event, Event::Decided { .. }));
    assert_eq!((decided.count(), w.acted("1-0")), (2, 1));
    assert_eq!(w.state().epoch.get(), 2);
    assert!(w.is_ended());
}

#[test]
fn s50_a_call_that_was_judged_and_not_dispatched_is_judged_again() {
    let mut w = World::deciding([call("pay"), complete()]);
    w.judge = Box::new(|_| None);
    let mut w = w.submit();
    w.pass(60);
    w.judge = crate::tools::always(leasehold_protocol::Verdict::Allow);
    w.takeover();
    assert!(w.is_ended());
    assert_eq!(w.acted("1-0"), 1);
}

fn hooked(answer: HookAnswer) -> World {
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::Runs])
        .submit();
    w.crash();
    let key = w.key("1-0", 1);
    w.returns(&key, done("{}"));
    w.hook = Some(answer);
    w.takeover();
    w
}

#[test]
fn s52_the_hook_is_asked_when_a_run_changes_hands_and_decides_how_it_goes_on() {
    let result = json_of(r#"{"by":"hook"}"#);
    for (answer, end) in [
        (
            HookAnswer::Continue,
            (Status::Completed, Reason::GoalCompleted),
        ),
        (
            HookAnswer::Completed { result },
            (Status::Completed, Reason::GoalCompleted),
        ),
        (
            HookAnswer::Conflict {
                detail: "two ledgers".into(),
            },
            (Status::Failed, Reason::ReconcileConflict),
        ),
        (
            HookAnswer::Error {
                error: "panicked".into(),
            },
            (Status::Failed, Reason::InternalError),
        ),
    ] {
        let w = hooked(answer.clone());
        assert_eq!(w.ended(), Some(end), "{answer:?}");
        let asked = w
            .seen
            .iter()
            .filter(|effect| matches!(effect, leasehold_protocol::Effect::AskHook));
        assert_eq!(asked.count(), 1);
        // Whatever it says: what had happened is adopted and told, not forgotten.
        assert_eq!(w.observation("1-0").kind, ObservationKind::ToolResult);
        if let HookAnswer::Completed { .. } = answer {
            assert_eq!(
                w.state().ending.unwrap().result,
                Some(payload(r#"{"by":"hook"}"#))
            );
        }
    }
}

#[test]
fn s52_a_new_run_asks_no_hook_and_nothing_is_done_before_the_hook_answers() {
    let mut w = World::deciding([call("pay"), complete()]).hand("pay", [Hand::Absent]);
    w.hook = Some(HookAnswer::Continue);
    let mut w = w.submit();
    let hooks = |w: &World| {
        w.seen
            .iter()
            .filter(|effect| matches!(effect, leasehold_protocol::Effect::AskHook))
            .count()
    };
    assert_eq!(hooks(&w), 0);
    w.crash();
    w.start();
    let load = w.queue.pop_front().unwrap();
    let effects = w.ask(load);
    let [leasehold_protocol::Effect::Commit(own), ..] = &effects[..] else {
        panic!("{effects:?}")
    };
    w.commit_now(own.clone(), true);
    let stored = w.queue.pop_front().unwrap();
    let effects = w.ask(stored);
    assert!(
        effects.iter().all(|effect| matches!(
            effect,
            leasehold_protocol::Effect::AskHook | leasehold_protocol::Effect::WakeAt { .. }
        )),
        "{effects:?}"
    );
    assert_eq!(w.journal.len(), 3);
}
