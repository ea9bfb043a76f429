//! The workers' logbooks: what each worker itself wrote down, fsynced, before it acted. A cluster has one for each worker.
//!
//! A logbook is evidence beside the registers: which attempt was armed under which claim, by which life of the worker. It may be missing (a
//! lost disk): of an attempt whose claim names a logbook that is not in the dump, nothing is asked.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::World;
use crate::dump::{number, text};
use crate::invariants::{attempts, violation};
use crate::report::Violation;

/// One attempt in a logbook, its latest record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) logbook: String,
    worker: String,
    run: String,
    step: String,
    attempt: u64,
    /// `armed`, `outcome` or `tombstone`.
    kind: String,
    claim: String,
    incarnation: String,
}

impl Record {
    /// Of a line of the dump and its body.
    pub(crate) fn read(line: &Value, body: &Value) -> Self {
        let chain = line.get("chain").unwrap_or(&Value::Null);
        // An outcome has what was armed inside it; the other two are it.
        let armed = body.get("armed").unwrap_or(body);
        Self {
            logbook: text(line, "logbook").to_owned(),
            worker: text(line, "worker").to_owned(),
            run: text(chain, "run").to_owned(),
            step: text(chain, "step").to_owned(),
            attempt: number(chain, "attempt"),
            kind: text(body, "kind").to_owned(),
            claim: text(armed, "claim").to_owned(),
            incarnation: text(armed, "incarnation").to_owned(),
        }
    }
}

/// I6: what had an effect was armed before, under the very claim that counts, by the life of the worker that made the claim.
pub(crate) fn i6_armed_before_effect(world: &World) -> Vec<Violation> {
    let known: BTreeSet<&str> = world
        .logbooks
        .iter()
        .map(|record| record.logbook.as_str())
        .collect();
    let mut records: BTreeMap<(&str, &str, u64), Vec<&Record>> = BTreeMap::new();
    for record in &world.logbooks {
        let attempt = (record.run.as_str(), record.step.as_str(), record.attempt);
        records.entry(attempt).or_default().push(record);
    }
    let acted: BTreeSet<(&str, u64)> = world
        .books
        .rows
        .iter()
        .map(|row| (row.key.as_str(), row.attempt))
        .collect();
    let mut found = Vec::new();
    for (run, attempt) in attempts(world) {
        let Some(claim) = attempt.claim.as_ref().filter(|_| !attempt.revoked()) else {
            continue;
        };
        let of_claim = |name| text(&claim.body, name);
        let key = attempt.key();
        if !known.contains(of_claim("logbook")) || !acted.contains(&(&key, attempt.chain.attempt)) {
            continue;
        }
        let place = (
            run.id.as_str(),
            attempt.chain.step.as_str(),
            attempt.chain.attempt,
        );
        let mut its = records.get(&place).into_iter().flatten();
        let record = its.find(|record| record.logbook == of_claim("logbook"));
        let says = match record {
            None => "has nothing".to_owned(),
            Some(record) if record.kind == "tombstone" => "has a tombstone".to_owned(),
            Some(record) if record.claim != of_claim("claim") => {
                format!("armed it under claim {:?}", record.claim)
            }
            Some(record)
                if record.worker != of_claim("worker")
                    || record.incarnation != of_claim("incarnation") =>
            {
                format!(
                    "says that {} armed it in life {:?}",
                    record.worker, record.incarnation
                )
            }
            Some(_) => continue,
        };
        let text = format!(
            "step {} attempt {} acted on claim {:?} of {}, whose logbook {says}",
            attempt.chain.step,
            attempt.chain.attempt,
            of_claim("claim"),
            of_claim("worker"),
        );
        found.push(violation("I6", &run.id, text));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::fixture::Story;

    fn broken(body: Value) -> Vec<String> {
        let mut story = Story::paid();
        story.armed(body);
        story.broken()
    }

    #[test]
    fn i6_an_effect_was_armed_by_the_life_whose_claim_counts() {
        let armed = json!({"kind": "armed", "claim": "c1", "incarnation": "i", "call": 2});
        let outcome = json!({"kind": "outcome", "armed": {"claim": "c1", "incarnation": "i", "call": 2}, "outcome": {"kind": "done"}});
        assert!(broken(armed).is_empty());
        assert!(broken(outcome).is_empty());
        let wrong = [
            json!({"kind": "tombstone", "claim": "c1", "why": "w"}),
            json!({"kind": "armed", "claim": "c2", "incarnation": "i", "call": 2}),
            json!({"kind": "armed", "claim": "c1", "incarnation": "another", "call": 2}),
        ];
        for body in wrong {
            assert_eq!(broken(body.clone()), ["I6"], "{body}");
        }
    }

    #[test]
    fn i6_an_effect_without_a_record_in_its_logbook_is_seen_and_a_lost_logbook_says_nothing() {
        let mut story = Story::paid();
        story.armed(json!({"kind": "armed", "claim": "c1", "incarnation": "i", "call": 2}));
        let line = story.lines.last_mut().unwrap();
        line["chain"]["step"] = json!("7-0");
        assert_eq!(story.broken(), ["I6"]);
        story.lines.last_mut().unwrap()["logbook"] = json!("of another worker");
        assert!(story.broken().is_empty());
    }
}
