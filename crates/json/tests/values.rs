//! Carrying, looking into and hashing accepted values.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test has no public items, and fails by panicking"
)]

use leasehold_json::{AcceptedJson, BuildError, Digest, DigestBuilder, Kept, Kind, RefusalReason};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

fn accepted(text: &str) -> AcceptedJson {
    AcceptedJson::check_str(text).unwrap_or_else(|refusal| panic!("{text}: {refusal}"))
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    args: AcceptedJson,
    digest: Digest,
}

#[test]
fn accepted_json_travels_in_a_record_as_a_string_without_loss() {
    let args =
        accepted("{\"id\": 9007199254740993,\n\"r\":0.1234567890123456789,\"s\":\"\\u00e9\"}");
    let record = Record {
        digest: args.digest(),
        args,
    };
    let written = AcceptedJson::from_serialize(&record).unwrap();
    assert!(
        written
            .as_str()
            .starts_with(r#"{"args":"{\"id\": 9007199254740993,\n\"r\":0.1234567890123456789"#)
    );
    // A reader that knows nothing but doubles carries it, too.
    let through: serde_json::Value = written.to_value();
    assert_eq!(serde_json::from_value::<Record>(through).unwrap(), record);
    assert_eq!(written.parse::<Record>().unwrap(), record);
}

#[test]
fn a_record_that_holds_unusable_json_is_not_read() {
    for (text, message) in [
        (r#""{\"a\":1,\"a\":2}""#, "repeated key"),
        (r#""""#, "empty"),
        (r#""[""#, "input ends"),
        (r#"{"a":1}"#, "a string that holds json text"),
        ("7", "a string that holds json text"),
    ] {
        let error = accepted(text)
            .parse::<AcceptedJson>()
            .unwrap_err()
            .to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn equality_is_by_bytes_and_clones_share_them() {
    let (a, b) = (accepted("1.0"), accepted("1"));
    assert_ne!(a, b);
    assert_eq!(a.digest(), b.digest());
    assert_ne!(a.bytes_digest(), b.bytes_digest());
    assert!(std::ptr::eq(a.as_str(), a.clone().as_str()));
    assert_eq!(format!("{a:?} {a}"), "1.0 1.0");
}

#[test]
fn kinds_are_told() {
    for (text, kind) in [
        ("null", Kind::Null),
        ("true", Kind::Bool),
        ("false", Kind::Bool),
        ("-1", Kind::Number),
        ("0", Kind::Number),
        ("\"\"", Kind::String),
        ("[]", Kind::Array),
        ("{}", Kind::Object),
    ] {
        assert_eq!(accepted(text).kind(), kind);
    }
    assert_eq!(AcceptedJson::empty_object(), accepted("{}"));
    assert_eq!(AcceptedJson::null(), accepted("null"));
}

#[test]
fn pointers_follow_rfc_6901() {
    let json = accepted(
        r#"{"foo": ["bar", {"x" : 1.0 }], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "i\\j": 5, "k\"l": 6, " ": 7, "m~n": 8, "01": 9, "\u00e9": 10}"#,
    );
    for (pointer, part) in [
        ("", Some(json.as_str())),
        ("/foo", Some(r#"["bar", {"x" : 1.0 }]"#)),
        ("/foo/0", Some("\"bar\"")),
        ("/foo/1", Some(r#"{"x" : 1.0 }"#)),
        ("/foo/1/x", Some("1.0")),
        ("/", Some("0")),
        ("/a~1b", Some("1")),
        ("/c%d", Some("2")),
        ("/e^f", Some("3")),
        ("/i\\j", Some("5")),
        ("/k\"l", Some("6")),
        ("/ ", Some("7")),
        ("/m~0n", Some("8")),
        ("/01", Some("9")),
        ("/é", Some("10")),
        ("foo", None),
        ("/foo/2", None),
        ("/foo/-", None),
        ("/foo/01", None),
        ("/foo/+1", None),
        ("/foo/", None),
        ("/foo/0/x", None),
        ("/foo/99999999999999999999999", None),
        ("/m~n", None),
        ("/m~", None),
        ("/nothing", None),
        ("/foo/1/x/", None),
    ] {
        assert_eq!(
            json.pointer(pointer).as_ref().map(AcceptedJson::as_str),
            part,
            "{pointer}"
        );
    }
}

#[test]
fn members_keep_their_exact_bytes() {
    let json = accepted("{ \"a\" : [ 1 , {\"]\":\"}\"} ] ,\"\\u0062\":\t\"\\\"\" , \"c\":-0.0e1}");
    let members: Vec<_> = json
        .members()
        .into_iter()
        .map(|(key, part)| (key, part.to_string()))
        .collect();
    let expected = [
        ("a", "[ 1 , {\"]\":\"}\"} ]"),
        ("b", "\"\\\"\""),
        ("c", "-0.0e1"),
    ];
    assert_eq!(
        members,
        expected.map(|(key, part)| (key.to_owned(), part.to_owned()))
    );
    assert_eq!(json.member("b").unwrap().to_value(), "\"");
    assert_eq!(json.member("a").unwrap().member("a"), None);
    let elements: Vec<_> = accepted("[ 1 ,[ ], {} ,\"a,b\"]")
        .elements()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(elements, ["1", "[ ]", "{}", "\"a,b\""]);
}

#[test]
fn parts_are_put_together_verbatim() {
    let (id, text) = (accepted("9007199254740993"), accepted(r#""\u0041""#));
    let object = AcceptedJson::object([("id", &id), ("a\"b\n", &text)]).unwrap();
    assert_eq!(
        object.as_str(),
        r#"{"id":9007199254740993,"a\"b\n":"\u0041"}"#
    );
    assert_eq!(
        AcceptedJson::array([&id, &text]).unwrap().as_str(),
        r#"[9007199254740993,"\u0041"]"#
    );
    assert_eq!(
        AcceptedJson::object([]).unwrap(),
        AcceptedJson::empty_object()
    );
    let repeated = AcceptedJson::object([("id", &id), ("id", &id)]).unwrap_err();
    assert!(matches!(repeated.reason, RefusalReason::RepeatedKey { .. }));
    let deep = accepted(&format!("{}{}", "[".repeat(256), "]".repeat(256)));
    assert_eq!(
        AcceptedJson::array([&deep]).unwrap_err().reason,
        RefusalReason::TooDeep
    );
}

#[test]
fn raw_parts_of_a_typed_read_keep_their_bytes_and_are_checked() {
    #[derive(Deserialize)]
    struct Call<'a> {
        #[serde(borrow)]
        args: &'a RawValue,
    }
    let json = accepted(r#"{"args": {"id" : 9007199254740993} }"#);
    let call: Call<'_> = json.parse_borrowed().unwrap();
    assert_eq!(
        AcceptedJson::from_raw(call.args),
        Ok(accepted(r#"{"id" : 9007199254740993}"#))
    );
    let foreign = RawValue::from_string(r#"{"a":1,"a":2}"#.into()).unwrap();
    assert!(AcceptedJson::from_raw(&foreign).is_err());
}

#[test]
fn values_the_program_builds_pass_the_same_boundary() {
    assert_eq!(
        AcceptedJson::from_serialize(&("a", 1, f64::NAN))
            .unwrap()
            .as_str(),
        r#"["a",1,null]"#
    );
    let unwritable = std::collections::BTreeMap::from([((1, 2), 3)]);
    assert!(matches!(
        AcceptedJson::from_serialize(&unwritable),
        Err(BuildError::Unwritable(_))
    ));
    let deep = (0..300).fold(serde_json::Value::Null, |inner, _| {
        serde_json::Value::Array(vec![inner])
    });
    assert!(matches!(
        AcceptedJson::from_serialize(&deep),
        Err(BuildError::Refused(_))
    ));
}

#[test]
fn trees_hold_the_nearest_finite_double_and_typed_reads_say_what_does_not_fit() {
    for (text, double) in [
        ("1e400", f64::MAX),
        ("-1e400", f64::MIN),
        ("1e-400", 0.0),
        ("18446744073709551616", 18_446_744_073_709_551_616.0),
    ] {
        assert_eq!(accepted(text).to_value().as_f64(), Some(double), "{text}");
    }
    assert_eq!(
        accepted("[18446744073709551615,-9223372036854775808]").to_value(),
        serde_json::json!([u64::MAX, i64::MIN])
    );
    assert!(
        accepted("-0")
            .to_value()
            .as_f64()
            .unwrap()
            .is_sign_negative()
    );
    assert!(accepted("1e400").parse::<f64>().is_err());
    assert_eq!(
        accepted("9007199254740993").parse::<u64>().unwrap(),
        9_007_199_254_740_993
    );
    // A literal on which fast conversions are one unit off.
    let text = "7.2057594037927933e16";
    assert_eq!(
        accepted(text).parse::<f64>().unwrap().to_bits(),
        text.parse::<f64>().unwrap().to_bits()
    );
    assert!(accepted("[1] ").parse::<u8>().is_err());
}

#[test]
fn kept_bytes_are_text_if_they_can_be_and_lose_nothing() {
    let text = Kept::from_bytes("{\"a\":1,\"a\":2}\0é".as_bytes());
    assert_eq!(
        AcceptedJson::from_serialize(&text).unwrap().as_str(),
        r#"{"text":"{\"a\":1,\"a\":2}\u0000é"}"#
    );
    let bytes = Kept::from_bytes(b"{\"a\":\"\xff\"}");
    let record = AcceptedJson::from_serialize(&bytes).unwrap();
    assert_eq!(record.as_str(), r#"{"base64":"eyJhIjoi/yJ9"}"#);
    assert_eq!(record.parse::<Kept>().unwrap(), bytes);
    assert_eq!(bytes.as_bytes(), b"{\"a\":\"\xff\"}");
    for wrong in [
        r#"{"base64":"*"}"#,
        r#"{"base64":"eyI"}"#,
        r#"{"text":1}"#,
        "{}",
        r#"{"text":"","base64":""}"#,
    ] {
        assert!(accepted(wrong).parse::<Kept>().is_err(), "{wrong}");
    }
}

#[test]
fn digests_are_sha_256_in_lowercase_hex() {
    let abc = Digest::of(b"abc");
    let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(abc.to_string(), hex);
    assert_eq!(hex.parse(), Ok(abc));
    assert_eq!(
        AcceptedJson::from_serialize(&abc).unwrap().as_str(),
        format!("\"{hex}\"")
    );
    assert_eq!(
        accepted(&format!("\"{hex}\"")).parse::<Digest>().unwrap(),
        abc
    );
    assert_eq!(Digest::from_bytes(*abc.as_bytes()), abc);
    assert_eq!(Digest::ZERO.to_string(), "0".repeat(64));
    for wrong in [
        "",
        &hex[1..],
        &hex.to_uppercase(),
        &format!("{hex}0"),
        &format!("{hex}00"),
        &format!(" {}", &hex[1..]),
        &"é".repeat(32),
    ] {
        assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
    }
}

#[test]
fn fields_of_a_hash_cannot_run_into_each_other() {
    let hash = |domain: &str, fields: &[&str]| {
        fields
            .iter()
            .fold(DigestBuilder::new(domain), |builder, field| {
                builder.field(field)
            })
            .finish()
    };
    let all = [
        hash("a", &[]),
        hash("a", &[""]),
        hash("a", &["", ""]),
        hash("b", &[]),
        hash("", &["a"]),
        hash("a", &["ab", "c"]),
        hash("a", &["a", "bc"]),
        hash("a", &["abc"]),
        hash("a", &["bc", "a"]),
    ];
    let distinct: std::collections::HashSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len());
    // The documented input, spelled out.
    let input = b"\0\0\0\0\0\0\0\x14leasehold/approval/1\0\0\0\0\0\0\0\x02hi";
    assert_eq!(hash("leasehold/approval/1", &["hi"]), Digest::of(input));
}
