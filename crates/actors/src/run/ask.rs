//! The questions of a run's machine to code that is not this project's: agent, policy, probe, hook; and to the worker that claimed.
//!
//! A panic or an absurd answer of any of them is an answer like any other. None of them can hold a run up for ever: each wait has a bound.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_json::Kept;
use leasehold_protocol::{
    AgentView, ChainKey, HookAnswer, Input, InspectAnswer, PolicyRequest, ProbeReply, ProbeRequest,
    RunId, WorkerId,
};
use leasehold_tools::{ProbeAnswer, ProbeError, ProbeQuestion, accept_result};
use tokio::time::timeout;

use super::RunMsg;
use crate::points::Point;
use crate::shared::{Shared, said};
use crate::tasks::{caught, panic_text};

/// How long an agent may think about one turn. Slow models take minutes; one that takes longer is not coming back.
const AGENT_WAIT: Duration = Duration::from_secs(600);
/// How long a probe may take. It only looks something up; what it does not say in time is unknown, and the ladder goes on.
const PROBE_WAIT: Duration = Duration::from_secs(10);
/// How long a takeover hook may take.
const HOOK_WAIT: Duration = Duration::from_secs(30);
/// How long a worker may take to settle what it is asked about. Beyond it the ladder goes on as if nobody had answered.
const INSPECT_WAIT: Duration = Duration::from_secs(5);
/// Longest decision, of an agent or of a hook, in bytes. It stands verbatim in a commit; a commit has to fit every backend's largest
/// message.
const MAX_DECISION: usize = 256 * 1024;

/// Asks whoever holds the logbook of a claim.
#[async_trait]
pub(crate) trait Inspector: Send + Sync + 'static {
    /// Whether the attempt is being executed. If not, whatever is known of it is written before the answer.
    async fn inspect(&self, chain: &ChainKey, worker: &WorkerId) -> InspectAnswer;
}

pub(super) async fn inspect(
    shared: Arc<Shared>,
    inspector: Arc<dyn Inspector>,
    chain: ChainKey,
    worker: WorkerId,
) -> RunMsg {
    shared.reach(Point::C1, &chain.run, Some(&chain)).await;
    let answer = timeout(INSPECT_WAIT, inspector.inspect(&chain, &worker))
        .await
        .unwrap_or(InspectAnswer::NoAnswer);
    RunMsg::input(Input::Inspected {
        step: chain.step,
        attempt: chain.attempt,
        answer,
    })
}

pub(super) async fn agent(shared: Arc<Shared>, view: AgentView) -> RunMsg {
    let turn = view.turn;
    let decided = match shared.agents.get(&view.agent) {
        None => Err(format!("no agent is called {:?} here", view.agent)),
        Some(agent) => match timeout(AGENT_WAIT, caught(agent.decide(view))).await {
            Err(_) => Err(format!(
                "the agent did not decide within {} s",
                AGENT_WAIT.as_secs()
            )),
            Ok(Err(panic)) => Err(format!("the agent panicked: {panic}")),
            Ok(Ok(Err(error))) => Err(error.to_string()),
            Ok(Ok(Ok(decision))) if decision.len() > MAX_DECISION => Err(format!(
                "the agent's decision has {} bytes; at most {MAX_DECISION} are recorded",
                decision.len()
            )),
            Ok(Ok(Ok(decision))) => Ok(Kept::from_bytes(&decision)),
        },
    };
    RunMsg::input(match decided {
        Ok(decision) => Input::AgentDecided { turn, decision },
        Err(error) => Input::AgentFailed {
            turn,
            error: said(error),
        },
    })
}

/// Policies answer from memory: asked in the handler itself.
pub(super) fn policy(shared: &Shared, request: PolicyRequest) -> Input {
    let spec = shared.tools.get(&request.tool).map(|tool| tool.spec());
    let judged = std::panic::catch_unwind(AssertUnwindSafe(|| {
        (
            shared.policy.identity(),
            shared.policy.judge(&request, spec),
        )
    }));
    let (policy, verdict) = judged.unwrap_or_else(|panic| {
        (
            "unknown".to_owned(),
            Err(format!("the policy panicked: {}", panic_text(&*panic))),
        )
    });
    let verdict = verdict.map_err(said);
    Input::Judged {
        step: request.step,
        policy,
        verdict,
    }
}

pub(super) async fn hook(shared: Arc<Shared>, run: RunId) -> RunMsg {
    let answer = match &shared.hook {
        None => HookAnswer::Continue,
        Some(hook) => match timeout(HOOK_WAIT, caught(hook.taken_over(&run))).await {
            Ok(Ok(answer)) => match recorded(&answer) {
                bytes if bytes > MAX_DECISION => HookAnswer::Error {
                    error: format!(
                        "the takeover hook's answer has {bytes} bytes; at most {MAX_DECISION} are recorded"
                    ),
                },
                _ => answer,
            },
            Ok(Err(panic)) => HookAnswer::Error {
                error: format!("the takeover hook panicked: {panic}"),
            },
            Err(_) => HookAnswer::Error {
                error: format!(
                    "the takeover hook did not answer within {} s",
                    HOOK_WAIT.as_secs()
                ),
            },
        },
    };
    RunMsg::input(Input::HookAnswered(answer))
}

/// How many bytes of a hook's answer go into the journal.
fn recorded(answer: &HookAnswer) -> usize {
    match answer {
        HookAnswer::Continue => 0,
        HookAnswer::Completed { result } => result.as_bytes().len(),
        HookAnswer::Waiting {
            approval_kind,
            capability,
            presentation,
        } => approval_kind.len() + capability.len() + presentation.as_bytes().len(),
        HookAnswer::Conflict { detail } => detail.len(),
        HookAnswer::Error { error } => error.len(),
    }
}

pub(super) async fn probe(shared: Arc<Shared>, request: ProbeRequest) -> RunMsg {
    let ProbeRequest {
        chain,
        idempotency_key,
        arguments,
    } = request;
    let question = ProbeQuestion {
        run: chain.run.to_string(),
        step: chain.step.to_string(),
        attempt: chain.attempt.get(),
        idempotency_key,
        arguments,
        time_left: PROBE_WAIT,
    };
    let failed = |error: String| ProbeReply::Failed { error: said(error) };
    let answer = match shared.tools.implementation(&chain.tool) {
        None => failed(format!(
            "nothing here can ask the probe of tool {:?}",
            chain.tool
        )),
        Some(tool) => match timeout(PROBE_WAIT, caught(tool.probe(question))).await {
            Err(_) => failed(format!(
                "the probe did not answer within {} s",
                PROBE_WAIT.as_secs()
            )),
            Ok(Err(panic)) => failed(format!("the probe panicked: {panic}")),
            Ok(Ok(Err(error @ (ProbeError::NoProbe | ProbeError::Failed(_))))) => {
                failed(error.to_string())
            }
            Ok(Ok(Ok(answer))) => reply(&shared, answer).await,
        },
    };
    RunMsg::input(Input::Probed {
        step: chain.step,
        attempt: chain.attempt,
        answer,
    })
}

async fn reply(shared: &Shared, answer: ProbeAnswer) -> ProbeReply {
    match answer {
        ProbeAnswer::NotDone => ProbeReply::NotDone,
        ProbeAnswer::Unknown(detail) => ProbeReply::Unknown {
            detail: said(detail),
        },
        ProbeAnswer::Conflict(detail) => ProbeReply::Conflict {
            detail: said(detail),
        },
        ProbeAnswer::Done(bytes) => match accept_result(&bytes) {
            Err(invalid) => ProbeReply::Failed {
                error: invalid.to_string(),
            },
            Ok(json) => match shared.payload(json).await {
                Ok(result) => ProbeReply::Done { result },
                Err(error) => ProbeReply::Failed {
                    error: error.to_string(),
                },
            },
        },
    }
}
