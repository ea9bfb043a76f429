//! The grammar of an agent's decision.
//!
//! `{"kind":"tool_calls","calls":[{"id":"…","tool":"…","arguments":{…}}]}`, `{"kind":"complete","result":…}` or
//! `{"kind":"fail","message":"…"}`, each with an optional `reason` and `origin`. Anything else is an unusable decision: it is recorded
//! verbatim all the same, and the agent is told what was wrong with it.

use std::collections::BTreeSet;

use leasehold_json::{AcceptedJson, Kept};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Most calls of one turn. More is a runaway model, not a plan.
pub const MAX_CALLS_PER_TURN: usize = 64;

/// A decision, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proposal {
    /// Calls to make, in this order.
    Calls(Vec<ProposedCall>),
    /// The goal is reached.
    Complete(AcceptedJson),
    /// The goal cannot be reached.
    Fail(String),
    /// No usable decision: the exact text of the check.
    Unusable(String),
}

/// One call of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposedCall {
    /// The agent's own name for the call, unique in the run; never used as a key.
    pub id: Option<String>,
    /// The tool.
    pub tool: String,
    /// The arguments as proposed: not yet accepted. Empty: none were given.
    pub arguments: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum Shape {
    ToolCalls {
        calls: Vec<ShapeCall>,
        #[serde(rename = "reason")]
        _reason: Option<String>,
        #[serde(rename = "origin")]
        _origin: Option<Origin>,
    },
    Complete {
        #[serde(rename = "result")]
        _result: Option<serde_json::Value>,
        #[serde(rename = "reason")]
        _reason: Option<String>,
        #[serde(rename = "origin")]
        _origin: Option<Origin>,
    },
    Fail {
        message: String,
        #[serde(rename = "reason")]
        _reason: Option<String>,
        #[serde(rename = "origin")]
        _origin: Option<Origin>,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Origin {
    Model,
    Plan,
    Operator,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShapeCall {
    id: Option<String>,
    tool: String,
    #[serde(rename = "arguments")]
    _arguments: Option<serde_json::Value>,
}

/// The parts whose exact bytes matter, read a second time without a tag: a tagged read would go through a value and round numbers.
#[derive(Deserialize)]
struct Exact<'a> {
    #[serde(borrow)]
    calls: Option<Vec<ExactCall<'a>>>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ExactCall<'a> {
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

impl Proposal {
    /// Reads a decision. `used` are the call ids of earlier turns. Total: whatever is no usable decision is [`Proposal::Unusable`].
    pub fn read(decision: &Kept, used: &BTreeSet<String>) -> Self {
        match Self::try_read(decision, used) {
            Ok(proposal) => proposal,
            Err(error) => Proposal::Unusable(error),
        }
    }

    fn try_read(decision: &Kept, used: &BTreeSet<String>) -> Result<Self, String> {
        let bytes = decision.as_bytes();
        let json = AcceptedJson::check(bytes)
            .map_err(|refusal| format!("the decision is not usable JSON: {refusal}"))?;
        let shape: Shape = json
            .parse()
            .map_err(|e| format!("the decision has no known shape: {e}"))?;
        let exact: Exact<'_> = json
            .parse_borrowed()
            .map_err(|e| format!("the decision has no known shape: {e}"))?;
        match shape {
            Shape::ToolCalls { calls, .. } => {
                if calls.is_empty() {
                    return Err("the decision calls no tool".into());
                }
                if calls.len() > MAX_CALLS_PER_TURN {
                    return Err(format!(
                        "the decision makes {} calls; at most {MAX_CALLS_PER_TURN} fit in a turn",
                        calls.len()
                    ));
                }
                let mut seen = BTreeSet::new();
                for id in calls.iter().filter_map(|call| call.id.as_ref()) {
                    if id.trim().is_empty() {
                        return Err("a call id is blank".into());
                    }
                    if used.contains(id) || !seen.insert(id) {
                        return Err(format!("the call id {id:?} is used twice"));
                    }
                }
                let raws = exact.calls.unwrap_or_default();
                let calls = calls.into_iter().zip(raws).map(|(call, raw)| ProposedCall {
                    id: call.id,
                    tool: call.tool,
                    arguments: raw
                        .arguments
                        .map(|raw| raw.get().as_bytes().to_vec())
                        .unwrap_or_default(),
                });
                Ok(Proposal::Calls(calls.collect()))
            }
            Shape::Complete { .. } => match exact.result {
                Some(raw) => AcceptedJson::from_raw(raw)
                    .map(Proposal::Complete)
                    .map_err(|refusal| refusal.to_string()),
                None => Ok(Proposal::Complete(AcceptedJson::empty_object())),
            },
            Shape::Fail { message, .. } => Ok(Proposal::Fail(message)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Proposal {
        Proposal::read(
            &Kept::from_bytes(text.as_bytes()),
            &BTreeSet::from(["used".to_owned()]),
        )
    }

    #[test]
    fn s12_arguments_arrive_as_written() {
        let Proposal::Calls(calls) = read(
            r#"{"kind":"tool_calls","calls":[{"id":"a","tool":"t","arguments":{"n": 9007199254740993, "x":0.1234567890123456789}}]}"#,
        ) else {
            panic!("no calls")
        };
        assert_eq!(
            calls[0].arguments,
            br#"{"n": 9007199254740993, "x":0.1234567890123456789}"#
        );
    }

    #[test]
    fn s4_what_is_no_decision_says_why() {
        for (text, part) in [
            ("{", "not usable JSON"),
            (r#"{"kind":"dance"}"#, "no known shape"),
            (r#"{"kind":"tool_calls","calls":[]}"#, "calls no tool"),
            (r#"{"kind":"fail"}"#, "no known shape"),
            (
                r#"{"kind":"fail","message":"x","extra":1}"#,
                "no known shape",
            ),
            (r#"{"kind":"complete","kind":"fail"}"#, "repeated key"),
        ] {
            match read(text) {
                Proposal::Unusable(error) => assert!(error.contains(part), "{text}: {error}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn k59_repeated_and_blank_call_ids_are_refused() {
        for ids in [["a", "a"], ["used", "b"], ["", "b"]] {
            let text = format!(
                r#"{{"kind":"tool_calls","calls":[{{"id":"{}","tool":"t"}},{{"id":"{}","tool":"t"}}]}}"#,
                ids[0], ids[1]
            );
            assert!(matches!(read(&text), Proposal::Unusable(_)), "{text}");
        }
    }

    #[test]
    fn s3_three_kinds() {
        assert_eq!(
            read(r#"{"kind":"fail","message":"no","reason":"r","origin":"plan"}"#),
            Proposal::Fail("no".into())
        );
        assert_eq!(
            read(r#"{"kind":"complete","result":[1.0]}"#),
            Proposal::Complete(AcceptedJson::check(b"[1.0]").unwrap())
        );
        assert_eq!(
            read(r#"{"kind":"complete"}"#),
            Proposal::Complete(AcceptedJson::empty_object())
        );
    }
}
