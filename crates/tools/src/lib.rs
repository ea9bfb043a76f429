//! What a tool is: its specification, the acceptance of its arguments and results, and the trait that runs it.

mod builder;
mod name;
mod spec;
mod tool;

pub use name::{
    MAX_NAME_CHARS, NameError, TokenError, ToolName, from_subject_token, subject_token,
};
pub use spec::{
    Annotations, ProbeKind, ResultTrust, SchemaText, SideEffect, ToolSpec, Trust, UnknownSideEffect,
};
pub use tool::{
    Call, Failure, Origin, ProbeAnswer, ProbeError, ProbeQuestion, Tool, ToolError, ToolOutput,
};
