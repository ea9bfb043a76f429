//! The refund clerk: a scripted agent that looks an order up, pays it back, and closes the case.
//!
//! It is deterministic and keeps nothing: what it does next follows from the run's input and the observations of its earlier turns alone,
//! so the same view gives the same decision, as often as it is asked. Ids and amounts travel as the exact digits that it was given. It pays
//! again only when it was told that nothing happened; whatever else it hears of a refund, it never proposes a second one.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_agents::{Agent, AgentError};
use leasehold_json::{AcceptedJson, Kind};
use leasehold_protocol::{AgentView, Observation, ObservationKind, Payload, Step};
use leasehold_tools::Failure;

/// The name under which runs ask for the clerk.
pub(crate) const REFUND_CLERK: &str = "refund_clerk";
/// Its tools, in the order in which a run offers them.
pub(crate) const TOOLS: [&str; 3] = [LOOKUP, REFUND, CLOSE];

pub(super) const LOOKUP: &str = "lookup_order";
pub(super) const REFUND: &str = "refund_order";
pub(super) const CLOSE: &str = "close_case";

/// How long it waits after a first failure before it tries again: about what a payments service needs to come back.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest wait between two tries: a service that came back should not be left alone for longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RefundClerk;

#[async_trait]
impl Agent for RefundClerk {
    fn name(&self) -> &str {
        REFUND_CLERK
    }

    async fn decide(&self, view: AgentView) -> Result<Vec<u8>, AgentError> {
        let case = Case::read(&view)?;
        if case.failures > 0 {
            // Pauses change when it decides, never what.
            tokio::time::sleep(pause(case.failures)).await;
        }
        case.decide()
    }
}

fn pause(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    FIRST_PAUSE
        .saturating_mul(1 << doublings)
        .min(LONGEST_PAUSE)
}

/// What the clerk knows of its order.
struct Case {
    order: AcceptedJson,
    facts: Option<Facts>,
    refund: Refund,
    /// Failures since the last success.
    failures: u32,
    /// Why it cannot go on.
    stuck: Option<String>,
}

/// What `lookup_order` said.
struct Facts {
    amount: AcceptedJson,
    currency: AcceptedJson,
    refundable: bool,
}

enum Refund {
    /// Not asked for, or told that nothing happened.
    Open,
    /// Paid; with the service's id for it, if its answer could be read.
    Paid(Option<AcceptedJson>),
    /// The policy does not allow it.
    Denied,
}

impl Case {
    fn read(view: &AgentView) -> Result<Self, AgentError> {
        let order = view
            .input
            .as_ref()
            .and_then(|input| input.member("order_id"));
        let order = order.filter(|order| order.kind() == Kind::Number);
        let order = order.ok_or_else(|| {
            AgentError::Input(r#"the refund clerk wants {"order_id": number}"#.to_owned())
        })?;
        let mut case = Self {
            order,
            facts: None,
            refund: Refund::Open,
            failures: 0,
            stuck: None,
        };
        for step in view.turns.iter().flat_map(|turn| &turn.steps) {
            if let Some(observation) = &step.observation {
                case.hear(step, observation);
            }
        }
        Ok(case)
    }

    fn hear(&mut self, step: &Step, observation: &Observation) {
        let tool = step.call.as_ref().map_or("", |call| call.tool.as_str());
        let told = json(&observation.content);
        let ok = observation.kind == ObservationKind::ToolResult;
        self.failures = if ok {
            0
        } else {
            self.failures.saturating_add(1)
        };
        match (observation.kind, tool) {
            (ObservationKind::ToolResult, LOOKUP) => match told.and_then(|told| Facts::read(&told))
            {
                Some(facts) => self.facts = Some(facts),
                None => self.stuck = Some(
                    "lookup_order did not say amount, currency and whether the order is refundable"
                        .to_owned(),
                ),
            },
            (ObservationKind::ToolResult, REFUND) => {
                let id = told.and_then(|told| told.member("refund_id"));
                self.refund = Refund::Paid(id.filter(|id| id.kind() == Kind::String));
            }
            // The answer was garbage, but it was an answer: the money is paid.
            (ObservationKind::ToolError, REFUND)
                if observation.failure == Some(Failure::InvalidContent) =>
            {
                self.failures = 0;
                self.refund = Refund::Paid(None);
            }
            (ObservationKind::PolicyDenied, REFUND) => {
                self.failures = 0;
                self.refund = Refund::Denied;
            }
            // Of a call that changes nothing, or that ends the run, another try is as good as the first; of a refund, a
            // `tool_error` is the runtime's word that nothing happened.
            (ObservationKind::ToolResult | ObservationKind::ToolError, _)
            | (ObservationKind::Interrupted, LOOKUP) => {}
            (ObservationKind::Interrupted, _) => {
                self.stuck = Some(format!(
                    "{tool} was interrupted, and nobody said what became of it: {}",
                    text(observation)
                ));
            }
            (ObservationKind::PolicyDenied | ObservationKind::InvalidDecision, _) => {
                self.stuck = Some(format!("{tool} is not possible: {}", text(observation)));
            }
        }
    }

    fn decide(&self) -> Result<Vec<u8>, AgentError> {
        if let Some(why) = &self.stuck {
            return fail(why);
        }
        let word = |word: &str| build(AcceptedJson::from_serialize(word));
        let order = ("order_id", &self.order);
        match (&self.facts, &self.refund) {
            (None, _) => call(LOOKUP, &[order]),
            (Some(facts), Refund::Open) if facts.refundable => call(
                REFUND,
                &[
                    order,
                    ("amount", &facts.amount),
                    ("currency", &facts.currency),
                ],
            ),
            (Some(_), Refund::Paid(id)) => {
                let refunded = word("refunded")?;
                let mut arguments = vec![order, ("decision", &refunded)];
                arguments.extend(id.iter().map(|id| ("refund_id", id)));
                call(CLOSE, &arguments)
            }
            (Some(_), Refund::Open | Refund::Denied) => {
                call(CLOSE, &[order, ("decision", &word("refused")?)])
            }
        }
    }
}

impl Facts {
    fn read(order: &AcceptedJson) -> Option<Self> {
        let of_kind =
            |name: &str, kind: Kind| order.member(name).filter(|value| value.kind() == kind);
        Some(Self {
            amount: of_kind("amount", Kind::Number)?,
            currency: of_kind("currency", Kind::String)?,
            refundable: order.member("refundable")?.parse().ok()?,
        })
    }
}

fn json(content: &Payload) -> Option<AcceptedJson> {
    match content {
        Payload::Json(json) => Some(json.clone()),
        // No answer of these tools is that long.
        Payload::Blob { .. } => None,
    }
}

/// An observation's content for a person.
fn text(observation: &Observation) -> String {
    json(&observation.content).map_or_else(String::new, |json| json.as_str().to_owned())
}

fn call(tool: &str, arguments: &[(&str, &AcceptedJson)]) -> Result<Vec<u8>, AgentError> {
    let arguments = build(AcceptedJson::object(arguments.iter().copied()))?;
    Ok(format!(
        r#"{{"kind":"tool_calls","calls":[{{"tool":"{tool}","arguments":{}}}],"origin":"plan"}}"#,
        arguments.as_str()
    )
    .into_bytes())
}

fn fail(why: &str) -> Result<Vec<u8>, AgentError> {
    let message = build(AcceptedJson::from_serialize(why))?;
    Ok(format!(
        r#"{{"kind":"fail","message":{},"origin":"plan"}}"#,
        message.as_str()
    )
    .into_bytes())
}

fn build<E: std::fmt::Display>(built: Result<AcceptedJson, E>) -> Result<AcceptedJson, AgentError> {
    built.map_err(|error| AgentError::Failed(error.to_string()))
}

#[cfg(test)]
mod tests;
