//! Tools as a run sees them: what a call says (S14), results and failures (S15, S16), classes (S20), and calls without a worker (S21).

use leasehold_json::Kept;
use leasehold_protocol::{Finding, ObservationKind, Reason, Status, ToolReturn};
use leasehold_tools::Failure;

use crate::harness::World;
use crate::tools::{TIMEOUT_MS, call, calls, complete};
use crate::worker::{Hand, done, nothing, payload, perhaps};

#[test]
fn k29_s14_every_attempt_is_the_same_request_with_the_same_key() {
    let arguments = r#"{ "n" : 9007199254740993.0 }"#;
    let mut w = World::deciding([
        calls(&[("pay_fence", arguments), ("note", "{}")]),
        complete(),
    ])
    .hand(
        "pay_fence",
        [Hand::DiesActed, Hand::DiesActed, Hand::Returns(done("{}"))],
    );
    w.probes
        .push_back(leasehold_protocol::ProbeReply::Unknown { detail: "?".into() });
    let mut w = w.submit();
    for _ in 0..2 {
        w.restart_worker();
        w.pass(60);
        w.takeover();
        let open = w.open().pop().unwrap();
        w.decide(&open, leasehold_protocol::Decision::RunAgain);
    }
    let calls: Vec<_> = w
        .executed
        .iter()
        .map(|done| &done.envelope)
        .filter(|call| call.tool == "pay_fence")
        .collect();
    assert_eq!(calls.len(), 3);
    for (call, attempt) in calls.iter().zip(1..) {
        assert_eq!(
            (call.run.as_str(), call.step.to_string().as_str()),
            ("r-1", "1-0")
        );
        assert_eq!(call.attempt.get(), attempt);
        assert_eq!(call.idempotency_key, calls[0].idempotency_key);
        assert_eq!(call.arguments.as_str(), arguments);
        assert_eq!((call.timeout_ms, call.spec), (TIMEOUT_MS, calls[0].spec));
    }
    assert!(calls[0].epoch < calls[1].epoch && calls[1].epoch < calls[2].epoch);
    let other = w
        .executed
        .iter()
        .find(|done| done.envelope.tool == "note")
        .unwrap();
    assert_ne!(
        other.envelope.idempotency_key, calls[0].idempotency_key,
        "another step, another key"
    );
}

#[test]
fn k49_k50_s15_an_unusable_result_is_kept_and_told_as_a_failure() {
    for (bytes, member) in [
        (b"\"\\ud800\"".as_slice(), "content"),
        (b"\xff".as_slice(), "content_base64"),
    ] {
        let returned = ToolReturn::Unusable {
            kept: Kept::from_bytes(bytes),
            error: "no usable JSON".into(),
        };
        let mut w = World::deciding([call("pay")])
            .hand("pay", [Hand::Returns(returned)])
            .submit();
        w.pass(60);
        let told = w.observation("1-0");
        assert_eq!(
            (told.kind, told.failure),
            (ObservationKind::ToolError, Some(Failure::InvalidContent))
        );
        let leasehold_protocol::Payload::Json(content) = told.content else {
            panic!()
        };
        assert_eq!(content.to_value()["reason"], "no usable JSON");
        assert!(content.member(member).is_some(), "{content:?}");
        assert_eq!((w.state().streak.failures, w.acted("1-0")), (1, 1));
        assert!(
            w.open().is_empty(),
            "the effect has happened: there is nothing to find out"
        );
    }
}

#[test]
fn s16_a_read_only_failure_is_a_tool_error_with_its_code() {
    for failure in [Failure::Error, Failure::Panic, Failure::Timeout] {
        let w = World::deciding([call("look"), complete()])
            .hand("look", [Hand::Returns(perhaps(failure))])
            .submit();
        let told = w.observation("1-0");
        assert_eq!(
            (told.kind, told.failure),
            (ObservationKind::ToolError, Some(failure))
        );
        assert_eq!(w.ended(), Some((Status::Completed, Reason::GoalCompleted)));
    }
}

#[test]
fn s16_of_any_other_tool_only_nothing_happened_is_a_tool_error() {
    for tool in ["note", "pay", "wipe"] {
        let w = World::deciding([call(tool), complete()])
            .hand(tool, [Hand::Returns(nothing())])
            .submit();
        assert_eq!(w.observation("1-0").kind, ObservationKind::ToolError);
        assert!(w.is_ended());
        for failure in [Failure::Error, Failure::Panic, Failure::Timeout] {
            let w = World::deciding([call(tool), complete()])
                .hand(tool, [Hand::Returns(perhaps(failure))])
                .submit();
            assert_eq!(
                w.step("1-0").observation,
                None,
                "{tool}: reconciled before the agent hears of it"
            );
            assert_eq!((w.open().len(), w.views().len()), (1, 1));
        }
    }
}

#[test]
fn s20_only_read_only_goes_on_without_evidence_probe_or_operator() {
    for tool in ["look", "note", "pay", "wipe"] {
        let mut w = World::deciding([call(tool), complete()])
            .hand(tool, [Hand::DiesActed])
            .submit();
        w.restart_worker();
        w.pass(600_000);
        if tool == "look" {
            // Nobody claims a read: it is delivered again, to anybody, as the same attempt.
            assert!(w.open().is_empty());
            w.hands.clear();
            let key = w.key("1-0", 1);
            w.deliver(&key);
            w.go();
            assert!(w.is_ended());
            assert_eq!(w.step("1-0").attempts.len(), 1);
        } else {
            assert_eq!(w.open(), ["1-0.1"], "{tool}");
            assert_eq!(w.acted("1-0"), 1);
        }
    }
}

#[test]
fn s21_a_call_without_a_worker_waits_and_the_run_does_not_fail() {
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::Absent, Hand::Returns(done(r#"{"late":1}"#))])
        .submit();
    w.pass(3 * 24 * 3_600_000);
    assert_eq!(
        (w.state().status(), w.findings("1-0")),
        (Status::Running, vec![None])
    );
    let key = w.key("1-0", 1);
    w.deliver(&key);
    w.go();
    assert_eq!(w.observation("1-0").content, payload(r#"{"late":1}"#));
    assert!(w.is_ended());
}

#[test]
fn s21_the_queue_limit_revokes_and_the_agent_is_told_no_worker() {
    let mut w = World::deciding([call("pay"), complete()]).hand("pay", [Hand::Absent]);
    w.limits.queue_ms = 5_000;
    let mut w = w.submit();
    w.pass(4_999);
    assert_eq!(w.findings("1-0"), [None]);
    w.pass(1);
    assert_eq!(w.findings("1-0"), [Some(Finding::Revoked)]);
    let told = w.observation("1-0");
    assert_eq!(
        (told.kind, told.failure),
        (ObservationKind::ToolError, Some(Failure::NoWorker))
    );
    assert_eq!(
        w.ended(),
        Some((Status::Completed, Reason::GoalCompleted)),
        "the agent went on"
    );
    // A worker that comes now finds it revoked.
    w.hands.clear();
    let key = w.key("1-0", 1);
    w.deliver(&key);
    assert!(w.executed.is_empty());
}
