//! Rung 7: what nobody can say is put before an operator (S38, S51). K34, K48.

use leasehold_protocol::{
    Basis, Decision, Event, Finding, InboxAnswer, ObservationKind, Question, Reason, Status,
    StopReason,
};
use leasehold_tools::Failure;

use crate::harness::World;
use crate::tools::{call, calls, complete};
use crate::worker::{Hand, done, json_of, nothing, payload, perhaps};

/// The tool acted, or may have, and the run waits for an operator.
fn interrupted(then: Hand) -> World {
    World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::Returns(perhaps(Failure::Error)), then])
        .submit()
}

/// The tool outlived its deadline, the run waits for an operator, and the tool still runs.
fn overdue() -> World {
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::Runs, Hand::Returns(done("{}"))])
        .submit();
    w.pass(2_000);
    assert_eq!(
        (w.open(), w.stops()),
        (vec!["1-0.1".to_owned()], vec![StopReason::Parked])
    );
    w
}

/// The worker died before it armed, the run waits for an operator, and the worker's next life proves that nothing was begun.
fn proved_while_asking() -> World {
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::DiesClaimed, Hand::Returns(done("{}"))])
        .submit();
    w.pass(10_000);
    assert_eq!(w.stops(), [StopReason::Parked]);
    w.restart_worker();
    assert!(w.owner.is_none());
    w
}

fn record() -> Decision {
    Decision::RecordDone {
        result: json_of(r#"{"receipt":7}"#),
    }
}

#[test]
fn s38_the_question_shows_the_evidence_and_never_expires() {
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::Returns(perhaps(Failure::Error))]);
    w.limits.approval_ttl_ms = 1_000;
    let mut w = w.submit();
    w.pass(30 * 24 * 3_600_000);
    assert_eq!(w.state().status(), Status::Waiting);
    let state = w.state();
    let (_, approval) = state.open_questions().next().unwrap();
    assert_eq!(approval.expires_at, None);
    let Question::InterruptedSideEffect { attempt, evidence } = &approval.question else {
        panic!("{approval:?}")
    };
    assert_eq!(attempt.get(), 1);
    assert!(
        evidence.iter().any(|line| line.contains("by worker w")),
        "{evidence:?}"
    );
    assert!(
        evidence
            .iter()
            .any(|line| line.contains("connection reset")),
        "{evidence:?}"
    );
}

#[test]
fn s38_the_hash_covers_attempt_and_evidence() {
    let mut w = interrupted(Hand::Returns(perhaps(Failure::Error)));
    let first = w.hash("1-0.1");
    w.decide("1-0.1", Decision::RunAgain);
    assert_eq!(w.open(), ["1-0.2"]);
    assert_ne!(w.hash("1-0.2"), first);
    // A decision about the first attempt is none about the second.
    let letter = w.letter("1-0.2", first, Decision::RunAgain, "olga");
    w.go();
    assert_eq!(w.answer_to(letter), Some(InboxAnswer::HashDiffers));
    let other = overdue();
    assert_ne!(
        other.hash("1-0.1"),
        first,
        "the same attempt, other evidence"
    );
    assert_eq!(interrupted(Hand::Absent).hash("1-0.1"), first);
}

#[test]
fn s51_run_again_is_one_more_attempt_that_may_act() {
    let mut w = interrupted(Hand::Returns(done("{}")));
    w.decide("1-0.1", Decision::RunAgain);
    assert_eq!(w.ended(), Some((Status::Completed, Reason::GoalCompleted)));
    assert_eq!(w.findings("1-0"), [Some(Finding::RunAgain), None]);
    assert!(matches!(
        w.step("1-0").attempts[1].basis,
        Basis::RunAgain { .. }
    ));
    assert_eq!(w.acted("1-0"), 2, "what the operator permitted");
}

#[test]
fn s51_record_done_is_a_result_that_is_not_believed_like_the_tools_own() {
    let mut w = interrupted(Hand::Absent);
    w.decide("1-0.1", record());
    assert_eq!(w.ended(), Some((Status::Completed, Reason::GoalCompleted)));
    assert_eq!(w.findings("1-0"), [Some(Finding::RecordedDone)]);
    let told = w.observation("1-0");
    assert_eq!(
        (told.kind, told.content),
        (ObservationKind::ToolResult, payload(r#"{"receipt":7}"#))
    );
    assert_eq!(told.trust, leasehold_tools::ResultTrust::Untrusted);
    assert_eq!(w.executed.len(), 1);
}

#[test]
fn s51_reject_ends_the_run_and_nothing_further_is_attempted() {
    let mut w = interrupted(Hand::Returns(done("{}")));
    w.decide("1-0.1", Decision::Reject);
    assert_eq!(
        w.ended(),
        Some((Status::Cancelled, Reason::ApprovalRejected))
    );
    assert_eq!(w.findings("1-0"), [Some(Finding::Rejected)]);
    assert_eq!(w.observation("1-0").kind, ObservationKind::Interrupted);
    assert_eq!(w.executed.len(), 1);
}

#[test]
fn s51_a_choice_that_is_not_offered_changes_nothing() {
    let mut w = interrupted(Hand::Absent);
    for decision in [Decision::Approve, Decision::Continue] {
        let letter = w.decide("1-0.1", decision);
        assert_eq!(w.answer_to(letter), Some(InboxAnswer::ChoiceNotOffered));
    }
    assert_eq!(w.open(), ["1-0.1"]);
}

#[test]
fn s38_the_question_is_withdrawn_when_the_truth_arrives() {
    let mut w = overdue();
    let key = w.key("1-0", 1);
    w.returns(&key, done(r#"{"paid":1}"#));
    // The stored outcome wakes the run.
    w.start();
    w.go();
    assert!(
        w.events()
            .iter()
            .any(|event| matches!(event, Event::Withdrawn { .. }))
    );
    assert_eq!(w.ended(), Some((Status::Completed, Reason::GoalCompleted)));
    assert_eq!(w.observation("1-0").content, payload(r#"{"paid":1}"#));
    assert_eq!(w.findings("1-0"), [Some(Finding::Done)]);
    let late = w.state().approvals.len();
    assert_eq!((late, w.open().len(), w.acted("1-0")), (1, 0, 1));
}

#[test]
fn s38_the_question_is_withdrawn_when_it_is_proved_that_nothing_happened() {
    let mut w = proved_while_asking();
    w.start();
    w.go();
    assert!(
        w.events()
            .iter()
            .any(|event| matches!(event, Event::Withdrawn { .. }))
    );
    assert_eq!(w.findings("1-0"), [Some(Finding::NotStarted), None]);
    assert_eq!(w.ended(), Some((Status::Completed, Reason::GoalCompleted)));
    assert_eq!(w.acted("1-0"), 1);
}

#[test]
fn s51_a_run_again_that_meets_the_outcome_is_not_used() {
    for (returned, finding, kind) in [
        (done("{}"), Finding::Done, ObservationKind::ToolResult),
        (
            nothing(),
            Finding::NothingHappened,
            ObservationKind::ToolError,
        ),
    ] {
        let mut w = overdue();
        let key = w.key("1-0", 1);
        w.returns(&key, returned);
        w.decide("1-0.1", Decision::RunAgain);
        assert_eq!(w.findings("1-0"), [Some(finding)]);
        assert_eq!(w.observation("1-0").kind, kind);
        assert_eq!(w.executed.len(), 1, "adopted, not run again");
    }
}

#[test]
fn s51_a_run_again_that_meets_a_proof_is_a_continue_on_that_fact() {
    let mut w = proved_while_asking();
    w.decide("1-0.1", Decision::RunAgain);
    assert_eq!(w.findings("1-0"), [Some(Finding::NotStarted), None]);
    assert!(matches!(
        w.step("1-0").attempts[1].basis,
        Basis::Continue { .. }
    ));
    assert_eq!(w.acted("1-0"), 1);
    assert!(w.is_ended());
}

#[test]
fn s8_a_run_again_that_meets_a_proof_after_the_run_was_told_to_end_ends_the_step() {
    let mut w = proved_while_asking();
    let hash = w.hash("1-0.1");
    w.letter("1-0.1", hash, Decision::RunAgain, "olga");
    w.cancel();
    w.pass(2_000);
    assert_eq!(
        w.ended(),
        Some((Status::Cancelled, Reason::OperatorCancelled))
    );
    assert_eq!(w.findings("1-0"), [Some(Finding::NotStarted)]);
}

#[test]
fn s51_record_done_and_reject_stand_over_everything_but_done() {
    let mut w = proved_while_asking();
    w.decide("1-0.1", record());
    assert_eq!(w.findings("1-0"), [Some(Finding::RecordedDone)]);
    assert_eq!(w.executed.len(), 0);
    let mut w = proved_while_asking();
    w.decide("1-0.1", Decision::Reject);
    assert_eq!(
        w.ended(),
        Some((Status::Cancelled, Reason::ApprovalRejected))
    );
    assert_eq!(w.executed.len(), 0);
    let overdue_with = |returned| {
        let mut w = overdue();
        let key = w.key("1-0", 1);
        w.returns(&key, returned);
        w
    };
    let mut w = overdue_with(nothing());
    w.decide("1-0.1", record());
    assert_eq!(w.findings("1-0"), [Some(Finding::RecordedDone)]);
    let mut w = overdue_with(nothing());
    w.decide("1-0.1", Decision::Reject);
    assert_eq!(w.findings("1-0"), [Some(Finding::Rejected)]);
    let mut w = overdue_with(done(r#"{"paid":1}"#));
    w.decide("1-0.1", record());
    assert_eq!(w.findings("1-0"), [Some(Finding::Done)]);
    assert_eq!(
        w.observation("1-0").content,
        payload(r#"{"paid":1}"#),
        "the truth, not the operator's word"
    );
    let mut w = overdue_with(done("{}"));
    w.decide("1-0.1", Decision::Reject);
    assert_eq!(w.findings("1-0"), [Some(Finding::Done)]);
    assert_eq!(
        w.ended(),
        Some((Status::Cancelled, Reason::ApprovalRejected)),
        "the reject ends the run all the same"
    );
}

/// Five lives of the worker, each dead before it armed.
fn exhausted() -> World {
    let mut hands = vec![Hand::DiesClaimed; 5];
    hands.push(Hand::Returns(done("{}")));
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", hands)
        .submit();
    for life in 1..=5 {
        assert!(w.open().is_empty(), "after {life} attempts");
        w.restart_worker();
    }
    assert_eq!(w.open(), ["1-0.1"]);
    w
}

#[test]
fn s51_after_five_proofs_an_operator_is_asked_and_nothing_is_sealed() {
    let w = exhausted();
    assert_eq!(w.findings("1-0"), [Some(Finding::NotStarted); 5]);
    let state = w.state();
    let (_, approval) = state.open_questions().next().unwrap();
    assert!(
        matches!(&approval.question, Question::Exhausted { attempt, .. } if attempt.get() == 5)
    );
    assert_eq!(w.executed.len(), 0);
}

#[test]
fn s51_exhausted_continue_is_one_more_attempt_on_the_fact() {
    let mut w = exhausted();
    let not_offered = w.decide("1-0.1", Decision::RunAgain);
    assert_eq!(
        w.answer_to(not_offered),
        Some(InboxAnswer::ChoiceNotOffered)
    );
    w.decide("1-0.1", Decision::Continue);
    assert_eq!(w.ended(), Some((Status::Completed, Reason::GoalCompleted)));
    assert!(matches!(
        w.step("1-0").attempts[5].basis,
        Basis::Continue { .. }
    ));
    assert_eq!(w.acted("1-0"), 1);
}

#[test]
fn s51_exhausted_record_done_and_reject() {
    let mut w = exhausted();
    w.decide("1-0.1", record());
    assert_eq!(w.ended(), Some((Status::Completed, Reason::GoalCompleted)));
    assert_eq!(w.observation("1-0").content, payload(r#"{"receipt":7}"#));
    let mut w = exhausted();
    w.decide("1-0.1", Decision::Reject);
    assert_eq!(
        w.ended(),
        Some((Status::Cancelled, Reason::ApprovalRejected))
    );
    assert_eq!(w.executed.len(), 0);
}

#[test]
fn k34_an_unreadable_logbook_is_unknown_and_never_not_started() {
    let mut w = World::deciding([call("pay"), complete()]).hand("pay", [Hand::DiesActed]);
    w.logbook_error = true;
    let mut w = w.submit();
    w.restart_worker();
    assert_eq!(w.open(), ["1-0.1"]);
    assert_eq!(w.findings("1-0"), [None]);
    assert_eq!(w.executed.len(), 1);
}

#[test]
fn k48_however_many_owners_come_there_is_one_question() {
    let mut w = interrupted(Hand::Absent);
    for _ in 0..3 {
        w.takeover();
        w.pass(60_000);
    }
    let asked = w
        .events()
        .into_iter()
        .filter(|event| matches!(event, Event::Requested { .. }));
    assert_eq!(asked.count(), 1);
    assert_eq!(w.open(), ["1-0.1"]);
}

#[test]
fn s38_a_sibling_goes_on_while_an_operator_is_asked() {
    let mut w = World::deciding([calls(&[("pay", "{}"), ("note", "{}")]), complete()])
        .hand("pay", [Hand::Returns(perhaps(Failure::Panic))])
        .submit();
    w.pass(60);
    assert_eq!(w.observation("1-1").kind, ObservationKind::ToolResult);
    assert_eq!(w.state().status(), Status::Waiting);
    assert_eq!(
        w.views().len(),
        1,
        "the agent is asked when the turn is over"
    );
    w.decide("1-0.1", record());
    assert!(w.is_ended());
}
