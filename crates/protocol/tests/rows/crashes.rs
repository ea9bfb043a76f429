//! Owners that die after any write, once and twice: S36, S53.

use std::collections::BTreeSet;

use leasehold_protocol::{Decision, HookAnswer, ProbeReply, Question, Reason, Status};
use leasehold_tools::Failure;

use crate::harness::World;
use crate::tools::{always, call, calls, complete, require};
use crate::worker::{Hand, done, json_of, nothing, payload, perhaps};

/// Drives a run to its end: whoever finds it without an owner takes it, and an operator answers whatever is asked.
fn finish(w: &mut World) {
    for _ in 0..200 {
        if w.is_ended() {
            return;
        }
        if w.owner.is_none() && !w.state().parked {
            w.start();
        }
        w.go();
        if !w.worker_alive {
            w.restart_worker();
        }
        let state = w.state();
        let question = state.open_questions().next();
        if let Some((id, approval)) = question.map(|(id, approval)| (id.to_string(), approval)) {
            let decision = match &approval.question {
                Question::Approve { .. } | Question::Quarantined { .. } => Decision::Approve,
                Question::InterruptedSideEffect { .. } => Decision::RecordDone {
                    result: json_of(r#"{"receipt":7}"#),
                },
                Question::Exhausted { .. } => Decision::Continue,
            };
            w.decide(&id, decision);
        } else {
            w.pass(1_000);
        }
    }
    panic!("the run does not end: {:#?}", w.events());
}

/// What a run comes to: its end, what the agent was told, and how often each step acted.
type Result = (Option<(Status, Reason)>, Vec<String>, Vec<u32>);

fn result(w: &World) -> Result {
    let state = w.state();
    let steps = state.turns.iter().flat_map(|turn| &turn.steps);
    let told = steps
        .clone()
        .map(|step| format!("{}: {:?}", step.id, step.observation));
    let acted = steps.clone().map(|step| w.acted(&step.id.to_string()));
    (w.ended(), told.collect(), acted.collect())
}

fn run(scenario: &dyn Fn() -> World, deaths: &[u64]) -> World {
    let mut w = scenario();
    w.deaths = BTreeSet::from_iter(deaths.iter().copied());
    let mut w = w.submit();
    finish(&mut w);
    w
}

/// The same result whichever write the owner dies after, and whichever write its successor dies after.
fn every_death_changes_nothing(scenario: &dyn Fn() -> World) {
    let clean = run(scenario, &[]);
    let expected = result(&clean);
    let mut died = 0;
    for first in 1..=clean.writes {
        let once = run(scenario, &[first]);
        assert_eq!(result(&once), expected, "died after write {first}");
        died += usize::from(once.state().epoch > clean.state().epoch);
        for second in first + 1..=once.writes {
            let twice = run(scenario, &[first, second]);
            assert_eq!(
                result(&twice),
                expected,
                "died after writes {first} and {second}"
            );
        }
    }
    assert!(died > 0, "no death changed hands");
}

#[test]
fn s53_two_turns() {
    every_death_changes_nothing(&|| World::deciding([call("look"), call("pay"), complete()]));
}

#[test]
fn s53_calls_side_by_side_that_fail_and_succeed() {
    every_death_changes_nothing(&|| {
        World::deciding([
            calls(&[("note", "{}"), ("pay", "{}"), ("look", "{}")]),
            complete(),
        ])
        .hand("pay", [Hand::Returns(nothing())])
    });
}

#[test]
fn s53_a_terminal_tool() {
    every_death_changes_nothing(&|| World::deciding([call("close")]));
}

#[test]
fn s53_an_effect_that_a_probe_finds() {
    every_death_changes_nothing(&|| {
        let mut w =
            World::deciding([call("pay_fence"), complete()]).hand("pay_fence", [Hand::DiesActed]);
        let result = payload(r#"{"found":1}"#);
        w.probes.push_back(ProbeReply::Done { result });
        w
    });
}

#[test]
fn s53_an_attempt_that_a_probe_fences_and_another() {
    every_death_changes_nothing(&|| {
        let mut w = World::deciding([call("pay_fence"), complete()])
            .hand("pay_fence", [Hand::DiesArmed, Hand::Returns(done("{}"))]);
        w.probes.push_back(ProbeReply::NotDone);
        w
    });
}

#[test]
fn s53_an_attempt_that_was_never_armed_and_another() {
    every_death_changes_nothing(&|| {
        World::deciding([call("pay"), complete()])
            .hand("pay", [Hand::DiesClaimed, Hand::Returns(done("{}"))])
    });
}

#[test]
fn s53_an_effect_that_an_operator_records() {
    every_death_changes_nothing(&|| {
        World::deciding([call("pay"), complete()])
            .hand("pay", [Hand::Returns(perhaps(Failure::Error))])
    });
}

#[test]
fn s52_s53_a_hook_that_holds_every_successor() {
    every_death_changes_nothing(&|| {
        let mut w = World::deciding([call("pay"), complete()]);
        w.hook = Some(HookAnswer::Waiting {
            approval_kind: "failover".into(),
            capability: "go on".into(),
            presentation: json_of("{}"),
        });
        w
    });
}

#[test]
fn k46_s36_an_approved_call_runs_once_wherever_its_owner_dies() {
    let scenario = || {
        let mut w = World::deciding([call("pay"), complete()]);
        w.judge = always(require("pay once"));
        w
    };
    every_death_changes_nothing(&scenario);
    let clean = run(&scenario, &[]);
    for death in 1..=clean.writes {
        let w = run(&scenario, &[death]);
        assert_eq!(
            (
                w.executed.len(),
                w.acted("1-0"),
                w.step("1-0").attempts.len()
            ),
            (1, 1, 1)
        );
    }
}

#[test]
fn s36_an_approved_call_whose_worker_dies_over_it_is_an_orphan_and_never_run_twice() {
    let scenario = || {
        let mut w = World::deciding([call("pay"), complete()]).hand("pay", [Hand::DiesActed]);
        w.judge = always(require("pay once"));
        w
    };
    every_death_changes_nothing(&scenario);
    let w = run(&scenario, &[]);
    assert_eq!((w.executed.len(), w.acted("1-0")), (1, 1));
    assert_eq!(w.observation("1-0").content, payload(r#"{"receipt":7}"#));
}

#[test]
fn s53_the_journal_of_every_run_folds_the_same_from_any_prefix() {
    let w = run(
        &|| World::deciding([call("look"), call("pay"), complete()]),
        &[3, 7],
    );
    let whole = w.state();
    for at in 0..w.journal.len() {
        let mut state =
            leasehold_protocol::RunState::fold(w.run.clone(), &w.journal[..at]).unwrap();
        for stored in &w.journal[at..] {
            state.apply(stored).unwrap();
        }
        assert_eq!(state, whole, "folded in two parts at {at}");
    }
}
