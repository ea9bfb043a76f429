//! What a run is: how it ends (S1), what the agent sees of it (S7), and when anybody hears of anything (S6).

use leasehold_protocol::{
    Decision, Effect, InboxAnswer, Input, Limits, ProbeReply, Reason, Status, ToolReturn, Verdict,
};
use leasehold_tools::Failure;

use crate::harness::{Fault, World};
use crate::tools::{always, call, calls, complete, require};
use crate::worker::{Hand, done, json_of, nothing, perhaps};

/// A run that ends for this reason.
fn ends_for(reason: Reason) -> World {
    let mut w = World::deciding([call("look"), call("look"), call("look"), complete()]);
    let runs = |tool: &str| w_with(&[&call(tool)]).hand(tool, [Hand::Runs]);
    match reason {
        Reason::GoalCompleted => w_with(&[&complete()]).submit(),
        Reason::GoalFailed => w_with(&[r#"{"kind":"fail","message":"no"}"#]).submit(),
        Reason::LimitSteps => {
            w.limits.max_steps = 1;
            w.submit()
        }
        Reason::LimitActiveTime | Reason::LimitElapsedTime => {
            let mut w = runs("look");
            match reason {
                Reason::LimitActiveTime => w.limits.max_active_ms = 10,
                _ => w.limits.max_elapsed_ms = 10,
            }
            let mut w = w.submit();
            w.pass(50);
            let key = w.key("1-0", 1);
            w.returns(&key, done("{}"));
            w
        }
        Reason::RepeatedToolFailures => w.hand("look", [Hand::Returns(nothing())]).submit(),
        Reason::LoopDetected => {
            w.decides([call("look"), call("look"), call("look"), call("look")]);
            w.submit()
        }
        Reason::PolicyAbort => {
            let reason = "no".to_owned();
            w.judge = always(Verdict::Abort { reason });
            w.submit()
        }
        Reason::ToolAbort => {
            let detail = "stop".to_owned();
            w_with(&[&call("halt")])
                .hand("halt", [Hand::Returns(ToolReturn::Abort { detail })])
                .submit()
        }
        Reason::ApprovalRejected => {
            w.judge = always(require("c"));
            let mut w = w.submit();
            w.decide("1-0.1", Decision::Reject);
            w
        }
        Reason::ApprovalExpired => {
            w.judge = always(require("c"));
            w.limits.approval_ttl_ms = 1_000;
            let mut w = w.submit();
            w.pass(2_000);
            w
        }
        Reason::OperatorCancelled => {
            let mut w = World::new().submit();
            w.cancel();
            w
        }
        Reason::ReconcileConflict => {
            let mut w = w_with(&[&call("pay_fence")])
                .hand("pay_fence", [Hand::Returns(perhaps(Failure::Error))]);
            let detail = "two receipts".to_owned();
            w.probes.push_back(ProbeReply::Conflict { detail });
            w.submit()
        }
        Reason::AgentError => {
            w.agent = Box::new(|_| Some(Err("model gone".into())));
            w.submit()
        }
        Reason::InternalError => {
            w.judge = Box::new(|_| Some(Err("policy file missing".into())));
            w.submit()
        }
    }
}

fn w_with(decisions: &[&str]) -> World {
    World::deciding(decisions.iter().copied())
}

#[test]
fn s1_every_reason_ends_a_run_with_its_status() {
    use Reason::*;
    let failed = [
        GoalFailed,
        LimitSteps,
        LimitActiveTime,
        LimitElapsedTime,
        RepeatedToolFailures,
        LoopDetected,
        PolicyAbort,
        ToolAbort,
        ReconcileConflict,
        AgentError,
        InternalError,
    ];
    let cancelled = [ApprovalRejected, ApprovalExpired, OperatorCancelled];
    let table = [(GoalCompleted, Status::Completed)]
        .into_iter()
        .chain(failed.map(|reason| (reason, Status::Failed)))
        .chain(cancelled.map(|reason| (reason, Status::Cancelled)));
    for (reason, status) in table {
        let w = ends_for(reason);
        assert_eq!(w.ended(), Some((status, reason)), "{:#?}", w.events());
        assert_eq!(w.state().status(), status);
        assert!(status.is_final());
    }
}

#[test]
fn s1_a_run_waits_for_an_operator_and_runs_otherwise() {
    let mut w = w_with(&[&call("pay"), &complete()]).hand("pay", [Hand::Runs]);
    w.judge = always(require("c"));
    let mut w = w.submit();
    assert_eq!(w.state().status(), Status::Waiting);
    w.decide("1-0.1", Decision::Approve);
    assert_eq!(w.state().status(), Status::Running);
    // An interrupted run stays running: whoever comes next finds it.
    w.crash();
    assert_eq!(w.state().status(), Status::Running);
}

#[test]
fn s6_a_question_is_asked_by_nobody_before_its_commit_is_stored() {
    let mut w = w_with(&[&call("pay"), &complete()]);
    w.judge = always(require("c"));
    w.faults.extend([Fault::Fine, Fault::Held]);
    let mut w = w.submit();
    let held = w.held.take().expect("the question is on its way");
    let seen = w.seen.len();
    assert!(w.open().is_empty());
    for input in [Input::Tick, Input::Drain, Input::Tick] {
        assert_eq!(
            w.ask(input),
            [],
            "nothing happens while a commit is on its way"
        );
    }
    assert_eq!(w.seen.len(), seen);
    w.commit_now(held, true);
    w.go();
    assert_eq!(w.open(), ["1-0.1"]);
}

#[test]
fn s6_a_decision_has_no_force_before_its_commit_is_stored() {
    let mut w = w_with(&[&call("pay"), &complete()])
        .hand("pay", [Hand::Returns(perhaps(Failure::Error))])
        .submit();
    assert_eq!(w.open(), ["1-0.1"]);
    w.faults.extend([Fault::Fine, Fault::Held]);
    let result = json_of(r#"{"receipt":7}"#);
    let seen = w.seen.len();
    let letter = w.decide("1-0.1", Decision::RecordDone { result });
    let held = w.held.take().expect("the decision is on its way");
    let forced = |effect: &Effect| {
        matches!(
            effect,
            Effect::WriteRegister(_) | Effect::AckInbox { .. } | Effect::AskAgent(_)
        )
    };
    assert!(!w.seen[seen..].iter().any(forced), "{:#?}", &w.seen[seen..]);
    assert!(!w.inbox[&letter].2);
    w.commit_now(held, true);
    w.go();
    assert!(w.seen[seen..].iter().any(forced));
    assert!(w.inbox[&letter].2);
    assert_eq!(w.ended(), Some((Status::Completed, Reason::GoalCompleted)));
}

#[test]
fn k48_s6_of_two_operators_the_first_wins_and_the_other_is_told() {
    let mut w = w_with(&[&call("pay"), &complete()]).hand("pay", [Hand::Runs]);
    w.judge = always(require("c"));
    let mut w = w.submit();
    let hash = w.hash("1-0.1");
    let first = w.letter("1-0.1", hash, Decision::Approve, "olga");
    let second = w.letter("1-0.1", hash, Decision::Reject, "otto");
    let repeat = w.letter("1-0.1", hash, Decision::Approve, "olga");
    w.go();
    assert_eq!(w.answer_to(first), None);
    assert_eq!(w.answer_to(second), Some(InboxAnswer::AlreadyDecided));
    assert_eq!(w.answer_to(repeat), Some(InboxAnswer::Repeated));
    assert!(w.inbox.values().all(|(_, _, acked)| *acked));
    assert_eq!(w.executed.len(), 1, "the first decision stands");
    // A second cancel is told that it comes too late, and changes nothing.
    let (one, two) = (w.cancel(), w.cancel());
    assert_eq!(w.answer_to(one), None);
    assert_eq!(w.answer_to(two), Some(InboxAnswer::AlreadyEnding));
}

#[test]
fn s7_the_agent_is_told_everything_and_keeps_nothing() {
    let mut w = w_with(&[
        &calls(&[("look", r#"{"n":1}"#), ("note", "{}")]),
        &call("pay"),
    ])
    .hand("look", [Hand::Returns(done(r#"{"seen":1}"#))])
    .hand("note", [Hand::Returns(nothing())]);
    w.limits = Limits {
        max_steps: 9,
        ..Limits::default()
    };
    let mut w = w.submit();
    let view = w.views().pop().expect("a third turn");
    assert_eq!((view.turn, view.goal.as_str()), (3, "see what happens"));
    assert_eq!(view.tools, w.toolset, "in declared order");
    assert_eq!((view.left.steps, view.left.failures), (7, 3));
    let told: Vec<_> = view
        .turns
        .iter()
        .flat_map(|turn| &turn.steps)
        .map(|step| step.observation.as_ref().expect("told").kind)
        .collect();
    use leasehold_protocol::ObservationKind::*;
    assert_eq!(told, [ToolResult, ToolError, ToolResult]);
    // Nothing of it was the owner's: another one tells the agent the same. What was told early has not been stored by then.
    w.pass(60);
    w.takeover();
    let mut again = w.views().pop().expect("asked again");
    again.left = view.left;
    assert_eq!(again, view);
}
