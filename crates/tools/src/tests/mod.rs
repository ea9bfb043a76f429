//! Tests over the whole crate, one file per group of rows, and what they share.

mod arguments;
mod assembly;
mod normaliser;
mod references;
mod results;
mod specs;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    ArgumentError, Call, CompiledTool, SchemaError, SideEffect, SpecError, SpecProblem, Tool,
    ToolError, ToolOutput, ToolSpec, compile_tool,
};

/// A specification that is right in everything but perhaps its schema.
fn spec(schema: &str) -> ToolSpec {
    ToolSpec::new(
        "lookup_order",
        "Looks up one order.",
        schema,
        SideEffect::ReadOnly,
        Duration::from_secs(5),
    )
}

fn tool(schema: &str) -> CompiledTool {
    compile_tool(&spec(schema)).unwrap()
}

fn refused(schema: &str) -> SpecError {
    compile_tool(&spec(schema)).unwrap_err()
}

/// Why a schema is refused, if that is the only thing wrong.
fn schema_error(schema: &str) -> SchemaError {
    match refused(schema).problems.as_slice() {
        [SpecProblem::InputSchema(error)] => error.clone(),
        other => panic!("expected one schema error, found {other:?}"),
    }
}

/// The text that a call with these arguments carries.
fn accepted(tool: &CompiledTool, arguments: &str) -> Result<String, ArgumentError> {
    tool.accept_arguments(arguments.as_bytes())
        .map(|arguments| arguments.as_str().to_owned())
}

/// An implementation that is never called.
fn idle() -> Arc<dyn Tool> {
    struct Idle;

    #[async_trait]
    impl Tool for Idle {
        async fn call(&self, _: Call) -> Result<ToolOutput, ToolError> {
            Ok(ToolOutput::default())
        }
    }

    Arc::new(Idle)
}
