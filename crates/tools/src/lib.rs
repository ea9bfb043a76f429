//! What a tool is: its specification, the acceptance of its arguments and results, and the trait that runs it.
//!
//! A [`ToolSpec`] is data; [`compile_tool`] checks it and gives a [`CompiledTool`] that accepts arguments; a
//! [`Registry`] holds the tools of one process with what runs them, each a [`Tool`].
//!
//! ```
//! use std::time::Duration;
//! use leasehold_tools::{SideEffect, ToolSpec, compile_tool};
//!
//! let schema = r#"{"type":"object","properties":{"order":{"type":"string"},"note":{"type":"string"}},"required":["order"]}"#;
//! let spec = ToolSpec::new("lookup_order", "Looks up one order by its id.", schema, SideEffect::ReadOnly, Duration::from_secs(5));
//! let tool = compile_tool(&spec)?;
//!
//! let arguments = tool.accept_arguments(br#"{"order": "A-7", "note": " "}"#)?;
//! assert_eq!(arguments.as_str(), r#"{"order": "A-7"}"#);
//!
//! let refused = tool.accept_arguments(br#"{"order": 7}"#).unwrap_err();
//! assert_eq!(refused.to_string(), r#"the arguments do not fit the schema: at /order: value is not of type "string""#);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod builder;
mod compile;
mod members;
mod name;
mod normalise;
mod registry;
mod schema;
mod spec;
#[cfg(test)]
mod tests;
mod text;
mod tool;

pub use compile::{
    ArgumentError, CompiledTool, InvalidContent, SpecError, SpecProblem, accept_result,
    check_arguments, compile_tool,
};
pub use name::{
    MAX_NAME_CHARS, NameError, TokenError, ToolName, from_subject_token, subject_token,
};
pub use registry::{AssemblyError, Registered, Registry};
pub use schema::{MAX_REFERENCE_PATHS, MAX_SCHEMA_BYTES, Miss, SchemaError};
pub use spec::{
    Annotations, ProbeKind, ResultTrust, SchemaText, SideEffect, ToolSpec, Trust, UnknownSideEffect,
};
pub use text::cut as cut_text;
pub use tool::{
    Call, Failure, Origin, ProbeAnswer, ProbeError, ProbeQuestion, Tool, ToolError, ToolOutput,
};
