//! A run that changes hands: S19, S50, S52.

use leasehold_json::Digest;
use leasehold_protocol::{
    Commit, Decision, Effect, Event, Finding, FoldError, Hint, HookAnswer, InboxAnswer, Input,
    JournalSubject, ObservationKind, Question, Reason, RunState, Status, StopReason, StoredCommit,
};

use crate::harness::World;
use crate::tools::{always, call, complete, require};
use crate::worker::{Hand, done, json_of, payload};

#[test]
fn s19_the_outcome_of_a_call_whose_owner_died_is_not_lost() {
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::Runs])
        .submit();
    w.takeover();
    // It keeps running, and the new owner believes that it does.
    assert_eq!(w.inspected(), 1);
    let key = w.key("1-0", 1);
    w.returns(&key, done(r#"{"paid":1}"#));
    w.pass(30_000);
    assert_eq!(w.observation("1-0").content, payload(r#"{"paid":1}"#));
    assert_eq!(w.findings("1-0"), [Some(Finding::Done)]);
    assert_eq!((w.executed.len(), w.acted("1-0")), (1, 1));
    assert_eq!(w.state().status(), Status::Completed);
}

#[test]
fn s50_a_run_that_was_deciding_decides_anew() {
    let mut w = World::new().submit();
    assert_eq!(w.views().len(), 1);
    w.decides([call("pay"), complete()]);
    w.takeover();
    let turns: Vec<u32> = w.views().iter().map(|view| view.turn).collect();
    assert_eq!(turns, [1, 1, 2]);
    let decided = w
        .events()
        .into_iter()
        .filter(|event| matches!(event, Event::Decided { .. }));
    assert_eq!((decided.count(), w.acted("1-0")), (2, 1));
    assert_eq!(w.state().epoch.get(), 2);
    assert!(w.is_ended());
}

#[test]
fn s50_a_call_that_was_judged_and_not_dispatched_is_judged_again() {
    let mut w = World::deciding([call("pay"), complete()]);
    w.judge = Box::new(|_| None);
    let mut w = w.submit();
    w.pass(60);
    w.judge = crate::tools::always(leasehold_protocol::Verdict::Allow);
    w.takeover();
    assert!(w.is_ended());
    assert_eq!(w.acted("1-0"), 1);
}

/// How often a hook was asked.
fn hooks(w: &World) -> usize {
    let asked = |effect: &&Effect| matches!(effect, Effect::AskHook);
    w.seen.iter().filter(asked).count()
}

/// A run whose owner died and whose call has returned since; its hook answers this.
fn hooked(answer: HookAnswer) -> World {
    let mut w = World::deciding([call("pay"), complete()])
        .hand("pay", [Hand::Runs])
        .submit();
    w.crash();
    let key = w.key("1-0", 1);
    w.returns(&key, done("{}"));
    w.hook = Some(answer);
    w.takeover();
    w
}

#[test]
fn s52_the_hook_is_asked_when_a_run_changes_hands_and_decides_how_it_goes_on() {
    let result = json_of(r#"{"by":"hook"}"#);
    for (answer, end) in [
        (
            HookAnswer::Continue,
            (Status::Completed, Reason::GoalCompleted),
        ),
        (
            HookAnswer::Completed { result },
            (Status::Completed, Reason::GoalCompleted),
        ),
        (
            HookAnswer::Conflict {
                detail: "two ledgers".into(),
            },
            (Status::Failed, Reason::ReconcileConflict),
        ),
        (
            HookAnswer::Error {
                error: "panicked".into(),
            },
            (Status::Failed, Reason::InternalError),
        ),
    ] {
        let w = hooked(answer.clone());
        assert_eq!(w.ended(), Some(end), "{answer:?}");
        assert_eq!(hooks(&w), 1);
        // Whatever it says: what had happened is adopted and told, not forgotten.
        assert_eq!(w.observation("1-0").kind, ObservationKind::ToolResult);
        if let HookAnswer::Completed { .. } = answer {
            assert_eq!(
                w.state().ending.unwrap().result,
                Some(payload(r#"{"by":"hook"}"#))
            );
        }
    }
}

#[test]
fn s52_a_new_run_asks_no_hook_and_nothing_is_done_before_the_hook_answers() {
    let mut w = World::deciding([call("pay"), complete()]).hand("pay", [Hand::Absent]);
    w.hook = Some(HookAnswer::Continue);
    let mut w = w.submit();
    assert_eq!(hooks(&w), 0);
    w.crash();
    w.start();
    let load = w.queue.pop_front().unwrap();
    let effects = w.ask(load);
    let [Effect::Commit(own), ..] = &effects[..] else {
        panic!("{effects:?}")
    };
    w.commit_now(own.clone(), true);
    let stored = w.queue.pop_front().unwrap();
    let effects = w.ask(stored);
    assert!(
        effects
            .iter()
            .all(|effect| matches!(effect, Effect::AskHook | Effect::WakeAt { .. })),
        "{effects:?}"
    );
    assert_eq!(w.journal.len(), 3);
}

/// What the hook shows the operator: bytes that no JSON tool may touch.
const SHOWN: &str = r#"{ "since": 9007199254740993, "lag":1.50 }"#;

fn waiting(capability: &str) -> HookAnswer {
    HookAnswer::Waiting {
        approval_kind: "failover".into(),
        capability: capability.into(),
        presentation: json_of(SHOWN),
    }
}

/// The hook of a run wants an operator's word.
fn held() -> World {
    hooked(waiting("go on"))
}

/// The questions about the run itself that were ever asked.
fn asked(w: &World) -> Vec<String> {
    let asked = |event| match event {
        Event::Requested {
            approval,
            step: None,
            ..
        } => Some(approval.to_string()),
        _ => None,
    };
    w.events().into_iter().filter_map(asked).collect()
}

/// The first question about the run, and no other.
fn first() -> Vec<String> {
    vec!["run.1".into()]
}

/// Whether the permission to go on has been used.
fn spent(w: &World, approval: &str) -> bool {
    let state = &w.state().approvals[&approval.parse().unwrap()].state;
    matches!(
        state,
        leasehold_protocol::ApprovalState::Decided { spent: true, .. }
    )
}

#[test]
fn s52_waiting_parks_the_run_with_the_hooks_question_and_nothing_else_happens() {
    let mut w = held();
    assert_eq!((asked(&w), w.open()), (first(), first()));
    let state = w.state();
    assert_eq!((state.status(), state.parked), (Status::Waiting, true));
    assert_eq!(w.stops().last(), Some(&StopReason::Parked));
    let (_, approval) = state.open_questions().next().unwrap();
    let Question::Approve {
        approval_kind,
        capability,
        presentation,
    } = &approval.question
    else {
        panic!("{approval:?}")
    };
    assert_eq!(
        (&approval_kind[..], &capability[..], presentation.as_str()),
        ("failover", "go on", SHOWN)
    );
    assert_eq!((approval.step, approval.expires_at), (None, None));
    // The outcome is there, and nobody has looked at it; the agent is not asked, and time changes nothing.
    let written = w.journal.len();
    w.pass(600_000);
    assert_eq!(w.journal.len(), written);
    assert_eq!((w.findings("1-0"), w.views().len()), (vec![None], 1));
}

#[test]
fn s52_waiting_holds_a_run_that_has_decided_nothing_yet() {
    let mut w = World::new().submit();
    w.hook = Some(waiting("go on"));
    w.takeover();
    assert_eq!((w.open(), w.views().len()), (first(), 1));
    assert_eq!(w.state().status(), Status::Waiting);
    w.takeover();
    assert_eq!((w.views().len(), w.state().parked), (1, true));
    w.decides([complete()]);
    w.decide("run.1", Decision::Approve);
    assert_eq!(w.ended(), Some((Status::Completed, Reason::GoalCompleted)));
}

#[test]
fn s52_approved_the_run_goes_on_as_after_continue() {
    let mut w = held();
    w.decide("run.1", Decision::Approve);
    assert_eq!(w.ended(), Some((Status::Completed, Reason::GoalCompleted)));
    assert_eq!(w.observation("1-0").kind, ObservationKind::ToolResult);
    assert_eq!((w.executed.len(), w.acted("1-0")), (1, 1));
    // Whoever folds the answer goes on with it: the hook is not asked beside its own question, nor after the answer.
    assert_eq!((hooks(&w), asked(&w)), (1, first()));
    assert!(spent(&w, "run.1"));
}

#[test]
fn s52_rejected_the_run_ends_and_what_had_happened_is_told() {
    let mut w = held();
    w.decide("run.1", Decision::Reject);
    assert_eq!(
        w.ended(),
        Some((Status::Cancelled, Reason::ApprovalRejected))
    );
    assert_eq!(w.observation("1-0").kind, ObservationKind::ToolResult);
    assert_eq!((w.in_flight().len(), w.views().len()), (1, 1));
}

#[test]
fn s52_only_the_choices_of_the_question_and_only_for_what_was_shown() {
    let mut w = held();
    let hash = w.hash("run.1");
    let wrong = w.letter(
        "run.1",
        Digest::of(b"something else"),
        Decision::Approve,
        "olga",
    );
    w.go();
    assert_eq!(w.answer_to(wrong), Some(InboxAnswer::HashDiffers));
    let other = w.decide("run.1", Decision::RunAgain);
    assert_eq!(w.answer_to(other), Some(InboxAnswer::ChoiceNotOffered));
    // Each answer woke an owner; none of them asked again, and the run still waits.
    assert_eq!((asked(&w), w.open()), (first(), first()));
    assert_eq!((hooks(&w), w.state().parked, w.views().len()), (1, true, 1));
    assert_ne!(hash, hooked(waiting("go on elsewhere")).hash("run.1"));
    assert_eq!(hash, held().hash("run.1"));
}

#[test]
fn s52_s37_nobody_answers_in_time() {
    let mut w = World::deciding([call("pay"), complete()]).hand("pay", [Hand::Absent]);
    w.limits.approval_ttl_ms = 5_000;
    let mut w = w.submit();
    w.hook = Some(waiting("go on"));
    w.takeover();
    assert_eq!(w.timer, Some(w.now.wall + 5_000));
    w.pass(4_999);
    assert_eq!(w.state().status(), Status::Waiting);
    w.pass(1);
    assert_eq!(
        w.ended(),
        Some((Status::Cancelled, Reason::ApprovalExpired))
    );
    assert!(w.executed.is_empty());
}

#[test]
fn s52_s8_a_cancel_takes_the_question_back() {
    let mut w = held();
    w.cancel();
    assert_eq!(
        w.ended(),
        Some((Status::Cancelled, Reason::OperatorCancelled))
    );
    let withdrawn = |event: &Event| matches!(event, Event::Withdrawn { approval, .. } if approval.as_str() == "run.1");
    assert!(w.events().iter().any(withdrawn));
    // A run that is ending already goes on ending, whatever the hook wants.
    for answer in [
        waiting("go on"),
        HookAnswer::Completed {
            result: json_of("{}"),
        },
        HookAnswer::Conflict {
            detail: "two ledgers".into(),
        },
        HookAnswer::Error {
            error: "panicked".into(),
        },
    ] {
        let mut w = World::deciding([call("pay")])
            .hand("pay", [Hand::Runs])
            .submit();
        w.cancel();
        w.hook = Some(answer);
        w.takeover();
        assert_eq!((hooks(&w), w.is_ended()), (1, false));
        let key = w.key("1-0", 1);
        w.returns(&key, done("{}"));
        w.pass(2_000);
        let cancelled = Some((Status::Cancelled, Reason::OperatorCancelled));
        assert_eq!((w.ended(), asked(&w).len()), (cancelled, 0));
    }
}

#[test]
fn s52_a_takeover_while_the_run_waits_asks_no_second_question() {
    let mut w = held();
    for hook in [waiting("go on"), waiting("another"), HookAnswer::Continue] {
        w.hook = Some(hook);
        w.takeover();
        assert_eq!((asked(&w), w.open()), (first(), first()));
        assert_eq!((hooks(&w), w.views().len()), (1, 1));
        assert!(w.state().parked);
    }
    // Not even a node without a hook goes on.
    w.hook = None;
    w.takeover();
    assert_eq!((w.open(), w.views().len()), (first(), 1));
    w.decide("run.1", Decision::Approve);
    assert!(w.is_ended());
    assert_eq!(w.acted("1-0"), 1);
}

#[test]
fn s52_what_workers_write_meanwhile_does_not_keep_the_owner() {
    let mut w = held();
    w.faults = [crate::harness::Fault::Fine, crate::harness::Fault::Held].into();
    w.takeover();
    let park = w.held.take().expect("a park commit on its way");
    let chain = w.key("1-0", 1);
    let hint = Input::Hint(Hint {
        chain,
        message: None,
    });
    assert_eq!(w.ask(hint), []);
    w.commit_now(park, true);
    w.go();
    assert_eq!((w.owner.is_none(), w.state().parked), (true, true));
}

#[test]
fn s52_a_crash_while_the_question_is_asked_neither_loses_nor_doubles_it() {
    // An owner that needs a timer asks first and parks in a commit of its own: it dies between the two.
    let mut w = World::deciding([call("pay"), complete()]).hand("pay", [Hand::Absent]);
    w.limits.approval_ttl_ms = 5_000;
    let mut w = w.submit();
    w.hook = Some(waiting("go on"));
    w.crash();
    w.deaths = [w.writes + 2].into();
    w.takeover();
    assert_eq!((asked(&w), w.state().parked), (first(), false));
    let expires = w.state().open_questions().next().unwrap().1.expires_at;
    w.pass(1_000);
    w.takeover();
    assert_eq!((asked(&w), hooks(&w)), (first(), 1));
    let state = w.state();
    assert_eq!((state.parked, state.wake_at), (true, expires));
    // A question that was never stored was never asked.
    let mut w = World::new().submit();
    w.hook = Some(waiting("go on"));
    w.faults = [crate::harness::Fault::Fine, crate::harness::Fault::Held].into();
    w.takeover();
    assert!(w.held.is_some() && asked(&w).is_empty());
    w.takeover();
    assert_eq!((asked(&w), hooks(&w)), (first(), 2));
}

/// An operator lets the run go on, and the owner that folds it dies at once.
fn died_over_the_answer(grant_ttl_ms: u64) -> World {
    let mut w = World::deciding([call("pay"), complete()]).hand("pay", [Hand::Runs]);
    w.limits.grant_ttl_ms = grant_ttl_ms;
    let mut w = w.submit();
    w.hook = Some(waiting("go on"));
    w.takeover();
    w.deaths = [w.writes + 2].into();
    w.decide("run.1", Decision::Approve);
    // The letter is not acknowledged: the next owner is there at once.
    assert_eq!((hooks(&w), asked(&w)), (2, first()));
    assert!(w.open().is_empty() && !spent(&w, "run.1"));
    w.crash();
    let key = w.key("1-0", 1);
    w.returns(&key, done("{}"));
    w.pass(2_000);
    w
}

#[test]
fn s52_s36_an_answer_is_not_lost_with_the_owner_that_folded_it() {
    let mut w = died_over_the_answer(0);
    w.takeover();
    assert_eq!((hooks(&w), asked(&w)), (3, first()));
    assert!(w.is_ended() && spent(&w, "run.1"));
    assert_eq!(w.acted("1-0"), 1);
    // It covers what the operator was asked, and not for ever.
    let mut w = died_over_the_answer(0);
    w.hook = Some(waiting("go on elsewhere"));
    w.takeover();
    assert_eq!(w.open(), ["run.2"]);
    w.decide("run.2", Decision::Approve);
    assert!(w.is_ended());
    let mut w = died_over_the_answer(1_000);
    w.takeover();
    assert_eq!(
        w.ended(),
        Some((Status::Cancelled, Reason::ApprovalExpired))
    );
}

#[test]
fn s52_a_permission_is_used_once() {
    let mut w = World::deciding([call("look"), call("pay"), complete()]).hand("pay", [Hand::Runs]);
    w.agent = Box::new(|_| None);
    let mut w = w.submit();
    w.hook = Some(waiting("go on"));
    w.takeover();
    w.decides([call("look"), call("pay"), complete()]);
    w.decide("run.1", Decision::Approve);
    assert!(spent(&w, "run.1"));
    w.takeover();
    assert_eq!((w.open(), asked(&w).len()), (vec!["run.2".into()], 2));
    let key = w.key("2-0", 1);
    w.returns(&key, done("{}"));
    w.decide("run.2", Decision::Approve);
    assert_eq!((w.acted("2-0"), w.is_ended()), (1, true));
}

#[test]
fn s52_an_answer_about_a_step_is_folded_while_the_run_is_held_and_carried_out_after() {
    let mut w = World::deciding([call("pay"), complete()]);
    w.judge = always(require("pay once"));
    let mut w = w.submit();
    assert_eq!(w.open(), ["1-0.1"]);
    w.hook = Some(waiting("go on"));
    let judged = |w: &World| {
        let asked = |effect: &&Effect| matches!(effect, Effect::AskPolicy(_));
        w.seen.iter().filter(asked).count()
    };
    w.decide("1-0.1", Decision::Approve);
    assert_eq!((w.open(), judged(&w)), (first(), 1));
    assert!(w.executed.is_empty() && w.state().parked);
    w.decide("run.1", Decision::Approve);
    assert_eq!(judged(&w), 2);
    assert_eq!((w.acted("1-0"), w.is_ended()), (1, true));
}

#[test]
fn s52_a_journal_in_which_a_held_run_goes_on_cannot_have_happened() {
    let mut w = World::new().submit();
    w.hook = Some(waiting("go on"));
    w.takeover();
    let state = w.state();
    let last = w.commits().pop().unwrap();
    let question = state.open_questions().next().unwrap().1.clone();
    let decided = Event::Decided {
        turn: 1,
        decision: leasehold_json::Kept::from_bytes(complete().as_bytes()),
    };
    let again = Event::Requested {
        approval: "run.2".parse().unwrap(),
        step: None,
        hash: question.hash,
        question: question.question,
        expires_at: None,
    };
    for event in [decided, again] {
        let commit = Commit {
            n: last.n + 1,
            prev: state.tail,
            events: vec![event.clone()],
            ..last.clone()
        };
        let mut journal = w.journal.clone();
        journal.push(StoredCommit {
            seq: w.next(),
            subject: JournalSubject::Note,
            body: commit.encode().into(),
        });
        let folded = RunState::fold(w.run.clone(), &journal);
        let Err(FoldError::Impossible { why, .. }) = folded else {
            panic!("{event:?}: {folded:?}")
        };
        assert!(why.contains("run.1"), "{why}");
    }
}
