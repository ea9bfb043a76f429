//! The world that tools change: a ledger of effects that the machines never read, and the probes that look at it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold_json::Digest;
use leasehold_protocol::{Attempt, Effects, Execution, ProbeReply, ProbeRequest, RunId, StepId};
use leasehold_tools::{ProbeKind, Registry, SideEffect, ToolSpec};

/// How long each simulated tool may take, milliseconds.
pub(crate) const TIMEOUT_MS: u64 = 400;

/// The tools of every schedule: one for each way an unknown effect can be resolved.
pub(crate) fn registry() -> Arc<Registry> {
    // Compiled once: ten thousand schedules share it.
    static TOOLS: OnceLock<Arc<Registry>> = OnceLock::new();
    TOOLS.get_or_init(assemble).clone()
}

fn assemble() -> Arc<Registry> {
    let tool = |name: &str, class| {
        ToolSpec::new(
            name,
            "Simulated.",
            r#"{"type":"object"}"#,
            class,
            Duration::from_millis(TIMEOUT_MS),
        )
    };
    let specs = vec![
        tool("look", SideEffect::ReadOnly),
        tool("pay_late", SideEffect::RemoteMutation)
            .with_probe(ProbeKind::Observing)
            .with_refuses_late(true),
        tool("pay_fence", SideEffect::RemoteMutation).with_probe(ProbeKind::Fencing),
        tool("pay_plain", SideEffect::RemoteMutation).with_probe(ProbeKind::Observing),
        tool("pay_none", SideEffect::LocalMutation),
        tool("wipe", SideEffect::Destructive),
        tool("close", SideEffect::LocalMutation).with_terminal(true),
    ];
    // The list is fixed and every entry is valid; an empty registry would fail every schedule at once.
    Arc::new(Registry::specs_only(specs).unwrap_or_default())
}

/// The tools an agent may pick before it closes.
pub(crate) const PICKS: [&str; 6] = [
    "look",
    "pay_late",
    "pay_fence",
    "pay_plain",
    "pay_none",
    "wipe",
];

#[derive(Debug, Default)]
pub(crate) struct Outside {
    pub(crate) effects: BTreeMap<RunId, Effects>,
    by_key: BTreeMap<Digest, u32>,
    fenced: BTreeMap<Digest, Attempt>,
    refused: BTreeSet<(Digest, Attempt)>,
}

impl Outside {
    /// A request reaches the service. `true`: it took effect.
    pub(crate) fn land(&mut self, execution: &Execution, wall: i64) -> bool {
        let call = &execution.envelope;
        let late = call.tool == "pay_late" && wall > execution.deadline_wall;
        let fenced = self
            .fenced
            .get(&call.idempotency_key)
            .is_some_and(|upto| call.attempt <= *upto);
        if late || fenced {
            self.refused.insert((call.idempotency_key, call.attempt));
            return false;
        }
        *self
            .effects
            .entry(call.run.clone())
            .or_default()
            .entry((call.step, call.attempt))
            .or_default() += 1;
        *self.by_key.entry(call.idempotency_key).or_default() += 1;
        true
    }

    pub(crate) fn probe(&mut self, request: &ProbeRequest) -> ProbeReply {
        if self.by_key.contains_key(&request.idempotency_key) {
            let result =
                leasehold_protocol::Payload::Json(leasehold_json::AcceptedJson::empty_object());
            return ProbeReply::Done { result };
        }
        if request.chain.tool == "pay_fence" {
            self.fenced
                .insert(request.idempotency_key, request.chain.attempt);
        }
        ProbeReply::NotDone
    }

    pub(crate) fn happened(&self, run: &RunId, step: StepId) -> bool {
        self.effects
            .get(run)
            .is_some_and(|effects| effects.keys().any(|(id, _)| *id == step))
    }
}
