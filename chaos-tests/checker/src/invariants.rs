//! The invariants, one function each, over raw records and the books. The numbers are those of the protocol. Those that
//! ask what an attempt or a finding rests on stand in `grounds`.

use std::collections::{BTreeMap, BTreeSet};

use crate::World;
use crate::attempt::Attempt;
use crate::dump::{number, text};
use crate::effects::{Effect, Fate, strays};
use crate::grounds;
use crate::journal::Run;
use crate::logbooks;
use crate::report::Violation;

/// All violations, in order of invariant.
pub(crate) fn all(world: &World, effects: &[Effect<'_>]) -> Vec<Violation> {
    let mut found = Vec::new();
    found.extend(i1_at_most_once(effects));
    found.extend(i2_told_is_true(world, effects));
    found.extend(chains(world));
    found.extend(i6_intent_claim_effect(world));
    found.extend(logbooks::i6_armed_before_effect(world));
    found.extend(grounds::i7_executed_as_approved(world));
    found.extend(grounds::i11_findings_rest_on_registers(world));
    found.extend(i12_nothing_from_nowhere(world, effects));
    found.extend(i13_nothing_of_another_run(world));
    found.extend(i14_every_run_is_accounted_for(world));
    found.extend(grounds::i20_no_attempt_without_proof(world));
    found.sort_by_key(|violation| {
        violation
            .invariant
            .trim_start_matches('I')
            .parse::<u32>()
            .unwrap_or(0)
    });
    found
}

pub(crate) fn violation(invariant: &str, run: &str, text: String) -> Violation {
    Violation {
        invariant: invariant.to_owned(),
        run: run.to_owned(),
        text,
    }
}

pub(crate) fn attempts(world: &World) -> impl Iterator<Item = (&Run, &Attempt)> {
    world
        .runs
        .iter()
        .flat_map(|run| run.attempts.iter().map(move |attempt| (run, attempt)))
}

/// I1: a step's effects are at most one, plus one for each run-again in the journal.
fn i1_at_most_once(effects: &[Effect<'_>]) -> Vec<Violation> {
    let too_many = effects
        .iter()
        .filter(|effect| effect.duplicates() > effect.excused());
    too_many
        .map(|effect| {
            let attempts: Vec<String> = effect
                .rows
                .iter()
                .map(|row| row.attempt.to_string())
                .collect();
            let text = format!(
                "{} of step {} was applied {} times (attempts {}), with {} run-again decisions",
                effect.tool,
                effect.step,
                effect.rows.len(),
                attempts.join(", "),
                effect.run.run_agains(effect.step)
            );
            violation("I1", &effect.run.id, text)
        })
        .collect()
}

/// I2: what is told as done is in the books; what is told as not done is not.
fn i2_told_is_true(world: &World, effects: &[Effect<'_>]) -> Vec<Violation> {
    let mut found = Vec::new();
    for effect in effects {
        let text = match (effect.fate, effect.rows.len()) {
            (Fate::Happened, 0) => format!(
                "{} of step {} counts as done and is not in the books",
                effect.tool, effect.step
            ),
            (Fate::NotHappened, rows @ 1..) => format!(
                "{} of step {} counts as not done and is in the books {rows} times",
                effect.tool, effect.step
            ),
            _ => continue,
        };
        found.push(violation("I2", &effect.run.id, text));
    }
    for (run, attempt) in attempts(world) {
        let key = attempt.key();
        let acted = world.books.rows.iter().filter(|row| {
            row.key == key && row.tool == attempt.chain.tool && row.attempt == attempt.chain.attempt
        });
        if let (Some((seq, fact)), 1..) = (attempt.proof(), acted.count()) {
            let text = format!(
                "step {} attempt {} is {fact} (position {seq}) and acted",
                attempt.chain.step, attempt.chain.attempt
            );
            found.push(violation("I2", &run.id, text));
        }
    }
    found
}

/// I3, I4, I8, I10 and what else the journals themselves show.
fn chains(world: &World) -> Vec<Violation> {
    world
        .runs
        .iter()
        .flat_map(|run| {
            run.faults
                .iter()
                .map(|(invariant, text)| violation(invariant, &run.id, text.clone()))
        })
        .collect()
}

/// I6: an effect needs a claim of its attempt, and a worker's outcome needs that worker's claim before it.
fn i6_intent_claim_effect(world: &World) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut claimed = BTreeSet::new();
    for (run, attempt) in attempts(world) {
        let name = format!(
            "step {} attempt {}",
            attempt.chain.step, attempt.chain.attempt
        );
        for seq in &attempt.unclaimed {
            found.push(violation(
                "I6",
                &run.id,
                format!("position {seq}: an outcome of {name} by a worker without its claim"),
            ));
        }
        if attempt.claim.is_some() && !attempt.revoked() {
            claimed.insert((attempt.key(), attempt.chain.attempt));
        }
    }
    for row in &world.books.rows {
        if !claimed.contains(&(row.key.clone(), row.attempt)) {
            let text = format!(
                "{} of order {} was applied by step {} attempt {}, which nobody had claimed",
                row.tool, row.order, row.step, row.attempt
            );
            found.push(violation("I6", &row.run, text));
        }
    }
    found
}

/// I12: no effect, request, event or approval without a submitted run.
fn i12_nothing_from_nowhere(world: &World, effects: &[Effect<'_>]) -> Vec<Violation> {
    let mut found = Vec::new();
    for run in &world.runs {
        if world.submitted.binary_search(&run.id).is_err() {
            found.push(violation(
                "I12",
                &run.id,
                "the run was never submitted".to_owned(),
            ));
        }
        let Some((seq, event)) = &run.submitted else {
            found.push(violation(
                "I12",
                &run.id,
                "the journal does not begin with a submission".to_owned(),
            ));
            continue;
        };
        let from = world
            .submissions
            .iter()
            .find(|(name, at, _)| *name == run.id && *at == number(event, "inbox"));
        let before = |at: &u64| world.inbox_apart || at < seq;
        if !from.is_some_and(|(_, at, sha256)| before(at) && sha256 == text(event, "request")) {
            found.push(violation(
                "I12",
                &run.id,
                format!(
                    "the submission at inbox position {} is not there or another",
                    number(event, "inbox")
                ),
            ));
        }
    }
    for row in strays(world, effects) {
        found.push(violation(
            "I12",
            &row.run,
            format!(
                "{} of order {} was applied under a key that no call has",
                row.tool, row.order
            ),
        ));
    }
    let called: BTreeSet<(String, u64)> = attempts(world)
        .map(|(_, attempt)| (attempt.key(), attempt.chain.attempt))
        .collect();
    for request in &world.books.requests {
        if !called.contains(&(request.key.clone(), request.attempt)) {
            found.push(violation(
                "I12",
                &request.run,
                format!(
                    "request {} (step {} attempt {}) belongs to no call",
                    request.id, request.step, request.attempt
                ),
            ));
        }
    }
    found
}

/// I13: nothing of one run in another: envelopes, keys, requests and effects agree about whose they are.
fn i13_nothing_of_another_run(world: &World) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut owner: BTreeMap<String, (&str, &str)> = BTreeMap::new();
    for (run, attempt) in attempts(world) {
        let envelope = attempt.envelope();
        let chain = &attempt.chain;
        let same = text(&envelope, "run") == run.id
            && text(&envelope, "step") == chain.step
            && text(&envelope, "tool") == chain.tool
            && text(&envelope, "origin") == chain.origin
            && number(&envelope, "attempt") == chain.attempt;
        if !same {
            found.push(violation(
                "I13",
                &run.id,
                format!("the envelope at position {} is another call's", attempt.seq),
            ));
        }
        let first = *owner.entry(attempt.key()).or_insert((&run.id, &chain.step));
        if first != (run.id.as_str(), chain.step.as_str()) {
            found.push(violation(
                "I13",
                &run.id,
                format!(
                    "step {} has the idempotency key of step {} of run {}",
                    chain.step, first.1, first.0
                ),
            ));
        }
    }
    let named = world
        .books
        .rows
        .iter()
        .map(|row| (&row.key, &row.run, &row.step));
    for (key, run, step) in named.chain(
        world
            .books
            .requests
            .iter()
            .map(|request| (&request.key, &request.run, &request.step)),
    ) {
        if owner
            .get(key)
            .is_some_and(|owner| *owner != (run.as_str(), step.as_str()))
        {
            found.push(violation(
                "I13",
                run,
                format!("the books name step {step} for a key of another step or run"),
            ));
        }
    }
    for row in &world.books.rows {
        let request = world
            .books
            .requests
            .iter()
            .find(|request| request.id == row.applied);
        if !request.is_some_and(|request| request.key == row.key && request.attempt == row.attempt)
        {
            let text = format!(
                "{} of order {} was applied for request {}, which is another's",
                row.tool, row.order, row.applied
            );
            found.push(violation("I13", &row.run, text));
        }
    }
    found
}

/// I14: every submitted run is there and ended, or waits; none is still moving.
fn i14_every_run_is_accounted_for(world: &World) -> Vec<Violation> {
    let mut found = Vec::new();
    for id in &world.submitted {
        match world.runs.iter().find(|run| run.id == *id) {
            None => found.push(violation(
                "I14",
                id,
                "submitted, and there is no journal".to_owned(),
            )),
            Some(run) if run.status() == "running" => found.push(violation(
                "I14",
                id,
                "still running: neither ended nor waiting".to_owned(),
            )),
            Some(run)
                if !matches!(
                    run.status(),
                    "completed" | "failed" | "cancelled" | "waiting"
                ) =>
            {
                found.push(violation(
                    "I14",
                    id,
                    format!("ended with the unknown status {:?}", run.status()),
                ));
            }
            Some(_) => {}
        }
    }
    found
}
