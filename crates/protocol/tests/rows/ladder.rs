//! The ladder's lower rungs: adopt, revoke, inspect, evidence and silence, superseded (S51). K39.

use leasehold_protocol::run::SILENCE_SLACK_MS;
use leasehold_protocol::{
    Basis, ClaimBody, Decision, Effect, Event, Fate, Finding, Link, LogbookRecord, ObservationKind,
    OutcomeBody, Question, Reason, RevokeReason, Seq, Status, WIRE_VERSION,
};
use leasehold_tools::SideEffect;

use crate::harness::World;
use crate::tools::{TIMEOUT_MS, call, complete, registry_with, tool};
use crate::worker::{Hand, done, nothing, payload};

/// After the first sight of a claim, silence is believed to be final from here.
const SILENCE_ENDS_MS: u64 = TIMEOUT_MS + TIMEOUT_MS / 100 + SILENCE_SLACK_MS;

fn rung(w: &World) -> u8 {
    let found = w.events().into_iter().find_map(|event| match event {
        Event::Found { rung, .. } => Some(rung),
        _ => None,
    });
    found.expect("a finding")
}

#[test]
fn s51_rung_1_an_outcome_that_was_written_is_adopted() {
    for (returned, finding, kind) in [
        (done("{}"), Finding::Done, ObservationKind::ToolResult),
        (
            nothing(),
            Finding::NothingHappened,
            ObservationKind::ToolError,
        ),
    ] {
        let mut w = World::deciding([call("pay"), complete()])
            .hand("pay", [Hand::Runs])
            .submit();
        w.crash();
        let key = w.key("1-0", 1);
        w.returns(&key, returned);
        w.start();
        w.go();
        assert_eq!((w.findings("1-0"), rung(&w)), (vec![Some(finding)], 1));
        assert_eq!(w.observation("1-0").kind, kind);
        assert_eq!((w.executed.len(), w.inspected()), (1, 0));
    }
}

#[test]
fn s51_rung_2_an_unclaimed_attempt_that_must_end_is_revoked() {
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::Absent])
        .submit();
    w.cancel();
    assert_eq!(
        (w.findings("1-0"), rung(&w)),
        (vec![Some(Finding::Revoked)], 2)
    );
    let key = w.key("1-0", 1);
    let claim = ClaimBody::decode(w.chains[&key][1].body.as_bytes()).unwrap();
    assert!(matches!(
        claim,
        ClaimBody::Revoke {
            why: RevokeReason::Ending,
            ..
        }
    ));
    // A worker that comes late finds the register taken.
    w.hands.clear();
    w.deliver(&key);
    assert!(w.executed.is_empty());
}

#[test]
fn s51_rung_2_a_revocation_that_meets_a_claim_waits_for_the_claimed() {
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::Absent, Hand::Runs])
        .submit();
    w.hints = false;
    let key = w.key("1-0", 1);
    w.deliver(&key);
    w.cancel();
    assert!(
        w.seen.iter().any(
            |effect| matches!(effect, Effect::WriteRegister(write) if write.link == Link::Claim)
        )
    );
    assert!(!w.is_ended(), "it is claimed: its end is waited for");
    w.hints = true;
    w.returns(&key, done("{}"));
    assert_eq!(
        w.ended(),
        Some((Status::Cancelled, Reason::OperatorCancelled))
    );
    assert_eq!(w.in_flight()[0].fate, Fate::Done);
}

#[test]
fn s51_rung_2_a_call_whose_tool_changed_is_revoked_and_made_anew() {
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::Absent, Hand::Returns(done("{}"))])
        .submit();
    let mut spec = tool("pay", SideEffect::RemoteMutation);
    spec.description = "Says something else.".into();
    w.tools = registry_with(spec);
    w.takeover();
    assert_eq!(w.findings("1-0"), [Some(Finding::Revoked), None]);
    let (first, second) = (w.key("1-0", 1), w.key("1-0", 2));
    let spec_of = |key| {
        leasehold_protocol::CallEnvelope::decode(w.chains[key][0].body.as_bytes())
            .unwrap()
            .spec
    };
    assert_ne!(spec_of(&first), spec_of(&second));
    assert_eq!(w.acted("1-0"), 1);
    assert!(w.is_ended());
}

#[test]
fn s51_a_takeover_leaves_unclaimed_calls_alone() {
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::Absent, Hand::Returns(done("{}"))])
        .submit();
    w.takeover();
    w.pass(3_600_000);
    assert_eq!(
        (w.findings("1-0"), w.open().len(), w.inspected()),
        (vec![None], 0, 0)
    );
    let key = w.key("1-0", 1);
    w.deliver(&key);
    // The outcome went to the session that dispatched it; the new owner reads it at the latest after half a minute.
    w.pass(30_000);
    assert!(w.is_ended());
    assert_eq!((w.step("1-0").attempts.len(), w.acted("1-0")), (1, 1));
}

/// A call that nobody has taken, behind a message that was in its chain before it.
fn headless() -> World {
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::Absent])
        .submit();
    let key = w.key("1-0", 1);
    let chain = w.chains.get_mut(&key).unwrap();
    let mut older = chain[0].clone();
    (older.seq, older.link, older.writer) = (Seq(1), Link::Claim, "w".into());
    chain.insert(0, older);
    // The checker says so as well.
    w.broken = true;
    w
}

#[test]
fn s51_i18_a_chain_that_does_not_begin_with_its_call_ends_the_run_as_a_conflict() {
    let mut w = headless();
    w.pass(2_000);
    let conflict = Some((Status::Failed, Reason::ReconcileConflict));
    assert_eq!(w.ended(), conflict);
    assert_eq!(w.findings("1-0"), [Some(Finding::Conflict)]);
    let mut w = headless();
    w.cancel();
    w.pass(2_000);
    let cancelled = Some((Status::Cancelled, Reason::OperatorCancelled));
    assert_eq!(w.ended(), cancelled);
    assert_eq!(w.in_flight()[0].fate, Fate::InterruptedUnknown);
    // Nobody fills the chain with revocations that count for nothing.
    assert!(w.chains[&w.key("1-0", 1)].len() <= 3);
}

#[test]
fn s51_rung_3_a_logbook_from_another_machine_never_says_that_nothing_was_begun() {
    for hand in [Hand::DiesClaimed, Hand::DiesArmed, Hand::DiesActed] {
        let mut w = World::deciding([call("pay"), complete()])
            .hand("pay", [hand.clone(), Hand::Returns(done("{}"))])
            .submit();
        w.moved_from = Some("m-1".into());
        w.restart_worker();
        let key = w.key("1-0", 1);
        let chain = leasehold_protocol::Chain::read(w.class("pay"), &w.chains[&key]);
        assert_eq!(chain.outcome, None, "{hand:?}");
        let state = w.state();
        let (_, asked) = state.open_questions().next().expect("a question");
        let Question::InterruptedSideEffect { evidence, .. } = &asked.question else {
            panic!("{asked:?}")
        };
        let why = |line: &String| line.contains("moved here from machine m-1");
        assert!(evidence.iter().any(why), "{hand:?}: {evidence:?}");
    }
    // What the tool returned is true on every machine, and what this machine's lives claim is theirs to say.
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::DiesActed])
        .submit();
    let key = w.key("1-0", 1);
    let Some(LogbookRecord::Armed(armed)) = w.logbook.remove(&key) else {
        panic!("it is armed")
    };
    let outcome = OutcomeBody::Done {
        result: payload("{}"),
    };
    w.logbook
        .insert(key, LogbookRecord::Outcome { armed, outcome });
    w.moved_from = Some("m-1".into());
    w.restart_worker();
    w.pass(30_000);
    assert_eq!((w.is_ended(), w.acted("1-0")), (true, 1));
}

#[test]
fn s51_rung_3_what_was_claimed_and_never_armed_is_buried_and_tried_again() {
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::DiesClaimed, Hand::Returns(done("{}"))])
        .submit();
    w.restart_worker();
    assert_eq!(
        (w.findings("1-0"), rung(&w)),
        (vec![Some(Finding::NotStarted), None], 3)
    );
    assert!(matches!(
        w.step("1-0").attempts[1].basis,
        Basis::Proof { .. }
    ));
    assert_eq!(w.acted("1-0"), 1);
    assert!(w.is_ended());
}

#[test]
fn s51_rung_3_a_worker_that_says_running_is_believed_until_the_wait_is_over() {
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::Runs])
        .submit();
    w.takeover();
    assert_eq!(w.inspected(), 1);
    w.pass(TIMEOUT_MS - 1);
    assert_eq!((w.findings("1-0"), w.open().len()), (vec![None], 0));
    let key = w.key("1-0", 1);
    w.returns(&key, done("{}"));
    w.pass(30_000);
    assert_eq!(w.findings("1-0"), [Some(Finding::Done)]);
    assert!(w.is_ended());
}

#[test]
fn s51_rung_4_evidence_moves_the_ladder_on_at_once() {
    for hand in [Hand::DiesArmed, Hand::DiesActed] {
        let mut w = World::deciding([call("pay"), complete()])
            .hand("pay", [hand])
            .submit();
        assert!(w.open().is_empty());
        w.restart_worker();
        assert_eq!(w.open(), ["1-0.1"]);
        assert_eq!(w.findings("1-0"), [None], "evidence settles nothing");
    }
}

#[test]
fn s51_rung_4_silence_is_waited_out_and_never_read_as_nothing_happened() {
    for hand in [Hand::DiesClaimed, Hand::DiesArmed, Hand::DiesActed] {
        let mut w = World::deciding([call("pay"), complete()])
            .hand("pay", [hand])
            .submit();
        w.pass(SILENCE_ENDS_MS - 1);
        assert!(w.open().is_empty());
        w.pass(1);
        assert_eq!(w.open(), ["1-0.1"]);
        assert_eq!(
            (w.findings("1-0"), w.step("1-0").attempts.len()),
            (vec![None], 1)
        );
    }
}

#[test]
fn s51_rung_4_a_new_owner_counts_the_silence_from_its_own_first_sight() {
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::DiesActed])
        .submit();
    w.pass(SILENCE_ENDS_MS - 1_000);
    w.takeover();
    assert_eq!(w.inspected(), 1);
    w.pass(SILENCE_ENDS_MS - 1);
    assert!(w.open().is_empty());
    w.pass(1);
    assert_eq!(w.open(), ["1-0.1"]);
}

#[test]
fn s51_rung_5_an_unknown_read_only_attempt_is_given_up_for_another() {
    let mut w = World::deciding([call("look"), complete()])
        .hand("look", [Hand::Absent, Hand::Returns(done(r#"{"seen":1}"#))])
        .submit();
    let key = w.key("1-0", 1);
    // Somebody claimed what needs no claim, and was never heard of again.
    let claim = ClaimBody::Claim {
        v: WIRE_VERSION,
        claim: "stray".parse().unwrap(),
        worker: "x".parse().unwrap(),
        incarnation: "i".parse().unwrap(),
        logbook: "lb".parse().unwrap(),
    };
    let expected = w.chains[&key][0].seq;
    w.register(&key, Link::Claim, expected, "x", claim.encode().into())
        .unwrap();
    w.go();
    w.pass(SILENCE_ENDS_MS);
    assert_eq!(
        (w.findings("1-0"), rung(&w)),
        (vec![Some(Finding::Superseded), None], 5)
    );
    assert_eq!(w.step("1-0").attempts[1].basis, Basis::Superseded);
    assert_eq!(w.observation("1-0").content, payload(r#"{"seen":1}"#));
    assert!(
        w.open().is_empty(),
        "nobody is asked about what changes nothing"
    );
}

#[test]
fn k39_a_timeout_cancels_and_settles_nothing_and_the_late_truth_is_kept() {
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::Runs])
        .submit();
    let key = w.key("1-0", 1);
    w.pass(TIMEOUT_MS - 1);
    assert!(w.cancelled.is_empty());
    w.pass(1);
    assert_eq!(w.cancelled, std::slice::from_ref(&key));
    assert_eq!(
        (w.findings("1-0"), w.open()),
        (vec![None], vec!["1-0.1".to_owned()])
    );
    assert_eq!(w.views().len(), 1, "the agent has not been told anything");
    w.returns(&key, done(r#"{"paid":1}"#));
    w.start();
    w.go();
    assert_eq!(w.observation("1-0").content, payload(r#"{"paid":1}"#));
    let finished = w
        .events()
        .into_iter()
        .filter(|event| matches!(event, Event::Finished { .. }));
    assert_eq!((finished.count(), w.acted("1-0")), (1, 1));
}

#[test]
fn s51_a_tool_that_is_gone_still_asks_an_operator() {
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::DiesActed])
        .submit();
    w.tools = crate::tools::registry_without("pay");
    w.takeover();
    w.pass(SILENCE_ENDS_MS);
    assert_eq!(w.open(), ["1-0.1"]);
    w.decide("1-0.1", Decision::Reject);
    assert_eq!(
        w.ended(),
        Some((Status::Cancelled, Reason::ApprovalRejected))
    );
}
