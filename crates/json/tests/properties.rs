//! Agreement with independent readers and writers on generated and damaged documents.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test has no public items, and fails by panicking"
)]

use leasehold_json::{AcceptedJson, Kept, RefusalReason};
use proptest::prelude::*;
use serde_json::Value;

fn space() -> impl Strategy<Value = String> + Clone {
    prop_oneof![4 => Just(String::new()), 1 => "[ \t\r\n]{1,3}"]
}

fn string() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => "[a-c]",
        1 => "[ -~&&[^\"\\\\]]{1,4}",
        1 => "[\u{80}-\u{d7ff}\u{e000}-\u{10ffff}]",
        1 => prop::sample::select(vec![r#"\""#, r"\\", r"\/", r"\b", r"\f", r"\n", r"\r", r"\t", r"\u0061", r"\u001f", r"\uD83D\uDE00"])
            .prop_map(str::to_owned),
    ];
    prop::collection::vec(part, 0..4).prop_map(|parts| format!("\"{}\"", parts.concat()))
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?",
        any::<f64>()
            .prop_filter("finite", |double| double.is_finite())
            .prop_map(|double| format!("{double:e}")),
        any::<i64>().prop_map(|value| value.to_string()),
    ]
}

/// JSON text: mostly short keys, so that repeated ones occur.
fn document() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        number(),
        string(),
        prop::sample::select(vec!["null", "true", "false"]).prop_map(str::to_owned)
    ];
    scalar.prop_recursive(5, 40, 5, |inner| {
        let spaced = (space(), inner, space())
            .prop_map(|(a, b, c)| a + &b + &c)
            .boxed();
        let member = (space(), string(), space(), spaced.clone())
            .prop_map(|(a, k, b, v)| format!("{a}{k}{b}:{v}"));
        prop_oneof![
            prop::collection::vec(spaced, 0..5).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec(member, 0..5)
                .prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
}

/// A document with a few bytes changed, put in or taken out.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        prop::sample::select(br#"[]{},:"\/-+.0123456789eEutfnld "#.to_vec()),
        any::<u8>(),
    ];
    let change = (any::<prop::sample::Index>(), 0..3_u8, byte);
    (document(), prop::collection::vec(change, 0..3)).prop_map(|(text, changes)| {
        let mut bytes = text.into_bytes();
        for (index, kind, byte) in changes {
            let at = index.index(bytes.len() + 1);
            match kind {
                0 => bytes.insert(at, byte),
                1 if at < bytes.len() => bytes[at] = byte,
                _ if at < bytes.len() => drop(bytes.remove(at)),
                _ => {}
            }
        }
        bytes
    })
}

/// The reader that the boundary is compared with.
#[expect(
    clippy::disallowed_methods,
    reason = "serde_json on raw bytes is what the boundary is compared with"
)]
fn theirs(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn s12_accepts_what_serde_json_accepts_but_for_repeated_keys_and_huge_numbers(bytes in damaged()) {
        match (AcceptedJson::check(&bytes), theirs(&bytes)) {
            (Ok(json), Ok(value)) => {
                prop_assert_eq!(json.to_value(), value.clone());
                prop_assert_eq!(json.parse::<Value>().unwrap(), value);
                prop_assert_eq!(json.as_bytes(), bytes.trim_ascii());
            }
            (Err(refusal), Ok(_)) => prop_assert!(
                matches!(refusal.reason, RefusalReason::RepeatedKey { .. } | RefusalReason::ExponentTooLarge), "{}", refusal),
            (Ok(json), Err(error)) => {
                prop_assert!(error.to_string().contains("number out of range"), "{}", error);
                prop_assert!(json.numbers_fit_double().is_err());
            }
            (Err(refusal), Err(_)) => prop_assert!(refusal.offset <= bytes.len()),
        }
    }

    #[test]
    fn s33_canonical_text_is_accepted_stable_and_of_the_same_value(text in document()) {
        if let Ok(json) = AcceptedJson::check_str(&text) {
            let canonical = json.canonical();
            let again = AcceptedJson::check_str(&canonical).unwrap();
            prop_assert_eq!(again.canonical(), canonical);
            prop_assert_eq!(again.digest(), json.digest());
            // Numbers are compared as doubles: 1.0 and 1 are two things to serde_json.
            prop_assert_eq!(doubles(again.to_value()), doubles(json.to_value()));
        }
    }

    #[test]
    fn s33_canonical_text_is_that_of_rfc_8785_in_the_range_of_i_json(text in document()) {
        if let Ok(json) = AcceptedJson::check_str(&text) {
            // Put into the range: each number becomes the double nearest to it.
            let value = doubles(json.to_value());
            let text = serde_json::to_string(&value).unwrap();
            let ours = AcceptedJson::check_str(&text).unwrap().canonical();
            prop_assert_eq!(ours, serde_json_canonicalizer::to_string(&value).unwrap());
        }
    }

    #[test]
    fn parts_are_the_exact_text_of_what_serde_json_finds_there(text in document()) {
        let Ok(json) = AcceptedJson::check_str(&text) else { return Ok(()) };
        let value = json.to_value();
        match &value {
            Value::Object(map) => {
                prop_assert_eq!(json.members().len(), map.len());
                for (key, part) in json.members() {
                    prop_assert_eq!(&part.to_value(), &map[&key]);
                    prop_assert_eq!(json.member(&key), Some(part.clone()));
                    let pointer = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
                    prop_assert_eq!(json.pointer(&pointer), Some(part.clone()));
                    prop_assert_eq!(AcceptedJson::check_str(part.as_str()), Ok(part));
                }
                let members = json.members();
                let rebuilt = AcceptedJson::object(members.iter().map(|(key, part)| (key.as_str(), part))).unwrap();
                prop_assert_eq!(rebuilt.canonical(), json.canonical());
            }
            Value::Array(items) => {
                prop_assert_eq!(json.elements().len(), items.len());
                for (index, part) in json.elements().into_iter().enumerate() {
                    prop_assert_eq!(&part.to_value(), &items[index]);
                    prop_assert_eq!(json.pointer(&format!("/{index}")), Some(part.clone()));
                    prop_assert_eq!(AcceptedJson::check_str(part.as_str()), Ok(part));
                }
                prop_assert_eq!(AcceptedJson::array(&json.elements()).unwrap().canonical(), json.canonical());
            }
            _ => prop_assert!(json.members().is_empty() && json.elements().is_empty()),
        }
    }

    #[test]
    fn no_bytes_make_the_check_or_a_record_of_them_fail(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = AcceptedJson::check(&bytes);
        let kept = Kept::from_bytes(&bytes);
        prop_assert_eq!(kept.as_bytes(), &*bytes);
        let record = AcceptedJson::from_serialize(&kept).unwrap();
        prop_assert_eq!(record.parse::<Kept>().unwrap(), kept);
    }
}

/// Every number as a double.
fn doubles(value: Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().map_or(Value::Null, Value::from),
        Value::Array(items) => items.into_iter().map(doubles).collect(),
        Value::Object(map) => Value::Object(
            map.into_iter()
                .map(|(key, value)| (key, doubles(value)))
                .collect(),
        ),
        other => other,
    }
}
