//! The tools and the decisions that the rows are told with.

use std::sync::Arc;
use std::time::Duration;

use crate::harness::Judge;

use leasehold_json::AcceptedJson;
use leasehold_protocol::Verdict;
use leasehold_tools::{ProbeKind, Registry, SideEffect, ToolSpec};

/// How long each tool may take, milliseconds.
pub(crate) const TIMEOUT_MS: u64 = 1_000;

/// One tool.
pub(crate) fn tool(name: &str, class: SideEffect) -> ToolSpec {
    let schema = r#"{"type":"object","properties":{"n":{"type":"number"}}}"#;
    let timeout = Duration::from_millis(TIMEOUT_MS);
    ToolSpec::new(name, "Made for a row.", schema, class, timeout)
}

/// One tool for each way in which an unknown effect is resolved, and some that end runs.
pub(crate) fn specs() -> Vec<ToolSpec> {
    let remote = SideEffect::RemoteMutation;
    vec![
        tool("look", SideEffect::ReadOnly),
        tool("note", SideEffect::LocalMutation),
        tool("pay", remote),
        tool("pay_fence", remote).with_probe(ProbeKind::Fencing),
        tool("pay_plain", remote).with_probe(ProbeKind::Observing),
        tool("pay_late", remote)
            .with_probe(ProbeKind::Observing)
            .with_refuses_late(true),
        tool("wipe", SideEffect::Destructive)
            .with_probe(ProbeKind::Observing)
            .with_refuses_late(true),
        tool("wipe_fence", SideEffect::Destructive).with_probe(ProbeKind::Fencing),
        tool("close", SideEffect::LocalMutation).with_terminal(true),
        tool("halt", SideEffect::LocalMutation).with_may_abort(true),
    ]
}

pub(crate) fn registry() -> Arc<Registry> {
    registry_of(specs())
}

pub(crate) fn registry_of(specs: Vec<ToolSpec>) -> Arc<Registry> {
    Arc::new(Registry::specs_only(specs).unwrap())
}

/// The usual tools, one of them changed.
pub(crate) fn registry_with(changed: ToolSpec) -> Arc<Registry> {
    let keep = |spec: &ToolSpec| spec.name != changed.name;
    let mut specs: Vec<ToolSpec> = specs().into_iter().filter(keep).collect();
    specs.push(changed);
    registry_of(specs)
}

/// The usual tools without this one.
pub(crate) fn registry_without(name: &str) -> Arc<Registry> {
    registry_of(
        specs()
            .into_iter()
            .filter(|spec| spec.name != name)
            .collect(),
    )
}

/// A decision that calls tools.
pub(crate) fn calls(calls: &[(&str, &str)]) -> String {
    let calls: Vec<String> = calls
        .iter()
        .map(|(tool, arguments)| format!(r#"{{"tool":"{tool}","arguments":{arguments}}}"#))
        .collect();
    format!(r#"{{"kind":"tool_calls","calls":[{}]}}"#, calls.join(","))
}

/// A decision that calls one tool without arguments.
pub(crate) fn call(tool: &str) -> String {
    calls(&[(tool, "{}")])
}

pub(crate) fn complete() -> String {
    r#"{"kind":"complete","result":{"ok":true}}"#.into()
}

/// The policy asks a person.
pub(crate) fn require(capability: &str) -> Verdict {
    Verdict::RequireApproval {
        approval_kind: "payment".into(),
        capability: capability.into(),
        presentation: AcceptedJson::empty_object(),
    }
}

/// A policy that always answers this.
pub(crate) fn always(verdict: Verdict) -> Judge {
    Box::new(move |_| Some(Ok(verdict.clone())))
}
