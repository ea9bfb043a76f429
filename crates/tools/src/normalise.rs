//! The one normaliser of arguments: what a model writes for "nothing" becomes nothing.
//!
//! It runs ahead of the schema, the hash and the dispatch, so that everybody sees the same arguments. Top-level
//! optional properties that take a string (or a string and null) are trimmed; what is blank then is absent. Since some
//! model providers make every property required, null for any optional property is absent too. Required properties
//! and everything below the top stay as they are; a tool opts out by `keep_blank`.
//!
//! The text is edited, never written anew: every member that stays keeps its exact bytes and its place, and a document
//! in which nothing is to do comes back as it was.

use std::{collections::HashMap, ops::Range};

use leasehold_json::{AcceptedJson, Refusal};
use serde_json::Value;

use crate::{
    members::{Member, members},
    schema::References,
};

/// How far a schema is followed through `$ref`, `allOf`, `anyOf` and `oneOf` to find what its properties take. What
/// generators write takes three; the bound ends circles.
const MAX_HOPS: usize = 8;

/// What is to be done with the top-level properties of one schema.
#[derive(Debug, Clone, Default)]
pub(crate) struct Normaliser {
    /// Optional properties, and whether they take only strings (or strings and null).
    optional: HashMap<String, bool>,
}

/// What becomes of one member.
#[derive(PartialEq)]
enum Fate {
    Stays,
    Goes,
    /// The value stays, with only this part of what stands between its quotes.
    Trimmed(Range<usize>),
}

impl Normaliser {
    /// Reads the optional properties off a schema, also through a `$ref` or `allOf` at its top.
    pub(crate) fn of(references: &References<'_>) -> Self {
        let mut found = Properties::default();
        found.gather(references, references.root(), MAX_HOPS);
        found
            .optional
            .retain(|name, _| !found.required.contains(&name.as_str()));
        Self {
            optional: found.optional,
        }
    }

    /// The arguments after normalisation; the same bytes if nothing was to do.
    pub(crate) fn apply(&self, arguments: AcceptedJson) -> Result<AcceptedJson, Refusal> {
        if self.optional.is_empty() {
            return Ok(arguments);
        }
        let text = arguments.as_str();
        let members = members(&arguments);
        let fates: Vec<Fate> = members
            .iter()
            .map(|member| self.fate(text, member))
            .collect();
        match fates.iter().all(|fate| *fate == Fate::Stays) {
            true => Ok(arguments),
            false => AcceptedJson::check_str(&edited(text, &members, &fates)),
        }
    }

    fn fate(&self, text: &str, member: &Member) -> Fate {
        let value = text.get(member.value.clone()).unwrap_or_default();
        let inside = value
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'));
        match (self.optional.get(&member.key), inside) {
            (Some(_), None) if value == "null" => Fate::Goes,
            (Some(true), Some(inside)) => match trimmed(inside) {
                kept if kept.is_empty() => Fate::Goes,
                kept if kept.len() == inside.len() => Fate::Stays,
                kept => Fate::Trimmed(kept),
            },
            _ => Fate::Stays,
        }
    }
}

/// Writes the members that stay, each behind the separator that stood in front of it.
fn edited(text: &str, members: &[Member], fates: &[Fate]) -> String {
    let part = |range: Range<usize>| text.get(range).unwrap_or_default();
    let mut out = String::with_capacity(text.len());
    out.push_str(part(
        0..members.first().map_or(0, |first| first.whole.start),
    ));
    let mut separator_from = None;
    let mut wrote_one = false;
    for (member, fate) in members.iter().zip(fates) {
        let separator = separator_from
            .map(|from| from..member.whole.start)
            .unwrap_or_default();
        separator_from = Some(member.whole.end);
        if *fate == Fate::Goes {
            continue;
        }
        if wrote_one {
            out.push_str(part(separator));
        }
        wrote_one = true;
        match fate {
            Fate::Trimmed(kept) => {
                let inside = member.value.start + 1;
                out.push_str(part(member.whole.start..inside));
                out.push_str(part(inside + kept.start..inside + kept.end));
                out.push('"');
            }
            _ => out.push_str(part(member.whole.clone())),
        }
    }
    out.push_str(part(separator_from.unwrap_or(0)..text.len()));
    out
}

/// What is left of the inside of a string literal without whitespace (also escaped) at both ends.
fn trimmed(inside: &str) -> Range<usize> {
    let mut kept: Option<Range<usize>> = None;
    let mut at = 0;
    while let Some(first) = inside.get(at..).and_then(|rest| rest.chars().next()) {
        let (length, is_space) = match (first, inside.as_bytes().get(at + 1)) {
            ('\\', Some(b'u')) => {
                let unit = inside
                    .get(at + 2..at + 6)
                    .and_then(|digits| u32::from_str_radix(digits, 16).ok());
                (
                    6,
                    unit.and_then(char::from_u32)
                        .is_some_and(char::is_whitespace),
                )
            }
            ('\\', Some(letter)) => (2, matches!(letter, b'n' | b'r' | b't' | b'f')),
            _ => (first.len_utf8(), first.is_whitespace()),
        };
        if !is_space {
            kept.get_or_insert(at..at).end = at + length;
        }
        at += length;
    }
    kept.unwrap_or_default()
}

#[derive(Default)]
struct Properties<'a> {
    optional: HashMap<String, bool>,
    required: Vec<&'a str>,
}

impl<'a> Properties<'a> {
    fn gather(&mut self, references: &References<'a>, schema: &'a Value, hops: usize) {
        let Some(hops) = hops.checked_sub(1) else {
            return;
        };
        for (name, property) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let takes_text = kinds(references, property, MAX_HOPS).is_text();
            *self.optional.entry(name.clone()).or_default() |= takes_text;
        }
        let required = schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        self.required.extend(required.filter_map(Value::as_str));
        for target in targets(references, schema) {
            self.gather(references, target, hops);
        }
        for part in schema
            .get("allOf")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            self.gather(references, part, hops);
        }
    }
}

/// Which kinds of values a property schema speaks of.
#[derive(Clone, Copy, Default)]
struct Kinds {
    text: bool,
    other: bool,
}

impl Kinds {
    const OTHER: Self = Self {
        text: false,
        other: true,
    };

    fn is_text(self) -> bool {
        self.text && !self.other
    }

    fn or(self, more: Self) -> Self {
        Self {
            text: self.text || more.text,
            other: self.other || more.other,
        }
    }

    fn of_type(name: &Value) -> Self {
        match name.as_str() {
            Some("string") => Self {
                text: true,
                other: false,
            },
            Some("null") => Self::default(),
            _ => Self::OTHER,
        }
    }

    fn of_value(value: &Value) -> Self {
        match value {
            Value::String(_) => Self {
                text: true,
                other: false,
            },
            Value::Null => Self::default(),
            _ => Self::OTHER,
        }
    }
}

/// `type` decides; without it the alternatives, the listed values, or what a reference names.
fn kinds(references: &References<'_>, schema: &Value, hops: usize) -> Kinds {
    let Some(hops) = hops.checked_sub(1) else {
        return Kinds::OTHER;
    };
    let either = |parts: &[Value]| {
        parts
            .iter()
            .map(|part| kinds(references, part, hops))
            .fold(Kinds::default(), Kinds::or)
    };
    match schema.get("type") {
        Some(Value::Array(types)) => {
            return types
                .iter()
                .map(Kinds::of_type)
                .fold(Kinds::default(), Kinds::or);
        }
        Some(name) => return Kinds::of_type(name),
        None => {}
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return values
            .iter()
            .map(Kinds::of_value)
            .fold(Kinds::default(), Kinds::or);
    }
    if let Some(value) = schema.get("const") {
        return Kinds::of_value(value);
    }
    for keyword in ["anyOf", "oneOf"] {
        if let Some(parts) = schema.get(keyword).and_then(Value::as_array) {
            return either(parts);
        }
    }
    let all = schema
        .get("allOf")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    match targets(references, schema)
        .into_iter()
        .chain(all)
        .any(|part| kinds(references, part, hops).is_text())
    {
        true => Kinds {
            text: true,
            other: false,
        },
        false => Kinds::OTHER,
    }
}

fn targets<'a>(references: &References<'a>, schema: &Value) -> Vec<&'a Value> {
    schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|target| references.resolve(target).ok())
        .unwrap_or_default()
}
