//! A15 and K52: what the normaliser takes out, and that it leaves everything else alone.

use leasehold_json::AcceptedJson;
use proptest::prelude::*;
use serde_json::Value;

use super::{accepted, spec, tool};
use crate::{CompiledTool, check_arguments, compile_tool};

const MAIL: &str = r#"{
    "type": "object",
    "properties": {
        "to": {"type": "string"},
        "cc": {"type": "string"},
        "note": {"type": ["string", "null"]},
        "kind": {"enum": ["a", "b"]},
        "copies": {"type": "integer"},
        "mixed": {"type": ["string", "integer"]},
        "tags": {"type": "object", "properties": {"inner": {"type": "string"}}}
    },
    "required": ["to"]
}"#;

fn becomes(schema: &str, arguments: &str, wanted: &str) {
    let tool = tool(schema);
    assert_eq!(accepted(&tool, arguments).unwrap(), wanted);
    assert_eq!(
        accepted(&tool, wanted).unwrap(),
        wanted,
        "a second pass changes nothing"
    );
    assert_eq!(
        check_arguments(tool.spec(), arguments.as_bytes())
            .unwrap()
            .as_str(),
        wanted
    );
}

#[test]
fn a15_blank_optional_strings_are_absent() {
    becomes(MAIL, r#"{"to":"x","cc":""}"#, r#"{"to":"x"}"#);
    becomes(
        MAIL,
        r#"{"to":"x","cc":" \t\n\u00a0\u3000","note":"  "}"#,
        r#"{"to":"x"}"#,
    );
    becomes(MAIL, r#"{"cc":"","to":"x"}"#, r#"{"to":"x"}"#);
    becomes(
        r#"{"properties":{"a":{"type":"string"},"b":{"type":"string"}}}"#,
        r#"{ "a" : "" , "b" : " " }"#,
        "{  }",
    );
}

#[test]
fn a15_optional_strings_are_trimmed_by_their_text() {
    becomes(
        MAIL,
        r#"{"to":"x","cc":"  a b\t"}"#,
        r#"{"to":"x","cc":"a b"}"#,
    );
    becomes(
        MAIL,
        r#"{"to":"x","cc":"\u0020\n\u0061\u0020\"\\ \ud83d\ude00\u2003"}"#,
        r#"{"to":"x","cc":"\u0061\u0020\"\\ \ud83d\ude00"}"#,
    );
    becomes(
        MAIL,
        "{\"to\":\"x\",\"cc\":\"\u{3000}é\u{a0}\"}",
        r#"{"to":"x","cc":"é"}"#,
    );
    becomes(MAIL, r#"{"to":"x","cc":"\\n"}"#, r#"{"to":"x","cc":"\\n"}"#);
}

#[test]
fn a15_null_for_an_optional_property_is_absent_whatever_its_type() {
    becomes(
        MAIL,
        r#"{"to":"x","copies":null,"note":null,"mixed":null,"tags":null,"kind":null}"#,
        r#"{"to":"x"}"#,
    );
}

#[test]
fn k52_a_blank_choice_is_absent_and_a_required_blank_is_kept() {
    becomes(MAIL, r#"{"to":"","kind":""}"#, r#"{"to":""}"#);
    becomes(
        MAIL,
        r#"{"to":"  x ","kind":" a "}"#,
        r#"{"to":"  x ","kind":"a"}"#,
    );
    let required_pattern =
        tool(r#"{"properties":{"id":{"type":"string","pattern":"^x"}},"required":["id"]}"#);
    assert!(accepted(&required_pattern, r#"{"id":""}"#).is_err());
    becomes(
        r#"{"properties":{"id":{"type":"string","pattern":"^x"}}}"#,
        r#"{"id":""}"#,
        "{}",
    );
}

#[test]
fn a15_required_nested_unknown_and_other_types_stay_as_they_are() {
    for untouched in [
        r#"{"to":" x "}"#,
        r#"{"to":"x","unknown":"","other":null}"#,
        r#"{"to":"x","mixed":" "}"#,
        r#"{"to":"x","tags":{"inner":"","n":null}}"#,
        r#"{"to":"x" , "copies" : 1.0 }"#,
    ] {
        becomes(MAIL, untouched, untouched);
    }
    becomes("true", "null", "null");
    becomes(
        r#"{"properties":{"a":{"type":"string"}}}"#,
        r#"[{"a":""}]"#,
        r#"[{"a":""}]"#,
    );
    assert!(
        accepted(&tool(MAIL), r#"{"to":null}"#).is_err(),
        "null for a required property is not absent"
    );
}

#[test]
fn a15_what_stays_keeps_its_bytes_and_its_place() {
    becomes(
        MAIL,
        "{\n  \"cc\" : \"\",\n  \"copies\": 1.0 ,\n  \"note\":null,\n  \"to\":\t\"a\\u0062\",\n  \"kind\": \" a\"\n}",
        "{\n  \"copies\": 1.0,\n  \"to\":\t\"a\\u0062\",\n  \"kind\": \"a\"\n}",
    );
    becomes(
        MAIL,
        r#"{"to":"x","c\u0063":"","z":9007199254740993}"#,
        r#"{"to":"x","z":9007199254740993}"#,
    );
}

#[test]
fn a15_keep_blank_turns_it_off() {
    let keep = compile_tool(
        &spec(r#"{"properties":{"a":{"type":"string"},"b":{"type":["string","null"]}}}"#)
            .with_keep_blank(true),
    );
    let text = r#"{"a":"  ","b":null}"#;
    assert_eq!(accepted(&keep.unwrap(), text).unwrap(), text);
}

#[test]
fn a15_the_spellings_of_schema_generators_are_understood() {
    let optional = r#"{"properties":{"a":{"anyOf":[{"type":"string","maxLength":9},{"type":"null"}],"default":null}}}"#;
    becomes(optional, r#"{"a":" "}"#, "{}");
    let by_reference = r##"{"$ref":"#/$defs/Args","$defs":{"Text":{"type":"string"},
        "Args":{"properties":{"a":{"$ref":"#/$defs/Text"},"b":{"allOf":[{"$ref":"#/$defs/Text"}]}},"required":["b"]}}}"##;
    becomes(by_reference, r#"{"a":" ","b":" "}"#, r#"{"b":" "}"#);
    let parts = r#"{"allOf":[{"properties":{"a":{"type":"string"},"b":{"type":"string"}}},{"required":["b"]}]}"#;
    becomes(parts, r#"{"a":"","b":""}"#, r#"{"b":""}"#);
    let recursive = r##"{"properties":{"a":{"anyOf":[{"type":"string"},{"$ref":"#/$defs/L"}]}},"$defs":{"L":{"items":{"$ref":"#/$defs/L"}}}}"##;
    becomes(recursive, r#"{"a":""}"#, r#"{"a":""}"#);
}

fn properties() -> CompiledTool {
    tool(
        r#"{"properties":{"a":{"type":"string"},"b":{"type":["string","null"]},"c":{"type":"integer"},
            "r":{"type":"string"},"s":{}},"required":["r"]}"#,
    )
}

/// One member with spaces of its own around its parts.
fn member() -> impl Strategy<Value = (String, String)> {
    let space = "[ \n\t]{0,2}";
    let text = prop_oneof!["[ a\u{a0}]{0,4}", r"(\\n|\\u0020| |\\\\|\\u0061|x){0,4}"]
        .prop_map(|inner| format!("\"{inner}\""));
    let value = prop_oneof![4 => text, 1 => Just("null".to_owned()), 1 => Just("[1.0, {\"a\":\"\"}]".to_owned()), 1 => Just("1E1".to_owned())];
    (space, space, value, space).prop_map(|(before, colon, value, after)| {
        (format!("{before}\"KEY\"{colon}:{after}"), value)
    })
}

fn document() -> impl Strategy<Value = Vec<(&'static str, String, String)>> {
    let keys = proptest::sample::subsequence(vec!["a", "b", "c", "r", "s", "unknown"], 0..=6)
        .prop_shuffle();
    keys.prop_flat_map(|keys| {
        let count = keys.len();
        (Just(keys), proptest::collection::vec(member(), count)).prop_map(|(keys, members)| {
            keys.into_iter()
                .zip(members)
                .map(|(key, (lead, value))| (key, lead.replace("KEY", key), value))
                .collect()
        })
    })
}

/// What the rule says of one member, on the parsed value.
fn expected(key: &str, value: Value) -> Option<Value> {
    match (key, value) {
        ("a" | "b" | "c" | "s", Value::Null) => None,
        ("a" | "b", Value::String(text)) => Some(text.trim())
            .filter(|text| !text.is_empty())
            .map(Value::from),
        (_, value) => Some(value),
    }
}

proptest! {
    #[test]
    fn a15_the_normaliser_follows_the_rule_and_touches_no_other_byte(members in document()) {
        let body: Vec<String> = members.iter().map(|(_, lead, value)| format!("{lead}{value}")).collect();
        let text = format!("{{{}}}", body.join(" ,"));
        let before = AcceptedJson::check_str(&text).unwrap();
        let after = properties().normalised(before.clone());

        let mut wanted = serde_json::Map::new();
        for (key, value) in before.to_value().as_object().unwrap() {
            if let Some(value) = expected(key, value.clone()) {
                wanted.insert(key.clone(), value);
            }
        }
        prop_assert_eq!(after.to_value(), Value::Object(wanted.clone()));
        let order: Vec<String> = after.members().into_iter().map(|(key, _)| key).collect();
        let kept: Vec<&str> = members.iter().map(|(key, ..)| *key).filter(|key| wanted.contains_key(*key)).collect();
        prop_assert_eq!(order, kept);
        for (key, value) in after.members() {
            let was = before.member(&key).unwrap();
            if was.to_value() == value.to_value() {
                prop_assert_eq!(value, was, "a member whose value is the same keeps its bytes");
            }
        }
        prop_assert_eq!(properties().normalised(after.clone()), after);
        if before.to_value() == Value::Object(wanted) {
            prop_assert_eq!(properties().normalised(before.clone()), before, "nothing to do, nothing changed");
        }
    }
}
