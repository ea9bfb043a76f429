//! How much work a recursive schema makes of one value.
//!
//! A schema that applies itself twice to the same member (`allOf` of two parts that both recurse into `a`) doubles the
//! work with each level of the value: 30 levels are a billion visits, and a validation cannot be cancelled. So the
//! visits are counted first, without validating anything (repeats on the same value are bounded by the schema check), and the count stops at a budget that grows with the value.

use serde_json::Value;

use super::graph::{Graph, Step};

/// Visits that any value may cost: some milliseconds.
const BASE_VISITS: u64 = 100_000;

/// Visits on top for each part of the value: far more than a schema written for people needs.
const VISITS_PER_PART: u64 = 200;

/// Whether validating `value` stays within the budget.
pub(super) fn is_bounded(graph: &Graph, value: &Value) -> bool {
    let mut left = BASE_VISITS.saturating_add(VISITS_PER_PART.saturating_mul(parts(value)));
    let mut open = vec![(0, value)];
    while let Some((part, value)) = open.pop() {
        let Some(rest) = left.checked_sub(1) else {
            return false;
        };
        left = rest;
        for edge in graph.edges(part) {
            match &edge.step {
                Step::Same => open.push((edge.to, value)),
                Step::Member(name) => open.extend(value.get(name).map(|member| (edge.to, member))),
                Step::EachMember => {
                    let members = value.as_object().into_iter().flatten();
                    open.extend(members.map(|(_, member)| (edge.to, member)));
                }
                Step::EachItem => {
                    let items = value.as_array().into_iter().flatten();
                    open.extend(items.map(|item| (edge.to, item)));
                }
            }
        }
    }
    true
}

/// How many values a value holds, itself included.
fn parts(value: &Value) -> u64 {
    let mut count = 0;
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        count += 1;
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values()),
            _ => {}
        }
    }
    count
}
