//! A worker's side of one attempt after the gate: what it says of what it did, and what a later life says of an earlier one. S16, S51, K25,
//! K34, K39.

use leasehold_protocol::{
    Armed, AttemptEffect, AttemptInput, AttemptMachine, LogbookAnswer, LogbookRecord, NoteKind,
    Now, OutcomeBody, Sealed, Seq, ToolReturn, WriteAnswer,
};
use leasehold_tools::Failure;

use crate::attempts::{
    ACK_AND_OVER, CALL, REMOTE, START, TIMEOUT_MS, armed, claim, deliver, executes, key, me,
    note_of, outcome_of, read, step, the_call, the_claim, the_outcome,
};
use crate::worker::{done, nothing, perhaps};

/// Claimed, armed, executing.
fn running() -> AttemptMachine {
    let (mut machine, _) = deliver(REMOTE, false);
    assert_eq!(
        step(
            &mut machine,
            AttemptInput::ClaimTried(WriteAnswer::Stored(Seq(11)))
        ),
        []
    );
    assert!(executes(&step(
        &mut machine,
        AttemptInput::LogbookTried(LogbookAnswer::Written)
    )));
    machine
}

#[test]
fn s16_what_a_return_says_goes_to_the_register_or_beside_it() {
    for (returned, fact) in [
        (done("{}"), "done"),
        (nothing(), "nothing_happened"),
        (ToolReturn::Abort { detail: "d".into() }, "aborted"),
    ] {
        let effects = step(&mut running(), AttemptInput::Returned(returned));
        let [
            AttemptEffect::WriteOutcome {
                expected: Seq(11),
                body,
            },
            AttemptEffect::LogOutcome { .. },
        ] = &effects[..]
        else {
            panic!("{effects:?}")
        };
        assert!(String::from_utf8_lossy(body.as_bytes()).contains(fact));
    }
    let effects = step(
        &mut running(),
        AttemptInput::Returned(perhaps(Failure::Error)),
    );
    assert_eq!(outcome_of(&effects), None, "evidence settles nothing");
    assert!(matches!(
        note_of(&effects),
        Some((NoteKind::MayHaveHappened { .. }, false))
    ));
}

#[test]
fn i2_the_call_is_acknowledged_last() {
    let mut machine = running();
    let acks = |effects: &[AttemptEffect]| effects.contains(&AttemptEffect::AckCall { seq: CALL });
    assert!(!acks(&step(
        &mut machine,
        AttemptInput::Returned(done("{}"))
    )));
    assert!(!acks(&step(
        &mut machine,
        AttemptInput::OutcomeTried(WriteAnswer::Stored(Seq(12)))
    )));
    assert!(acks(&step(
        &mut machine,
        AttemptInput::OutcomeLogged(Ok(()))
    )));
    // A logbook that fails now takes nothing away from the register.
    let mut machine = running();
    step(&mut machine, AttemptInput::Returned(done("{}")));
    assert!(!acks(&step(
        &mut machine,
        AttemptInput::OutcomeLogged(Err("no space".into()))
    )));
    assert!(acks(&step(
        &mut machine,
        AttemptInput::OutcomeTried(WriteAnswer::Stored(Seq(12)))
    )));
}

#[test]
fn k25_an_outcome_whose_acknowledgement_was_lost_is_found_and_not_written_twice() {
    let mut machine = running();
    step(&mut machine, AttemptInput::Returned(done("{}")));
    step(&mut machine, AttemptInput::OutcomeLogged(Ok(())));
    assert_eq!(
        step(
            &mut machine,
            AttemptInput::OutcomeTried(WriteAnswer::Unknown)
        ),
        [AttemptEffect::ReadChain]
    );
    let claimed = vec![the_call(), the_claim("mine", "w", "i-1", "lb")];
    let again = step(&mut machine, read(claimed.clone()));
    assert!(outcome_of(&again).is_some(), "not there: offered again");
    step(
        &mut machine,
        AttemptInput::OutcomeTried(WriteAnswer::Unknown),
    );
    let result = crate::worker::payload("{}");
    let stored = [
        claimed,
        vec![the_outcome("mine", "w", OutcomeBody::Done { result })],
    ]
    .concat();
    let effects = step(&mut machine, read(stored));
    assert_eq!(effects[0], AttemptEffect::Published);
    assert_eq!(effects[1..], ACK_AND_OVER);
}

#[test]
fn s51_an_outcome_that_met_a_seal_is_noted_in_the_last_place() {
    let mut machine = running();
    step(&mut machine, AttemptInput::Returned(done("{}")));
    step(
        &mut machine,
        AttemptInput::OutcomeTried(WriteAnswer::Refused),
    );
    let seal = OutcomeBody::Sealed {
        finding: Sealed::ProbeNotDone,
        by: "s-2".parse().unwrap(),
    };
    let sealed = vec![
        the_call(),
        the_claim("mine", "w", "i-1", "lb"),
        the_outcome("mine", "_rt", seal),
    ];
    let effects = step(&mut machine, read(sealed));
    let Some((
        NoteKind::MetSeal {
            outcome: OutcomeBody::Done { .. },
        },
        true,
    )) = note_of(&effects)
    else {
        panic!("{effects:?}")
    };
    assert_eq!(step(&mut machine, AttemptInput::NoteTried), ACK_AND_OVER);
}

#[test]
fn k39_at_the_deadline_the_runtime_speaks_and_a_later_truth_still_goes_to_the_register() {
    let late = Now {
        wall: START.wall + 400,
        boot: START.boot + TIMEOUT_MS,
    };
    let mut machine = running();
    assert_eq!(
        machine.step(START, true, AttemptInput::Deadline),
        [],
        "not before it"
    );
    let effects = machine.step(late, true, AttemptInput::Deadline);
    assert_eq!(effects[0], AttemptEffect::CancelTool);
    assert!(matches!(
        note_of(&effects),
        Some((
            NoteKind::MayHaveHappened {
                failure: Failure::Timeout,
                ..
            },
            false
        ))
    ));
    assert!(
        !machine.is_running(),
        "an inspection is not told that it runs"
    );
    assert_eq!(
        machine.step(late, true, AttemptInput::Deadline),
        [],
        "said once"
    );
    assert_eq!(machine.step(late, true, AttemptInput::NoteTried), []);
    let effects = machine.step(late, true, AttemptInput::Returned(done("{}")));
    assert!(matches!(
        outcome_of(&effects),
        Some(OutcomeBody::Done { .. })
    ));
}

/// A later life looks at what an earlier one claimed, and its logbook says this.
fn successor(
    record: Result<Option<LogbookRecord>, String>,
) -> (AttemptMachine, Vec<AttemptEffect>) {
    let (mut machine, _) = AttemptMachine::resolve(me("i-1"), REMOTE, key(), claim("fresh"));
    let effects = step(
        &mut machine,
        read(vec![the_call(), the_claim("old", "w", "i-0", "lb")]),
    );
    assert_eq!(effects, [AttemptEffect::ReadRecord]);
    let effects = step(&mut machine, AttemptInput::LogbookRead(record));
    (machine, effects)
}

#[test]
fn s51_a_successor_says_what_the_logbook_says_and_nothing_beyond_it() {
    let Armed {
        claim: old,
        incarnation,
        call,
    } = Armed {
        claim: claim("old"),
        incarnation: "i-0".parse().unwrap(),
        call: CALL,
    };
    let outcome = LogbookRecord::Outcome {
        armed: Armed {
            claim: old,
            incarnation,
            call,
        },
        outcome: OutcomeBody::Done {
            result: crate::worker::payload("{}"),
        },
    };
    assert!(matches!(
        outcome_of(&successor(Ok(Some(outcome))).1),
        Some(OutcomeBody::Done { .. })
    ));
    // Armed: nobody can say. Armed for another claim: nothing ever passed the gate under this one.
    assert!(matches!(
        note_of(&successor(Ok(Some(armed("old")))).1),
        Some((NoteKind::Unsure { .. }, _))
    ));
    assert!(matches!(
        outcome_of(&successor(Ok(Some(armed("other")))).1),
        Some(OutcomeBody::NotStarted { .. })
    ));
    // Never armed: buried first, then said.
    let (mut machine, effects) = successor(Ok(None));
    assert!(matches!(
        &effects[..],
        [AttemptEffect::CreateRecord {
            record: LogbookRecord::Tombstone { .. }
        }]
    ));
    let effects = step(
        &mut machine,
        AttemptInput::LogbookTried(LogbookAnswer::Written),
    );
    assert!(matches!(
        outcome_of(&effects),
        Some(OutcomeBody::NotStarted { .. })
    ));
    // Armed and tombstone are one compare-and-set: whoever armed meanwhile wins.
    let (mut machine, _) = successor(Ok(None));
    let effects = step(
        &mut machine,
        AttemptInput::LogbookTried(LogbookAnswer::Present(armed("old"))),
    );
    assert_eq!(outcome_of(&effects), None);
    assert!(matches!(
        note_of(&effects),
        Some((NoteKind::Unsure { .. }, _))
    ));
}

#[test]
fn k34_i11_a_logbook_error_or_another_logbook_is_unsure() {
    let (_, effects) = successor(Err("input/output error".into()));
    assert_eq!(outcome_of(&effects), None);
    assert!(matches!(
        note_of(&effects),
        Some((NoteKind::Unsure { .. }, _))
    ));
    let (mut machine, _) = successor(Ok(None));
    let effects = step(
        &mut machine,
        AttemptInput::LogbookTried(LogbookAnswer::Failed("read-only".into())),
    );
    assert_eq!(
        outcome_of(&effects),
        None,
        "a tombstone that is not durable proves nothing"
    );
    let (mut machine, _) = AttemptMachine::resolve(me("i-1"), REMOTE, key(), claim("fresh"));
    let effects = step(
        &mut machine,
        read(vec![
            the_call(),
            the_claim("old", "w", "i-0", "another-file"),
        ]),
    );
    assert!(matches!(
        note_of(&effects),
        Some((NoteKind::Unsure { .. }, _))
    ));
}

/// A later life reads an attempt whose register was sealed while the worker was dead, and then this record in its logbook.
fn settled_beside_a_seal(record: Option<LogbookRecord>) -> Vec<AttemptEffect> {
    let (mut machine, _) = AttemptMachine::resolve(me("i-1"), REMOTE, key(), claim("fresh"));
    let seal = OutcomeBody::Sealed {
        finding: Sealed::ProbeNotDone,
        by: "s-2".parse().unwrap(),
    };
    let sealed = vec![
        the_call(),
        the_claim("old", "w", "i-0", "lb"),
        the_outcome("old", "_rt", seal),
    ];
    assert_eq!(
        step(&mut machine, read(sealed)),
        [AttemptEffect::ReadRecord],
        "the register is no reason not to look"
    );
    step(&mut machine, AttemptInput::LogbookRead(Ok(record)))
}

#[test]
fn s19_an_outcome_that_only_the_logbook_holds_is_evidence_once_a_seal_stands() {
    let LogbookRecord::Armed(was) = armed("old") else {
        panic!("armed is armed")
    };
    let outcome = LogbookRecord::Outcome {
        armed: was,
        outcome: OutcomeBody::Done {
            result: crate::worker::payload("{}"),
        },
    };
    let effects = settled_beside_a_seal(Some(outcome));
    assert_eq!(outcome_of(&effects), None, "the seal stands");
    assert!(
        matches!(
            note_of(&effects),
            Some((
                NoteKind::MetSeal {
                    outcome: OutcomeBody::Done { .. }
                },
                true
            ))
        ),
        "{effects:?}"
    );
    // What says nothing of an outcome adds nothing to what stands there.
    for record in [None, Some(armed("old"))] {
        let effects = settled_beside_a_seal(record);
        assert_eq!(effects[0], AttemptEffect::Published);
        assert_eq!(note_of(&effects), None);
        assert_eq!(outcome_of(&effects), None);
    }
}

#[test]
fn k39_a_tool_that_returns_because_it_was_cancelled_does_not_take_the_note_with_it() {
    let late = Now {
        wall: START.wall + TIMEOUT_MS as i64,
        boot: START.boot + TIMEOUT_MS,
    };
    let mut machine = running();
    let effects = machine.step(late, true, AttemptInput::Deadline);
    assert!(note_of(&effects).is_some());
    // The note is on its way: whoever writes it must not be let go.
    let returned = AttemptInput::Returned(perhaps(Failure::Timeout));
    assert_eq!(machine.step(late, true, returned), []);
    assert_eq!(
        machine.step(late, true, AttemptInput::NoteTried),
        ACK_AND_OVER
    );
}
