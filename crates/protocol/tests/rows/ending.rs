//! How runs are told to end and end: S8, S17, S18.

use leasehold_protocol::{
    Decision, Event, Fate, Input, ObservationKind, Reason, Status, ToolReturn, Verdict,
};
use leasehold_tools::Failure;

use crate::harness::{Letter, World};
use crate::tools::{TIMEOUT_MS, always, call, calls, complete, require};
use crate::worker::{Hand, done, nothing, payload, perhaps};

const CANCELLED: Option<(Status, Reason)> = Some((Status::Cancelled, Reason::OperatorCancelled));

fn fates(w: &World) -> Vec<Fate> {
    w.in_flight()
        .into_iter()
        .map(|flight| flight.fate)
        .collect()
}

#[test]
fn s8_cancel_ends_a_run_in_which_nothing_is_in_flight_at_once() {
    let deciding = World::new().submit();
    let mut judging = World::deciding([call("pay")]);
    judging.judge = Box::new(|_| None);
    let mut asking = World::deciding([call("pay")]);
    asking.judge = always(require("c"));
    let mut granted = World::deciding([call("pay")]);
    granted.judge = always(require("c"));
    let mut granted = granted.submit();
    granted.judge = Box::new(|_| None);
    granted.decide("1-0.1", Decision::Approve);
    for (phase, mut w) in [
        ("deciding", deciding),
        ("judging", judging.submit()),
        ("asking", asking.submit()),
        ("granted", granted),
    ] {
        w.cancel();
        assert_eq!(w.ended(), CANCELLED, "{phase}");
        assert_eq!(fates(&w), [], "{phase}");
        assert!(w.executed.is_empty() && w.open().is_empty());
        if phase != "deciding" {
            assert_eq!(
                w.observation("1-0").kind,
                ObservationKind::Interrupted,
                "{phase}"
            );
        }
    }
}

#[test]
fn s8_cancel_revokes_what_nobody_claimed() {
    let mut w = World::deciding([call("pay")])
        .hand("pay", [Hand::Absent])
        .submit();
    w.cancel();
    assert_eq!((w.ended(), fates(&w)), (CANCELLED, vec![Fate::NotStarted]));
    assert_eq!(w.observation("1-0").kind, ObservationKind::Interrupted);
}

#[test]
fn s8_cancel_waits_for_what_is_claimed_and_dispatches_nothing_more() {
    let mut w = World::deciding([calls(&[("pay", "{}"), ("note", "{}"), ("look", "{}")])])
        .hand("pay", [Hand::Runs])
        .hand("note", [Hand::Absent]);
    w.limits.max_parallel_calls = 2;
    let mut w = w.submit();
    w.cancel();
    assert_eq!(w.ended(), None);
    let executed = w.executed.len();
    let key = w.key("1-0", 1);
    w.returns(&key, done(r#"{"paid":1}"#));
    assert_eq!((w.ended(), w.executed.len()), (CANCELLED, executed));
    assert_eq!(fates(&w), [Fate::Done, Fate::NotStarted]);
    assert_eq!(
        w.observation("1-0").content,
        payload(r#"{"paid":1}"#),
        "its result is recorded"
    );
    assert!(w.step("1-2").attempts.is_empty());
}

#[test]
fn s8_cancel_does_not_wait_beyond_the_deadline_and_asks_nobody() {
    let mut w = World::deciding([call("pay")])
        .hand("pay", [Hand::Runs])
        .submit();
    w.cancel();
    w.pass(TIMEOUT_MS);
    assert_eq!(
        (w.ended(), fates(&w)),
        (CANCELLED, vec![Fate::InterruptedUnknown])
    );
    let length = w.journal.len();
    // A later outcome is kept as late evidence: in its register, and nothing follows the end.
    let key = w.key("1-0", 1);
    w.returns(&key, done("{}"));
    let chain = &w.chains[&key];
    assert_eq!(
        chain.last().map(|last| last.link),
        Some(leasehold_protocol::Link::Outcome)
    );
    w.start();
    w.go();
    assert_eq!(w.journal.len(), length);
}

#[test]
fn s8_cancel_of_a_silent_attempt_ends_as_unknown_after_the_wait() {
    let mut w = World::deciding([call("pay")])
        .hand("pay", [Hand::DiesActed])
        .submit();
    w.cancel();
    assert_eq!(w.ended(), None);
    w.pass(10_000);
    assert_eq!(
        (w.ended(), fates(&w)),
        (CANCELLED, vec![Fate::InterruptedUnknown])
    );
}

#[test]
fn s8_cancel_of_an_interrupted_attempt_withdraws_the_question() {
    let mut w = World::deciding([call("pay")])
        .hand("pay", [Hand::Returns(perhaps(Failure::Error))])
        .submit();
    w.cancel();
    assert_eq!(
        (w.ended(), fates(&w)),
        (CANCELLED, vec![Fate::InterruptedUnknown])
    );
    assert!(w.open().is_empty());
}

#[test]
fn s8_cancel_of_an_exhausted_step_names_it_not_started() {
    let mut w = World::deciding([call("pay")])
        .hand("pay", [Hand::DiesClaimed])
        .submit();
    for _ in 0..5 {
        w.restart_worker();
    }
    assert_eq!(w.open(), ["1-0.1"]);
    w.cancel();
    assert_eq!((w.ended(), fates(&w)), (CANCELLED, vec![Fate::NotStarted]));
}

#[test]
fn s8_cancel_needs_no_owner_and_is_never_overwritten() {
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::Runs])
        .submit();
    w.crash();
    let key = w.key("1-0", 1);
    // Nobody drives the run; the message waits in the inbox, and whoever comes folds it.
    w.cancel();
    assert_eq!(w.state().ending_status(), Some(Status::Cancelled));
    w.returns(&key, done("{}"));
    w.pass(30_000);
    assert_eq!(
        w.ended(),
        CANCELLED,
        "the agent's next decision does not overwrite it"
    );
    assert_eq!(w.views().len(), 1);
}

#[test]
fn s8_a_crash_while_ending_changes_nothing() {
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::Runs])
        .submit();
    w.cancel();
    w.takeover();
    assert_eq!(w.ended(), None);
    let key = w.key("1-0", 1);
    w.returns(&key, done("{}"));
    w.pass(30_000);
    assert_eq!((w.ended(), fates(&w)), (CANCELLED, vec![Fate::Done]));
}

#[test]
fn s8_an_unreadable_cancellation_is_answered_and_changes_nothing() {
    let mut w = World::new().submit();
    let letter = w.put(Letter::Cancel, b"stop!".as_slice().into());
    w.go();
    assert!(matches!(
        w.answer_to(letter),
        Some(leasehold_protocol::InboxAnswer::Unreadable { .. })
    ));
    assert_eq!(w.state().status(), Status::Running);
}

/// The commit that holds the step's end holds the run's end too.
fn end_in_one_commit(w: &World, step: &str) -> bool {
    let step = step.parse().unwrap();
    let last = w.commits().pop().unwrap();
    let finished = |event: &Event| matches!(event, Event::Finished { step: of, .. } if *of == step);
    last.events.iter().any(finished)
        && last
            .events
            .iter()
            .any(|event| matches!(event, Event::Ended { .. }))
}

#[test]
fn s17_an_abort_ends_the_run_in_the_commit_of_the_step() {
    let detail = "account frozen".to_owned();
    let w = World::deciding([call("halt"), complete()])
        .hand("halt", [Hand::Returns(ToolReturn::Abort { detail })])
        .submit();
    assert_eq!(w.ended(), Some((Status::Failed, Reason::ToolAbort)));
    assert!(end_in_one_commit(&w, "1-0"));
    assert_eq!(
        w.state().ending.unwrap().detail.as_deref(),
        Some("account frozen")
    );
}

#[test]
fn s17_a_terminal_tools_success_completes_the_run_with_its_result() {
    let w = World::deciding([call("close"), complete()])
        .hand("close", [Hand::Returns(done(r#"{"closed":true}"#))])
        .submit();
    assert_eq!(w.ended(), Some((Status::Completed, Reason::GoalCompleted)));
    assert!(end_in_one_commit(&w, "1-0"));
    assert_eq!(
        w.state().ending.unwrap().result,
        Some(payload(r#"{"closed":true}"#))
    );
    assert_eq!(w.views().len(), 1, "the agent is not asked again");
    // Its failure ends nothing.
    let w = World::deciding([call("close"), complete()])
        .hand("close", [Hand::Returns(nothing())])
        .submit();
    assert_eq!(w.views().len(), 2);
}

#[test]
fn s17_an_abort_or_a_terminal_success_that_a_takeover_finds_ends_the_run_too() {
    let abort = ToolReturn::Abort {
        detail: "stop".into(),
    };
    for (tool, returned, reason) in [
        ("halt", abort, Reason::ToolAbort),
        ("close", done("{}"), Reason::GoalCompleted),
    ] {
        let mut w = World::deciding([call(tool), complete()])
            .hand(tool, [Hand::Runs])
            .submit();
        w.crash();
        let key = w.key("1-0", 1);
        w.returns(&key, returned);
        w.start();
        w.go();
        assert_eq!(w.ended().map(|(_, reason)| reason), Some(reason));
        assert!(end_in_one_commit(&w, "1-0"));
    }
}

#[test]
fn s18_a_read_only_call_that_is_cancelled_is_interrupted_and_no_error() {
    let mut w = World::deciding([call("look")])
        .hand("look", [Hand::Runs])
        .submit();
    w.cancel();
    assert_eq!(
        (w.ended(), w.observation("1-0").kind),
        (CANCELLED, ObservationKind::Interrupted)
    );
    // What the tool says of its cancellation comes too late and reopens nothing.
    let (key, length) = (w.key("1-0", 1), w.journal.len());
    w.returns(&key, perhaps(Failure::Error));
    assert_eq!(w.journal.len(), length);
}

#[test]
fn s18_of_any_other_cancelled_call_the_ladder_comes_first() {
    let mut w = World::deciding([call("pay")])
        .hand("pay", [Hand::Runs])
        .submit();
    w.cancel();
    let key = w.key("1-0", 1);
    w.returns(&key, nothing());
    assert_eq!(
        (w.ended(), w.observation("1-0").kind),
        (CANCELLED, ObservationKind::ToolError)
    );
    let mut w = World::deciding([call("pay_fence")]).hand("pay_fence", [Hand::Runs]);
    w.probes.push_back(leasehold_protocol::ProbeReply::Done {
        result: payload(r#"{"paid":1}"#),
    });
    let mut w = w.submit();
    w.cancel();
    let key = w.key("1-0", 1);
    w.returns(&key, perhaps(Failure::Error));
    assert_eq!((w.ended(), fates(&w)), (CANCELLED, vec![Fate::Done]));
    assert_eq!(w.observation("1-0").content, payload(r#"{"paid":1}"#));
}

#[test]
fn s8_a_cancel_that_comes_with_a_verdict_dispatches_nothing() {
    let mut w = World::deciding([call("pay")]);
    w.judge = Box::new(|_| None);
    let mut w = w.submit();
    let (step, policy) = ("1-0".parse().unwrap(), "p".to_owned());
    let verdict = Ok(Verdict::Allow);
    let request = leasehold_protocol::CancelRequest {
        v: 1,
        by: "olga".parse().unwrap(),
        note: Some("enough".into()),
    };
    w.put(Letter::Cancel, request.encode().into());
    w.tell(Input::Judged {
        step,
        policy,
        verdict,
    });
    assert_eq!((w.ended(), w.executed.len()), (CANCELLED, 0));
    assert_eq!(w.state().ending.unwrap().detail.as_deref(), Some("enough"));
}

#[test]
fn s8_cancel_withdraws_questions_about_proved_attempts_beside_a_running_sibling() {
    // The owner goes on, since the sibling runs: nothing but the cancel makes it look at the proved attempt again.
    let beside = |lives: usize| {
        let mut w = World::deciding([calls(&[("note", "{}"), ("pay", "{}")])])
            .hand("note", [Hand::Runs])
            .hand("pay", [Hand::DiesClaimed])
            .submit();
        if lives == 1 {
            w.judge = always(require("once more"));
        }
        for life in 1..=lives {
            let key = w.key("1-1", u32::try_from(life).unwrap());
            w.successor_settles(&key);
        }
        w
    };
    for lives in [1, 5] {
        let mut w = beside(lives);
        assert_eq!(
            (w.open(), w.stops()),
            (vec!["1-1.1".to_owned()], vec![]),
            "{lives}"
        );
        w.cancel();
        assert_eq!(w.ended(), None, "the sibling is claimed");
        let key = w.key("1-0", 1);
        w.returns(&key, done("{}"));
        assert_eq!(w.ended(), CANCELLED, "after {lives} lives");
        assert_eq!(w.step("1-1").attempts.len(), lives);
    }
}
