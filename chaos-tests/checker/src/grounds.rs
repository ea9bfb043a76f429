//! What things rest on: a dispatch on a verdict, an approval and the very bytes that were judged (I7); a finding on a
//! register (I11); a further attempt on a proof or an operator's word that was stored before it (I20).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::World;
use crate::dump::{number, sha256, text};
use crate::invariants::{attempts, violation};
use crate::journal::Run;
use crate::report::Violation;

/// I7: executed = journaled = approved, byte for byte; an approval is spent once.
pub(crate) fn i7_executed_as_approved(world: &World) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut sent: BTreeMap<String, String> = BTreeMap::new();
    for (run, attempt) in attempts(world) {
        let name = format!(
            "step {} attempt {}",
            attempt.chain.step, attempt.chain.attempt
        );
        let Some(bytes) = &attempt.envelope else {
            found.push(violation("I7", &run.id, format!("{name} has no envelope")));
            continue;
        };
        let envelope = attempt.envelope();
        let arguments = text(&envelope, "arguments");
        if sha256(bytes) != attempt.call {
            found.push(violation(
                "I7",
                &run.id,
                format!("the envelope of {name} is not the one that its commit names"),
            ));
        }
        for field in ["arguments", "tool", "spec"] {
            if text(&envelope, field) != text(&attempt.policy, field) {
                found.push(violation(
                    "I7",
                    &run.id,
                    format!(
                        "`{field}` of {name} differs between the policy's answer and the envelope"
                    ),
                ));
            }
        }
        if number(&envelope, "epoch") != attempt.epoch {
            found.push(violation(
                "I7",
                &run.id,
                format!(
                    "the envelope of {name} names epoch {}",
                    number(&envelope, "epoch")
                ),
            ));
        }
        sent.insert(attempt.key(), sha256(arguments.as_bytes()));
        let verdict = attempt
            .policy
            .get("verdict")
            .map_or("", |verdict| text(verdict, "verdict"));
        let spends = attempt.basis.get("approval").and_then(Value::as_str);
        match (verdict, text(&attempt.basis, "basis"), spends) {
            ("deny" | "abort" | "", _, _) => found.push(violation(
                "I7",
                &run.id,
                format!("{name} was dispatched on the verdict {verdict:?}"),
            )),
            ("require_approval", "first", None) => found.push(violation(
                "I7",
                &run.id,
                format!("{name} needs an approval and has none"),
            )),
            _ => {}
        }
    }
    for run in &world.runs {
        found.extend(spent_once(run));
    }
    for request in &world.books.requests {
        if sent
            .get(&request.key)
            .is_some_and(|sha256| *sha256 != request.args_sha256)
        {
            let text = format!(
                "request {} of step {} attempt {} carried other arguments than the envelope",
                request.id, request.step, request.attempt
            );
            found.push(violation("I7", &request.run, text));
        }
    }
    found
}

fn spent_once(run: &Run) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut spent = BTreeSet::new();
    for attempt in &run.attempts {
        let Some(name) = attempt.basis.get("approval").and_then(Value::as_str) else {
            continue;
        };
        let wanted: &[&str] = match text(&attempt.basis, "basis") {
            "first" => &["approve"],
            "run_again" => &["run_again"],
            // A run-again that met a proof is a continue.
            _ => &["continue", "run_again"],
        };
        let approval = run.approvals.get(name);
        let decided = approval.and_then(|approval| approval.choice.as_deref());
        if !decided.is_some_and(|choice| wanted.contains(&choice))
            || approval.is_some_and(|approval| approval.step != attempt.chain.step)
        {
            let text = format!(
                "step {} attempt {} spends {name}, which does not permit it (decided: {decided:?})",
                attempt.chain.step, attempt.chain.attempt
            );
            found.push(violation("I7", &run.id, text));
        }
        if !spent.insert(name) {
            found.push(violation(
                "I7",
                &run.id,
                format!("approval {name} is spent twice"),
            ));
        }
    }
    found
}

/// I11: a finding says what the register says that it names; an error, a silence or a missing record is no finding.
pub(crate) fn i11_findings_rest_on_registers(world: &World) -> Vec<Violation> {
    let mut out = Vec::new();
    for (run, attempt) in attempts(world) {
        for found in &attempt.found {
            let (seq, fact) = match (&attempt.outcome, &attempt.claim) {
                _ if found.finding == "revoked" => (
                    attempt.claim.as_ref().map(|claim| claim.seq),
                    if attempt.revoked() { "revoked" } else { "" },
                ),
                (Some(outcome), _) => (Some(outcome.seq), attempt.fact()),
                (None, _) => (None, ""),
            };
            let rests = match found.finding.as_str() {
                "done" => matches!(fact, "done" | "done_unusable" | "aborted"),
                // What an operator said, or what nobody can say, may stand beside any fact or none.
                "recorded_done" | "rejected" | "unknown" | "conflict" => continue,
                finding => fact == finding,
            };
            if !rests || found.register != seq || seq.is_none_or(|seq| seq >= found.seq) {
                let text = format!(
                    "position {}: step {} attempt {} is found {} on register {:?}; the register says {fact:?} at {seq:?}",
                    found.seq,
                    attempt.chain.step,
                    attempt.chain.attempt,
                    found.finding,
                    found.register
                );
                out.push(violation("I11", &run.id, text));
            }
        }
    }
    for run in &world.runs {
        for (step, finished) in run
            .finished
            .iter()
            .filter(|(_, finished)| finished.kind == "tool_result")
        {
            let settled = run.attempts.iter().filter(|attempt| {
                attempt.chain.step == *step && Some(attempt.chain.attempt) == finished.attempt
            });
            let rests = settled.clone().any(|attempt| {
                let outcome = attempt
                    .outcome
                    .as_ref()
                    .is_some_and(|outcome| outcome.seq < finished.seq);
                outcome && matches!(attempt.fact(), "done" | "probe_done" | "recorded_done")
                    || attempt.finding() == Some("recorded_done")
            });
            if !rests {
                out.push(violation(
                    "I11",
                    &run.id,
                    format!(
                        "position {}: step {step} finished with a result that no register holds",
                        finished.seq
                    ),
                ));
            }
        }
    }
    out
}

/// I20: a further attempt of what may change something rests on a register that was there before it was dispatched.
pub(crate) fn i20_no_attempt_without_proof(world: &World) -> Vec<Violation> {
    let mut found = Vec::new();
    for (run, next) in attempts(world).filter(|(_, attempt)| attempt.chain.attempt > 1) {
        let before = run.attempts.iter().find(|attempt| {
            attempt.chain.step == next.chain.step && attempt.chain.attempt + 1 == next.chain.attempt
        });
        let name = format!("step {} attempt {}", next.chain.step, next.chain.attempt);
        let Some(before) = before else {
            found.push(violation(
                "I20",
                &run.id,
                format!("{name} has no attempt before it"),
            ));
            continue;
        };
        if !before.mutates() && !next.mutates() {
            continue;
        }
        let basis = text(&next.basis, "basis");
        let names = next.basis.get("register").and_then(Value::as_u64);
        let sealed = before
            .outcome
            .as_ref()
            .filter(|_| before.fact() == "run_again")
            .map(|outcome| outcome.seq);
        let rests = match basis {
            "proof" | "continue" => before
                .proof()
                .map(|(seq, _)| seq)
                .filter(|seq| names == Some(*seq)),
            "run_again" => sealed,
            _ => None,
        };
        if rests.is_none_or(|seq| seq >= next.seq) {
            let text = format!(
                "{name} was dispatched at position {} as {basis:?}; the registers of the attempt before say {:?} then",
                next.seq,
                before.fact()
            );
            found.push(violation("I20", &run.id, text));
        }
    }
    found
}
