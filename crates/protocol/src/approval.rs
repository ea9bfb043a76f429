//! What an operator's decision is bound to: the hash over everything the operator was shown (S33, S38).
//!
//! The hash is SHA-256 over the canonical form of one JSON object. Numbers keep their exact value in it, so an approval for one id never
//! covers its neighbour, and any change of any part is another approval.

use leasehold_json::{AcceptedJson, Digest};
use leasehold_tools::ToolSpec;
use serde::Serialize;

use crate::ids::{RunId, Seq, StepId};
use crate::wire::Question;

/// What the hash covers.
pub(crate) struct Bound<'a> {
    pub(crate) run: &'a RunId,
    /// Absent of a question about the run itself.
    pub(crate) step: Option<StepId>,
    pub(crate) question: &'a Question,
    /// The whole specification as registered now; absent if the tool is gone, or if there is no step.
    pub(crate) spec: Option<&'a ToolSpec>,
    /// Absent if there is no step.
    pub(crate) arguments: Option<&'a AcceptedJson>,
    /// The position of the attempt's call, of a question about an attempt.
    pub(crate) call: Option<Seq>,
}

/// The hash that a decision must name.
pub(crate) fn hash(bound: &Bound<'_>) -> Digest {
    // Keys in canonical order; every part in canonical form: together the canonical form of the whole.
    let parts = [
        (
            "arguments",
            bound
                .arguments
                .map_or_else(|| "null".to_owned(), AcceptedJson::canonical),
        ),
        ("call", canonical(&bound.call)),
        ("question", canonical_question(bound.question)),
        ("run", canonical(&bound.run)),
        ("step", canonical(&bound.step)),
        ("tool", canonical(&bound.spec)),
    ];
    let members: Vec<String> = parts
        .iter()
        .map(|(key, value)| format!("\"{key}\":{value}"))
        .collect();
    Digest::of(format!("{{{}}}", members.join(",")).as_bytes())
}

fn canonical<T: Serialize>(value: &T) -> String {
    // What this crate builds serialises; the empty text could only make a hash that matches nothing.
    AcceptedJson::from_serialize(value)
        .map(|json| json.canonical())
        .unwrap_or_default()
}

/// A presentation stands in the question as a string of its exact bytes; two spellings of one value are one approval, so it is taken apart.
fn canonical_question(question: &Question) -> String {
    match question {
        Question::Approve {
            approval_kind,
            capability,
            presentation,
        } => format!(
            "{{\"ask\":\"approve\",\"capability\":{},\"kind\":{},\"presentation\":{}}}",
            canonical(capability),
            canonical(approval_kind),
            presentation.canonical()
        ),
        Question::InterruptedSideEffect { .. }
        | Question::Exhausted { .. }
        | Question::Quarantined { .. } => canonical(question),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_tools::SideEffect;

    fn hashed(arguments: &str, presentation: &str, step: &str, run: &str) -> Digest {
        let spec = ToolSpec::new(
            "pay",
            "Pays.",
            r#"{"type":"object"}"#,
            SideEffect::RemoteMutation,
            std::time::Duration::from_secs(1),
        );
        let question = Question::Approve {
            approval_kind: "k".into(),
            capability: "c".into(),
            presentation: AcceptedJson::check(presentation.as_bytes()).unwrap(),
        };
        hash(&Bound {
            run: &RunId::new(run).unwrap(),
            step: Some(step.parse().unwrap()),
            question: &question,
            spec: Some(&spec),
            arguments: Some(&AcceptedJson::check(arguments.as_bytes()).unwrap()),
            call: None,
        })
    }

    #[test]
    fn s33_any_change_of_any_part_is_another_approval() {
        let base = hashed(r#"{"id":9007199254740992}"#, "{}", "1-0", "r");
        for other in [
            hashed(r#"{"id":9007199254740993}"#, "{}", "1-0", "r"),
            hashed(r#"{"id":9007199254740992}"#, "[]", "1-0", "r"),
            hashed(r#"{"id":9007199254740992}"#, "{}", "1-1", "r"),
            hashed(r#"{"id":9007199254740992}"#, "{}", "1-0", "s"),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn k45_another_spelling_of_the_same_value_is_the_same_approval() {
        let base = hashed(r#"{"a":1,"b":"é"}"#, r#"{"x":1.0}"#, "1-0", "r");
        assert_eq!(
            base,
            hashed(r#"{ "b":"\u00e9", "a":1.0 }"#, r#"{"x":1}"#, "1-0", "r")
        );
        assert_ne!(
            base,
            hashed(r#"{"a":1,"b":"e\u0301"}"#, r#"{"x":1}"#, "1-0", "r"),
            "no unicode normalisation: other bytes, other meaning"
        );
    }
}
