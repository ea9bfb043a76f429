//! The clerk against every kind of observation.

use std::sync::Arc;

use leasehold_json::Kept;
use leasehold_protocol::proposal::ProposedCall;
use leasehold_protocol::{Left, Phase, Proposal, RunId, StepId, Turn};
use leasehold_tools::ResultTrust;

use super::*;

/// Above 2^53, with digits that a double would lose.
const ORDER: &str = r#"{"order_id":9007199254740993,"amount":1234567890123456.70,"currency":"EUR","refundable":true}"#;
const REFUSED: &str = r#"{"order_id":9007199254740993,"amount":5,"currency":"EUR","refundable":false,"reason":"expired"}"#;
const NOT_SENT: &str = r#"{"error":"connection refused"}"#;

type Heard<'a> = (&'a str, ObservationKind, Option<Failure>, &'a str);

fn view(heard: &[Heard<'_>]) -> AgentView {
    let turns = heard
        .iter()
        .zip(1..)
        .map(|((tool, kind, failure, content), number)| {
            let call = ProposedCall {
                id: None,
                tool: (*tool).to_owned(),
                arguments: Vec::new(),
            };
            let content = AcceptedJson::check_str(content).unwrap();
            let observation = Observation {
                kind: *kind,
                content: Payload::Json(content),
                trust: ResultTrust::Untrusted,
                failure: *failure,
            };
            let step = Step {
                id: StepId {
                    turn: number,
                    index: 0,
                },
                call: Some(call.clone()),
                accepted: None,
                attempts: Vec::new(),
                phase: Phase::Finished,
                questions: 0,
                grant: None,
                observation: Some(observation),
            };
            let decision = Kept::from_bytes(b"{}");
            Arc::new(Turn {
                number,
                decision,
                proposal: Proposal::Calls(vec![call]),
                steps: vec![step],
            })
        });
    AgentView {
        run: RunId::new("order-9007199254740993").unwrap(),
        agent: REFUND_CLERK.to_owned(),
        turn: u32::try_from(heard.len()).unwrap() + 1,
        goal: "refund".to_owned(),
        input: Some(AcceptedJson::check(br#"{"order_id":9007199254740993}"#).unwrap()),
        turns: turns.collect(),
        tools: TOOLS.map(str::to_owned).to_vec(),
        left: Left {
            steps: 50,
            failures: 3,
            active_ms: 1000,
            elapsed_ms: 1000,
        },
    }
}

fn decided(heard: &[Heard<'_>]) -> Proposal {
    let decision = Case::read(&view(heard)).unwrap().decide().unwrap();
    Proposal::read(&Kept::from_bytes(&decision), &Default::default())
}

/// The one call that is proposed, as `tool arguments`.
fn call_after(heard: &[Heard<'_>]) -> String {
    match decided(heard) {
        Proposal::Calls(calls) => {
            let [call] = calls.as_slice() else {
                panic!("{calls:?}")
            };
            format!("{} {}", call.tool, String::from_utf8_lossy(&call.arguments))
        }
        other => panic!("no call: {other:?}"),
    }
}

const FOUND: Heard<'_> = (LOOKUP, ObservationKind::ToolResult, None, ORDER);
const REFUND_AGAIN: &str =
    r#"refund_order {"order_id":9007199254740993,"amount":1234567890123456.70,"currency":"EUR"}"#;

#[test]
fn it_looks_up_first_and_carries_the_id_as_written() {
    assert_eq!(
        call_after(&[]),
        r#"lookup_order {"order_id":9007199254740993}"#
    );
}

#[test]
fn a_refundable_order_is_refunded_with_the_exact_amount() {
    assert_eq!(call_after(&[FOUND]), REFUND_AGAIN);
}

#[test]
fn an_order_that_is_not_refundable_is_closed_as_refused() {
    let heard = [(LOOKUP, ObservationKind::ToolResult, None, REFUSED)];
    assert_eq!(
        call_after(&heard),
        r#"close_case {"order_id":9007199254740993,"decision":"refused"}"#
    );
}

#[test]
fn a_paid_order_is_closed_with_its_refund_id() {
    let paid = (
        REFUND,
        ObservationKind::ToolResult,
        None,
        r#"{"refund_id":"rf-7","amount":1}"#,
    );
    let closes =
        r#"close_case {"order_id":9007199254740993,"decision":"refunded","refund_id":"rf-7"}"#;
    assert_eq!(call_after(&[FOUND, paid]), closes);
}

#[test]
fn garbage_in_answer_to_a_refund_is_not_paid_again() {
    let garbage = (
        REFUND,
        ObservationKind::ToolError,
        Some(Failure::InvalidContent),
        r#"{"reason":"no JSON"}"#,
    );
    assert_eq!(
        call_after(&[FOUND, garbage]),
        r#"close_case {"order_id":9007199254740993,"decision":"refunded"}"#
    );
}

#[test]
fn a_result_without_an_id_is_not_paid_again() {
    let paid = (REFUND, ObservationKind::ToolResult, None, r#"{"ok":true}"#);
    assert_eq!(
        call_after(&[FOUND, paid]),
        r#"close_case {"order_id":9007199254740993,"decision":"refunded"}"#
    );
}

#[test]
fn a_refund_of_which_nothing_happened_is_proposed_again() {
    for failure in [Failure::Error, Failure::NoWorker, Failure::NoExecutor] {
        let nothing = (REFUND, ObservationKind::ToolError, Some(failure), NOT_SENT);
        assert_eq!(call_after(&[FOUND, nothing]), REFUND_AGAIN);
    }
}

#[test]
fn a_refund_that_the_policy_denies_is_closed_as_refused() {
    let denied = (
        REFUND,
        ObservationKind::PolicyDenied,
        None,
        r#"{"error":"no"}"#,
    );
    assert_eq!(
        call_after(&[FOUND, denied]),
        r#"close_case {"order_id":9007199254740993,"decision":"refused"}"#
    );
}

#[test]
fn an_interrupted_refund_is_never_proposed_again() {
    let interrupted = (
        REFUND,
        ObservationKind::Interrupted,
        None,
        r#"{"error":"nobody can say"}"#,
    );
    let Proposal::Fail(why) = decided(&[FOUND, interrupted]) else {
        panic!("it goes on")
    };
    assert!(
        why.contains("interrupted") && why.contains("nobody can say"),
        "{why}"
    );
}

#[test]
fn lookups_are_made_again_until_one_succeeds() {
    let failures = [
        (
            LOOKUP,
            ObservationKind::ToolError,
            Some(Failure::Timeout),
            NOT_SENT,
        ),
        (
            LOOKUP,
            ObservationKind::ToolError,
            Some(Failure::InvalidContent),
            NOT_SENT,
        ),
        (LOOKUP, ObservationKind::Interrupted, None, NOT_SENT),
    ];
    assert_eq!(call_after(&failures), call_after(&[]));
    assert_eq!(Case::read(&view(&failures)).unwrap().failures, 3);
    let found: Vec<_> = failures.into_iter().chain([FOUND]).collect();
    assert_eq!(call_after(&found), REFUND_AGAIN);
    assert_eq!(
        Case::read(&view(&found)).unwrap().failures,
        0,
        "a success ends the pauses"
    );
}

#[test]
fn a_case_that_could_not_be_closed_is_closed_again() {
    let paid = (
        REFUND,
        ObservationKind::ToolResult,
        None,
        r#"{"refund_id":"rf-7"}"#,
    );
    let not_closed = (
        CLOSE,
        ObservationKind::ToolError,
        Some(Failure::Error),
        NOT_SENT,
    );
    assert_eq!(
        call_after(&[FOUND, paid, not_closed]),
        call_after(&[FOUND, paid])
    );
}

#[test]
fn what_cannot_be_carried_out_ends_the_run_with_its_reason() {
    for kind in [
        ObservationKind::InvalidDecision,
        ObservationKind::PolicyDenied,
    ] {
        let Proposal::Fail(why) = decided(&[(LOOKUP, kind, None, r#"{"error":"unknown tool"}"#)])
        else {
            panic!("it goes on")
        };
        assert!(why.contains("unknown tool"), "{why}");
    }
    let odd = (
        LOOKUP,
        ObservationKind::ToolResult,
        None,
        r#"{"amount":"12"}"#,
    );
    assert!(
        matches!(decided(&[odd]), Proposal::Fail(_)),
        "an amount that is no number is not guessed at"
    );
}

#[test]
fn a_run_without_an_order_is_an_error() {
    for input in [None, Some(r#"{"order_id":"7"}"#), Some("{}")] {
        let input = input.map(|input| AcceptedJson::check_str(input).unwrap());
        assert!(matches!(
            Case::read(&AgentView { input, ..view(&[]) }),
            Err(AgentError::Input(_))
        ));
    }
}

#[test]
fn pauses_double_up_to_a_bound() {
    assert_eq!(pause(1), FIRST_PAUSE);
    assert_eq!(pause(2), FIRST_PAUSE * 2);
    assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
}
