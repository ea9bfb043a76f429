//! S12 to S14 at the boundary of a call, K51: what is accepted, what is refused, and what the refusal says.

use std::{sync::Barrier, thread};

use super::{accepted, spec, tool};
use crate::{ArgumentError, check_arguments};

const ORDER: &str = r#"{
    "type": "object",
    "properties": {"id": {"type": "integer"}, "to": {"type": "string", "enum": ["home", "work"]}, "secret": {"type": "string", "maxLength": 3}},
    "additionalProperties": false
}"#;

#[test]
fn k51_empty_is_an_empty_object_where_the_schema_allows_one() {
    let open = tool(ORDER);
    let closed = tool(r#"{"type":"object","required":["id"]}"#);
    for empty in ["", " ", "\r\n\t "] {
        assert_eq!(accepted(&open, empty).unwrap(), "{}");
        assert!(matches!(
            accepted(&closed, empty),
            Err(ArgumentError::Unfit { .. })
        ));
    }
}

#[test]
fn k51_malformed_is_never_empty() {
    let anything = tool("true");
    for malformed in [
        r#"{"a":1"#,
        "{",
        "nul",
        "{}{}",
        "\u{feff}{}",
        "'a'",
        r#"{"a":1,"a":2}"#,
        r#""\ud800""#,
    ] {
        assert!(
            matches!(
                accepted(&anything, malformed),
                Err(ArgumentError::NotUsable(_))
            ),
            "{malformed}"
        );
    }
    assert!(matches!(
        anything.accept_arguments(b"\"\xff\""),
        Err(ArgumentError::NotUsable(_))
    ));
}

#[test]
fn k51_null_arrays_and_strings_go_to_the_schema() {
    for text in ["null", "[]", r#""x""#, "1", "true"] {
        assert_eq!(accepted(&tool("true"), text).unwrap(), text);
        assert!(matches!(
            accepted(&tool(ORDER), text),
            Err(ArgumentError::Unfit { .. })
        ));
    }
}

#[test]
fn s13_accepted_bytes_are_carried_verbatim() {
    let anything = tool("true");
    for exact in [
        "9007199254740993",
        "0.1234567890123456789",
        "1.50",
        "-0",
        "1E2",
        r#"{"b" : "\u0061\/" , "a":[ 1.0 ]}"#,
    ] {
        assert_eq!(accepted(&anything, exact).unwrap(), exact);
        assert_eq!(accepted(&anything, &format!(" {exact}\n")).unwrap(), exact);
    }
}

#[test]
fn s12_a_number_outside_the_range_of_a_double_is_refused_and_not_shown() {
    let error = accepted(&tool("true"), r#"{"a":[1,1e400]}"#).unwrap_err();
    assert_eq!(error, ArgumentError::NumberOutOfRange { offset: 8 });
    assert!(!error.to_string().contains("1e400"));
    assert!(accepted(&tool("true"), "1.7976931348623157e308").is_ok());
}

#[test]
fn s12_depth_is_bounded_at_256() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(accepted(&tool("true"), &nested(256)).is_ok());
    assert!(accepted(&tool("true"), &nested(257)).is_err());
    assert!(accepted(&tool("true"), &nested(100_000)).is_err());
}

#[test]
fn s13_a_refusal_names_places_in_order_and_no_values() {
    let error = accepted(
        &tool(ORDER),
        r#"{"to":"moon-base-7","secret":"hunter2","id":"4711-x"}"#,
    )
    .unwrap_err();
    insta::assert_snapshot!(error, @r#"the arguments do not fit the schema: at /id: value is not of type "integer"; at /secret: value is longer than 3 characters; at /to: value is not one of "home" or "work""#);
}

#[test]
fn s13_no_keyword_puts_a_value_into_its_error() {
    let rules = [
        r#"{"type":"integer"}"#,
        r#"{"enum":["a"]}"#,
        r#"{"const":"a"}"#,
        r#"{"pattern":"^a$"}"#,
        r#"{"format":"date"}"#,
        r#"{"not":{}}"#,
        r#"{"anyOf":[{"type":"integer"},{"const":1}]}"#,
        r#"{"oneOf":[{"type":"integer"},{"const":1}]}"#,
        r#"{"oneOf":[{"type":"string"},{"minLength":1}]}"#,
        r#"{"maxLength":1}"#,
        r#"{"minLength":100}"#,
        "false",
    ];
    for rule in rules {
        let schema = format!(r#"{{"properties":{{"in":{rule}}},"required":["in"]}}"#);
        let error = accepted(&tool(&schema), r#"{"in":"s3cr3t value"}"#)
            .unwrap_err()
            .to_string();
        assert!(
            !error.contains("s3cr3t") && error.contains("/in"),
            "{rule}: {error}"
        );
    }
    let lists = [
        r#"{"contains":{"type":"integer"}}"#,
        r#"{"uniqueItems":true}"#,
        r#"{"maxItems":1}"#,
        r#"{"prefixItems":[{}],"items":false}"#,
    ];
    for rule in lists {
        let error = accepted(&tool(rule), r#"["s3cr3t","s3cr3t"]"#)
            .unwrap_err()
            .to_string();
        assert!(!error.contains("s3cr3t"), "{rule}: {error}");
    }
}

#[test]
fn s13_an_error_does_not_grow_with_what_is_wrong() {
    let items = tool(r#"{"items":{"type":"string"}}"#);
    let error = accepted(&items, &format!("[{}0]", "1,".repeat(9_999))).unwrap_err();
    assert!(
        matches!(&error, ArgumentError::Unfit { misses, more } if misses.len() == 16 && *more == 240),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .ends_with("; and in at least 240 more places"),
        "{error}"
    );
    let key = "k".repeat(100_000);
    let error = accepted(&tool(ORDER), &format!(r#"{{"{key}":1}}"#)).unwrap_err();
    assert!(error.to_string().len() < 2_000);
}

#[test]
fn s13_one_call_compiles_and_checks_with_the_same_text() {
    for arguments in ["", r#"{"id":1}"#, r#"{"id":"x"}"#, "{", r#"{"id":1e999}"#] {
        let apart = tool(ORDER).accept_arguments(arguments.as_bytes());
        let together = check_arguments(&spec(ORDER), arguments.as_bytes());
        assert_eq!(apart, together);
        assert_eq!(
            apart.map_err(|error| error.to_string()),
            together.map_err(|error| error.to_string())
        );
    }
}

#[test]
fn s13_the_cache_never_mixes_up_specs_under_concurrent_use() {
    let barrier = Barrier::new(8);
    thread::scope(|scope| {
        for thread in 0..8 {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                for round in 0..60 {
                    // More specs than the cache holds, so that entries come and go.
                    let wanted = (thread * 7 + round) % 24;
                    let spec = spec(&format!(r#"{{"const":{wanted}}}"#));
                    assert!(check_arguments(&spec, wanted.to_string().as_bytes()).is_ok());
                    assert!(check_arguments(&spec, (wanted + 1).to_string().as_bytes()).is_err());
                }
            });
        }
    });
}
