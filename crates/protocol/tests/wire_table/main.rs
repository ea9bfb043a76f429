//! The wire table in `docs/protocol.md`, read by the code that it describes: every golden line decodes, encodes to the same bytes, and every
//! kind there is has one. What must be refused is derived from the same lines.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that meets the unexpected fails"
)]

mod kinds;

use std::collections::{BTreeMap, BTreeSet};

use leasehold_json::{AcceptedJson, Digest, DigestBuilder};
use leasehold_protocol::{CallEnvelope, ClaimBody, Event, WIRE_VERSION, WireError};
use serde_json::Value;

use kinds::{EVENTS, all_kinds, decode, parsed};

const DOCUMENT: &str = include_str!("../../../../docs/protocol.md");

/// The fenced blocks whose info line begins with `fence`, as (rest of the info line, lines).
fn blocks(fence: &str) -> Vec<(&'static str, Vec<&'static str>)> {
    let mut found = Vec::new();
    let mut lines = DOCUMENT.lines();
    while let Some(line) = lines.next() {
        if let Some(tag) = line
            .strip_prefix("```")
            .and_then(|info| info.strip_prefix(fence))
        {
            found.push((
                tag.trim(),
                lines.by_ref().take_while(|line| *line != "```").collect(),
            ));
        }
    }
    found
}

fn golden() -> Vec<(&'static str, &'static str)> {
    let blocks = blocks("json golden ");
    let lines: Vec<_> = blocks
        .into_iter()
        .flat_map(|(tag, lines)| lines.into_iter().map(move |line| (tag, line)))
        .collect();
    assert!(
        !lines.is_empty(),
        "the document has no golden lines: were the fences renamed?"
    );
    lines
}

/// All objects in a value, as pointers.
fn objects(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            found.push(at.to_owned());
            members
                .iter()
                .for_each(|(key, member)| objects(member, &format!("{at}/{key}"), found));
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(i, item)| objects(item, &format!("{at}/{i}"), found)),
        _ => {}
    }
}

/// The golden line as a tree with one object of it changed. Golden lines hold no number that a tree would round.
fn changed(
    line: &str,
    at: &str,
    change: impl FnOnce(&mut serde_json::Map<String, Value>),
) -> Vec<u8> {
    let mut tree = AcceptedJson::check_str(line).unwrap().to_value();
    change(tree.pointer_mut(at).unwrap().as_object_mut().unwrap());
    serde_json::to_vec(&tree).unwrap()
}

/// Every object of every golden line: tag, line, pointer, the object.
fn each_object(mut check: impl FnMut(&'static str, &'static str, &str, &Value)) {
    for (tag, line) in golden() {
        let tree = AcceptedJson::check_str(line).unwrap().to_value();
        let mut found = Vec::new();
        objects(&tree, "", &mut found);
        for at in found {
            check(tag, line, &at, tree.pointer(&at).unwrap());
        }
    }
}

#[test]
fn wire_every_golden_line_decodes_and_encodes_to_the_same_bytes() {
    for (tag, line) in golden() {
        let decoded =
            decode(tag, line.as_bytes()).unwrap_or_else(|error| panic!("{tag}: {error}\n{line}"));
        assert_eq!(String::from_utf8(decoded.again).unwrap(), line, "{tag}");
        let first = decoded
            .kinds
            .first()
            .map(String::as_str)
            .unwrap_or_default();
        assert!(
            first == tag || first.starts_with(&format!("{tag}/")),
            "a {first} stands under {tag}"
        );
    }
}

#[test]
fn wire_every_kind_has_golden_bytes() {
    let mut missing = all_kinds();
    for (tag, line) in golden() {
        for kind in decode(tag, line.as_bytes()).unwrap().kinds {
            missing.remove(&kind);
        }
    }
    assert!(
        missing.is_empty(),
        "without golden bytes in docs/protocol.md: {missing:?}"
    );
}

/// The text under the heading `### <kind>`, up to the next heading.
fn section(kind: &str) -> &'static str {
    let heading = format!("\n### {kind}\n");
    let start = DOCUMENT
        .find(&heading)
        .unwrap_or_else(|| panic!("no section {kind}"))
        + heading.len();
    let rest = &DOCUMENT[start..];
    &rest[..rest.find("\n#").unwrap_or(rest.len())]
}

#[test]
fn wire_every_field_stands_in_a_table() {
    let prose: String = DOCUMENT.split("```").step_by(2).collect();
    each_object(|tag, line, at, object| {
        for key in object
            .as_object()
            .unwrap()
            .keys()
            .filter(|key| *key != "kind")
        {
            if at.is_empty() && EVENTS.contains(&tag) {
                assert!(
                    section(tag).contains(&format!("| `{key}` |")),
                    "{tag} has no row for {key}"
                );
            } else {
                let named = [
                    format!("`{key}`"),
                    format!("\"{key}\":"),
                    format!("{{{key}, "),
                    format!(", {key}}}"),
                ];
                assert!(
                    named.iter().any(|text| prose.contains(text)),
                    "{tag}: {key} is named nowhere\n{line}"
                );
            }
        }
    });
}

#[test]
fn wire_an_unknown_field_is_refused_at_every_level() {
    let mut tried = 0;
    each_object(|tag, line, at, object| {
        tried += 1;
        let bytes = changed(line, at, |members| {
            drop(members.insert("zzz".into(), Value::from(1)))
        });
        assert!(decode(tag, &bytes).is_err(), "{tag} {at}: {object}");
    });
    assert!(tried > 100, "{tried}");
}

#[test]
fn wire_an_unknown_kind_is_refused_everywhere() {
    let mut tried = 0;
    each_object(|tag, line, at, object| {
        for key in [
            "kind", "verdict", "ask", "choice", "answer", "basis", "finding", "status", "reason",
            "fate", "why", "failure", "trust",
        ] {
            // `finding` of a seal holds an object, `reason` and `why` are words for people in some kinds.
            let words = matches!(key, "reason" | "why")
                && decode(
                    tag,
                    &changed(line, at, |o| drop(o.insert(key.into(), "zzz".into()))),
                )
                .is_ok();
            if !object.get(key).is_some_and(Value::is_string)
                || (words && object[key].as_str().unwrap().contains(' '))
            {
                continue;
            }
            tried += 1;
            let bytes = changed(line, at, |members| {
                drop(members.insert(key.into(), "zzz".into()))
            });
            assert!(decode(tag, &bytes).is_err(), "{tag} {at}/{key}");
        }
    });
    assert!(tried > 100, "{tried}");
}

/// What may be left out, as `<tag><pointer>/<field>`; everything else is needed.
const OPTIONAL: &[&str] = &[
    "approval.decided/note",
    "approval.requested/expires_at",
    "approval.requested/step",
    "attempt.finding/register",
    "basis/approval",
    "cancel/note",
    "decide/note",
    "note.may_have_happened/claim",
    "note.met_seal/claim",
    "note.unsure/claim",
    "outcome.aborted/claim",
    "outcome.done/claim",
    "outcome.done_unusable/claim",
    "outcome.nothing_happened/claim",
    "outcome.not_started/claim",
    "outcome.sealed/claim",
    "run.cancel_requested/note",
    "run.ending/detail",
    "run.ending/result",
    "run.parked/wake_at",
    "run.submitted/input",
    "run.submitted/limits/approval_ttl_ms",
    "run.submitted/limits/grant_ttl_ms",
    "run.submitted/limits/max_active_ms",
    "run.submitted/limits/max_consecutive_failures",
    "run.submitted/limits/max_elapsed_ms",
    "run.submitted/limits/max_parallel_calls",
    "run.submitted/limits/max_repeats",
    "run.submitted/limits/max_steps",
    "run.submitted/limits/queue_ms",
    "step.dispatched/basis/approval",
    "step.finished/attempt",
    "step.finished/observation/failure",
    "submission/input",
    "submission/limits",
    "submission/limits/approval_ttl_ms",
    "submission/limits/grant_ttl_ms",
    "submission/limits/max_active_ms",
    "submission/limits/max_consecutive_failures",
    "submission/limits/max_elapsed_ms",
    "submission/limits/max_parallel_calls",
    "submission/limits/max_repeats",
    "submission/limits/max_steps",
    "submission/limits/queue_ms",
];

#[test]
fn wire_a_missing_field_is_refused_unless_it_is_optional() {
    let mut optional = BTreeSet::new();
    each_object(|tag, line, at, object| {
        for key in object.as_object().unwrap().keys() {
            if decode(tag, &changed(line, at, |members| drop(members.remove(key)))).is_ok() {
                optional.insert(format!("{tag}{at}/{key}"));
            }
        }
    });
    let expected: BTreeSet<String> = OPTIONAL.iter().map(|field| (*field).to_owned()).collect();
    assert_eq!(optional, expected);
}

#[test]
fn wire_a_newer_version_is_told_apart_from_a_broken_record() {
    let mut tried = 0;
    for (tag, line) in golden() {
        let tree = AcceptedJson::check_str(line).unwrap().to_value();
        if tree.get("v").is_none() {
            continue;
        }
        tried += 1;
        let newer = changed(line, "", |members| {
            drop(members.insert("v".into(), (WIRE_VERSION + 1).into()))
        });
        assert_eq!(
            decode(tag, &newer).err(),
            Some(WireError::Newer {
                found: WIRE_VERSION + 1
            }),
            "{tag}"
        );
        let other = changed(line, "", |members| {
            members.retain(|key, _| key == "v");
            members.insert("v".into(), (WIRE_VERSION + 7).into());
            members.insert("kind".into(), "what nobody knows yet".into());
        });
        assert_eq!(
            decode(tag, &other).err(),
            Some(WireError::Newer {
                found: WIRE_VERSION + 7
            }),
            "{tag}"
        );
        let without = changed(line, "", |members| drop(members.remove("v")));
        assert!(
            matches!(decode(tag, &without).err(), Some(WireError::Shape { .. })),
            "{tag}"
        );
    }
    assert!(tried > 20, "{tried}");
}

#[test]
fn wire_repeated_keys_and_rounded_numbers_do_not_pass() {
    let claim = r#"{"kind":"revoke","v":1,"by":"s-2","why":"ending","why":"ending"}"#;
    assert!(matches!(
        ClaimBody::decode(claim.as_bytes()),
        Err(WireError::Json(_))
    ));
    for claim in [
        r#"{"kind":"revoke","v":1.0,"by":"s","why":"ending"}"#,
        r#"{"kind":"revoke","v":-1,"by":"s","why":"ending"}"#,
    ] {
        assert!(
            matches!(
                ClaimBody::decode(claim.as_bytes()),
                Err(WireError::Shape { .. })
            ),
            "{claim}"
        );
    }
    for step in ["01-0", "1", "1-0-0"] {
        let event = format!(r#"{{"kind":"step.invalid","step":"{step}","error":"e"}}"#);
        assert!(parsed::<Event>(event.as_bytes()).is_err(), "{step}");
    }
}

#[test]
fn wire_the_hashes_in_the_document_are_those_of_the_golden_run() {
    let line = |text: &'static str| text.trim_end().as_bytes();
    let journal = include_str!("../golden/journal.jsonl");
    let first = Digest::of(journal.lines().next().unwrap().as_bytes());
    let call = line(include_str!("../golden/call.json"));
    let envelope = CallEnvelope::decode(call).unwrap();
    let spec: leasehold_tools::ToolSpec =
        parsed(line(include_str!("../golden/tool.json"))).unwrap();
    let result = br#"{"refund":"R-1","amount":120.50}"#;
    let expected = BTreeMap::from([
        (
            "builder",
            DigestBuilder::new("leasehold/example/1")
                .field("ab")
                .field("c")
                .finish(),
        ),
        ("spec", spec.hash()),
        (
            "request",
            Digest::of(line(include_str!("../golden/submission.json"))),
        ),
        ("prev", first),
        ("call", Digest::of(call)),
        (
            "idempotency",
            DigestBuilder::new("leasehold/idempotency/1")
                .field("c-1")
                .field(first)
                .field("1-0")
                .finish(),
        ),
        (
            "approval",
            Digest::of(line(include_str!("../golden/approval.canonical"))),
        ),
        (
            "repeat",
            DigestBuilder::new("leasehold/repeat/1")
                .field("refund_order")
                .field(envelope.arguments.canonical())
                .field(Digest::of(result))
                .finish(),
        ),
    ]);
    let found: BTreeMap<&str, Digest> = blocks("text hash ")
        .into_iter()
        .map(|(name, lines)| (name, lines[0].parse().unwrap()))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(envelope.idempotency_key, expected["idempotency"]);
    assert_eq!(envelope.spec, expected["spec"]);
}

#[test]
fn wire_the_tokens_in_the_document_are_those_of_the_encoding() {
    for (name, token) in [("a.b", "a_2Eb"), ("a_b", "a_5Fb"), ("é", "_C3_A9")] {
        assert_eq!(leasehold_tools::subject_token(name), token);
        let shown = format!("`{name}` is `{token}`");
        assert!(DOCUMENT.contains(&shown), "{shown}");
    }
}
