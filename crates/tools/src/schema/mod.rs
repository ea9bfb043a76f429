//! A schema that may be used: checked to mean the same to everybody, to point nowhere but into itself, and to cost a
//! bounded amount of work, then compiled.
//!
//! The order is: size, usable JSON, references (`scan`), shape of the reference graph (`graph`), compiler. Nothing is
//! ever read or fetched: the metaschemas of the standard drafts are built into the compiler, and everything else is
//! refused before the compiler sees it. Formats are asserted whatever the draft says; unknown formats are ignored.
//! Patterns are those of the `regex` crate, which run in linear time and know neither look-around nor back-references.

mod cost;
mod graph;
mod scan;

use jsonschema::{PatternOptions, ValidationError, Validator};
use leasehold_json::{AcceptedJson, Refusal};
use serde_json::Value;
use thiserror::Error;

use self::graph::Graph;
use crate::text::{cut, cut_end, place};

pub(crate) use self::scan::References;

/// The most bytes a schema may have. A description for a model is a few KiB; this leaves room for generated ones and
/// keeps the compiler under a second.
pub const MAX_SCHEMA_BYTES: usize = 256 * 1024;

/// The most paths through references that a schema may have. Each path is walked on a validation that cannot be
/// cancelled; this many take some milliseconds.
pub const MAX_REFERENCE_PATHS: u64 = 100_000;

/// The most memory that one compiled pattern may take, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// How many misses are looked at before they are put in order: a bound on work for arguments that are wrong in
/// every place.
const MAX_MISSES_READ: usize = 256;

/// How many misses an error shows: enough to repair a call, and a bound on what an observation costs.
const MAX_MISSES_SHOWN: usize = 16;

/// The most characters of one miss: a schema may list thousands of alternatives.
const MAX_MISS_CHARS: usize = 400;

/// Why a schema is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// There is no text.
    #[error("is missing; a tool without arguments has the schema {{\"type\":\"object\"}}")]
    Missing,
    /// The text is over the bound.
    #[error("has {bytes} bytes; at most {MAX_SCHEMA_BYTES} are allowed")]
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
    },
    /// The text is not usable JSON.
    #[error("is not usable JSON: {0}")]
    NotUsable(#[from] Refusal),
    /// It is JSON, but neither an object nor a boolean.
    #[error("must be an object or a boolean")]
    NotASchema,
    /// A keyword names something that is not part of the schema.
    #[error(
        "points outside itself: `{keyword}` at {} names {target:?}; nothing is read or fetched, so write the \
         definition into the schema and name it by `#...`",
        place(.at)
    )]
    Outside {
        /// `$ref`, `$dynamicRef`, `$recursiveRef`, `$id` or `id`.
        keyword: &'static str,
        /// JSON pointer to the object that holds the keyword.
        at: String,
        /// What it names (cut when long).
        target: String,
    },
    /// A `$schema` that is not one of the standard drafts, or stands anywhere but at the top.
    #[error(
        "points outside itself: `$schema` at {} names {target:?}; only the top of a schema may have one, and only \
         a standard draft (4, 6, 7, 2019-09, 2020-12) is built in",
        place(.at)
    )]
    Dialect {
        /// JSON pointer to the object that holds the keyword.
        at: String,
        /// What it names (cut when long).
        target: String,
    },
    /// A reference to a part of the schema that is not there.
    #[error("has a reference to {target:?}, which is not in it")]
    Dangling {
        /// What is named (cut when long).
        target: String,
    },
    /// References that lead back to where they began without going into the value.
    #[error(
        "has a reference that only leads back to itself; a recursive schema must go into a property or an item"
    )]
    PureCycle,
    /// Too many ways through its references.
    #[error("expands too far: more than {MAX_REFERENCE_PATHS} paths through its references")]
    ExpandsTooFar,
    /// The compiler refuses it.
    #[error("does not compile: {0}")]
    NotCompiling(String),
}

/// Why a value does not fit a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// It misses it in these places, in order of place, and in so many more.
    Misses { shown: Vec<Miss>, more: usize },
    /// Finding out would take too much work.
    TooCostly,
}

/// One place where a value does not fit. Ordered by place in the value, then in the schema.
///
/// The text holds names of properties and parts of the schema, but never a value: arguments may be secrets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Miss {
    /// JSON pointer into the value.
    pub at: String,
    /// JSON pointer into the schema.
    pub rule: String,
    /// What is wrong there.
    pub text: String,
}

/// A schema ready for use. Cheap to clone, safe to share.
#[derive(Debug, Clone)]
pub(crate) struct Schema {
    validator: Validator,
    /// Kept for recursive schemas only: they need a look at the value before each validation.
    recursion: Option<Graph>,
}

impl Schema {
    /// Checks and compiles a schema; also returns its tree.
    pub(crate) fn compile(text: &str) -> Result<(Self, Value), SchemaError> {
        if text.len() > MAX_SCHEMA_BYTES {
            return Err(SchemaError::TooLarge { bytes: text.len() });
        }
        let accepted =
            AcceptedJson::check_str(text).map_err(|refusal| match refusal.is_empty() {
                true => SchemaError::Missing,
                false => SchemaError::NotUsable(refusal),
            })?;
        accepted.numbers_fit_double()?;
        let value = accepted.to_value();
        if !value.is_object() && !value.is_boolean() {
            return Err(SchemaError::NotASchema);
        }
        let graph = Graph::build(&References::scan(&value)?)?;
        graph.check()?;
        let validator = jsonschema::options()
            .offline()
            .should_validate_formats(true)
            .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN_BYTES))
            .build(&value)
            .map_err(|error| SchemaError::NotCompiling(compiler_text(&error)))?;
        let recursion = graph.is_recursive().then_some(graph);
        Ok((
            Self {
                validator,
                recursion,
            },
            value,
        ))
    }

    /// Whether a value fits.
    pub(crate) fn check(&self, value: &Value) -> Result<(), Unfit> {
        if self
            .recursion
            .as_ref()
            .is_some_and(|graph| !cost::is_bounded(graph, value))
        {
            return Err(Unfit::TooCostly);
        }
        if self.validator.is_valid(value) {
            return Ok(());
        }
        let mut errors = self.validator.iter_errors(value);
        let mut shown: Vec<Miss> = errors
            .by_ref()
            .take(MAX_MISSES_READ)
            .map(|error| miss(&error))
            .collect();
        shown.sort();
        let more = shown.len().saturating_sub(MAX_MISSES_SHOWN);
        shown.truncate(MAX_MISSES_SHOWN);
        Err(Unfit::Misses { shown, more })
    }
}

fn miss(error: &ValidationError<'_>) -> Miss {
    Miss {
        at: cut(error.instance_path().as_str(), MAX_MISS_CHARS),
        rule: cut(error.schema_path().as_str(), MAX_MISS_CHARS),
        text: cut(&error.masked().to_string(), MAX_MISS_CHARS),
    }
}

/// The compiler's own words and the place. Its text repeats the offending part of the schema, which ends with what is
/// wrong, so a long one is cut in front.
fn compiler_text(error: &ValidationError<'_>) -> String {
    let at = place(error.instance_path().as_str());
    format!(
        "{} (at {})",
        cut_end(&error.to_string(), MAX_MISS_CHARS),
        cut(at, MAX_MISS_CHARS)
    )
}
