//! A3 and the order of S7: what a registry refuses before any run, and what it answers.

use std::sync::Arc;

use super::{idle, spec};
use crate::{AssemblyError, Origin, ProbeKind, Registered, Registry, SideEffect, ToolSpec, Trust};

fn named(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        ..spec("true")
    }
}

#[test]
fn a3_every_contradiction_is_refused_at_once_in_declared_order() {
    let sandboxed = |name: &str| named(name).with_trust(Trust::Sandboxed);
    let errors = Registry::assemble(vec![
        Registered {
            implementation: None,
            ..Registered::new(named("a"), Origin::Rust, idle())
        },
        Registered::new(sandboxed("b"), Origin::Sandbox, idle()),
        Registered::new(named("ok"), Origin::Http, idle()),
        Registered {
            implementation: None,
            ..Registered::new(sandboxed("c"), Origin::Mcp, idle())
        },
        Registered::new(sandboxed("d"), Origin::Mcp, idle()),
        Registered::new(named("ok"), Origin::Command, idle()),
        Registered::new(
            ToolSpec {
                timeout_ms: 0,
                ..named("e")
            },
            Origin::Rust,
            idle(),
        ),
        Registered::sandboxed(sandboxed("f")),
    ])
    .unwrap_err();
    let tool = |name: &str| name.to_owned();
    let [a, b, c, d, ok, AssemblyError::Spec(e)] = errors.as_slice() else {
        panic!("{errors:?}")
    };
    assert_eq!(*a, AssemblyError::NothingToRun { tool: tool("a") });
    assert_eq!(
        *b,
        AssemblyError::SandboxedWithImplementation { tool: tool("b") }
    );
    assert_eq!(*c, AssemblyError::SandboxedFromMcp { tool: tool("c") });
    assert_eq!(*d, AssemblyError::SandboxedFromMcp { tool: tool("d") });
    assert_eq!(*ok, AssemblyError::DuplicateName { tool: tool("ok") });
    assert_eq!(e.tool, "e");
}

#[test]
fn a3_a_tool_that_is_served_elsewhere_needs_nothing_here_and_may_have_nothing_here() {
    let assembled = Registry::assemble(vec![
        Registered::elsewhere(named("far")),
        Registered::new(named("near"), Origin::Rust, idle()),
    ])
    .unwrap();
    assert_eq!(assembled.elsewhere().collect::<Vec<_>>(), ["far"]);
    assert_eq!(assembled.origin("far"), Some(Origin::Elsewhere));
    assert!(assembled.implementation("far").is_none());
    assert_eq!(assembled.len(), 2);

    let errors = Registry::assemble(vec![
        Registered::new(named("both"), Origin::Elsewhere, idle()),
        Registered::elsewhere(named("without").with_trust(Trust::Sandboxed)),
    ])
    .unwrap_err();
    let tool = |name: &str| name.to_owned();
    assert_eq!(
        errors,
        [
            AssemblyError::ElsewhereWithImplementation { tool: tool("both") },
            AssemblyError::SandboxedElsewhere {
                tool: tool("without")
            }
        ]
    );
}

#[test]
fn a3_a_tool_that_is_wrong_twice_is_told_twice() {
    let wrong = Registered {
        implementation: None,
        ..Registered::new(spec("[]"), Origin::Rust, idle())
    };
    let errors = Registry::assemble(vec![wrong]).unwrap_err();
    assert!(
        matches!(
            errors.as_slice(),
            [AssemblyError::Spec(_), AssemblyError::NothingToRun { .. }]
        ),
        "{errors:?}"
    );
}

#[test]
fn s11_a_duplicate_name_is_refused_also_among_specs_alone() {
    let errors =
        Registry::specs_only(vec![named("a"), named("b"), named("a"), named("a")]).unwrap_err();
    let twice = AssemblyError::DuplicateName { tool: "a".into() };
    assert_eq!(errors, [twice.clone(), twice]);
}

#[test]
fn s7_tools_come_in_declared_order_and_by_name() {
    let names = ["zeta", "alpha", "a.b", "a_b", "Alpha"];
    let implementations: Vec<_> = names.iter().map(|_| idle()).collect();
    let tools = names.iter().zip(&implementations);
    let registry = Registry::assemble(
        tools
            .map(|(name, run)| Registered::new(named(name), Origin::Rust, run.clone()))
            .collect(),
    )
    .unwrap();
    assert_eq!(
        registry
            .iter()
            .map(|tool| tool.name().as_str())
            .collect::<Vec<_>>(),
        names
    );
    for (name, run) in names.iter().zip(&implementations) {
        assert_eq!(registry.get(name).unwrap().name().as_str(), *name);
        assert!(Arc::ptr_eq(&registry.implementation(name).unwrap(), run));
    }
    assert!(registry.get("ALPHA").is_none() && registry.implementation("").is_none());
    assert!(Registry::specs_only(Vec::new()).unwrap().is_empty());
}

#[test]
fn a3_a_destructive_tool_with_an_observing_probe_may_be_assembled() {
    let destructive = ToolSpec {
        side_effect: SideEffect::Destructive,
        ..named("drop")
    }
    .with_probe(ProbeKind::Observing);
    assert!(Registry::assemble(vec![Registered::new(destructive, Origin::Rust, idle())]).is_ok());
}
