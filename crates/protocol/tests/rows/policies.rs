//! What a policy says and sees: S30, S31.

use std::cell::RefCell;
use std::rc::Rc;

use leasehold_protocol::{
    Decision, Event, ObservationKind, Policy, PolicyRequest, Reason, Status, Verdict,
};

use crate::harness::World;
use crate::tools::{always, call, complete, require};

#[test]
fn s30_a_denial_is_told_and_the_agent_goes_on() {
    let mut w = World::deciding([call("pay"), complete()]);
    w.judge = always(Verdict::Deny {
        reason: "not on Sundays".into(),
    });
    let w = w.submit();
    let observation = w.observation("1-0");
    assert_eq!(observation.kind, ObservationKind::PolicyDenied);
    assert_eq!(
        observation.content,
        crate::worker::payload(r#"{"error":"not on Sundays"}"#)
    );
    assert_eq!(w.ended(), Some((Status::Completed, Reason::GoalCompleted)));
    assert!(w.executed.is_empty());
}

#[test]
fn s30_an_abort_tells_the_run_to_end_in_the_commit_of_the_verdict() {
    let mut w = World::deciding([call("pay"), complete()]);
    w.judge = always(Verdict::Abort {
        reason: "stolen card".into(),
    });
    let w = w.submit();
    assert_eq!(w.ended(), Some((Status::Failed, Reason::PolicyAbort)));
    let judged = |event: &Event| matches!(event, Event::Policy { .. });
    let commits = w.commits();
    let commit = commits
        .iter()
        .find(|commit| commit.events.iter().any(judged));
    let ending = |event: &Event| matches!(event, Event::Ending { .. });
    assert!(commit.unwrap().events.iter().any(ending));
    assert!(w.executed.is_empty());
}

#[test]
fn s30_a_policy_that_cannot_answer_is_an_error_and_never_a_permission() {
    let mut w = World::deciding([call("look"), complete()]);
    w.judge = Box::new(|_| Some(Err("not usable JSON".into())));
    let w = w.submit();
    assert_eq!(w.ended(), Some((Status::Failed, Reason::InternalError)));
    assert!(w.executed.is_empty());
}

#[test]
fn s30_the_default_policy_judges_by_class_and_denies_what_nobody_specified() {
    let mut w = World::deciding([call("look")]);
    let asked = record(&mut w);
    let w = w.submit();
    let judged = |name: &str| {
        let spec = w.tools.get(name).map(|tool| tool.spec());
        leasehold_protocol::DefaultPolicy
            .judge(&asked.borrow()[0], spec)
            .unwrap()
    };
    assert_eq!(judged("look"), Verdict::Allow);
    assert_eq!(judged("note"), Verdict::Allow);
    assert!(matches!(judged("pay"), Verdict::RequireApproval { .. }));
    assert!(matches!(judged("wipe"), Verdict::Deny { .. }));
    assert!(matches!(judged("unmapped"), Verdict::Deny { .. }));
}

/// Allows everything but asks about `pay`, and keeps what it was asked.
fn record(w: &mut World) -> Rc<RefCell<Vec<PolicyRequest>>> {
    let asked = Rc::new(RefCell::new(Vec::new()));
    let keep = asked.clone();
    w.judge = Box::new(move |request| {
        keep.borrow_mut().push(request.clone());
        Some(Ok(if request.tool == "pay" {
            require("pay")
        } else {
            Verdict::Allow
        }))
    });
    asked
}

#[test]
fn s31_the_policy_sees_request_history_and_approvals_and_its_identity_is_recorded() {
    let mut w = World::deciding([call("look"), call("pay"), call("note"), complete()]);
    let asked = record(&mut w);
    let mut w = w.submit();
    w.policy = "rows@2".into();
    w.decide("2-0.1", Decision::Approve);
    assert!(w.is_ended());
    let asked = asked.borrow();
    let last = asked.last().unwrap();
    assert_eq!(
        (
            last.tool.as_str(),
            last.attempt,
            last.step.to_string().as_str()
        ),
        ("note", 1, "3-0")
    );
    assert_eq!(
        (last.arguments.as_str(), last.goal.as_str()),
        ("{}", "see what happens")
    );
    let told = |turn: usize| {
        last.turns[turn].steps[0]
            .observation
            .as_ref()
            .map(|told| told.kind)
    };
    assert_eq!(last.turns.len(), 3, "this turn included");
    assert_eq!(told(0), Some(ObservationKind::ToolResult));
    assert_eq!(told(1), Some(ObservationKind::ToolResult));
    assert_eq!(last.approvals.len(), 1, "earlier approvals");
    // The policy was another one when the grant was used: the later verdict counts.
    for (step, policy) in [("1-0", "rows@1"), ("2-0", "rows@2"), ("3-0", "rows@2")] {
        assert_eq!(w.step(step).accepted.unwrap().policy, policy);
    }
}
