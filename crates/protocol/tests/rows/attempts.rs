//! A worker's side of one attempt up to the gate, input by input: P1, I5, I6, I19.

use leasehold_json::AcceptedJson;
use leasehold_protocol::{
    Armed, AttemptEffect, AttemptInput, AttemptMachine, CallEnvelope, ChainKey, ChainMessage,
    ClaimBody, ClaimId, Link, LogbookAnswer, LogbookRecord, Note, NoteKind, Now, Outcome,
    OutcomeBody, Sealed, Seq, WIRE_VERSION, WorkerIdentity, WorkerWeakening, WriteAnswer,
};
use leasehold_tools::SideEffect;

pub(crate) const REMOTE: SideEffect = SideEffect::RemoteMutation;
pub(crate) const START: Now = Now {
    wall: 1_000_000,
    boot: 5_000,
};
pub(crate) const TIMEOUT_MS: u64 = 400;
pub(crate) const CALL: Seq = Seq(10);

pub(crate) fn key() -> ChainKey {
    ChainKey {
        run: "r-1".parse().unwrap(),
        tool: "pay".into(),
        step: "1-0".parse().unwrap(),
        attempt: "1".parse().unwrap(),
        origin: "s-1".parse().unwrap(),
    }
}

pub(crate) fn envelope() -> CallEnvelope {
    let epoch = AcceptedJson::check(b"1").unwrap().parse().unwrap();
    CallEnvelope {
        v: WIRE_VERSION,
        run: key().run,
        step: key().step,
        attempt: key().attempt,
        epoch,
        origin: key().origin,
        tool: "pay".into(),
        spec: leasehold_json::Digest::of(b"spec"),
        idempotency_key: leasehold_json::Digest::of(b"key"),
        timeout_ms: TIMEOUT_MS,
        arguments: AcceptedJson::empty_object(),
    }
}

pub(crate) fn me(incarnation: &str) -> WorkerIdentity {
    WorkerIdentity {
        worker: "w".parse().unwrap(),
        incarnation: incarnation.parse().unwrap(),
        logbook: "lb".parse().unwrap(),
        moved_from: None,
        weakening: WorkerWeakening::None,
    }
}

pub(crate) fn claim(id: &str) -> ClaimId {
    id.parse().unwrap()
}

pub(crate) fn deliver(
    class: SideEffect,
    redelivered: bool,
) -> (AttemptMachine, Vec<AttemptEffect>) {
    AttemptMachine::deliver(
        me("i-1"),
        class,
        key(),
        CALL,
        envelope(),
        redelivered,
        claim("mine"),
        START,
    )
}

pub(crate) fn message(seq: u64, link: Link, writer: &str, body: Vec<u8>) -> ChainMessage {
    let expected = (link != Link::Call).then_some(Seq(seq - 1));
    ChainMessage {
        seq: Seq(seq),
        expected,
        link,
        writer: writer.into(),
        body: body.into(),
    }
}

pub(crate) fn the_call() -> ChainMessage {
    message(10, Link::Call, "_rt", envelope().encode())
}

pub(crate) fn the_claim(id: &str, worker: &str, incarnation: &str, logbook: &str) -> ChainMessage {
    let body = ClaimBody::Claim {
        v: WIRE_VERSION,
        claim: claim(id),
        worker: worker.parse().unwrap(),
        incarnation: incarnation.parse().unwrap(),
        logbook: logbook.parse().unwrap(),
    };
    message(11, Link::Claim, worker, body.encode())
}

pub(crate) fn the_outcome(id: &str, writer: &str, fact: OutcomeBody) -> ChainMessage {
    message(
        12,
        Link::Outcome,
        writer,
        Outcome::new(Some(claim(id)), fact).encode(),
    )
}

pub(crate) fn read(messages: Vec<ChainMessage>) -> AttemptInput {
    AttemptInput::ChainRead { messages }
}

pub(crate) fn step(machine: &mut AttemptMachine, input: AttemptInput) -> Vec<AttemptEffect> {
    machine.step(START, true, input)
}

pub(crate) fn executes(effects: &[AttemptEffect]) -> bool {
    effects
        .iter()
        .any(|effect| matches!(effect, AttemptEffect::Execute(_)))
}

pub(crate) fn outcome_of(effects: &[AttemptEffect]) -> Option<OutcomeBody> {
    effects.iter().find_map(|effect| match effect {
        AttemptEffect::WriteOutcome { body, .. } => {
            Some(Outcome::decode(body.as_bytes()).unwrap().fact)
        }
        _ => None,
    })
}

pub(crate) fn note_of(effects: &[AttemptEffect]) -> Option<(NoteKind, bool)> {
    effects.iter().find_map(|effect| match effect {
        AttemptEffect::WriteNote { body, last_place } => {
            Some((Note::decode(body.as_bytes()).unwrap().evidence, *last_place))
        }
        _ => None,
    })
}

pub(crate) fn armed(id: &str) -> LogbookRecord {
    LogbookRecord::Armed(Armed {
        claim: claim(id),
        incarnation: "i-0".parse().unwrap(),
        call: CALL,
    })
}

pub(crate) const ACK_AND_OVER: [AttemptEffect; 2] =
    [AttemptEffect::AckCall { seq: CALL }, AttemptEffect::Over];

#[test]
fn i6_claim_and_armed_are_both_durable_before_the_effect_in_either_order() {
    let stored = || AttemptInput::ClaimTried(WriteAnswer::Stored(Seq(11)));
    let written = || AttemptInput::LogbookTried(LogbookAnswer::Written);
    for inputs in [[stored(), written()], [written(), stored()]] {
        let (mut machine, effects) = deliver(REMOTE, false);
        assert!(!executes(&effects));
        assert!(matches!(
            effects[..],
            [
                AttemptEffect::WriteClaim { expected: CALL, .. },
                AttemptEffect::CreateRecord { .. }
            ]
        ));
        let [first, second] = inputs;
        assert_eq!(step(&mut machine, first), []);
        let effects = step(&mut machine, second);
        let [AttemptEffect::Execute(execution)] = &effects[..] else {
            panic!("{effects:?}")
        };
        assert_eq!(execution.intent.get().claim, Some(claim("mine")));
        assert_eq!(
            (execution.intent.get().call, execution.time_left_ms),
            (CALL, TIMEOUT_MS)
        );
        assert_eq!(execution.deadline_wall, START.wall + 400);
    }
}

#[test]
fn p1_a_refused_claim_executes_nothing() {
    let (mut machine, _) = deliver(REMOTE, false);
    step(
        &mut machine,
        AttemptInput::LogbookTried(LogbookAnswer::Written),
    );
    assert_eq!(
        step(&mut machine, AttemptInput::ClaimTried(WriteAnswer::Refused)),
        [AttemptEffect::ReadChain]
    );
    let effects = step(
        &mut machine,
        read(vec![the_call(), the_claim("other", "x", "i", "lb-x")]),
    );
    assert_eq!(effects, ACK_AND_OVER);
}

#[test]
fn p1_after_an_unknown_answer_the_claim_that_stands_there_decides() {
    // Mine: go on. Nobody's: the same claim again. Mine by name, and another's by its bits: not mine.
    let (mut machine, effects) = deliver(REMOTE, false);
    let AttemptEffect::WriteClaim { body: first, .. } = effects[0].clone() else {
        panic!()
    };
    step(
        &mut machine,
        AttemptInput::LogbookTried(LogbookAnswer::Written),
    );
    assert_eq!(
        step(&mut machine, AttemptInput::ClaimTried(WriteAnswer::Unknown)),
        [AttemptEffect::ReadChain]
    );
    let again = step(&mut machine, read(vec![the_call()]));
    assert_eq!(
        again,
        [AttemptEffect::WriteClaim {
            expected: CALL,
            body: first
        }]
    );
    step(&mut machine, AttemptInput::ClaimTried(WriteAnswer::Unknown));
    let effects = step(
        &mut machine,
        read(vec![the_call(), the_claim("mine", "w", "i-1", "lb")]),
    );
    assert!(executes(&effects));

    let (mut machine, _) = deliver(REMOTE, false);
    step(
        &mut machine,
        AttemptInput::LogbookTried(LogbookAnswer::Written),
    );
    step(&mut machine, AttemptInput::ClaimTried(WriteAnswer::Unknown));
    let effects = step(
        &mut machine,
        read(vec![the_call(), the_claim("sibling", "w", "i-1", "lb")]),
    );
    assert_eq!(effects, ACK_AND_OVER);
}

#[test]
fn i6_an_older_record_in_the_logbook_means_do_not_execute() {
    let (mut machine, _) = deliver(REMOTE, false);
    step(
        &mut machine,
        AttemptInput::ClaimTried(WriteAnswer::Stored(Seq(11))),
    );
    let effects = step(
        &mut machine,
        AttemptInput::LogbookTried(LogbookAnswer::Present(armed("older"))),
    );
    assert!(!executes(&effects));
    assert!(matches!(
        outcome_of(&effects),
        Some(OutcomeBody::NotStarted { .. })
    ));
}

#[test]
fn i6_a_logbook_that_cannot_arm_ends_the_attempt_as_not_started() {
    // Whether the claim's answer comes before or after.
    let (mut machine, _) = deliver(REMOTE, false);
    step(
        &mut machine,
        AttemptInput::ClaimTried(WriteAnswer::Stored(Seq(11))),
    );
    let failed = || AttemptInput::LogbookTried(LogbookAnswer::Failed("no space".into()));
    let effects = step(&mut machine, failed());
    assert!(
        matches!(outcome_of(&effects), Some(OutcomeBody::NotStarted { why }) if why.contains("no space"))
    );
    let effects = step(
        &mut machine,
        AttemptInput::OutcomeTried(WriteAnswer::Stored(Seq(12))),
    );
    assert!(effects.ends_with(&ACK_AND_OVER), "{effects:?}");

    // Before: the claim's answer is waited for, since a read could overtake the claim.
    let claimed = |answer| {
        let (mut machine, _) = deliver(REMOTE, false);
        assert_eq!(step(&mut machine, failed()), []);
        let effects = step(&mut machine, AttemptInput::ClaimTried(answer));
        assert!(!machine.is_over() && !executes(&effects));
        (machine, effects)
    };
    let (_, effects) = claimed(WriteAnswer::Stored(Seq(11)));
    assert!(matches!(
        outcome_of(&effects),
        Some(OutcomeBody::NotStarted { .. })
    ));
    let (mut machine, effects) = claimed(WriteAnswer::Unknown);
    assert_eq!(effects, [AttemptEffect::ReadChain]);
    let effects = step(
        &mut machine,
        read(vec![the_call(), the_claim("mine", "w", "i-1", "lb")]),
    );
    assert!(matches!(
        outcome_of(&effects),
        Some(OutcomeBody::NotStarted { .. })
    ));
    // And if the claim is another's, there is nothing to say.
    let (mut machine, effects) = claimed(WriteAnswer::Refused);
    assert_eq!(effects, [AttemptEffect::ReadChain]);
    let effects = step(
        &mut machine,
        read(vec![the_call(), the_claim("other", "x", "i", "lb-x")]),
    );
    assert_eq!(effects, ACK_AND_OVER);
}

#[test]
fn i19_authority_that_is_lost_at_the_gate_writes_nothing() {
    let (mut machine, _) = deliver(REMOTE, false);
    step(
        &mut machine,
        AttemptInput::ClaimTried(WriteAnswer::Stored(Seq(11))),
    );
    let effects = machine.step(
        START,
        false,
        AttemptInput::LogbookTried(LogbookAnswer::Written),
    );
    assert_eq!(
        effects,
        [AttemptEffect::Over],
        "armed and silent: a successor is unsure"
    );
}

#[test]
fn a_deadline_that_passed_at_the_gate_ends_the_attempt_as_not_started() {
    let late = Now {
        wall: START.wall + 400,
        boot: START.boot + TIMEOUT_MS,
    };
    let (mut machine, _) = deliver(REMOTE, false);
    step(
        &mut machine,
        AttemptInput::ClaimTried(WriteAnswer::Stored(Seq(11))),
    );
    let effects = machine.step(
        late,
        true,
        AttemptInput::LogbookTried(LogbookAnswer::Written),
    );
    assert!(!executes(&effects));
    assert!(matches!(
        outcome_of(&effects),
        Some(OutcomeBody::NotStarted { .. })
    ));
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, AttemptEffect::LogOutcome { .. }))
    );
}

#[test]
fn p1_a_redelivery_to_the_worker_that_executes_it_is_acknowledged_and_not_executed() {
    let (mut machine, effects) = deliver(REMOTE, true);
    assert_eq!(
        effects,
        [AttemptEffect::ReadChain],
        "a repeated delivery is looked at first"
    );
    let effects = step(
        &mut machine,
        read(vec![the_call(), the_claim("first", "w", "i-1", "lb")]),
    );
    assert_eq!(effects, ACK_AND_OVER);
}

#[test]
fn i5_a_call_whose_chain_has_moved_on_is_not_started() {
    let revoke = ClaimBody::Revoke {
        v: WIRE_VERSION,
        by: "s-2".parse().unwrap(),
        why: leasehold_protocol::RevokeReason::Ending,
    };
    let revoked = vec![the_call(), message(11, Link::Claim, "_rt", revoke.encode())];
    let other = vec![the_call(), the_claim("other", "x", "i", "lb-x")];
    let purged = vec![the_claim("other", "w", "i-0", "lb")];
    for messages in [revoked, other, purged] {
        let (mut machine, _) = deliver(REMOTE, true);
        let effects = step(&mut machine, read(messages));
        assert!(
            effects.ends_with(&ACK_AND_OVER) && !executes(&effects),
            "{effects:?}"
        );
    }
}

#[test]
fn i5_a_read_only_call_is_executed_only_if_nothing_follows_it() {
    let (mut machine, effects) = deliver(SideEffect::ReadOnly, false);
    assert_eq!(
        effects,
        [AttemptEffect::ReadChain],
        "no claim and no logbook"
    );
    let effects = step(&mut machine, read(vec![the_call()]));
    let [AttemptEffect::Execute(execution)] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(execution.intent.get().claim, None);
    let seal = Outcome::new(
        None,
        OutcomeBody::Sealed {
            finding: Sealed::Superseded,
            by: "s-2".parse().unwrap(),
        },
    );
    let (mut machine, _) = deliver(SideEffect::ReadOnly, false);
    let effects = step(
        &mut machine,
        read(vec![
            the_call(),
            message(11, Link::Outcome, "_rt", seal.encode()),
        ]),
    );
    assert!(
        effects.ends_with(&ACK_AND_OVER) && !executes(&effects),
        "{effects:?}"
    );
    let (mut machine, _) = deliver(SideEffect::ReadOnly, false);
    assert_eq!(
        machine.step(START, false, read(vec![the_call()])),
        [AttemptEffect::Over],
        "no authority, no execution"
    );
}
