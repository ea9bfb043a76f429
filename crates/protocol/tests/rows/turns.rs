//! What an agent decides and what becomes of it: S2 to S5, K59.

use leasehold_json::Kept;
use leasehold_protocol::{
    Event, JournalSubject, ObservationKind, Payload, Reason, Status, StopReason, Verdict,
};
use leasehold_tools::check_arguments;

use crate::harness::World;
use crate::tools::{always, call, calls, complete, require, specs};
use crate::worker::{Hand, done, nothing};

#[test]
fn s2_a_decision_is_recorded_verbatim_and_ahead_of_what_is_made_of_it() {
    let decision = "  {\"calls\":[ {\"tool\":\"pay\",\"arguments\":{\"n\": 9007199254740993.10}} ],\n\"kind\":\"tool_calls\"} ";
    let w = World::deciding([decision])
        .hand("pay", [Hand::Runs])
        .submit();
    let commit = w.commits().pop().unwrap();
    let kinds: Vec<&str> = commit
        .events
        .iter()
        .map(|event| match event {
            Event::Decided { decision: kept, .. } => {
                assert_eq!(kept.as_bytes(), decision.as_bytes());
                "decided"
            }
            Event::Policy { arguments, .. } => {
                assert_eq!(arguments.as_str(), r#"{"n": 9007199254740993.10}"#);
                "policy"
            }
            Event::Dispatched { .. } => "dispatched",
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["decided", "policy", "dispatched"], "one commit");
    assert_eq!(w.executed.len(), 1);
}

#[test]
fn s2_bytes_that_are_no_json_are_kept_as_such() {
    let text: &[u8] = b"I would rather call pay(1)";
    let bytes: &[u8] = b"\xff\xfe{}";
    let mut w = World::deciding([text, bytes]).submit();
    w.pass(60);
    let kept: Vec<Kept> = w
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::Decided { decision, .. } => Some(decision),
            _ => None,
        })
        .collect();
    assert!(matches!(&kept[0], Kept::Text(kept) if kept.as_bytes() == text));
    assert!(matches!(&kept[1], Kept::Base64(kept) if kept == bytes));
    assert_eq!(w.state().streak.failures, 2);
}

#[test]
fn s3_calls_of_one_turn_run_side_by_side_up_to_the_limit() {
    let arguments: Vec<String> = (0..5).map(|n| format!(r#"{{"n":{n}}}"#)).collect();
    let five: Vec<_> = arguments
        .iter()
        .map(|arguments| ("note", arguments.as_str()))
        .collect();
    let mut w = World::deciding([calls(&five), complete()]).hand("note", [Hand::Runs]);
    w.limits.max_parallel_calls = 2;
    let mut w = w.submit();
    for index in 0..5 {
        assert_eq!(w.running.len(), (5 - index).min(2));
        let key = w.key(&format!("1-{index}"), 1);
        w.returns(&key, done("{}"));
    }
    assert_eq!(w.ended(), Some((Status::Completed, Reason::GoalCompleted)));
    for (commit, stored) in w.commits().iter().zip(&w.journal) {
        let dispatched = commit
            .events
            .iter()
            .filter(|event| matches!(event, Event::Dispatched { .. }))
            .count();
        let is_call = matches!(stored.subject, JournalSubject::Call(_));
        assert_eq!(
            dispatched,
            usize::from(is_call),
            "one dispatched call a commit"
        );
    }
}

#[test]
fn s3_a_call_that_may_end_the_run_has_no_call_beside_it() {
    let mut w = World::deciding([
        calls(&[("note", "{}"), ("halt", "{}"), ("note", "{}")]),
        complete(),
    ])
    .hand("note", [Hand::Runs])
    .hand("halt", [Hand::Runs])
    .submit();
    for step in ["1-0", "1-1", "1-2"] {
        assert_eq!(w.running.len(), 1, "before {step}");
        let key = w.key(step, 1);
        w.returns(&key, done("{}"));
    }
    assert!(w.is_ended());
}

#[test]
fn s3_failures_count_in_call_order_whichever_call_returns_first() {
    for (first, second, failures) in [(nothing(), done("{}"), 0), (done("{}"), nothing(), 1)] {
        let mut w = World::deciding([calls(&[("note", "{}"), ("pay", "{}")])])
            .hand("note", [Hand::Runs])
            .hand("pay", [Hand::Runs])
            .submit();
        let keys = [w.key("1-0", 1), w.key("1-1", 1)];
        w.returns(&keys[1], second);
        w.returns(&keys[0], first);
        w.pass(60);
        assert!(w.state().turn_is_over());
        assert_eq!(w.state().streak.failures, failures);
    }
}

#[test]
fn s3_a_run_parks_when_no_call_is_in_flight() {
    let mut w = World::deciding([calls(&[("note", "{}"), ("pay", "{}")]), complete()])
        .hand("note", [Hand::Runs]);
    w.judge = Box::new(|request| {
        Some(Ok(if request.tool == "pay" {
            require("pay")
        } else {
            Verdict::Allow
        }))
    });
    let mut w = w.submit();
    assert_eq!(w.open(), ["1-1.1"]);
    assert_eq!(w.stops(), [], "a call is in flight");
    let key = w.key("1-0", 1);
    w.returns(&key, done("{}"));
    w.pass(60);
    assert_eq!(w.stops(), [StopReason::Parked]);
}

#[test]
fn s4_an_invalid_call_ends_its_step_with_the_exact_text_of_the_check() {
    let spec = specs().into_iter().find(|spec| spec.name == "pay").unwrap();
    let misfit = check_arguments(&spec, br#"{"n":"x"}"#)
        .unwrap_err()
        .to_string();
    for (decision, text) in [
        (calls(&[("pay", r#"{"n":"x"}"#)]), misfit.as_str()),
        (call("nope"), "unknown tool \"nope\""),
        (call("gone"), "unknown tool \"gone\""),
        (r#"{"kind":"dance"}"#.to_owned(), "no known shape"),
        ("{".to_owned(), "not usable JSON"),
    ] {
        let w = World::deciding([decision.clone(), complete()]).submit();
        let observation = w.observation("1-0");
        assert_eq!(observation.kind, ObservationKind::InvalidDecision);
        let Payload::Json(content) = &observation.content else {
            panic!("{observation:?}")
        };
        let told = content.to_value()["error"].as_str().unwrap().to_owned();
        if text == misfit {
            assert_eq!(told, text);
        } else {
            assert!(told.contains(text), "{decision}: {told}");
        }
        // It counts as a failure, and the agent decides again.
        assert_eq!(w.state().streak.failures, 1);
        assert_eq!(w.views().len(), 2);
        assert!(w.executed.is_empty());
    }
}

#[test]
fn s5_every_kind_of_observation_but_a_result_counts_as_a_failure() {
    let returns =
        |returned| World::deciding([call("note")]).hand("note", [Hand::Returns(returned)]);
    let mut denied = World::deciding([call("note")]);
    denied.judge = always(Verdict::Deny {
        reason: "not today".into(),
    });
    let mut interrupted = World::deciding([call("note")])
        .hand("note", [Hand::Absent])
        .submit();
    interrupted.cancel();
    let mut worlds = vec![
        (ObservationKind::ToolResult, returns(done("{}")).submit()),
        (ObservationKind::ToolError, returns(nothing()).submit()),
        (ObservationKind::PolicyDenied, denied.submit()),
        (
            ObservationKind::InvalidDecision,
            World::deciding(["{}"]).submit(),
        ),
        (ObservationKind::Interrupted, interrupted),
    ];
    for (kind, w) in &mut worlds {
        w.pass(60);
        assert_eq!(w.observation("1-0").kind, *kind);
        let failures = u32::from(*kind != ObservationKind::ToolResult);
        assert_eq!(w.state().streak.failures, failures, "{kind:?}");
    }
}

#[test]
fn k59_call_ids_are_never_keys() {
    let with_ids = |ids: [&str; 2]| {
        format!(
            r#"{{"kind":"tool_calls","calls":[{{"id":"{}","tool":"note","arguments":{{"n":1}}}},{{"id":"{}","tool":"note","arguments":{{"n":2}}}}]}}"#,
            ids[0], ids[1]
        )
    };
    // Two calls alike, one named after the tool: two effects, two results, in order.
    let w = World::deciding([
        with_ids(["note", "b"]),
        calls(&[("note", r#"{"n":1}"#); 2]),
        complete(),
    ])
    .hand(
        "note",
        (1..=4).map(|n| Hand::Returns(done(&format!(r#"{{"was":{n}}}"#)))),
    )
    .submit();
    for (step, was) in [("1-0", 1), ("1-1", 2), ("2-0", 3), ("2-1", 4)] {
        assert_eq!(w.acted(step), 1);
        assert_eq!(
            w.observation(step).content,
            crate::worker::payload(&format!(r#"{{"was":{was}}}"#))
        );
    }
    // Repeated in the turn, blank, or used by an earlier turn: refused before anything is made of it.
    for decisions in [
        vec![with_ids(["a", "a"])],
        vec![with_ids(["", "b"])],
        vec![with_ids(["a", "b"]), with_ids(["c", "a"])],
    ] {
        let last = decisions.len();
        let mut w = World::deciding(decisions).submit();
        w.pass(60);
        let step = w.step(&format!("{last}-0"));
        assert!(step.attempts.is_empty());
        assert_eq!(
            w.observation(&format!("{last}-0")).kind,
            ObservationKind::InvalidDecision
        );
    }
}
