//! The shape of a schema: which part applies which other part, to the same value or to a part of it.
//!
//! Two things follow from it. A circle of edges that all stay on the same value never ends, so it is refused. And the
//! number of paths through references says how much work one validation may be; a doubled reference doubles it, so
//! 24 of them in 2 KiB are 16 million. Paths are counted in one pass over the parts, with circles cut where they close.

use std::collections::HashMap;

use serde_json::Value;

use super::{
    MAX_REFERENCE_PATHS, SchemaError,
    scan::{REFERENCES, References},
};

/// How often the compiler's `unevaluated*` keywords walk again what stands beside them (3.4 times were measured, for
/// each level).
const UNEVALUATED_REPEATS: u64 = 4;

/// Which part of a value an edge leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// The value itself.
    Same,
    /// One member of an object.
    Member(String),
    /// Every member of an object.
    EachMember,
    /// Every element of an array.
    EachItem,
}

#[derive(Debug, Clone)]
pub(super) struct Edge {
    pub(super) to: usize,
    pub(super) step: Step,
    /// How often the validator takes it.
    times: u64,
    /// Whether taking it counts as a path of its own.
    counts: bool,
}

/// All parts of a schema that its top can reach; the top is part 0.
#[derive(Debug, Clone)]
pub(super) struct Graph {
    edges: Vec<Vec<Edge>>,
}

impl Graph {
    /// Follows every applied part and every reference from the top.
    pub(super) fn build(references: &References<'_>) -> Result<Self, SchemaError> {
        let mut builder = Builder {
            references,
            parts: Vec::new(),
            known: HashMap::new(),
        };
        builder.part(references.root());
        let mut edges = Vec::new();
        while let Some(&part) = builder.parts.get(edges.len()) {
            edges.push(builder.edges(part)?);
        }
        Ok(Self { edges })
    }

    /// What part `from` applies.
    pub(super) fn edges(&self, from: usize) -> &[Edge] {
        self.edges.get(from).map_or(&[], Vec::as_slice)
    }

    /// Refuses circles that never end and schemas that expand too far.
    pub(super) fn check(&self) -> Result<(), SchemaError> {
        let same_value = self.post_order(0..self.edges.len(), |edge| edge.step == Step::Same);
        if same_value.closes {
            return Err(SchemaError::PureCycle);
        }
        // From any part, because a circle through the value may lead to any of them; and from the top over all edges.
        let most_in_place = self.paths(&same_value).into_iter().max().unwrap_or(0);
        let all = self
            .paths(&self.post_order(0..1, |_| true))
            .first()
            .copied()
            .unwrap_or(0);
        match most_in_place.max(all) > MAX_REFERENCE_PATHS {
            true => Err(SchemaError::ExpandsTooFar),
            false => Ok(()),
        }
    }

    /// Whether some part leads back to itself.
    pub(super) fn is_recursive(&self) -> bool {
        self.post_order(0..1, |_| true).closes
    }

    /// Depth first without recursion: a chain of references may be thousands long.
    fn post_order<F: Fn(&Edge) -> bool>(
        &self,
        starts: std::ops::Range<usize>,
        follow: F,
    ) -> Walk<F> {
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            New,
            Open,
            Done,
        }
        let mut walk = Walk {
            order: Vec::new(),
            closes: false,
            follow,
        };
        let mut states = vec![State::New; self.edges.len()];
        let mut stack: Vec<(usize, usize)> = Vec::new();
        for start in starts {
            if states.get(start) == Some(&State::New) {
                states[start] = State::Open;
                stack.push((start, 0));
            }
            while let Some((part, next)) = stack.pop() {
                let Some(edge) = self.edges(part).get(next) else {
                    states[part] = State::Done;
                    walk.order.push(part);
                    continue;
                };
                stack.push((part, next + 1));
                if !(walk.follow)(edge) {
                    continue;
                }
                match states[edge.to] {
                    State::New => {
                        states[edge.to] = State::Open;
                        stack.push((edge.to, 0));
                    }
                    State::Open => walk.closes = true,
                    State::Done => {}
                }
            }
        }
        walk
    }

    /// Paths from each part. An edge that closes a circle leads to a part without a count yet, and counts nothing.
    fn paths<F: Fn(&Edge) -> bool>(&self, walk: &Walk<F>) -> Vec<u64> {
        let mut counts: Vec<Option<u64>> = vec![None; self.edges.len()];
        for &part in &walk.order {
            let mut sum = 0_u64;
            for edge in self.edges(part).iter().filter(|edge| (walk.follow)(edge)) {
                if let Some(below) = counts[edge.to] {
                    let paths = below.saturating_add(u64::from(edge.counts));
                    sum = sum.saturating_add(paths.saturating_mul(edge.times));
                }
            }
            counts[part] = Some(sum);
        }
        counts.into_iter().map(Option::unwrap_or_default).collect()
    }
}

struct Walk<F> {
    order: Vec<usize>,
    closes: bool,
    follow: F,
}

struct Builder<'r, 'a> {
    references: &'r References<'a>,
    parts: Vec<&'a Value>,
    /// Part by address: the tree does not move while it is borrowed.
    known: HashMap<*const Value, usize>,
}

impl<'a> Builder<'_, 'a> {
    fn part(&mut self, schema: &'a Value) -> usize {
        *self.known.entry(schema).or_insert_with(|| {
            self.parts.push(schema);
            self.parts.len() - 1
        })
    }

    fn edges(&mut self, schema: &'a Value) -> Result<Vec<Edge>, SchemaError> {
        let mut edges = Vec::new();
        let Value::Object(object) = schema else {
            return Ok(edges);
        };
        // The walk over the document took names and data for what they are; here a reference made them a schema.
        if !std::ptr::eq(schema, self.references.root()) {
            self.references
                .check_object(object, "a part reached by reference")?;
        }
        let repeats = match object.contains_key("unevaluatedProperties")
            || object.contains_key("unevaluatedItems")
        {
            true => UNEVALUATED_REPEATS,
            false => 1,
        };
        let mut add = |to: usize, step: Step, is_reference: bool| {
            let times = if step == Step::Same { repeats } else { 1 };
            edges.push(Edge {
                to,
                step,
                times,
                counts: is_reference || times > 1,
            });
        };
        for (keyword, value) in object {
            if REFERENCES.contains(&keyword.as_str()) {
                for target in named(self.references, value)? {
                    add(self.part(target), Step::Same, true);
                }
                continue;
            }
            for (schema, step) in applied(keyword, value) {
                add(self.part(schema), step, false);
            }
        }
        Ok(edges)
    }
}

/// What a reference names; a reference that is no text is left to the compiler.
fn named<'a>(references: &References<'a>, value: &Value) -> Result<Vec<&'a Value>, SchemaError> {
    value
        .as_str()
        .map_or_else(|| Ok(Vec::new()), |target| references.resolve(target))
}

/// The schemas that a keyword applies, each with the part of the value it applies them to.
fn applied<'a>(keyword: &str, value: &'a Value) -> Vec<(&'a Value, Step)> {
    let step = match keyword {
        "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else" => Step::Same,
        "additionalProperties" | "unevaluatedProperties" | "propertyNames" => Step::EachMember,
        "items" | "prefixItems" | "additionalItems" | "unevaluatedItems" | "contains" => {
            Step::EachItem
        }
        "properties" => {
            let members = value.as_object().into_iter().flatten();
            return members
                .map(|(name, schema)| (schema, Step::Member(name.clone())))
                .collect();
        }
        "patternProperties" => {
            return value
                .as_object()
                .into_iter()
                .flatten()
                .map(|(_, schema)| (schema, Step::EachMember))
                .collect();
        }
        "dependentSchemas" | "dependencies" => {
            let members = value.as_object().into_iter().flatten();
            return members
                .filter(|(_, schema)| !schema.is_array())
                .map(|(_, schema)| (schema, Step::Same))
                .collect();
        }
        _ => return Vec::new(),
    };
    match value {
        Value::Array(schemas) => schemas
            .iter()
            .map(|schema| (schema, step.clone()))
            .collect(),
        schema => vec![(schema, step)],
    }
}
