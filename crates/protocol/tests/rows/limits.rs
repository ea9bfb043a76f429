//! The limits, each by itself and in their order: S40.

use leasehold_protocol::{Decision, Limits, Reason};

use crate::harness::World;
use crate::tools::{always, call, calls, require};
use crate::worker::{Hand, nothing};

/// A run of three failing, slow, repeated turns under these limits.
fn under(limits: Limits) -> World {
    let mut w = World::deciding([call("note"), call("note"), call("note"), call("note")])
        .hand("note", [Hand::Runs]);
    w.limits = limits;
    let mut w = w.submit();
    for turn in 1..=4 {
        if w.is_ended() {
            break;
        }
        w.pass(200);
        let key = w.key(&format!("{turn}-0"), 1);
        w.returns(&key, nothing());
    }
    w
}

#[test]
fn s40_of_two_limits_that_are_met_at_once_the_first_in_order_is_named() {
    let met = Limits {
        max_steps: 3,
        max_consecutive_failures: 3,
        max_active_ms: 500,
        max_elapsed_ms: 500,
        max_repeats: 3,
        ..Limits::default()
    };
    let never = u32::MAX;
    let steps = met.clone();
    let failures = Limits {
        max_steps: never,
        ..met
    };
    let active = Limits {
        max_consecutive_failures: never,
        ..failures.clone()
    };
    let elapsed = Limits {
        max_active_ms: u64::MAX,
        ..active.clone()
    };
    let repeats = Limits {
        max_elapsed_ms: u64::MAX,
        ..elapsed.clone()
    };
    for (limits, reason) in [
        (steps, Reason::LimitSteps),
        (failures, Reason::RepeatedToolFailures),
        (active, Reason::LimitActiveTime),
        (elapsed, Reason::LimitElapsedTime),
        (repeats, Reason::LoopDetected),
    ] {
        let w = under(limits);
        assert_eq!(w.ended().map(|(_, reason)| reason), Some(reason));
        assert_eq!(
            w.state().turns.len(),
            3,
            "{reason:?}: looked at before each turn, not in it"
        );
    }
}

#[test]
fn s40_the_defaults_are_those_of_the_table() {
    let limits = Limits::default();
    assert_eq!(
        (
            limits.max_steps,
            limits.max_consecutive_failures,
            limits.max_repeats
        ),
        (50, 3, 3)
    );
}

#[test]
fn s40_a_success_ends_a_streak_and_another_call_ends_a_loop() {
    let n = |n: u32| calls(&[("note", &format!(r#"{{"n":{n}}}"#))]);
    let w = World::deciding([n(1), n(2), n(3), n(4), n(5)])
        .hand(
            "note",
            [
                Hand::Returns(nothing()),
                Hand::Returns(nothing()),
                Hand::Returns(crate::worker::done("{}")),
                Hand::Returns(nothing()),
                Hand::Returns(nothing()),
            ],
        )
        .submit();
    assert!(!w.is_ended());
    // The same value in another spelling is the same call.
    let spelled =
        [r#"{"n":1}"#, r#"{"n":1.0}"#, r#"{ "n": 10e-1 }"#].map(|n| calls(&[("look", n)]));
    let w = World::deciding(spelled).submit();
    assert_eq!(
        w.ended().map(|(_, reason)| reason),
        Some(Reason::LoopDetected)
    );
    let w = World::deciding([
        calls(&[("look", r#"{"n":1}"#)]),
        calls(&[("look", r#"{"n":2}"#)]),
        calls(&[("look", r#"{"n":1}"#)]),
    ])
    .submit();
    assert!(!w.is_ended());
}

#[test]
fn s40_waiting_for_an_operator_is_not_active_time() {
    let mut w = World::deciding([call("pay"), call("pay")]);
    w.judge = always(require("c"));
    w.limits.max_active_ms = 1_000;
    let mut w = w.submit();
    w.pass(3_600_000);
    w.decide("1-0.1", Decision::Approve);
    assert!(w.state().active_ms < 1_000, "{} ms", w.state().active_ms);
    assert_eq!(w.open(), ["2-0.1"]);
}
