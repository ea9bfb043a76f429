//! One `[[tool]]` table becomes one registered tool, or its list of errors.
//!
//! Reading goes on after an error, with a harmless value in place of the missing one, so that everything wrong is
//! told at once. A tool with an error is never handed out.

use std::{fs, io::Read, ops::Range, path::Path, sync::Arc, time::Duration};

use leasehold_tools::{
    Annotations, Origin, ProbeKind, Registered, ResultTrust, SideEffect, SpecProblem, Tool,
    ToolSpec, Trust, compile_tool,
};
use toml::{Spanned, de::DeValue};

use super::{
    faults::Faults,
    section::{Section, Vars},
    text::duration,
};
use crate::{command::CommandTool, http::HttpTool, post::HttpClient};

const TOOL_KEYS: [&str; 22] = [
    "name",
    "description",
    "side_effect",
    "timeout",
    "trust",
    "results",
    "terminal",
    "may_abort",
    "probe",
    "refuses_late",
    "keep_blank",
    "max_concurrency",
    "concurrency_key",
    "rate_key",
    "annotations",
    "input_schema",
    "input_schema_file",
    "output_schema",
    "output_schema_file",
    "command",
    "http",
    "elsewhere",
];
const COMMAND_KEYS: [&str; 5] = ["argv", "nothing_happened_exit", "env", "cwd", "probe_argv"];
const HTTP_KEYS: [&str; 2] = ["url", "probe_url"];
const ANNOTATION_KEYS: [&str; 4] = [
    "read_only_hint",
    "destructive_hint",
    "idempotent_hint",
    "open_world_hint",
];

/// The most of a schema file that is read: far more than a schema may have, so that the refusal of a large schema
/// comes from the one place that knows the bound.
const MAX_SCHEMA_FILE: u64 = 4 * 1024 * 1024;

/// What stands for a schema that is missing or unreadable, while the rest is checked.
const ANY_SCHEMA: &str = "{}";

/// What all tools of a file are read with.
pub(super) struct Context<'a> {
    /// The folder that relative paths start from.
    pub(super) folder: &'a Path,
    pub(super) vars: Vars<'a>,
    pub(super) client: &'a HttpClient,
}

/// A tool's implementation as its section describes it.
struct Implementation<'a> {
    origin: Origin,
    /// None if there are errors.
    tool: Option<Arc<dyn Tool>>,
    section: Section<'a>,
    /// The key that names the probe.
    probe_key: &'static str,
}

/// Reads one tool. Without a new fault, it is there.
pub(super) fn read<'a>(
    value: &'a Spanned<DeValue<'a>>,
    context: &Context<'_>,
    faults: &mut Faults<'_>,
) -> Option<Registered> {
    let tool = Section::open(value, "[[tool]]", &TOOL_KEYS, faults)?;
    tool.require(
        "name",
        "it is how agents and policies call the tool",
        faults,
    );
    tool.require("description", "it is what the agent reads", faults);
    tool.require("side_effect", "say what a call may change", faults);
    tool.require(
        "timeout",
        "say how long a call may take, such as \"5s\"",
        faults,
    );
    tool.require(
        "trust",
        "say whose authority it runs with: authoritative or sandboxed",
        faults,
    );

    let trust = [
        ("authoritative", Trust::Authoritative),
        ("sandboxed", Trust::Sandboxed),
    ];
    let trust = tool.choice("trust", &trust, faults);
    let probe = [
        ("observing", ProbeKind::Observing),
        ("fencing", ProbeKind::Fencing),
    ];
    let probe = tool.choice("probe", &probe, faults);
    let elsewhere = tool.flag("elsewhere", faults).unwrap_or_default();
    let implementation = if elsewhere {
        runs_not_here(&tool, trust, faults);
        None
    } else {
        implementation(&tool, trust, context, faults)
    };
    match &implementation {
        Some(found) => check_probe(&tool, found, faults),
        None if trust == Some(Trust::Sandboxed) && tool.has("probe") => faults.add(
            &tool.place("probe"),
            "a sandboxed tool has no probe here; drop the key",
        ),
        None if elsewhere && tool.has("probe") => faults.add(
            &tool.place("probe"),
            "nothing here answers the probe of a tool that is served elsewhere; drop the key",
        ),
        None => {}
    }
    let without = if elsewhere {
        Origin::Elsewhere
    } else {
        Origin::Sandbox
    };
    let origin = implementation
        .as_ref()
        .map_or(without, |found| found.origin);

    let mut spec = spec(&tool, origin, context, faults);
    spec.probe = probe;
    spec.trust = trust.unwrap_or(Trust::Authoritative);
    check_spec(&tool, &spec, faults);
    match (spec.trust, implementation) {
        (Trust::Sandboxed, None) => Some(Registered::sandboxed(spec)),
        (Trust::Authoritative, None) if elsewhere => Some(Registered::elsewhere(spec)),
        (
            Trust::Authoritative,
            Some(Implementation {
                origin,
                tool: Some(tool),
                ..
            }),
        ) => Some(Registered::new(spec, origin, tool)),
        _ => None,
    }
}

/// The name, for the label of errors; errors about it are told when the tool is read.
pub(super) fn name_of<'a>(value: &'a Spanned<DeValue<'a>>) -> Option<(&'a str, Range<usize>)> {
    let name = value.get_ref().as_table()?.get("name")?;
    Some((name.get_ref().as_str()?, name.span()))
}

fn spec(
    tool: &Section<'_>,
    origin: Origin,
    context: &Context<'_>,
    faults: &mut Faults<'_>,
) -> ToolSpec {
    let classes = SideEffect::ALL.map(|class| (class.as_str(), class));
    let timeout = tool
        .string("timeout", faults)
        .and_then(|text| faults.keep(&tool.place("timeout"), duration(text)));
    if !tool.has("input_schema_file") {
        tool.require("input_schema", "give it, or input_schema_file", faults);
    }
    let mut spec = ToolSpec::new(
        tool.string("name", faults).unwrap_or("nameless"),
        tool.string("description", faults).unwrap_or("missing"),
        schema(tool, "input_schema", "input_schema_file", context, faults)
            .unwrap_or_else(|| ANY_SCHEMA.into()),
        tool.choice("side_effect", &classes, faults)
            .unwrap_or(SideEffect::Destructive),
        timeout.unwrap_or(Duration::from_secs(1)),
    );
    let results = [
        ("trusted", ResultTrust::Trusted),
        ("untrusted", ResultTrust::Untrusted),
    ];
    spec.result_trust = tool
        .choice("results", &results, faults)
        .unwrap_or_else(|| origin.default_result_trust());
    spec.output_schema =
        schema(tool, "output_schema", "output_schema_file", context, faults).map(Into::into);
    spec.terminal = tool.flag("terminal", faults).unwrap_or_default();
    spec.may_abort = tool.flag("may_abort", faults).unwrap_or_default();
    spec.refuses_late = tool.flag("refuses_late", faults).unwrap_or_default();
    spec.keep_blank = tool.flag("keep_blank", faults).unwrap_or_default();
    spec.max_concurrency = tool.count("max_concurrency", faults);
    // A bound without a key is the tool's own.
    let own = spec.max_concurrency.map(|_| spec.name.clone());
    spec.concurrency_key = tool
        .string("concurrency_key", faults)
        .map(Into::into)
        .or(own);
    spec.rate_key = tool.string("rate_key", faults).map(Into::into);
    if let Some(hints) = tool.value("annotations")
        && let Some(hints) = Section::open(hints, "[tool.annotations]", &ANNOTATION_KEYS, faults)
    {
        spec.annotations = Annotations {
            read_only_hint: hints.flag("read_only_hint", faults),
            destructive_hint: hints.flag("destructive_hint", faults),
            idempotent_hint: hints.flag("idempotent_hint", faults),
            open_world_hint: hints.flag("open_world_hint", faults),
        };
    }
    spec
}

/// The text of a schema, from the file itself or from one beside it.
fn schema(
    tool: &Section<'_>,
    key: &str,
    file_key: &str,
    context: &Context<'_>,
    faults: &mut Faults<'_>,
) -> Option<String> {
    let text = tool.string(key, faults).map(str::to_owned);
    let path = tool.string(file_key, faults);
    if tool.has(key) && tool.has(file_key) {
        let both = format!("{key} and {file_key} are both given; keep one");
        faults.add(&tool.place(file_key), both);
        return text;
    }
    match path {
        Some(path) => faults.keep(&tool.place(file_key), schema_file(context.folder, path)),
        None => text,
    }
}

fn schema_file(folder: &Path, path: &str) -> Result<String, String> {
    if Path::new(path).is_absolute() {
        return Err(format!(
            "the schema file {path:?} is absolute; write it relative to this file"
        ));
    }
    let read = || {
        let file = fs::File::open(folder.join(path))?;
        // A pipe or a device would be waited for.
        if !file.metadata()?.is_file() {
            return Err(std::io::Error::other("it is no regular file"));
        }
        let mut text = String::new();
        file.take(MAX_SCHEMA_FILE).read_to_string(&mut text)?;
        Ok(text)
    };
    read().map_err(|error| format!("the schema file {path:?} cannot be read: {error}"))
}

/// Tells what the specification's own check refuses, each at its key.
fn check_spec(tool: &Section<'_>, spec: &ToolSpec, faults: &mut Faults<'_>) {
    let Err(refused) = compile_tool(spec) else {
        return;
    };
    let either = |key, file_key| if tool.has(key) { key } else { file_key };
    for problem in refused.problems {
        let key = match problem {
            SpecProblem::Name(_) => "name",
            SpecProblem::EmptyDescription => "description",
            SpecProblem::InputSchema(_) => either("input_schema", "input_schema_file"),
            SpecProblem::OutputSchema(_) => either("output_schema", "output_schema_file"),
            SpecProblem::ZeroTimeout => "timeout",
            SpecProblem::ZeroConcurrency => "max_concurrency",
            // Its own errors were told where it stands, and it may be there but unusable.
            SpecProblem::RefusesLateWithoutProbe if tool.has("probe") => continue,
            SpecProblem::RefusesLateWithoutProbe => "refuses_late",
            _ => "name",
        };
        faults.add(&tool.place(key), problem.to_string());
    }
}

/// What contradicts that workers elsewhere serve the tool.
fn runs_not_here(tool: &Section<'_>, trust: Option<Trust>, faults: &mut Faults<'_>) {
    for key in ["command", "http"] {
        if tool.has(key) {
            faults.add(
                &tool.place(key),
                "a tool that is served elsewhere does not run here; remove this section, or elsewhere",
            );
        }
    }
    if trust == Some(Trust::Sandboxed) {
        faults.add(
            &tool.place("elsewhere"),
            "a sandboxed tool is run by an executor; remove elsewhere, or declare the tool authoritative",
        );
    }
}

/// The one section that says how the tool runs.
fn implementation<'a>(
    tool: &Section<'a>,
    trust: Option<Trust>,
    context: &Context<'_>,
    faults: &mut Faults<'_>,
) -> Option<Implementation<'a>> {
    match (tool.value("command"), tool.value("http")) {
        (Some(_), Some(http)) => {
            faults.add(
                &http.span(),
                "[tool.command] and [tool.http] are both given; keep one",
            );
            None
        }
        (None, None) => {
            if trust == Some(Trust::Authoritative) {
                tool.require(
                    "command",
                    "say how it runs: give [tool.command] or [tool.http], or elsewhere = true if workers serve it that do not read this file",
                    faults,
                );
            }
            None
        }
        (Some(section), None) | (None, Some(section)) if trust == Some(Trust::Sandboxed) => {
            faults.add(
                &section.span(),
                "a sandboxed tool is run by an executor; remove this section, or declare the tool authoritative",
            );
            None
        }
        (Some(command), None) => {
            let section = Section::open(command, "[tool.command]", &COMMAND_KEYS, faults)?;
            let tool = command_tool(&section, context, faults).map(|tool| Arc::new(tool) as _);
            let probe_key = "probe_argv";
            Some(Implementation {
                origin: Origin::Command,
                tool,
                section,
                probe_key,
            })
        }
        (None, Some(http)) => {
            let section = Section::open(http, "[tool.http]", &HTTP_KEYS, faults)?;
            let tool = http_tool(&section, context, faults).map(|tool| Arc::new(tool) as _);
            let probe_key = "probe_url";
            Some(Implementation {
                origin: Origin::Http,
                tool,
                section,
                probe_key,
            })
        }
    }
}

fn check_probe(tool: &Section<'_>, found: &Implementation<'_>, faults: &mut Faults<'_>) {
    let key = found.probe_key;
    match (tool.has("probe"), found.section.has(key)) {
        (true, false) => faults.add(
            &tool.place("probe"),
            format!("a probe is declared but nothing answers it; give {key}, or drop probe"),
        ),
        (false, true) => faults.add(
            &found.section.place(key),
            format!("{key} is given but no probe is declared; add probe = \"observing\" or \"fencing\" to the tool"),
        ),
        _ => {}
    }
}

fn command_tool(
    section: &Section<'_>,
    context: &Context<'_>,
    faults: &mut Faults<'_>,
) -> Option<CommandTool> {
    section.require("argv", "name the program and its arguments", faults);
    let argv = section.all_expanded("argv", context.vars, faults);
    let probe = section.all_expanded("probe_argv", context.vars, faults);
    let exits = section.numbers("nothing_happened_exit", faults);
    let env = section.strings("env", faults);
    let cwd = section.expanded("cwd", context.vars, faults);

    // Each part is tried on its own, so that one error hides no other.
    let tool = argv.and_then(|argv| faults.keep(&section.place("argv"), CommandTool::new(argv)));
    let mut tool = tool.or_else(|| CommandTool::new(["missing"]).ok())?;
    if let Some(probe) = probe {
        let at = section.place("probe_argv");
        tool = faults
            .keep(&at, tool.clone().with_probe(probe))
            .unwrap_or(tool);
    }
    if let Some(exits) = exits {
        let at = section.place("nothing_happened_exit");
        tool = faults
            .keep(&at, tool.clone().with_nothing_happened_exit(exits))
            .unwrap_or(tool);
    }
    if let Some(env) = env {
        let names = env.into_iter().map(|(name, _)| name);
        tool = faults
            .keep(&section.place("env"), tool.clone().with_env(names))
            .unwrap_or(tool);
    }
    Some(match cwd {
        Some(cwd) => tool.with_cwd(context.folder.join(cwd)),
        None => tool,
    })
}

fn http_tool(
    section: &Section<'_>,
    context: &Context<'_>,
    faults: &mut Faults<'_>,
) -> Option<HttpTool> {
    section.require("url", "say where the service is", faults);
    let url = section.expanded("url", context.vars, faults);
    let probe = section.expanded("probe_url", context.vars, faults);
    // Each part is tried on its own, so that one error hides no other.
    let tool =
        url.and_then(|url| faults.keep(&section.place("url"), HttpTool::new(context.client, &url)));
    match probe {
        None => tool,
        Some(probe) => {
            let tool = tool.or_else(|| HttpTool::new(context.client, "http://missing").ok())?;
            faults.keep(&section.place("probe_url"), tool.with_probe(&probe))
        }
    }
}
