//! Each way of telling a story wrong turns its own invariant red, and the right ways stay green.

use serde_json::json;

use crate::fixture::{RUN, Story};

/// An orphan of a dead owner: the call was claimed and the owner is gone.
fn orphan() -> Story {
    let mut story = Story::new();
    story.first_call();
    story.claim(1);
    story.take_over();
    story
}

fn nothing() -> Vec<String> {
    Vec::new()
}

#[test]
fn a_refund_that_goes_well_adds_up() {
    let report = Story::paid().report();
    assert_eq!(report.violations, []);
    assert_eq!(
        (
            report.orders,
            report.expected,
            report.applied,
            report.duplicates,
            report.lost,
            report.unexpected
        ),
        (1, 1, 1, 0, 0, 0)
    );
    assert_eq!(
        (
            report.runs.completed,
            report.runs.sum(),
            report.takeovers,
            report.orphans
        ),
        (1, 1, 0, 0)
    );
}

#[test]
fn each_way_of_resolution_is_counted_and_green() {
    let done = |story: &mut Story| {
        story.pay(1);
        let register = story.done(1);
        story.found(1, "done", Some(register));
        story.finish(1);
        story.end("completed");
    };
    let again = |story: &mut Story, register: u64, finding: &str, basis: &str| {
        story.found(1, finding, Some(register));
        story.call(2, json!({"basis": basis, "register": register}));
        story.claim(2);
        story.pay(2);
        story.done(2);
        story.finish(2);
        story.end("completed");
    };
    let mut adopted = orphan();
    done(&mut adopted);
    let mut tombstone = orphan();
    let register = tombstone.outcome(1, json!({"kind": "not_started", "why": "w"}));
    again(&mut tombstone, register, "not_started", "proof");
    let mut not_done = orphan();
    let register = not_done.seal(1, "probe_not_done");
    again(&mut not_done, register, "probe_not_done", "proof");
    let mut probe_done = orphan();
    probe_done.pay(1);
    let register = probe_done.seal(1, "probe_done");
    probe_done.found(1, "probe_done", Some(register));
    probe_done.finish(1);
    probe_done.end("completed");
    let mut revoked = Story::new();
    revoked.first_call();
    let register = revoked.revoke(1);
    revoked.found(1, "revoked", Some(register));
    revoked.finish_as(1, "interrupted", json!(null));
    revoked.end("cancelled");
    let mut operator = orphan();
    operator.ask("1-0.1", Some("record_done"));
    operator.pay(1);
    let register = operator.seal(1, "recorded_done");
    operator.found(1, "recorded_done", Some(register));
    operator.finish(1);
    operator.end("completed");
    for (name, story) in [
        ("adopted_outcome", adopted),
        ("tombstone", tombstone),
        ("probe_not_done", not_done),
        ("probe_done", probe_done),
        ("revoked", revoked),
        ("operator", operator),
    ] {
        let report = story.report();
        assert_eq!(report.violations, [], "{name}");
        assert_eq!(
            report
                .orphaned
                .iter()
                .map(|orphan| orphan.resolved)
                .collect::<Vec<_>>(),
            [name]
        );
        assert_eq!(
            (
                report.orphans,
                report.resolved.sum(),
                report.lost,
                report.unexpected
            ),
            (1, 1, 0, 0),
            "{name}"
        );
        assert_eq!(report.expected, usize::from(name != "revoked"), "{name}");
    }
}

#[test]
fn i1_a_second_payment_is_a_duplicate_and_only_a_run_again_excuses_it() {
    let mut twice = Story::paid();
    twice.pay(1);
    let report = twice.report();
    assert_eq!(
        (report.duplicates, report.excused, report.applied),
        (1, 0, 2)
    );
    assert_eq!(twice.broken(), ["I1"]);

    let mut permitted = orphan();
    permitted.pay(1);
    permitted.ask("1-0.1", Some("run_again"));
    let register = permitted.seal(1, "run_again");
    permitted.found(1, "run_again", Some(register));
    permitted.call(2, json!({"basis": "run_again", "approval": "1-0.1"}));
    permitted.claim(2);
    permitted.pay(2);
    permitted.done(2);
    permitted.finish(2);
    permitted.end("completed");
    let report = permitted.report();
    assert_eq!(report.violations, []);
    assert_eq!(
        (report.duplicates, report.excused, report.resolved.operator),
        (1, 1, 1)
    );
}

#[test]
fn i2_a_refund_that_is_told_and_not_paid_is_lost() {
    let mut story = Story::paid();
    story.books.clear();
    let report = story.report();
    assert_eq!((report.lost, report.expected, report.applied), (1, 1, 0));
    assert_eq!(story.broken(), ["I2"]);
}

#[test]
fn i2_a_refund_that_is_told_as_not_done_and_was_paid_is_unexpected() {
    let mut story = orphan();
    story.pay(1);
    story.outcome(
        1,
        json!({"kind": "nothing_happened", "failure": "error", "message": "m"}),
    );
    story.finish_as(1, "tool_error", json!("error"));
    story.end("failed");
    assert_eq!(story.report().unexpected, 1);
    assert_eq!(story.broken(), ["I2"]);

    let mut tombstone = orphan();
    tombstone.pay(1);
    tombstone.outcome(1, json!({"kind": "not_started", "why": "w"}));
    tombstone.finish_as(1, "interrupted", json!(null));
    tombstone.end("cancelled");
    assert_eq!(tombstone.broken(), ["I2"]);
}

#[test]
fn an_unusable_result_is_still_an_effect() {
    let mut story = orphan();
    story.pay(1);
    story.outcome(
        1,
        json!({"kind": "done_unusable", "kept": {"text": "<"}, "error": "e"}),
    );
    story.finish_as(1, "tool_error", json!("invalid_content"));
    story.end("failed");
    let report = story.report();
    assert_eq!(
        (report.expected, report.lost, report.violations.len()),
        (1, 0, 0)
    );
}

#[test]
fn a_step_that_nobody_can_tell_may_have_paid_or_not() {
    for paid in [false, true] {
        let mut story = orphan();
        if paid {
            story.pay(1);
        }
        story.found(1, "unknown", None);
        story.finish_as(1, "interrupted", json!(null));
        story.end("cancelled");
        let report = story.report();
        assert_eq!(
            (
                report.expected,
                report.unknown_applied,
                report.resolved.unknown
            ),
            (0, usize::from(paid), 1)
        );
        assert_eq!(story.broken(), nothing());
    }
}

#[test]
fn i3_a_commit_of_an_older_epoch_after_a_newer_owner() {
    let mut story = orphan();
    story.epoch = 1;
    story.ask("1-0.1", None);
    assert_eq!(story.broken(), ["I3"]);
}

#[test]
fn i3_a_commit_that_was_stored_on_another_position_than_the_last() {
    let mut story = Story::paid();
    let last = story.lines.last_mut().unwrap();
    last["expected"] = json!(1);
    assert_eq!(story.broken(), ["I3"]);
}

#[test]
fn a_run_that_its_owner_let_go_of_is_resumed_and_not_taken_over() {
    for (last_word, takeovers) in [
        ("run.parked", 0),
        ("run.released", 0),
        ("inbox.answered", 1),
    ] {
        let mut story = Story::new();
        let mut event = json!({"kind": last_word});
        match last_word {
            "run.released" => event["why"] = json!("stopping"),
            "inbox.answered" => {
                event["inbox"] = json!(1);
                event["answer"] = json!({"answer": "already_ending"});
            }
            _ => {}
        }
        story.commit("note", json!([event]));
        story.take_over();
        story.end("cancelled");
        assert_eq!(story.report().takeovers, takeovers, "{last_word}");
    }
}

#[test]
fn i4_a_takeover_in_an_epoch_that_was_reached_before() {
    let mut story = Story::new();
    story.epoch = 0;
    story.take_over();
    story.end("cancelled");
    assert_eq!(story.broken(), ["I4"]);
}

#[test]
fn i6_an_effect_without_a_claim() {
    let mut story = Story::new();
    story.first_call();
    story.pay(1);
    story.done(1);
    let text = story
        .report()
        .violations
        .into_iter()
        .filter(|violation| violation.invariant == "I6")
        .count();
    // Once for the outcome without a claim, once for the row.
    assert_eq!(text, 2);
}

#[test]
fn i6_a_claim_before_its_dispatch() {
    let mut story = Story::new();
    story.claim(1);
    story.end("cancelled");
    assert_eq!(story.broken(), ["I6"]);
}

#[test]
fn i7_an_envelope_with_other_arguments_than_the_policy_saw() {
    let mut story = Story::new();
    story.call_of(
        1,
        json!({"basis": "first"}),
        json!({"verdict": "allow"}),
        "{}",
    );
    story.revoke(1);
    story.finish_as(1, "interrupted", json!(null));
    story.end("cancelled");
    assert_eq!(story.broken(), ["I7"]);
}

#[test]
fn i7_an_envelope_that_is_not_the_one_of_the_commit() {
    let mut story = Story::paid();
    let call = story
        .lines
        .iter_mut()
        .find(|line| line["stream"] == "call")
        .unwrap();
    call["call"] = json!(call["call"].as_str().unwrap().replace("2000", "9000"));
    assert_eq!(story.broken(), ["I7"]);
}

#[test]
fn i7_a_request_with_other_arguments_than_the_envelope() {
    let mut story = Story::paid();
    story.requests[0].args_sha256 = "0".repeat(64);
    assert_eq!(story.broken(), ["I7"]);
}

#[test]
fn i7_an_approval_that_is_missing_undecided_or_spent_twice() {
    let needs = json!({"verdict": "require_approval"});
    let args = r#"{"order_id":9007199254740993,"amount":1.50,"currency":"EUR"}"#;
    for (approvals, basis, broken) in [
        (
            vec![("1-0.1", Some("approve"))],
            json!({"basis": "first", "approval": "1-0.1"}),
            nothing(),
        ),
        (vec![], json!({"basis": "first"}), vec!["I7".to_owned()]),
        (
            vec![("1-0.1", Some("reject"))],
            json!({"basis": "first", "approval": "1-0.1"}),
            vec!["I7".to_owned()],
        ),
    ] {
        let mut story = Story::new();
        for (approval, choice) in approvals {
            story.ask(approval, choice);
        }
        story.call_of(1, basis, needs.clone(), args);
        story.claim(1);
        story.pay(1);
        story.done(1);
        story.finish(1);
        story.end("completed");
        assert_eq!(story.broken(), broken);
    }
    let mut twice = orphan();
    twice.ask("1-0.1", Some("run_again"));
    for attempt in [2, 3] {
        twice.seal(attempt - 1, "run_again");
        twice.call(attempt, json!({"basis": "run_again", "approval": "1-0.1"}));
        twice.claim(attempt);
    }
    twice.done(3);
    twice.pay(3);
    twice.finish(3);
    twice.end("completed");
    assert_eq!(twice.broken(), ["I7"]);
}

#[test]
fn i8_a_commit_that_is_changed_missing_or_doubled() {
    let mut changed = Story::paid();
    let first = changed
        .lines
        .iter_mut()
        .find(|line| line["stream"] == "journal")
        .unwrap();
    first["body"] = json!(first["body"].as_str().unwrap().replace("clerk", "crook"));
    assert!(changed.broken().contains(&"I8".to_owned()));

    let mut missing = Story::paid();
    let at = missing
        .lines
        .iter()
        .position(|line| line["stream"] == "call")
        .unwrap();
    missing.lines.remove(at);
    assert!(missing.broken().contains(&"I8".to_owned()));

    let mut doubled = orphan();
    let again = doubled.lines.last().unwrap().clone();
    doubled.lines.push(again);
    assert!(doubled.broken().contains(&"I8".to_owned()));
}

#[test]
fn i10_a_commit_after_the_end() {
    let mut story = Story::paid();
    story.commit("note", json!([{"kind": "run.released", "why": "w"}]));
    assert_eq!(story.broken(), ["I10"]);
}

#[test]
fn i11_a_finding_that_no_register_holds() {
    let mut story = orphan();
    story.found(1, "probe_not_done", Some(0));
    story.finish_as(1, "interrupted", json!(null));
    story.end("cancelled");
    assert_eq!(story.broken(), ["I11"]);

    let mut told = orphan();
    told.pay(1);
    told.finish(1);
    told.end("completed");
    assert_eq!(told.broken(), ["I11"]);
}

#[test]
fn i12_a_run_that_nobody_submitted() {
    let story = Story::paid();
    let report = story.report_of(&["another".to_owned()]);
    let broken: Vec<(&str, &str)> = report
        .violations
        .iter()
        .map(|violation| (violation.invariant.as_str(), violation.run.as_str()))
        .collect();
    assert_eq!(broken, [("I12", RUN), ("I14", "another"), ("I14", "")]);
    let mut forged = Story::paid();
    forged.lines[0]["body"] = json!("{}");
    assert_eq!(forged.broken(), ["I12"]);
}

#[test]
fn i12_an_effect_under_a_key_that_no_call_has() {
    let mut story = Story::paid();
    story.pay(1);
    story.requests[1].key = "z".to_owned();
    story.books[1].key = "z".to_owned();
    let report = story.report();
    assert_eq!(
        (report.unexpected, report.duplicates, report.paid_twice),
        (1, 0, 1)
    );
    // Nobody claimed it either.
    assert_eq!(story.broken(), ["I6", "I12"]);
}

#[test]
fn i13_an_effect_that_names_another_run_or_request() {
    let mut row = Story::paid();
    row.books[0].run = "refund 2".to_owned();
    assert_eq!(row.broken(), ["I13"]);
    let mut request = Story::paid();
    request.books[0].applied = 7;
    assert_eq!(request.broken(), ["I13"]);
}

#[test]
fn i14_a_run_that_still_moves_and_one_that_waits() {
    let moving = orphan();
    assert_eq!(moving.broken(), ["I14"]);
    let mut waiting = orphan();
    waiting.ask("1-0.1", None);
    let report = waiting.report();
    assert_eq!((report.runs.waiting, report.violations.len()), (1, 0));
}

#[test]
fn i20_a_further_attempt_needs_a_register_that_was_there_before() {
    let finish = |story: &mut Story| {
        story.claim(2);
        story.pay(2);
        story.done(2);
        story.finish(2);
        story.end("completed");
    };
    let mut guessed = orphan();
    guessed.call(2, json!({"basis": "proof", "register": 0}));
    finish(&mut guessed);
    assert_eq!(guessed.broken(), ["I20"]);

    let mut late = orphan();
    let call = late.call(2, json!({"basis": "proof", "register": 7}));
    assert_eq!(
        late.outcome(1, json!({"kind": "not_started", "why": "w"})),
        call + 1
    );
    finish(&mut late);
    assert_eq!(late.broken(), ["I20"]);

    for fact in ["done", "nothing_happened", "not_started"] {
        let mut overruled = orphan();
        overruled.ask("1-0.1", Some("run_again"));
        overruled.outcome(1, json!({"kind": fact}));
        overruled.seal(1, "run_again");
        overruled.call(2, json!({"basis": "run_again", "approval": "1-0.1"}));
        finish(&mut overruled);
        assert_eq!(overruled.broken(), ["I20"], "{fact}");
    }
}

#[test]
fn a_message_that_does_not_count_changes_nothing() {
    let mut story = Story::new();
    story.first_call();
    story.claim(1);
    story.revoke(1);
    story.pay(1);
    story.done(1);
    story.seal(1, "probe_not_done");
    story.finish(1);
    story.end("completed");
    assert_eq!(story.broken(), nothing());
}

#[test]
fn files_are_read_and_the_report_has_its_fields() {
    let folder = tempfile::tempdir().unwrap();
    let (dump, payments) = (
        folder.path().join("dump.jsonl"),
        folder.path().join("payments.db"),
    );
    let story = Story::paid();
    std::fs::write(&dump, story.text()).unwrap();
    let books = rusqlite::Connection::open(&payments).unwrap();
    books
        .execute_batch(&format!(
            "PRAGMA journal_mode=WAL;
             CREATE TABLE requests (id INTEGER PRIMARY KEY, key TEXT, run TEXT, step TEXT, attempt INTEGER, args_sha256 TEXT);
             CREATE TABLE refunds (id INTEGER PRIMARY KEY, key TEXT, order_id TEXT, run TEXT, step TEXT, attempt INTEGER, applied INTEGER);
             CREATE TABLE cases (id INTEGER PRIMARY KEY, key TEXT, order_id TEXT, run TEXT, step TEXT, attempt INTEGER, applied INTEGER);
             INSERT INTO requests VALUES (1, 'k', '{RUN}', '1-0', 1, '{}');
             INSERT INTO refunds VALUES (1, 'k', '9007199254740993', '{RUN}', '1-0', 1, 1);",
            story.requests[0].args_sha256
        ))
        .unwrap();
    let report = crate::check(&dump, &payments, &[]).unwrap();
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["violations"], json!([]));
    for field in [
        "orders",
        "expected",
        "applied",
        "duplicates",
        "lost",
        "unexpected",
        "takeovers",
        "orphans",
    ] {
        assert!(json[field].is_u64(), "{field}");
    }
    for field in [
        "adopted_outcome",
        "tombstone",
        "revoked",
        "probe_done",
        "probe_not_done",
        "operator",
    ] {
        assert_eq!(json["resolved"][field], 0, "{field}");
    }
    assert!(crate::check(&dump, &folder.path().join("none.db"), &[]).is_err());
    assert!(crate::check(&folder.path().join("none.jsonl"), &payments, &[]).is_err());
}

#[test]
fn a_timeline_tells_the_story_of_an_orphan() {
    let mut story = orphan();
    let register = story.done(1);
    story.found(1, "done", Some(register));
    story.finish(1);
    story.end("completed");
    let lines = crate::timeline::of(&story.dump(), RUN).join("\n");
    for part in [
        "submission by demo",
        "owned by n, session s1, epoch 1",
        "+1.000s  #3      step 1-0 attempt 1 dispatched (first)",
        "step 1-0 attempt 1 (refund_order) claimed by worker w.1, incarnation i",
        "TAKEN OVER by n, session s2, epoch 2 (before: s1)",
        "outcome by worker w.1: done",
        "FOUND done on rung 1",
        "ended: completed",
    ] {
        assert!(lines.contains(part), "{part}\n{lines}");
    }
    assert!(crate::timeline::of(&story.dump(), "another").is_empty());
}
