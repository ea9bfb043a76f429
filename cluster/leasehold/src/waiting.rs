//! Calls that are dispatched and not settled: whether a worker has one, or all of them wait for a worker.
//!
//! The journal cannot tell: it says the same from dispatch to outcome. The claim in the call's chain does, so that is read too, but only
//! of calls of the tool that is asked about, and only in runs that are not over.

use leasehold_protocol::{Chain, ChainKey, ChainMessage, ClaimBody, RunState, StepId};
use leasehold_store::{Backend, StoreError};
use leasehold_tools::SideEffect;
use serde::{Deserialize, Serialize};

use crate::material::Material;
use crate::view::{IN_FLIGHT, RunSummary};

/// Where a call stands that its run's owner has not settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub(crate) enum CallStand {
    /// No worker has taken it.
    Waits,
    /// This worker has it, or had it when it died.
    Claimed {
        /// Its name.
        worker: String,
    },
    /// It waits or is executed; of calls that only read, workers say nothing before the result.
    WaitsOrRuns,
    /// What came of it is stored; the run's owner has not taken it in yet.
    Answered,
    /// It was taken back before any worker had it.
    Revoked,
}

impl CallStand {
    fn of(class: SideEffect, messages: &[ChainMessage]) -> Self {
        let chain = Chain::read(class, messages);
        if chain.outcome.is_some() {
            return CallStand::Answered;
        }
        match chain.claim {
            Some((_, ClaimBody::Claim { worker, .. })) => CallStand::Claimed {
                worker: worker.to_string(),
            },
            Some((_, ClaimBody::Revoke { .. })) => CallStand::Revoked,
            None if class == SideEffect::ReadOnly => CallStand::WaitsOrRuns,
            None => CallStand::Waits,
        }
    }

    /// In one word for a table.
    pub(crate) fn word(&self) -> String {
        match self {
            CallStand::Waits => "waits".to_owned(),
            CallStand::Claimed { worker } => format!("claimed_by_{worker}"),
            CallStand::WaitsOrRuns => "waits_or_runs".to_owned(),
            CallStand::Answered => "answered".to_owned(),
            CallStand::Revoked => "revoked".to_owned(),
        }
    }
}

/// The runs that have a step of this tool that is not over, and where its call stands; those first of which one waits; of each, only these steps are shown as open.
pub(crate) async fn calls_of(
    store: &dyn Backend,
    tool: &str,
    class: SideEffect,
) -> Result<Vec<RunSummary>, StoreError> {
    let mut runs = Vec::new();
    for head in store.open_runs().await? {
        let Some(material) = Material::journal(store, &head.run).await? else {
            continue;
        };
        // What cannot be read is shown by the plain list.
        let Ok(state) = material.state() else {
            continue;
        };
        let mut run = RunSummary::of_state(&state);
        run.open.retain(|step| step.tool == tool);
        for open in run.open.iter_mut().filter(|step| step.phase == IN_FLIGHT) {
            if let Some(chain) = chain(&state, open.step, tool) {
                let messages = store.read_chain(&chain).await?;
                open.stands = Some(CallStand::of(class, &messages));
            }
        }
        if !run.open.is_empty() {
            runs.push(run);
        }
    }
    runs.sort_by(|a, b| {
        let key = |run: &RunSummary| (waiting(run) == 0, run.run.to_string());
        key(a).cmp(&key(b))
    });
    Ok(runs)
}

/// How many calls of a run wait for a worker.
pub(crate) fn waiting(run: &RunSummary) -> usize {
    let waits = run.open.iter();
    waits
        .filter(|step| step.stands == Some(CallStand::Waits))
        .count()
}

/// The chain of a step's last attempt.
fn chain(state: &RunState, step: StepId, tool: &str) -> Option<ChainKey> {
    let attempt = state.step(step)?.attempts.last()?;
    Some(ChainKey {
        run: state.run.clone(),
        tool: tool.to_owned(),
        step,
        attempt: attempt.attempt,
        origin: attempt.origin.clone(),
    })
}
