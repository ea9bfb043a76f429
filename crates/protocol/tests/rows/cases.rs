//! Reported cases that the machines decide and no row tells by itself: K14, K27, K32, K35, K37, K38, K40.

use std::collections::BTreeSet;

use leasehold_protocol::{
    Decision, Effect, Event, InboxAnswer, Input, ObservationKind, Question, Reason, RunState,
    Status, StopReason, ToolReturn, Verdict,
};
use leasehold_tools::Failure;

use crate::harness::World;
use crate::tools::{always, call, calls, complete, require};
use crate::worker::{Hand, done, json_of, payload};

/// Between two takeovers: so long that no owner's death has to do with the one before it.
const LONG_AFTER_MS: u64 = 120_000;

/// The epochs that owners wrote, in order.
fn epochs(w: &World) -> Vec<u64> {
    let commits = w.commits();
    let owns = commits.iter().flat_map(|commit| {
        let owned = |event: &&Event| matches!(event, Event::Owned { .. });
        commit.events.iter().filter(owned).map(|_| commit.epoch)
    });
    owns.map(|epoch| epoch.get()).collect()
}

#[test]
fn k14_each_of_five_takeovers_has_a_token_of_its_own_and_the_run_ends() {
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::Absent, Hand::Returns(done("{}"))])
        .submit();
    // Owners that have lost the run and do not know it.
    let mut stale = Vec::new();
    for _ in 0..5 {
        w.pass(LONG_AFTER_MS);
        stale.extend(w.owner.take());
        w.takeover();
    }
    assert_eq!(epochs(&w), [1, 2, 3, 4, 5, 6]);
    let length = w.journal.len();
    for old in &mut stale {
        // Whichever of them writes is refused, reads, and lets go.
        let written = old.step(w.now, Input::Drain);
        let [Effect::Commit(request), ..] = &written[..] else {
            panic!("{written:?}")
        };
        assert!(request.expected < w.journal.last().unwrap().seq);
        old.step(w.now, Input::CommitDoubtful);
        let commits = w.journal.clone();
        let stops = old.step(w.now, Input::JournalRead { commits });
        assert!(
            matches!(stops[..], [Effect::Stop(StopReason::Fenced(_))]),
            "{stops:?}"
        );
    }
    assert_eq!(w.journal.len(), length);
    let key = w.key("1-0", 1);
    w.deliver(&key);
    w.pass(30_000);
    assert_eq!(w.ended(), Some((Status::Completed, Reason::GoalCompleted)));
    assert_eq!((w.executed.len(), w.acted("1-0")), (1, 1));
}

#[test]
fn k27_an_agent_that_fails_after_a_paid_call_pays_nothing_again() {
    let mut w = World::new();
    // Its model answers the first request and refuses every other one.
    w.agent = Box::new(|view| {
        Some(match view.turn {
            1 => Ok(call("pay").into_bytes()),
            _ => Err("status 500".to_owned()),
        })
    });
    let w = w.submit();
    assert_eq!(w.ended(), Some((Status::Failed, Reason::AgentError)));
    assert_eq!((w.executed.len(), w.acted("1-0")), (1, 1));

    // Owners that die while the model is asked ask the model again, and nobody else.
    let mut w = World::deciding([call("pay")]).submit();
    for _ in 0..3 {
        w.pass(LONG_AFTER_MS);
        w.takeover();
    }
    let turns: Vec<u32> = w.views().iter().map(|view| view.turn).collect();
    assert_eq!(turns, [1, 2, 2, 2, 2]);
    assert_eq!((w.executed.len(), w.acted("1-0")), (1, 1));
}

#[test]
fn k32_a_wait_of_days_lies_in_the_journal_and_in_no_message() {
    let mut w = World::deciding([call("pay"), complete()]);
    w.judge = always(require("pay once"));
    let mut w = w.submit();
    assert_eq!(w.stops(), [StopReason::Parked]);
    let (length, seen) = (w.journal.len(), w.seen.len());
    let acknowledged = |w: &World| w.inbox.values().all(|(_, _, acked)| *acked);
    assert!(acknowledged(&w), "nothing is left to be delivered again");
    w.pass(3 * 24 * 3_600_000);
    assert_eq!((w.journal.len(), w.seen.len()), (length, seen));
    w.decide("1-0.1", Decision::Approve);
    assert!(w.is_ended() && acknowledged(&w));
    assert_eq!((w.executed.len(), w.acted("1-0")), (1, 1));
}

#[test]
fn k35_an_interrupted_call_stays_in_what_the_agent_is_told_with_what_was_found() {
    let mut w = World::deciding([calls(&[("pay", r#"{"n":7}"#), ("note", "{}")]), complete()])
        .hand("pay", [Hand::DiesActed])
        .submit();
    w.restart_worker();
    assert_eq!(w.open(), ["1-0.1"]);
    assert_eq!(
        w.views().len(),
        1,
        "nothing is told while nobody knows what happened"
    );
    w.decide(
        "1-0.1",
        Decision::RecordDone {
            result: json_of(r#"{"receipt":7}"#),
        },
    );
    let view = w.views().pop().expect("asked again");
    assert_eq!(view.turn, 2);
    let steps: Vec<_> = view.turns.iter().flat_map(|turn| &turn.steps).collect();
    assert_eq!(steps.len(), 2, "no call is dropped: {steps:#?}");
    let told = steps[0].observation.as_ref().expect("told");
    assert_eq!(told.kind, ObservationKind::ToolResult);
    assert_eq!(told.content, payload(r#"{"receipt":7}"#));
    assert!(steps[1].observation.is_some());
    assert_eq!((w.acted("1-0"), w.is_ended()), (1, true));
}

#[test]
fn k37_an_error_text_that_differs_each_time_is_told_as_it_was_recorded() {
    let failed = |text: &str| ToolReturn::NothingHappened {
        failure: Failure::Error,
        message: text.to_owned(),
    };
    let text = "0x7ffd1c at 12:00:01.337 in /srv/build-17/pay.rs:99";
    let mut w = World::deciding([call("pay")]).hand(
        "pay",
        [
            Hand::Returns(failed(text)),
            Hand::Returns(failed("another address")),
        ],
    );
    w.limits.max_consecutive_failures = 9;
    let mut w = w.submit();
    w.pass(60);
    let told = w.observation("1-0");
    assert!(format!("{:?}", told.content).contains(text), "{told:?}");
    let (state, view) = (w.state(), w.views().pop().expect("asked"));
    for _ in 0..3 {
        w.pass(LONG_AFTER_MS);
        w.takeover();
        // Whatever the same tool would say now, on another machine: nobody asks it.
        let mut again = w.views().pop().expect("asked again");
        again.left = view.left;
        assert_eq!(again, view);
        assert_eq!(w.state().turns, state.turns);
    }
    assert_eq!(w.executed.len(), 1);
}

/// Whatever else is open once a run was cancelled: the tool returns, the worker's process comes back, time passes.
fn let_end(w: &mut World) {
    for _ in 0..50 {
        if w.is_ended() {
            return;
        }
        if w.owner.is_none() {
            w.start();
        }
        w.go();
        if !w.worker_alive {
            w.restart_worker();
        }
        w.pass(1_000);
    }
    panic!("a cancelled run does not end: {:#?}", w.events());
}

/// The run is cancelled, twice, after its owner died behind the write of this number, and the owner that folds the cancel dies as well.
fn cancelled(scenario: &dyn Fn() -> World, first: u64, second: u64) -> World {
    let mut w = scenario();
    w.deaths = BTreeSet::from([first]);
    let mut w = w.submit();
    w.deaths.insert(w.writes + second);
    w.cancel();
    w.cancel();
    let_end(&mut w);
    w
}

#[test]
fn k38_a_cancel_after_any_write_and_twice_ends_the_run_once() {
    type Scenario<'a> = (&'a str, &'a dyn Fn() -> World);
    let scenarios: [Scenario<'_>; 4] = [
        ("returns", &|| {
            World::deciding([calls(&[("look", "{}"), ("pay", "{}")]), complete()])
        }),
        ("runs", &|| {
            World::deciding([call("pay"), complete()]).hand("pay", [Hand::Runs])
        }),
        ("dies", &|| {
            World::deciding([call("pay"), complete()]).hand("pay", [Hand::DiesActed])
        }),
        ("asks", &|| {
            let mut w = World::deciding([call("pay"), complete()]);
            w.judge = always(require("pay once"));
            w
        }),
    ];
    for (name, scenario) in scenarios {
        let writes = scenario().submit().writes;
        for first in 1..=writes {
            for second in 0..=4 {
                let w = cancelled(scenario, first, second);
                let ends = w.events().into_iter();
                let ends = ends.filter(|event| matches!(event, Event::Ended { .. }));
                assert_eq!(ends.count(), 1, "{name} {first} {second}");
                let ended = w.ended().map(|(status, _)| status);
                assert!(
                    matches!(ended, Some(Status::Cancelled | Status::Completed)),
                    "{name} {first} {second}: {ended:?}"
                );
                assert!(w.executed.len() <= 2 && w.acted("1-0") <= 1);
                // Whoever reads it later comes to the same end.
                RunState::fold(w.run.clone(), &w.journal).unwrap();
            }
        }
    }
}

#[test]
fn k38_a_cancel_that_races_the_completion_loses_or_wins_and_the_run_ends_either_way() {
    for cancel_first in [true, false] {
        let mut w = World::deciding([call("close")])
            .hand("close", [Hand::Runs])
            .submit();
        let key = w.key("1-0", 1);
        if cancel_first {
            w.cancel();
            w.returns(&key, done("{}"));
        } else {
            w.returns(&key, done("{}"));
            w.cancel();
        }
        w.pass(30_000);
        let status = w.ended().map(|(status, _)| status);
        let wanted = if cancel_first {
            Status::Cancelled
        } else {
            Status::Completed
        };
        assert_eq!(status, Some(wanted));
        assert_eq!(w.acted("1-0"), 1);
    }
}

#[test]
fn k40_an_answer_to_one_of_two_questions_runs_that_call_and_nothing_again() {
    let decision = calls(&[("pay", r#"{"n":1}"#), ("pay", r#"{"n":2}"#), ("note", "{}")]);
    let mut w = World::deciding([decision, complete()]);
    w.judge = Box::new(|request| {
        Some(Ok(if request.tool == "pay" {
            require("pay")
        } else {
            Verdict::Allow
        }))
    });
    let mut w = w.submit();
    w.pass(60);
    assert_eq!(w.open(), ["1-0.1", "1-1.1"]);
    assert_eq!(w.acted("1-2"), 1);
    w.decide("1-0.1", Decision::Approve);
    w.pass(60);
    assert_eq!(w.open(), ["1-1.1"]);
    // The same question once more, with the other answer.
    let hash = w.hash("1-0.1");
    let again = w.letter("1-0.1", hash, Decision::Reject, "otto");
    w.go();
    assert_eq!(w.answer_to(again), Some(InboxAnswer::AlreadyDecided));
    assert_eq!(["1-0", "1-1", "1-2"].map(|step| w.acted(step)), [1, 0, 1]);
    w.takeover();
    w.decide("1-1.1", Decision::Approve);
    w.pass(30_000);
    assert_eq!(w.ended(), Some((Status::Completed, Reason::GoalCompleted)));
    assert_eq!(["1-0", "1-1", "1-2"].map(|step| w.acted(step)), [1, 1, 1]);
    let turns: Vec<u32> = w.views().iter().map(|view| view.turn).collect();
    assert_eq!(turns, [1, 2], "the agent decided each turn once");
    let asked = w.events().into_iter();
    let asked = asked.filter(|event| matches!(event, Event::Requested { question, .. } if matches!(question, Question::Approve { .. })));
    assert_eq!(asked.count(), 2);
}
