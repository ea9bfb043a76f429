//! The one check of a tool's specification and of a call's arguments.
//!
//! Registration, the stand-alone check and the runtime all come through here, so that a refusal has the same text
//! wherever it is met. Everything is safe for concurrent use.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use leasehold_json::{AcceptedJson, Digest, Kept, Refusal};
use thiserror::Error;

use crate::{
    name::{NameError, ToolName},
    normalise::Normaliser,
    schema::{Miss, References, Schema, SchemaError, Unfit},
    spec::ToolSpec,
    text::{cut, place},
};

/// How many compiled tools [`check_arguments`] keeps: an agent's toolset in the usual case, and a few hundred KiB.
const CACHED_TOOLS: usize = 16;

/// The most characters of a name in an error.
const MAX_NAME_SHOWN: usize = 128;

/// Why a specification is refused: everything that is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("tool {:?} is refused: {}", cut(.tool, MAX_NAME_SHOWN), joined(.problems))]
pub struct SpecError {
    /// The name as it was given.
    pub tool: String,
    /// What is wrong, in the order of the specification's fields; never empty.
    pub problems: Vec<SpecProblem>,
}

/// One thing that is wrong with a specification.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SpecProblem {
    /// The name is empty or too long.
    #[error(transparent)]
    Name(#[from] NameError),
    /// An agent cannot choose a tool that says nothing.
    #[error("the description is empty; say when to call the tool")]
    EmptyDescription,
    /// The schema of the arguments.
    #[error("the input schema {0}")]
    InputSchema(SchemaError),
    /// The schema of the results.
    #[error("the output schema {0}")]
    OutputSchema(SchemaError),
    /// A call could never execute.
    #[error("the timeout is zero; give it at least one millisecond")]
    ZeroTimeout,
    /// `refuses_late` without a probe.
    #[error(
        "refuses_late means something only to a probe, and none is declared; declare the probe or drop it"
    )]
    RefusesLateWithoutProbe,
    /// `max_concurrency` is zero.
    #[error(
        "max_concurrency is zero, so no call could ever run; give it at least 1 or leave it out"
    )]
    ZeroConcurrency,
}

/// Why arguments are refused. The text never holds a value of the arguments.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ArgumentError {
    /// They are not usable JSON.
    #[error("the arguments are not usable JSON: {0}")]
    NotUsable(Refusal),
    /// They hold a number that no double comes near.
    #[error("the number at byte {offset} of the arguments is outside the range of a double")]
    NumberOutOfRange {
        /// Where it stands in the arguments, leading whitespace not counted.
        offset: usize,
    },
    /// They do not fit the input schema.
    #[error("the arguments do not fit the schema: {}", listed(.misses, *.more))]
    Unfit {
        /// Where, in order of place.
        misses: Vec<Miss>,
        /// How many more places there are at least; the count stops at a bound.
        more: usize,
    },
    /// A recursive schema would have to be applied too often.
    #[error(
        "the arguments nest the schema's recursion too deep to be checked; send a flatter value"
    )]
    TooCostly,
    /// The specification itself is refused (only from [`check_arguments`]).
    #[error(transparent)]
    Spec(#[from] SpecError),
}

/// A result that is not usable JSON, kept whole: its effect has already happened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the result is not usable JSON: {reason}")]
pub struct InvalidContent {
    /// The bytes as they came.
    pub kept: Kept,
    /// What is wrong with them.
    pub reason: Refusal,
}

/// A specification that passed every check, ready to take arguments. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CompiledTool {
    spec: ToolSpec,
    name: ToolName,
    spec_hash: Digest,
    schema: Schema,
    normaliser: Normaliser,
}

/// Checks a specification by itself: the same check, with the same text, as at registration.
pub fn compile_tool(spec: &ToolSpec) -> Result<CompiledTool, SpecError> {
    let mut problems = Vec::new();
    let name = ToolName::parse(&spec.name)
        .map_err(|error| problems.push(error.into()))
        .ok();
    if spec.description.trim().is_empty() {
        problems.push(SpecProblem::EmptyDescription);
    }
    let compiled = Schema::compile(spec.input_schema.as_str())
        .map_err(|error| problems.push(SpecProblem::InputSchema(error)))
        .ok();
    if let Some(Err(error)) = spec
        .output_schema
        .as_ref()
        .map(|schema| Schema::compile(schema.as_str()))
    {
        problems.push(SpecProblem::OutputSchema(error));
    }
    if spec.timeout_ms == 0 {
        problems.push(SpecProblem::ZeroTimeout);
    }
    if spec.refuses_late && spec.probe.is_none() {
        problems.push(SpecProblem::RefusesLateWithoutProbe);
    }
    if spec.max_concurrency == Some(0) {
        problems.push(SpecProblem::ZeroConcurrency);
    }
    match (name, compiled) {
        (Some(name), Some((schema, tree))) if problems.is_empty() => {
            let references = if spec.keep_blank {
                None
            } else {
                References::scan(&tree).ok()
            };
            let normaliser = references.as_ref().map(Normaliser::of).unwrap_or_default();
            Ok(CompiledTool {
                spec: spec.clone(),
                name,
                spec_hash: spec.hash(),
                schema,
                normaliser,
            })
        }
        _ => Err(SpecError {
            tool: spec.name.clone(),
            problems,
        }),
    }
}

impl CompiledTool {
    /// The specification as registered.
    pub fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// The checked name.
    pub fn name(&self) -> &ToolName {
        &self.name
    }

    /// The identity of the whole specification.
    pub fn spec_hash(&self) -> Digest {
        self.spec_hash
    }

    /// Accepts the arguments of a call: usable JSON, numbers within a double's range, normalised, fitting the schema,
    /// in this order. Nothing but whitespace means `{}`; `null` goes to the schema.
    ///
    /// What comes back is what is hashed, approved and dispatched: the exact bytes that came in, without surrounding
    /// whitespace and without what the normaliser took out.
    pub fn accept_arguments(&self, bytes: &[u8]) -> Result<AcceptedJson, ArgumentError> {
        let accepted = or_empty_object(bytes).map_err(ArgumentError::NotUsable)?;
        accepted
            .numbers_fit_double()
            .map_err(|refusal| ArgumentError::NumberOutOfRange {
                offset: refusal.offset,
            })?;
        let arguments = self
            .normaliser
            .apply(accepted)
            .map_err(ArgumentError::NotUsable)?;
        match self.schema.check(&arguments.to_value()) {
            Ok(()) => Ok(arguments),
            Err(Unfit::Misses { shown, more }) => Err(ArgumentError::Unfit {
                misses: shown,
                more,
            }),
            Err(Unfit::TooCostly) => Err(ArgumentError::TooCostly),
        }
    }
}

#[cfg(test)]
impl CompiledTool {
    /// Normalisation alone, whatever the schema says of the rest.
    pub(crate) fn normalised(&self, arguments: AcceptedJson) -> AcceptedJson {
        self.normaliser.apply(arguments).unwrap()
    }
}

/// Compiles a specification and checks arguments against it in one call. The last few specifications stay compiled.
pub fn check_arguments(spec: &ToolSpec, bytes: &[u8]) -> Result<AcceptedJson, ArgumentError> {
    cached(spec)?.accept_arguments(bytes)
}

/// Accepts what a tool gave back: usable JSON, nothing at all meaning `{}`. Anything else is kept beside the reason.
pub fn accept_result(bytes: &[u8]) -> Result<AcceptedJson, InvalidContent> {
    or_empty_object(bytes).map_err(|reason| InvalidContent {
        kept: Kept::from_bytes(bytes),
        reason,
    })
}

fn or_empty_object(bytes: &[u8]) -> Result<AcceptedJson, Refusal> {
    AcceptedJson::check(bytes).or_else(|refusal| match refusal.is_empty() {
        true => Ok(AcceptedJson::empty_object()),
        false => Err(refusal),
    })
}

/// The most recently used tool stands in front. Refused specifications are not kept: they are rare and never called.
fn cached(spec: &ToolSpec) -> Result<CompiledTool, SpecError> {
    static TOOLS: Mutex<VecDeque<CompiledTool>> = Mutex::new(VecDeque::new());
    let take = || {
        let mut tools = TOOLS.lock().unwrap_or_else(PoisonError::into_inner);
        let at = tools.iter().position(|tool| tool.spec == *spec)?;
        let tool = tools.remove(at)?;
        tools.push_front(tool.clone());
        Some(tool)
    };
    if let Some(tool) = take() {
        return Ok(tool);
    }
    // Compiled outside the lock: one slow schema must not hold up the calls of other tools.
    let tool = compile_tool(spec)?;
    let mut tools = TOOLS.lock().unwrap_or_else(PoisonError::into_inner);
    tools.push_front(tool.clone());
    tools.truncate(CACHED_TOOLS);
    Ok(tool)
}

fn joined(problems: &[SpecProblem]) -> String {
    problems
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

fn listed(misses: &[Miss], more: usize) -> String {
    let places: Vec<String> = misses
        .iter()
        .map(|miss| format!("at {}: {}", place(&miss.at), miss.text))
        .collect();
    let rest = match more {
        0 => String::new(),
        more => format!("; and in at least {more} more places"),
    };
    places.join("; ") + &rest
}
