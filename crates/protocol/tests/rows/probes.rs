//! Rung 6: what a tool's probe says, and what it is worth (S51).

use leasehold_protocol::{
    Basis, Effect, Finding, Input, MAX_NOTES, ObservationKind, ProbeReply, Question, Reason, Status,
};
use leasehold_tools::Failure;

use crate::harness::World;
use crate::tools::{TIMEOUT_MS, call, complete};
use crate::worker::{Hand, done, payload, perhaps};

/// The tool's first attempt acted or not, its worker died over it and says that it is unsure; the probe answers these in turn.
fn unsure(tool: &str, first: Hand, probes: impl IntoIterator<Item = ProbeReply>) -> World {
    let mut w =
        World::deciding([call(tool), complete()]).hand(tool, [first, Hand::Returns(done("{}"))]);
    w.probes.extend(probes);
    let mut w = w.submit();
    w.restart_worker();
    w
}

fn found() -> ProbeReply {
    ProbeReply::Done {
        result: payload(r#"{"found":1}"#),
    }
}

fn evidence(w: &World) -> Vec<String> {
    let state = w.state();
    let (_, approval) = state.open_questions().next().expect("a question");
    match &approval.question {
        Question::InterruptedSideEffect { evidence, .. } => evidence.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn s51_a_probe_that_finds_the_effect_gives_the_result() {
    for tool in ["pay_fence", "pay_plain", "pay_late", "wipe_fence"] {
        let w = unsure(tool, Hand::DiesActed, [found()]);
        assert_eq!(w.findings("1-0"), [Some(Finding::ProbeDone)]);
        assert_eq!(w.observation("1-0").content, payload(r#"{"found":1}"#));
        assert_eq!(w.ended(), Some((Status::Completed, Reason::GoalCompleted)));
        assert_eq!(w.executed.len(), 1);
        assert_eq!(
            w.asked_probes[0].idempotency_key,
            w.executed[0].envelope.idempotency_key
        );
    }
}

#[test]
fn s51_not_done_of_a_fencing_probe_counts_at_once() {
    for tool in ["pay_fence", "wipe_fence"] {
        let w = unsure(tool, Hand::DiesArmed, [ProbeReply::NotDone]);
        assert_eq!(w.findings("1-0"), [Some(Finding::ProbeNotDone), None]);
        assert!(matches!(
            w.step("1-0").attempts[1].basis,
            Basis::Proof { .. }
        ));
        assert_eq!(w.acted("1-0"), 1);
        assert!(w.is_ended());
    }
}

#[test]
fn s51_not_done_of_a_probe_that_only_observes_is_shown_and_proves_nothing() {
    let mut w = unsure("pay_plain", Hand::DiesArmed, [ProbeReply::NotDone]);
    w.pass(600_000);
    assert_eq!(w.findings("1-0"), [None]);
    assert!(
        evidence(&w)
            .iter()
            .any(|line| line.contains("only observes"))
    );
    assert_eq!(w.executed.len(), 0);
}

#[test]
fn s51_not_done_of_a_service_that_refuses_late_counts_after_the_deadline_only() {
    let mut w = unsure("pay_late", Hand::DiesArmed, [ProbeReply::NotDone]);
    // Asked before the deadline: a request may still be on its way.
    assert_eq!(w.asked_probes.len(), 1);
    w.pass(TIMEOUT_MS);
    assert_eq!((w.asked_probes.len(), w.findings("1-0")), (1, vec![None]));
    w.pass(TIMEOUT_MS / 100 + 1);
    assert_eq!(
        w.asked_probes.len(),
        2,
        "asked again when the service would refuse it"
    );
    assert_eq!(w.findings("1-0"), [Some(Finding::ProbeNotDone), None]);
    assert_eq!(w.acted("1-0"), 1);
}

#[test]
fn s51_a_late_request_that_landed_after_the_first_answer_is_found_by_the_second() {
    let mut w = unsure("pay_late", Hand::DiesActed, [ProbeReply::NotDone, found()]);
    assert_eq!(w.findings("1-0"), [None]);
    w.pass(2 * TIMEOUT_MS);
    assert_eq!(w.findings("1-0"), [Some(Finding::ProbeDone)]);
    assert_eq!(w.acted("1-0"), 1);
}

#[test]
fn s51_a_destructive_tool_is_never_settled_by_a_probe_that_only_observes() {
    let mut w = unsure("wipe", Hand::DiesArmed, [ProbeReply::NotDone]);
    w.pass(60_000);
    assert!(w.asked_probes.is_empty());
    assert_eq!(w.open(), ["1-0.1"]);
    assert_eq!(w.executed.len(), 0);
}

#[test]
fn s51_a_conflict_ends_the_run() {
    let detail = "two receipts".to_owned();
    let w = unsure(
        "pay_fence",
        Hand::DiesActed,
        [ProbeReply::Conflict { detail }],
    );
    assert_eq!(w.ended(), Some((Status::Failed, Reason::ReconcileConflict)));
    assert_eq!(w.findings("1-0"), [Some(Finding::Conflict)]);
    assert_eq!(w.observation("1-0").kind, ObservationKind::Interrupted);
    assert_eq!(w.executed.len(), 1);
}

#[test]
fn s51_a_probe_that_cannot_say_leaves_it_to_an_operator() {
    let detail = "archive offline".to_owned();
    let w = unsure(
        "pay_fence",
        Hand::DiesActed,
        [ProbeReply::Unknown { detail }],
    );
    assert!(
        evidence(&w)
            .iter()
            .any(|line| line.contains("archive offline"))
    );
    assert_eq!(w.executed.len(), 1);
}

#[test]
fn s51_i11_a_probe_that_fails_six_times_proves_nothing() {
    let error = "503".to_owned();
    let mut w = unsure("pay_fence", Hand::DiesActed, [ProbeReply::Failed { error }]);
    assert_eq!((w.asked_probes.len(), w.open().len()), (1, 0));
    w.pass(600_000);
    assert_eq!(w.asked_probes.len(), 6, "and not once more");
    assert!(
        evidence(&w)
            .iter()
            .any(|line| line.contains("failed 6 times, last: 503"))
    );
    assert_eq!(w.findings("1-0"), [None]);
    assert_eq!(w.executed.len(), 1);
}

#[test]
fn s51_a_probe_that_recovers_is_believed() {
    let failed = || ProbeReply::Failed {
        error: "503".into(),
    };
    let mut w = unsure("pay_fence", Hand::DiesActed, [failed(), failed(), found()]);
    w.pass(60_000);
    assert_eq!(w.asked_probes.len(), 3);
    assert_eq!(w.findings("1-0"), [Some(Finding::ProbeDone)]);
}

#[test]
fn s51_a_seal_that_meets_the_truth_gives_way_to_it() {
    // The tool runs past its deadline; the probe is slow; the tool returns while the probe's "not done" is on its way.
    let mut w = World::deciding([call("pay_fence"), complete()])
        .hand("pay_fence", [Hand::Runs])
        .submit();
    w.pass(2 * TIMEOUT_MS);
    assert_eq!(w.asked_probes.len(), 1);
    w.hints = false;
    let key = w.key("1-0", 1);
    w.returns(&key, done(r#"{"paid":1}"#));
    let (step, attempt, answer) = (key.step, key.attempt, ProbeReply::NotDone);
    w.tell(Input::Probed {
        step,
        attempt,
        answer,
    });
    assert!(
        w.seen
            .iter()
            .any(|effect| matches!(effect, Effect::WriteRegister(_))),
        "it tried to seal"
    );
    assert_eq!(w.findings("1-0"), [Some(Finding::Done)]);
    assert_eq!(w.observation("1-0").content, payload(r#"{"paid":1}"#));
    assert_eq!(w.executed.len(), 1);
}

#[test]
fn s51_an_outcome_that_meets_a_seal_is_kept_as_evidence_in_the_last_place() {
    let mut w = World::deciding([call("pay_fence"), complete()])
        .hand("pay_fence", [Hand::Runs, Hand::Returns(done("{}"))]);
    w.probes.push_back(ProbeReply::NotDone);
    let mut w = w.submit();
    w.pass(2 * TIMEOUT_MS);
    assert_eq!(w.findings("1-0"), [Some(Finding::ProbeNotDone), None]);
    let key = w.key("1-0", 1);
    // The service refused the first attempt for ever; what its worker says of it changes nothing.
    let length = w.journal.len();
    w.returns(&key, crate::worker::nothing());
    assert_eq!(w.journal.len(), length);
    let notes = &w.notes[&key];
    assert!(notes.len() <= MAX_NOTES);
    let last = String::from_utf8(notes.last().unwrap().body.as_bytes().to_vec()).unwrap();
    assert!(last.contains("met_seal"), "{last}");
    assert_eq!(w.acted("1-0"), 1);
}

#[test]
fn s51_without_a_probe_an_operator_is_asked_before_the_agent_hears_of_it() {
    for tool in ["note", "pay"] {
        let w = World::deciding([call(tool), complete()])
            .hand(tool, [Hand::Returns(perhaps(Failure::Error))])
            .submit();
        assert_eq!(w.open(), ["1-0.1"]);
        assert_eq!(w.views().len(), 1);
    }
}
