//! The references of a schema: refuses each that leads outside, and resolves those that lead into it.
//!
//! The whole document is walked, unknown keywords too, because a reference can turn any part of it into a schema.
//! Names of properties and definitions are not keywords, and data (`const`, `enum`, `default`, `examples`) is not walked.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::SchemaError;
use crate::text::cut;

/// The drafts whose metaschemas are built into the compiler, without the optional trailing `#`.
const STANDARD_DRAFTS: [&str; 5] = [
    "http://json-schema.org/draft-04/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
];

/// Draft 4 spells `$id` without the dollar; in later drafts `id` means nothing.
const DRAFT_4: &str = STANDARD_DRAFTS[0];

/// The keywords that name another schema.
pub(super) const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Keywords whose members are names, each with a schema.
const NAME_MAPS: [&str; 6] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependencies",
];

/// Keywords that hold data.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];

/// The most characters of a foreign name in an error.
const MAX_TARGET_CHARS: usize = 120;

/// A schema whose references all lead into it.
pub(crate) struct References<'a> {
    root: &'a Value,
    anchors: HashMap<&'a str, Vec<&'a Value>>,
    draft_4: bool,
}

impl<'a> References<'a> {
    /// Walks a whole schema.
    pub(crate) fn scan(root: &'a Value) -> Result<Self, SchemaError> {
        let dialect = root
            .get("$schema")
            .and_then(Value::as_str)
            .map(without_fragment);
        let mut references = Self {
            root,
            anchors: HashMap::new(),
            draft_4: dialect == Some(DRAFT_4),
        };
        references.walk(root, "")?;
        Ok(references)
    }

    /// The top of the schema.
    pub(crate) fn root(&self) -> &'a Value {
        self.root
    }

    /// What a reference names: one place, or every place that has the anchor.
    pub(crate) fn resolve(&self, target: &str) -> Result<Vec<&'a Value>, SchemaError> {
        let dangling = || SchemaError::Dangling {
            target: cut(target, MAX_TARGET_CHARS),
        };
        let fragment = target
            .strip_prefix('#')
            .and_then(percent_decoded)
            .ok_or_else(dangling)?;
        if fragment.is_empty() || fragment.starts_with('/') {
            return self
                .root
                .pointer(&fragment)
                .map(|found| vec![found])
                .ok_or_else(dangling);
        }
        self.anchors
            .get(fragment.as_str())
            .cloned()
            .ok_or_else(dangling)
    }

    /// Whether an object's own keywords lead outside; `at` is its place.
    pub(super) fn check_object(
        &self,
        object: &Map<String, Value>,
        at: &str,
    ) -> Result<(), SchemaError> {
        let names = |keyword: &str| object.get(keyword).and_then(Value::as_str);
        let target_text = |target: &str| cut(target, MAX_TARGET_CHARS);
        for keyword in REFERENCES {
            if let Some(target) = names(keyword).filter(|target| !target.starts_with('#')) {
                return Err(SchemaError::Outside {
                    keyword,
                    at: at.to_owned(),
                    target: target_text(target),
                });
            }
        }
        for keyword in self.id_keywords() {
            if let Some(target) = names(keyword).filter(|target| !target.starts_with('#')) {
                return Err(SchemaError::Outside {
                    keyword,
                    at: at.to_owned(),
                    target: target_text(target),
                });
            }
        }
        if let Some(dialect) = object.get("$schema") {
            let known = dialect
                .as_str()
                .is_some_and(|name| STANDARD_DRAFTS.contains(&without_fragment(name)));
            if !at.is_empty() || !known {
                let target = dialect
                    .as_str()
                    .map_or_else(|| dialect.to_string(), str::to_owned);
                return Err(SchemaError::Dialect {
                    at: at.to_owned(),
                    target: target_text(&target),
                });
            }
        }
        Ok(())
    }

    fn id_keywords(&self) -> impl Iterator<Item = &'static str> + use<> {
        ["$id"].into_iter().chain(self.draft_4.then_some("id"))
    }

    /// Depth of the recursion is bounded by the depth of usable JSON.
    fn walk(&mut self, value: &'a Value, at: &str) -> Result<(), SchemaError> {
        match value {
            Value::Array(elements) => {
                for (index, element) in elements
                    .iter()
                    .enumerate()
                    .filter(|(_, element)| is_container(element))
                {
                    self.walk(element, &format!("{at}/{index}"))?;
                }
            }
            Value::Object(object) => {
                self.check_object(object, at)?;
                self.note_anchors(object, value);
                for (keyword, part) in object.iter().filter(|(_, part)| is_container(part)) {
                    let at = below(at, keyword);
                    match part {
                        _ if DATA.contains(&keyword.as_str()) => {}
                        Value::Object(map) if NAME_MAPS.contains(&keyword.as_str()) => {
                            for (name, schema) in
                                map.iter().filter(|(_, schema)| is_container(schema))
                            {
                                self.walk(schema, &below(&at, name))?;
                            }
                        }
                        _ => self.walk(part, &at)?,
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn note_anchors(&mut self, object: &'a Map<String, Value>, value: &'a Value) {
        let named = ["$anchor", "$dynamicAnchor"]
            .map(|keyword| object.get(keyword).and_then(Value::as_str));
        let by_id = self
            .id_keywords()
            .filter_map(|keyword| object.get(keyword)?.as_str()?.strip_prefix('#'));
        for name in named.into_iter().flatten().chain(by_id.collect::<Vec<_>>()) {
            self.anchors.entry(name).or_default().push(value);
        }
    }
}

fn is_container(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

fn without_fragment(name: &str) -> &str {
    name.strip_suffix('#').unwrap_or(name)
}

fn below(at: &str, name: &str) -> String {
    format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// The text that a percent-encoded fragment stands for.
fn percent_decoded(fragment: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(fragment.len());
    let mut bytes = fragment.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || {
            char::from(bytes.next()?)
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok())
        };
        decoded.push(digit()? << 4 | digit()?);
    }
    String::from_utf8(decoded).ok()
}
