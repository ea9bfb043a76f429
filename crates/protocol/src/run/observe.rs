//! What the agent is told: observations built from outcomes, errors and decisions.

use leasehold_json::{AcceptedJson, Kept};
use leasehold_tools::{Failure, ResultTrust};
use serde_json::json;

use super::RunMachine;
use crate::ids::{Attempt, StepId};
use crate::wire::{Event, Observation, ObservationKind, OutcomeBody, Payload};

/// An error as the agent reads it. Built here, so it always serialises.
pub(super) fn error_content(value: &serde_json::Value) -> Payload {
    Payload::Json(
        AcceptedJson::from_serialize(value).unwrap_or_else(|_| AcceptedJson::empty_object()),
    )
}

/// An observation of the runtime's own making.
pub(super) fn own(kind: ObservationKind, failure: Option<Failure>, text: &str) -> Observation {
    Observation {
        kind,
        content: error_content(&json!({ "error": text })),
        trust: ResultTrust::Trusted,
        failure,
    }
}

/// A tool's result.
pub(super) fn result(content: Payload, trust: ResultTrust) -> Observation {
    Observation {
        kind: ObservationKind::ToolResult,
        content,
        trust,
        failure: None,
    }
}

/// What an outcome of the tool's own making means to the agent; `None` for what is no outcome of the tool.
pub(super) fn of_outcome(fact: &OutcomeBody, trust: ResultTrust) -> Option<Observation> {
    Some(match fact {
        OutcomeBody::Done { result: content } => result(content.clone(), trust),
        OutcomeBody::DoneUnusable { kept, error } => {
            let content = match kept {
                Kept::Text(text) => json!({ "reason": error, "content": text }),
                // The text form of kept bytes that are no UTF-8 is their base64.
                Kept::Base64(_) => json!({ "reason": error, "content_base64": kept }),
            };
            let failure = Some(Failure::InvalidContent);
            Observation {
                kind: ObservationKind::ToolError,
                content: error_content(&content),
                trust,
                failure,
            }
        }
        OutcomeBody::Aborted { detail } => tool_error(detail, Failure::Error, trust),
        OutcomeBody::NothingHappened { failure, message } => tool_error(message, *failure, trust),
        OutcomeBody::NotStarted { .. } | OutcomeBody::Sealed { .. } => return None,
    })
}

fn tool_error(message: &str, failure: Failure, trust: ResultTrust) -> Observation {
    let content = error_content(&json!({ "error": message }));
    Observation {
        kind: ObservationKind::ToolError,
        content,
        trust,
        failure: Some(failure),
    }
}

impl RunMachine {
    /// How much a result of this tool may be believed (A5).
    pub(super) fn trust(&self, tool: &str) -> ResultTrust {
        self.tool(tool)
            .map_or(ResultTrust::Untrusted, |tool| tool.spec().result_trust)
    }

    pub(super) fn finish(
        &mut self,
        step: StepId,
        attempt: Option<Attempt>,
        observation: Observation,
    ) -> Result<(), String> {
        self.watches.remove(&step);
        self.judgements.remove(&step);
        self.draft(Event::Finished {
            step,
            attempt,
            observation,
        })
    }

    pub(super) fn finish_denied(&mut self, step: StepId, text: &str) -> Result<(), String> {
        self.finish(step, None, own(ObservationKind::PolicyDenied, None, text))
    }
}
