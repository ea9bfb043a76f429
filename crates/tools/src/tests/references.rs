//! K53, K54 and the expansion bound of S11: references stay inside, end, and cost little.

use std::{net::TcpListener, time::Duration};

use serde_json::{Value, json};

use super::{schema_error, spec, tool};
use crate::{ArgumentError, MAX_REFERENCE_PATHS, SchemaError, compile_tool};

/// `levels` definitions, each naming the next one twice: `2^levels` paths and some more.
fn doubled(levels: u32) -> Value {
    let mut definitions = serde_json::Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        definitions.insert(format!("d{level}"), json!({"allOf": [next, next]}));
    }
    definitions.insert(format!("d{levels}"), json!({"type": "object"}));
    json!({"$ref": "#/$defs/d0", "$defs": definitions})
}

fn nested_unevaluated(levels: usize) -> Value {
    (0..levels).fold(
        json!({"properties": {"a": true}}),
        |inner, _| json!({"allOf": [inner], "unevaluatedProperties": false}),
    )
}

#[test]
fn k53_a_circle_that_stays_on_the_value_is_refused() {
    let circles = [
        json!({"$ref": "#"}),
        json!({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}),
        json!({"$ref": "#/$defs/A", "$defs": {
            "A": {"allOf": [{"$ref": "#/$defs/B"}]}, "B": {"allOf": [{"$ref": "#/$defs/A"}]}
        }}),
        json!({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"not": {"$ref": "#/$defs/A"}}}}),
        json!({"$anchor": "top", "if": {"$ref": "#top"}}),
        json!({"$dynamicAnchor": "node", "anyOf": [{"$dynamicRef": "#node"}]}),
        json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "oneOf": [{"$recursiveRef": "#"}]}),
        json!({"x-part": {"$ref": "#/x-part"}, "$ref": "#/x-part"}),
    ];
    for circle in circles {
        assert_eq!(
            schema_error(&circle.to_string()),
            SchemaError::PureCycle,
            "{circle}"
        );
    }
}

#[test]
fn k53_a_recursive_tree_schema_works() {
    let tree = json!({
        "type": "object",
        "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["value"]
    });
    let tool = tool(&tree.to_string());
    assert!(
        tool.accept_arguments(br#"{"value":1,"children":[{"value":2,"children":[{"value":3}]}]}"#)
            .is_ok()
    );
    let error = tool
        .accept_arguments(br#"{"value":1,"children":[{"value":2,"children":[{"value":"x"}]}]}"#)
        .unwrap_err();
    assert!(
        error.to_string().contains("/children/0/children/0/value"),
        "{error}"
    );
    // 126 nodes below each other are 252 levels of the value.
    let deep = format!(
        r#"{}{{"value":0}}{}"#,
        r#"{"value":0,"children":["#.repeat(126),
        "]}".repeat(126)
    );
    assert!(tool.accept_arguments(deep.as_bytes()).is_ok());
}

#[test]
fn k53_ten_thousand_levels_are_refused_and_nothing_overflows() {
    for (open, close) in [(r#"{"not":"#, "}"), (r#"{"allOf":["#, "]}"), ("[", "]")] {
        let schema = format!("{}true{}", open.repeat(10_000), close.repeat(10_000));
        assert!(matches!(
            schema_error(&schema),
            SchemaError::NotUsable(_) | SchemaError::TooLarge { .. }
        ));
    }
}

#[test]
fn k53_a_chain_of_thousands_of_references_overflows_nothing() {
    let mut definitions = serde_json::Map::new();
    for level in 0..4_000 {
        definitions.insert(
            format!("d{level}"),
            json!({"$ref": format!("#/$defs/d{}", level + 1)}),
        );
    }
    definitions.insert("d4000".into(), json!({"type": "object"}));
    let chain = json!({"$ref": "#/$defs/d0", "$defs": definitions});
    assert!(tool(&chain.to_string()).accept_arguments(b"{}").is_ok());
}

#[test]
fn s11_a_schema_that_expands_too_far_is_refused() {
    // 15 levels: 2 + 4 + .. + 2^15, and the reference at the top: 65,535 paths. 16 levels: 131,071.
    assert!(compile_tool(&spec(&doubled(15).to_string())).is_ok());
    assert_eq!(
        schema_error(&doubled(16).to_string()),
        SchemaError::ExpandsTooFar
    );
    assert_eq!(
        schema_error(&doubled(63).to_string()),
        SchemaError::ExpandsTooFar
    );
    assert_eq!(
        schema_error(&doubled(500).to_string()),
        SchemaError::ExpandsTooFar
    );
    assert!((65_535..131_071).contains(&MAX_REFERENCE_PATHS));
}

#[test]
fn s11_a_circle_through_the_value_does_not_hide_an_expansion() {
    let mut schema = doubled(24);
    schema["$defs"]["d24"] = json!({"properties": {"again": {"$ref": "#/$defs/d0"}}});
    assert_eq!(
        schema_error(&schema.to_string()),
        SchemaError::ExpandsTooFar
    );
    // Entered in its middle, the circle is cut there, and each half alone stays under the bound.
    let mut halves = doubled(24);
    halves["$ref"] = json!("#/$defs/d12");
    halves["$defs"]["d12"]["additionalProperties"] = json!({"$ref": "#/$defs/d0"});
    assert_eq!(
        schema_error(&halves.to_string()),
        SchemaError::ExpandsTooFar
    );
}

#[test]
fn s11_paths_through_properties_count_too() {
    let mut schema = doubled(16);
    for level in 0..16 {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        schema["$defs"][format!("d{level}")] = json!({"properties": {"a": next, "b": next}});
    }
    assert_eq!(
        schema_error(&schema.to_string()),
        SchemaError::ExpandsTooFar
    );
    schema["$ref"] = json!("#/$defs/d1");
    assert!(compile_tool(&spec(&schema.to_string())).is_ok());
}

#[test]
fn s11_an_unused_definition_costs_nothing() {
    let mut schema = doubled(24);
    schema["$ref"] = json!("#/$defs/d20");
    assert!(compile_tool(&spec(&schema.to_string())).is_ok());
}

#[test]
fn s11_nested_unevaluated_keywords_count_as_an_expansion() {
    assert!(compile_tool(&spec(&nested_unevaluated(6).to_string())).is_ok());
    assert_eq!(
        schema_error(&nested_unevaluated(16).to_string()),
        SchemaError::ExpandsTooFar
    );
}

#[test]
fn k53_a_recursion_that_doubles_with_each_level_of_the_value_is_stopped() {
    let schema = json!({"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]});
    let tool = tool(&schema.to_string());
    let nested = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
    assert!(tool.accept_arguments(nested(10).as_bytes()).is_ok());
    assert_eq!(
        tool.accept_arguments(nested(200).as_bytes()),
        Err(ArgumentError::TooCostly)
    );
}

#[test]
fn k54_nobody_connects_to_what_a_schema_names() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}/x");
    let schemas = [
        json!({"$ref": url}),
        json!({"$ref": format!("{url}#/a")}),
        json!({"properties": {"a": {"items": [{"$ref": url}]}}}),
        json!({"$dynamicRef": url}),
        json!({"$recursiveRef": url}),
        json!({"$id": url}),
        json!({"$id": url, "$ref": "#/x"}),
        json!({"$defs": {"a": {"$id": url}}}),
        json!({"$schema": url}),
        json!({"properties": {"a": {"$schema": url}}}),
        json!({"x-unknown": {"deeper": [{"$ref": url}]}}),
        json!({"default": {"$ref": url}, "$ref": "#/default"}),
        json!({"properties": {"$ref": url}, "$ref": "#/properties"}),
        json!({"$schema": "http://json-schema.org/draft-04/schema#", "id": url}),
        json!({"dependencies": {"a": {"$ref": url}}}),
    ];
    for schema in schemas {
        let error = schema_error(&schema.to_string());
        assert!(
            error.to_string().starts_with("points outside itself"),
            "{schema}: {error}"
        );
        assert!(error.to_string().contains(&url), "{schema}: {error}");
    }
    listener.set_nonblocking(true).unwrap();
    let nobody = listener.accept().unwrap_err();
    assert_eq!(nobody.kind(), std::io::ErrorKind::WouldBlock);
    // The listener works: a connection that is made does show.
    listener.set_nonblocking(false).unwrap();
    let address = listener.local_addr().unwrap();
    let visitor = std::net::TcpStream::connect_timeout(&address, Duration::from_secs(5)).unwrap();
    assert_eq!(listener.accept().unwrap().1, visitor.local_addr().unwrap());
}

#[test]
fn k54_files_relative_names_and_metaschema_addresses_are_outside_too() {
    for target in [
        "file:///etc/passwd",
        "other.json",
        "",
        "/x",
        "urn:x",
        "http://json-schema.org/draft-07/schema#",
    ] {
        let error = schema_error(&json!({"$ref": target}).to_string());
        assert!(
            matches!(
                error,
                SchemaError::Outside {
                    keyword: "$ref",
                    ..
                }
            ),
            "{target}: {error}"
        );
    }
    let own_id = json!({"$id": "https://example.com/s", "$ref": "https://example.com/s#/$defs/a", "$defs": {"a": true}});
    assert!(matches!(
        schema_error(&own_id.to_string()),
        SchemaError::Outside { .. }
    ));
    let nested_standard =
        json!({"properties": {"a": {"$schema": "https://json-schema.org/draft/2020-12/schema"}}});
    assert!(matches!(
        schema_error(&nested_standard.to_string()),
        SchemaError::Dialect { .. }
    ));
}

#[test]
fn k54_the_error_names_the_place() {
    let error = schema_error(&json!({"properties": {"a/b": {"$ref": "file:///x"}}}).to_string());
    insta::assert_snapshot!(error, @r##"points outside itself: `$ref` at /properties/a~1b names "file:///x"; nothing is read or fetched, so write the definition into the schema and name it by `#...`"##);
}

#[test]
fn k54_data_and_names_that_look_like_references_are_none() {
    let outside = json!({"$ref": "http://example.com/x", "$schema": "x", "$id": "y"});
    let schema = json!({
        "properties": {
            "$ref": {"type": "string"}, "$id": {"const": outside}, "$schema": {"enum": [outside]},
            "id": {"default": outside, "examples": [outside]}
        },
        "$defs": {"$ref": {"type": "string"}}
    });
    assert!(compile_tool(&spec(&schema.to_string())).is_ok());
}

#[test]
fn s11_standard_drafts_and_inner_references_are_taken() {
    for draft in [
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema#",
    ] {
        let schema = json!({
            "$schema": draft, "properties": {"a": {"$ref": "#/definitions/a%20b~1c"}}, "definitions": {"a b/c": {"type": "string"}}
        });
        let tool = tool(&schema.to_string());
        assert!(tool.accept_arguments(br#"{"a":"x"}"#).is_ok(), "{draft}");
        assert!(tool.accept_arguments(br#"{"a":1}"#).is_err(), "{draft}");
    }
    let anchored = json!({"properties": {"a": {"$ref": "#text"}}, "$defs": {"t": {"$anchor": "text", "type": "string"}}});
    assert!(
        tool(&anchored.to_string())
            .accept_arguments(br#"{"a":1}"#)
            .is_err()
    );
    let by_id = json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"$ref": "#text"}},
        "definitions": {"t": {"$id": "#text", "type": "string"}}
    });
    assert!(
        tool(&by_id.to_string())
            .accept_arguments(br#"{"a":1}"#)
            .is_err()
    );
}

#[test]
fn s11_a_reference_to_nothing_is_refused() {
    for target in ["#/$defs/none", "#none", "#/a%zz"] {
        let error = schema_error(&json!({"$ref": target}).to_string());
        assert_eq!(
            error,
            SchemaError::Dangling {
                target: target.to_owned()
            }
        );
    }
}
