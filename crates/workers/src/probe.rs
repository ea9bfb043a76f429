//! A probe's question and answer as JSON: the same for a command and for an HTTP service.
//!
//! The question is `{"idempotency_key", "run", "step", "attempt", "arguments"}`, the arguments verbatim. The answer
//! is `{"answer": "done", "result": ...}`, `{"answer": "not_done"}`, or `{"answer": "unknown" | "conflict"}` with an
//! optional text `"detail"`. It is read strictly: an answer with anything else in it may mean something else, so it
//! is a failed probe and never "it did not happen".

use leasehold_json::AcceptedJson;
use leasehold_tools::{ProbeAnswer, ProbeError, ProbeQuestion};
use serde::{Deserialize, Deserializer};
use serde_json::{json, value::RawValue};

/// The question's bytes.
pub(crate) fn question_bytes(question: &ProbeQuestion) -> Vec<u8> {
    // Put together as text: the arguments may nest as deep as JSON is accepted, and one object more around them
    // would not be.
    format!(
        r#"{{"idempotency_key":"{}","run":{},"step":{},"attempt":{},"arguments":{}}}"#,
        question.idempotency_key,
        json!(question.run),
        json!(question.step),
        question.attempt,
        question.arguments.as_str()
    )
    .into_bytes()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer<'a> {
    answer: &'a RawValue,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(default)]
    detail: Option<String>,
}

/// A field that is there, `null` included.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// Reads an answer. The result keeps its exact bytes.
pub(crate) fn read_answer(bytes: &[u8]) -> Result<ProbeAnswer, ProbeError> {
    let failed = |why: String| ProbeError::Failed(format!("its answer is unusable: {why}"));
    let accepted = AcceptedJson::check(bytes).map_err(|refusal| failed(refusal.to_string()))?;
    let read: Answer<'_> = accepted
        .parse_borrowed()
        .map_err(|error| failed(error.to_string()))?;
    match (read.answer.get(), read.result, read.detail) {
        (r#""done""#, Some(result), None) => Ok(ProbeAnswer::Done(result.get().into())),
        (r#""not_done""#, None, None) => Ok(ProbeAnswer::NotDone),
        (r#""unknown""#, None, detail) => Ok(ProbeAnswer::Unknown(
            detail.unwrap_or_else(|| "the probe gave no reason".into()),
        )),
        (r#""conflict""#, None, detail) => Ok(ProbeAnswer::Conflict(
            detail.unwrap_or_else(|| "the probe gave no reason".into()),
        )),
        (r#""done""#, None, _) => Err(failed("done without a result".into())),
        (word @ (r#""done""# | r#""not_done""# | r#""unknown""# | r#""conflict""#), _, _) => Err(
            failed(format!("{word} with a field that does not belong to it")),
        ),
        (other, _, _) => Err(failed(format!(
            "the answer {other} is none of done, not_done, unknown, conflict"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn s14_a_probe_is_asked_with_the_arguments_verbatim() {
        let deep = format!("{}1{}", "[".repeat(255), "]".repeat(255));
        let arguments = format!(r#"{{"id": 9007199254740993,"deep":{deep}}}"#);
        let question = ProbeQuestion {
            run: "r\"1".into(),
            step: "2".into(),
            attempt: 3,
            idempotency_key: AcceptedJson::null().digest(),
            arguments: AcceptedJson::check_str(&arguments).unwrap(),
            time_left: Duration::from_secs(1),
        };
        let key = question.idempotency_key;
        assert_eq!(
            String::from_utf8(question_bytes(&question)).unwrap(),
            format!(
                r#"{{"idempotency_key":"{key}","run":"r\"1","step":"2","attempt":3,"arguments":{arguments}}}"#
            )
        );
    }

    #[test]
    fn an_answer_of_each_kind_is_read_and_keeps_its_result_bytes() {
        let read = |text: &str| read_answer(text.as_bytes()).unwrap();
        assert_eq!(
            read(r#" {"answer":"done","result":{"a": 1.50} }"#),
            ProbeAnswer::Done(br#"{"a": 1.50}"#.to_vec())
        );
        assert_eq!(
            read(r#"{"result":null,"answer":"done"}"#),
            ProbeAnswer::Done(b"null".to_vec())
        );
        assert_eq!(read(r#"{"answer":"not_done"}"#), ProbeAnswer::NotDone);
        assert_eq!(
            read(r#"{"answer":"unknown","detail":"db down"}"#),
            ProbeAnswer::Unknown("db down".into())
        );
        assert!(matches!(
            read(r#"{"answer":"unknown"}"#),
            ProbeAnswer::Unknown(_)
        ));
        assert_eq!(
            read(r#"{"answer":"conflict","detail":"other order"}"#),
            ProbeAnswer::Conflict("other order".into())
        );
    }

    #[test]
    fn s16_anything_else_is_a_failed_probe_and_never_not_done() {
        let bad: [&[u8]; 14] = [
            b"",
            b"not_done",
            b"\"not_done\"",
            b"null",
            br#"{}"#,
            br#"{"answer":"no"}"#,
            br#"{"answer":"NOT_DONE"}"#,
            br#"{"answer":null}"#,
            br#"{"answer":"done"}"#,
            br#"{"answer":"not_done","result":1}"#,
            br#"{"answer":"not_done","unless":"late"}"#,
            br#"{"answer":"not_done","answer":"done","result":1}"#,
            br#"{"answer":"not_done"} trailing"#,
            b"{\"answer\":\"not_done\xff\"}",
        ];
        for bytes in bad {
            let answer = read_answer(bytes);
            assert!(
                matches!(answer, Err(ProbeError::Failed(_))),
                "{}: {answer:?}",
                String::from_utf8_lossy(bytes)
            );
        }
    }
}
