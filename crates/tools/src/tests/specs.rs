//! S10, S11, S20, A2, A13: what a specification holds, and one refusal with one text for each way it is wrong.

use std::time::Duration;

use leasehold_json::AcceptedJson;

use super::{idle, refused, schema_error, spec, tool};
use crate::{
    Annotations, Origin, ProbeKind, Registered, Registry, ResultTrust, SchemaError, SideEffect,
    SpecProblem, ToolSpec, Trust, check_arguments, compile_tool,
};

const OPEN: &str = r#"{"type":"object"}"#;

fn full() -> ToolSpec {
    spec(OPEN)
        .with_output_schema(OPEN)
        .with_terminal(true)
        .with_may_abort(true)
        .with_trust(Trust::Sandboxed)
        .with_result_trust(ResultTrust::Trusted)
        .with_annotations(Annotations {
            idempotent_hint: Some(true),
            ..Annotations::default()
        })
        .with_probe(ProbeKind::Observing)
        .with_refuses_late(true)
        .with_keep_blank(true)
        .with_concurrency("payments", 4)
        .with_rate_key("psp")
}

#[test]
fn s10_a_spec_has_one_json_form_and_comes_back_from_it() {
    let json = AcceptedJson::from_serialize(&full()).unwrap();
    insta::assert_snapshot!(json.as_str(), @r#"{"name":"lookup_order","description":"Looks up one order.","input_schema":"{\"type\":\"object\"}","output_schema":"{\"type\":\"object\"}","side_effect":"read_only","timeout_ms":5000,"terminal":true,"may_abort":true,"trust":"sandboxed","result_trust":"trusted","annotations":{"idempotentHint":true},"probe":"observing","refuses_late":true,"keep_blank":true,"concurrency_key":"payments","max_concurrency":4,"rate_key":"psp"}"#);
    assert_eq!(json.parse::<ToolSpec>().unwrap(), full());
    let plain = AcceptedJson::from_serialize(&spec(OPEN)).unwrap();
    assert_eq!(plain.parse::<ToolSpec>().unwrap(), spec(OPEN));
}

#[test]
fn s10_any_change_of_any_part_is_another_hash() {
    let changes: [fn(&mut ToolSpec); 17] = [
        |spec| spec.name.push('x'),
        |spec| spec.description.push('x'),
        |spec| spec.input_schema = "{ }".into(),
        |spec| spec.output_schema = None,
        |spec| spec.side_effect = SideEffect::LocalMutation,
        |spec| spec.timeout_ms += 1,
        |spec| spec.terminal = false,
        |spec| spec.may_abort = false,
        |spec| spec.trust = Trust::Authoritative,
        |spec| spec.result_trust = ResultTrust::Untrusted,
        |spec| spec.annotations.idempotent_hint = None,
        |spec| spec.probe = Some(ProbeKind::Fencing),
        |spec| spec.refuses_late = false,
        |spec| spec.keep_blank = false,
        |spec| spec.concurrency_key = None,
        |spec| spec.max_concurrency = Some(5),
        |spec| spec.rate_key = None,
    ];
    let mut hashes = vec![full().hash()];
    assert_eq!(hashes, [full().hash()], "the same spec has the same hash");
    for change in changes {
        let mut changed = full();
        change(&mut changed);
        hashes.push(changed.hash());
    }
    let count = hashes.len();
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), count);
}

#[test]
fn s11_the_standalone_check_the_registry_and_the_argument_check_say_the_same() {
    let named = |name: &str| ToolSpec {
        name: name.to_owned(),
        ..spec(OPEN)
    };
    let deep = format!("{}true{}", r#"{"not":"#.repeat(257), "}".repeat(257));
    let long = format!(r#"{{"description":"{}"}}"#, "x".repeat(256 * 1024));
    let bad_specs = [
        named(""),
        named(&"é".repeat(129)),
        ToolSpec {
            description: " \n".into(),
            ..spec(OPEN)
        },
        ToolSpec {
            timeout_ms: 0,
            ..spec(OPEN)
        },
        spec(OPEN).with_refuses_late(true),
        spec(OPEN).with_concurrency("key", 0),
        spec(OPEN).with_output_schema(r#"{"$ref":"other.json"}"#),
        spec(""),
        spec(" "),
        spec("{"),
        spec("[]"),
        spec(r#"{"type":"object","type":"string"}"#),
        spec(&deep),
        spec(&long),
        spec(r#"{"maximum":1e400}"#),
        spec(r#"{"maximum":1e10001}"#),
        spec(r#"{"type":"objekt"}"#),
        spec(r#"{"$ref":"https://example.com/schema"}"#),
        spec(r##"{"$ref":"#/$defs/none"}"##),
        spec(r##"{"$ref":"#"}"##),
        spec(r#"{"pattern":"(?=x)"}"#),
        spec(r#"{"properties":{"a":{"type":"strin"}}}"#),
    ];
    for bad in bad_specs {
        let standalone = compile_tool(&bad).unwrap_err().to_string();
        let registered = Registered::new(bad.clone(), Origin::Rust, idle());
        let errors = Registry::assemble(vec![registered]).unwrap_err();
        let [at_assembly] = errors.as_slice() else {
            panic!("expected one error, found {errors:?}")
        };
        assert_eq!(at_assembly.to_string(), standalone);
        let at_readers = Registry::specs_only(vec![bad.clone()]).unwrap_err();
        assert_eq!(at_readers.first().unwrap().to_string(), standalone);
        assert_eq!(
            check_arguments(&bad, b"{}").unwrap_err().to_string(),
            standalone
        );
        assert!(standalone.len() < 1500, "{standalone}");
    }
}

#[test]
fn s11_every_problem_of_a_spec_is_named_at_once() {
    let bad = ToolSpec {
        name: String::new(),
        description: String::new(),
        timeout_ms: 0,
        ..spec("[]")
    };
    insta::assert_snapshot!(compile_tool(&bad).unwrap_err(), @r#"tool "" is refused: the tool name is empty; give it 1 to 128 characters; the description is empty; say when to call the tool; the input schema must be an object or a boolean; the timeout is zero; give it at least one millisecond"#);
}

#[test]
fn s11_an_unknown_class_is_refused_by_name() {
    let json = AcceptedJson::from_serialize(&spec(OPEN)).unwrap();
    let unknown = AcceptedJson::check_str(&json.as_str().replace("read_only", "harmless")).unwrap();
    let error = unknown.parse::<ToolSpec>().unwrap_err().to_string();
    assert!(
        error.starts_with(&"harmless".parse::<SideEffect>().unwrap_err().to_string()),
        "{error}"
    );
    for class in SideEffect::ALL {
        assert_eq!(class.as_str().parse(), Ok(class));
    }
}

#[test]
fn s11_a_schema_that_is_missing_or_no_json_or_out_of_bounds_is_refused() {
    assert_eq!(schema_error(""), SchemaError::Missing);
    assert!(matches!(schema_error("{"), SchemaError::NotUsable(_)));
    assert!(matches!(
        schema_error(r#"{"maximum":1e10001}"#),
        SchemaError::NotUsable(_)
    ));
    assert!(matches!(
        schema_error(r#"{"maximum":1e400}"#),
        SchemaError::NotUsable(_)
    ));
    assert_eq!(schema_error("3"), SchemaError::NotASchema);
    let sized = |bytes: usize| format!(r#"{{"description":"{}"}}"#, "x".repeat(bytes - 18));
    assert_eq!(sized(100).len(), 100);
    assert!(compile_tool(&spec(&sized(crate::MAX_SCHEMA_BYTES))).is_ok());
    let bytes = crate::MAX_SCHEMA_BYTES + 1;
    assert_eq!(schema_error(&sized(bytes)), SchemaError::TooLarge { bytes });
}

#[test]
fn s11_a_schema_of_256_levels_is_taken_and_one_of_257_is_not() {
    let nested =
        |levels: usize| format!("{}true{}", r#"{"not":"#.repeat(levels), "}".repeat(levels));
    assert!(compile_tool(&spec(&nested(256))).is_ok());
    assert!(matches!(
        schema_error(&nested(257)),
        SchemaError::NotUsable(_)
    ));
}

#[test]
fn s11_a_schema_that_does_not_compile_is_refused_with_the_compilers_words() {
    let SchemaError::NotCompiling(text) = schema_error(r#"{"properties":{"a":{"type":"strin"}}}"#)
    else {
        panic!("expected a compiler error")
    };
    assert!(
        text.contains("strin") && text.contains("/properties/a/type"),
        "{text}"
    );
}

#[test]
fn s11_patterns_are_linear_and_bounded() {
    assert!(matches!(
        schema_error(r#"{"pattern":"(?<=a)b"}"#),
        SchemaError::NotCompiling(_)
    ));
    assert!(matches!(
        schema_error(r#"{"pattern":"(a)\\1"}"#),
        SchemaError::NotCompiling(_)
    ));
    assert!(matches!(
        schema_error(r#"{"pattern":"((a{1000}){1000}){1000}"}"#),
        SchemaError::NotCompiling(_)
    ));
    let evil = tool(r#"{"properties":{"a":{"pattern":"^(a+)+$"}}}"#);
    let arguments = format!(r#"{{"a":"{}!"}}"#, "a".repeat(50_000));
    assert!(evil.accept_arguments(arguments.as_bytes()).is_err());
}

#[test]
fn s11_formats_are_asserted_in_every_draft() {
    for dialect in [
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2020-12/schema",
    ] {
        let schema =
            format!(r#"{{"$schema":"{dialect}","properties":{{"day":{{"format":"date"}}}}}}"#);
        let tool = tool(&schema);
        assert!(tool.accept_arguments(br#"{"day":"2026-02-28"}"#).is_ok());
        assert!(tool.accept_arguments(br#"{"day":"2026-02-30"}"#).is_err());
    }
}

#[test]
fn a2_trust_has_no_default_in_a_declaration() {
    let json = AcceptedJson::from_serialize(&spec(OPEN)).unwrap();
    let without = json.as_str().replace(r#""trust":"authoritative","#, "");
    assert_ne!(without, json.as_str());
    let error = AcceptedJson::check_str(&without)
        .unwrap()
        .parse::<ToolSpec>()
        .unwrap_err()
        .to_string();
    assert!(error.contains("missing field `trust`"), "{error}");
}

#[test]
fn a13_hints_never_change_the_class() {
    let hints = Annotations {
        read_only_hint: Some(true),
        destructive_hint: Some(false),
        ..Annotations::default()
    };
    let destructive = ToolSpec {
        side_effect: SideEffect::Destructive,
        ..spec(OPEN)
    }
    .with_annotations(hints);
    let compiled = compile_tool(&destructive).unwrap();
    assert_eq!(compiled.spec().side_effect, SideEffect::Destructive);
    assert_eq!(compiled.spec().annotations, hints);
    assert_ne!(
        compiled.spec_hash(),
        ToolSpec {
            annotations: Annotations::default(),
            ..destructive
        }
        .hash()
    );
}

#[test]
fn s20_only_read_only_continues_without_evidence() {
    assert_eq!(
        SideEffect::ALL.map(SideEffect::is_read_only),
        [true, false, false, false]
    );
}

#[test]
fn s10_a_timeout_beyond_every_clock_is_the_longest_there_is() {
    let spec = ToolSpec::new("a", "b", OPEN, SideEffect::ReadOnly, Duration::MAX);
    assert_eq!(spec.timeout_ms, u64::MAX);
    assert_eq!(
        ToolSpec::new(
            "a",
            "b",
            OPEN,
            SideEffect::ReadOnly,
            Duration::from_micros(9)
        )
        .timeout_ms,
        0
    );
}

#[test]
fn s11_refuses_late_needs_a_probe() {
    let late = spec(OPEN).with_refuses_late(true);
    assert_eq!(
        compile_tool(&late).unwrap_err().problems,
        [SpecProblem::RefusesLateWithoutProbe]
    );
    assert!(compile_tool(&late.with_probe(ProbeKind::Observing)).is_ok());
    assert_eq!(refused("").problems.len(), 1);
}
