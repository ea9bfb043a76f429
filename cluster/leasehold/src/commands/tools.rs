//! `leasehold tools check`: everything that is wrong with a tools file, or a table of what it declares.

use std::path::PathBuf;

use leasehold_tools::{CompiledTool, Origin, Registry};
use leasehold_workers::ToolsFileError;
use serde::Serialize;

use super::Context;
use crate::failure::{Exit, Failure};
use crate::say;
use crate::table::{cell, table, text};
use crate::variables::Variable;
use crate::view::code;

/// What is done with tools.
#[derive(Debug, Clone, clap::Subcommand)]
pub(crate) enum ToolsCommand {
    /// Check a tools file: every error with its line, or a table of its tools
    Check(CheckArgs),
}

/// Arguments of `leasehold tools check`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct CheckArgs {
    /// The tools file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// A value for ${NAME} in the file; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<Variable>,
}

#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    errors: &'a [ToolsFileError],
    tools: Vec<ToolRow>,
}

#[derive(Serialize)]
struct ToolRow {
    name: String,
    class: &'static str,
    trust: String,
    /// `command`, `http`, `sandbox` or `elsewhere`.
    runs: String,
    results: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    probe: Option<String>,
    refuses_late: bool,
    terminal: bool,
    timeout_ms: u64,
    spec: String,
}

pub(crate) fn run(context: Context<'_>, command: ToolsCommand) -> Result<Exit, Failure> {
    let ToolsCommand::Check(args) = command;
    let value = |name: &str| Variable::value(&args.set, name);
    let file = match leasehold_workers::load(&args.file, &value) {
        Ok(file) => file,
        Err(errors) if context.json => {
            say::json(&Report {
                ok: false,
                errors: errors.errors(),
                tools: Vec::new(),
            })?;
            return Ok(Exit::Usage);
        }
        Err(errors) => return Err(Failure::usage(errors)),
    };
    let registry = Registry::assemble(file.into_registered()).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Failure::usage(lines.join("\n"))
    })?;
    let tools: Vec<ToolRow> = registry
        .iter()
        .map(|tool| ToolRow::of(tool, registry.origin(&tool.spec().name)))
        .collect();
    if context.json {
        say::json(&Report {
            ok: true,
            errors: &[],
            tools,
        })?;
        return Ok(Exit::Done);
    }
    let mut shown = table(&[
        "TOOL", "CLASS", "TRUST", "RUNS", "RESULTS", "PROBE", "TIMEOUT", "SPEC",
    ]);
    for tool in tools {
        let probe = tool.probe.unwrap_or_else(|| "-".to_owned());
        let late = if tool.refuses_late {
            ", refuses late"
        } else {
            ""
        };
        shown.add_row([
            cell(&tool.name),
            tool.class.to_owned(),
            tool.trust,
            tool.runs,
            tool.results,
            format!("{probe}{late}"),
            format!("{} ms", tool.timeout_ms),
            tool.spec,
        ]);
    }
    say::line(&text(&shown))?;
    Ok(Exit::Done)
}

impl ToolRow {
    fn of(tool: &CompiledTool, origin: Option<Origin>) -> Self {
        let spec = tool.spec();
        Self {
            name: spec.name.clone(),
            class: spec.side_effect.as_str(),
            trust: code(&spec.trust),
            runs: origin.as_ref().map(code).unwrap_or_default(),
            results: code(&spec.result_trust),
            probe: spec.probe.as_ref().map(code),
            refuses_late: spec.refuses_late,
            terminal: spec.terminal,
            timeout_ms: spec.timeout_ms,
            spec: tool.spec_hash().to_string(),
        }
    }
}
