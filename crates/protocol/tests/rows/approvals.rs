//! Approvals: bound to everything that was shown (S33, S34), spent once (S35), and not for ever (S37). K45, K47.

use leasehold_json::Digest;
use leasehold_protocol::{
    Basis, Decision, Event, InboxAnswer, Input, ObservationKind, Reason, Status, StopReason,
    Verdict,
};
use leasehold_tools::SideEffect;

use crate::harness::{Letter, World};
use crate::tools::{always, call, calls, complete, registry_with, require, tool};
use crate::worker::Hand;

/// A run that waits for permission to pay.
fn asking() -> World {
    let mut w = World::deciding([call("pay"), complete()]);
    w.judge = always(require("pay once"));
    w.submit()
}

fn bases(w: &World, step: &str) -> Vec<Basis> {
    let attempts = w.step(step).attempts;
    attempts.into_iter().map(|attempt| attempt.basis).collect()
}

fn granted(approval: &str) -> Basis {
    Basis::First {
        approval: Some(approval.parse().unwrap()),
    }
}

#[test]
fn s34_a_decision_names_the_hash_it_was_shown() {
    let mut w = asking();
    let (hash, wrong) = (w.hash("1-0.1"), Digest::of(b"something else"));
    let differs = w.letter("1-0.1", wrong, Decision::Approve, "olga");
    w.go();
    assert_eq!(w.answer_to(differs), Some(InboxAnswer::HashDiffers));
    let missing = br#"{"v":1,"approval":"1-0.1","decision":{"choice":"approve"},"by":"olga"}"#;
    let missing = w.put(Letter::Decide, missing.as_slice().into());
    w.go();
    assert!(matches!(
        w.answer_to(missing),
        Some(InboxAnswer::Unreadable { .. })
    ));
    let unknown = w.letter("7-0.1", hash, Decision::Approve, "olga");
    w.go();
    assert_eq!(w.answer_to(unknown), Some(InboxAnswer::UnknownQuestion));
    let not_offered = w.letter("1-0.1", hash, Decision::RunAgain, "olga");
    w.go();
    assert_eq!(
        w.answer_to(not_offered),
        Some(InboxAnswer::ChoiceNotOffered)
    );
    assert!(w.executed.is_empty());
    assert_eq!(w.open(), ["1-0.1"]);
    w.decide("1-0.1", Decision::Approve);
    assert_eq!(bases(&w, "1-0"), [granted("1-0.1")]);
}

#[test]
fn k45_s33_other_arguments_are_another_approval() {
    let decisions = [
        calls(&[
            ("pay", r#"{"n":9007199254740992}"#),
            ("pay", r#"{"n":9007199254740993}"#),
        ]),
        complete(),
    ];
    let mut w = World::deciding(decisions);
    w.judge = always(require("pay once"));
    let mut w = w.submit();
    assert_eq!(w.open(), ["1-0.1", "1-1.1"]);
    let reviewed = w.hash("1-0.1");
    assert_ne!(reviewed, w.hash("1-1.1"));
    // The decision about the one is none about the other, whatever place it is given.
    let letter = w.letter("1-1.1", reviewed, Decision::Approve, "olga");
    w.go();
    assert_eq!(w.answer_to(letter), Some(InboxAnswer::HashDiffers));
    w.decide("1-0.1", Decision::Approve);
    w.decide("1-1.1", Decision::Approve);
    let executed: Vec<_> = w
        .executed
        .iter()
        .map(|done| done.envelope.arguments.as_str())
        .collect();
    assert_eq!(
        executed,
        [r#"{"n":9007199254740992}"#, r#"{"n":9007199254740993}"#]
    );
}

#[test]
fn s33_what_is_shown_and_the_whole_tool_are_in_the_hash() {
    let base = asking().hash("1-0.1");
    let mut other = World::deciding([call("pay")]);
    other.judge = always(require("pay twice"));
    assert_ne!(base, other.submit().hash("1-0.1"));
    let mut other = World::deciding([call("pay")]);
    other.judge = always(require("pay once"));
    other.tools = registry_with(tool("pay", SideEffect::LocalMutation));
    assert_ne!(base, other.submit().hash("1-0.1"));
    let mut other = World::deciding([call("pay")]);
    other.judge = always(require("pay once"));
    other.run = "r-2".parse().unwrap();
    assert_ne!(base, other.submit().hash("1-0.1"));
    assert_eq!(base, asking().hash("1-0.1"));
}

#[test]
fn s35_a_grant_covers_one_step_and_is_spent_once() {
    let mut w = World::deciding([call("pay"), call("pay"), complete()]);
    w.judge = always(require("pay once"));
    let mut w = w.submit();
    w.decide("1-0.1", Decision::Approve);
    assert_eq!(w.acted("1-0"), 1);
    // The same call in the next turn is asked about anew.
    assert_eq!(w.open(), ["2-0.1"]);
    assert_eq!(w.executed.len(), 1);
    let late = w.decide("1-0.1", Decision::Approve);
    assert_eq!(w.answer_to(late), Some(InboxAnswer::Repeated));
    assert_eq!(w.executed.len(), 1);
}

#[test]
fn s35_an_attempt_that_is_proved_not_to_have_acted_does_not_spend_the_grant() {
    let mut w = World::deciding([call("pay"), complete()]).hand(
        "pay",
        [Hand::DiesClaimed, Hand::Returns(crate::worker::done("{}"))],
    );
    w.judge = always(require("pay once"));
    let mut w = w.submit();
    w.decide("1-0.1", Decision::Approve);
    w.restart_worker();
    assert!(w.is_ended());
    assert_eq!(w.acted("1-0"), 1);
    assert!(matches!(
        bases(&w, "1-0")[..],
        [Basis::First { .. }, Basis::Proof { .. }]
    ));
    let asked = w
        .events()
        .into_iter()
        .filter(|event| matches!(event, Event::Requested { .. }));
    assert_eq!(asked.count(), 1, "nobody is asked twice");
}

#[test]
fn s35_a_further_attempt_that_needs_another_approval_asks_for_it() {
    let mut w = World::deciding([call("pay"), complete()]).hand(
        "pay",
        [Hand::DiesClaimed, Hand::Returns(crate::worker::done("{}"))],
    );
    w.judge = always(require("pay once"));
    let mut w = w.submit();
    w.decide("1-0.1", Decision::Approve);
    w.judge = always(require("pay once more"));
    w.restart_worker();
    assert_eq!(w.open(), ["1-0.2"]);
    assert_eq!(w.executed.len(), 0);
    w.decide("1-0.2", Decision::Approve);
    assert_eq!(w.acted("1-0"), 1);
    assert!(w.is_ended());
}

#[test]
fn k47_s35_a_tool_that_changed_while_waiting_makes_the_old_approval_void() {
    let mut w = asking();
    let old = w.hash("1-0.1");
    w.tools = registry_with(tool("pay", SideEffect::Destructive));
    w.decide("1-0.1", Decision::Approve);
    assert!(w.executed.is_empty());
    assert_eq!(w.open(), ["1-0.2"]);
    assert_ne!(w.hash("1-0.2"), old);
    w.decide("1-0.2", Decision::Approve);
    assert_eq!(bases(&w, "1-0"), [granted("1-0.2")]);
    assert_eq!(w.acted("1-0"), 1);
}

#[test]
fn s35_the_policy_is_asked_again_before_a_grant_is_used() {
    let mut w = asking();
    w.judge = always(Verdict::Deny {
        reason: "frozen".into(),
    });
    w.decide("1-0.1", Decision::Approve);
    assert_eq!(w.observation("1-0").kind, ObservationKind::PolicyDenied);
    assert!(w.executed.is_empty());
    let mut w = asking();
    w.judge = always(Verdict::Allow);
    w.decide("1-0.1", Decision::Approve);
    assert_eq!(w.acted("1-0"), 1);
    let mut w = asking();
    w.judge = always(require("pay in instalments"));
    w.decide("1-0.1", Decision::Approve);
    assert_eq!(
        w.open(),
        ["1-0.2"],
        "a different requirement is a new approval"
    );
}

#[test]
fn s35_arguments_that_do_not_fit_any_more_are_not_executed() {
    let mut w = asking();
    let mut spec = tool("pay", SideEffect::RemoteMutation);
    spec.input_schema = r#"{"type":"object","required":["to"]}"#.into();
    w.tools = registry_with(spec);
    w.decide("1-0.1", Decision::Approve);
    assert_eq!(w.observation("1-0").kind, ObservationKind::InvalidDecision);
    assert!(w.executed.is_empty());
}

#[test]
fn s37_a_question_expires_woken_by_a_durable_timer() {
    let mut w = World::deciding([call("pay"), complete()]);
    w.judge = always(require("c"));
    w.limits.approval_ttl_ms = 5_000;
    let mut w = w.submit();
    let at = w.now.wall + 5_000;
    assert_eq!((w.timer, w.state().wake_at), (Some(at), Some(at)));
    assert_eq!(w.stops(), [StopReason::Parked]);
    w.pass(4_999);
    assert_eq!(w.state().status(), Status::Waiting);
    w.pass(1);
    assert_eq!(
        w.ended(),
        Some((Status::Cancelled, Reason::ApprovalExpired))
    );
    assert_eq!(w.observation("1-0").kind, ObservationKind::PolicyDenied);
    assert!(w.executed.is_empty());
}

#[test]
fn s37_an_answer_that_comes_after_the_wait_is_over_has_no_force() {
    let mut w = World::deciding([call("pay"), complete()]);
    w.judge = always(require("c"));
    w.limits.approval_ttl_ms = 5_000;
    let mut w = w.submit();
    // The timer is lost; the decision itself finds the journal overdue.
    w.timer = None;
    w.now.wall += 6_000;
    let letter = w.decide("1-0.1", Decision::Approve);
    assert_eq!(w.answer_to(letter), Some(InboxAnswer::NoLongerAsked));
    assert_eq!(
        w.ended(),
        Some((Status::Cancelled, Reason::ApprovalExpired))
    );
    assert!(w.executed.is_empty());
}

#[test]
fn s37_a_grant_has_to_be_used_in_time() {
    for (waited, used) in [(900, true), (1_100, false)] {
        let mut w = World::deciding([call("pay"), complete()]);
        w.judge = always(require("c"));
        w.limits.grant_ttl_ms = 1_000;
        let mut w = w.submit();
        w.judge = Box::new(|_| None);
        w.decide("1-0.1", Decision::Approve);
        w.pass(waited);
        let (step, policy) = ("1-0".parse().unwrap(), "rows@1".to_owned());
        let verdict = Ok(require("c"));
        w.tell(Input::Judged {
            step,
            policy,
            verdict,
        });
        assert_eq!(w.executed.len(), usize::from(used), "after {waited} ms");
        let end = if used {
            (Status::Completed, Reason::GoalCompleted)
        } else {
            (Status::Cancelled, Reason::ApprovalExpired)
        };
        assert_eq!(w.ended(), Some(end));
    }
}
