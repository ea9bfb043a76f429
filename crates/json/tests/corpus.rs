//! The hard cases on which public parsers disagree, written anew: what must be read, what must be refused, and, where
//! the standard leaves it open, what this boundary has decided.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test has no public items, and fails by panicking"
)]

use leasehold_json::{AcceptedJson, RefusalReason};

/// Valid for every reader.
const YES: &[&[u8]] = &[
    b"[]", b"{}", b"[[] ]", b"[\"\"]", b"[[ ],[[]]]", b"null", b"true", b"false", b"42", b"-0.1", b"\"asd\"", b"\"\"", b"\" \"",
    b"[ 1 , 2 ]", b"\n[1\n,1\r\n,\t1]\n", b"[null,1,\"1\",{}]", b"[1,null,null,null,2]", b"[2] ", b" [ ] ",
    // numbers
    b"0", b"-0", b"[-0]", b"0.0", b"-0.0", b"0e1", b"0e+1", b"0E-01", b"1e1", b"1E22", b"1E-2", b"1E+2", b"20e1", b"123.456e78",
    b"123.456789", b"1.0000000000000002", b"-123", b"-1", b"1e0010", b"1.5e+9999", b"100000000000000000000",
    b"-0.000000000000000000000000000000000000000000000000000000000000000000000000000001",
    // strings
    b"\"\\u0060\\u012a\\u12AB\"", b"\"\\uD801\\udc37\"", b"\"\\ud83d\\ude39\\ud83d\\udc8d\"", b"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
    b"\"\\\\u0000\"", b"\"\\\"\"", b"\"a/*b*/c/*d//e\"", b"\"\\\\a\"", b"\"\\\\n\"", b"\"\\u0012\"", b"\"\\uFFFF\"", b"\"\\u0000\"",
    b"\"\\uDBFF\\uDFFF\"", b"\"\\u2028\\u2029\"", b"\"\\uA66D\"", b"\"\\u005C\"", b"\"\\u0022\"", b"\"\\u200B\"", b"\"\\uFDD0\"",
    b"\"\xef\xbf\xbf\"", b"\"\xf4\x8f\xbf\xbf\"", b"\"\xf0\x9b\xbf\xbf\"", b"\"\xc2\xa0\"", b"\"\xe2\x80\xa8\xe2\x80\xa9\"",
    b"\"\x7f\"", b"\"a\x7fa\"", b"\"\xcf\x80\"", b"\"\xe2\x82\xac\xf0\x9d\x84\x9e\"", b"\"\xef\xbb\xbf\"", b"\"new\\u000Aline\"",
    b"\"\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d\"", b"\"\\uD834\\uDd1e\"", b"\"\\u0821\"", b"\"\\u0123\"",
    // objects
    b"{\"asd\":\"sdf\",\"dfg\":\"fgh\"}", b"{\"\":0}", b"{\"foo\\u0000bar\":42}", b"{\"min\":-1.0e+28,\"max\":1.0e+28}",
    b"{\"a\":[]}", b"{\n\"a\":\"b\"\n}", b"{\"a\":{\"a\":{}}}", b"{\"__proto__\":1,\"constructor\":2}", b"{\"a\":1,\"A\":2}",
    b"{\"x\":[{\"id\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}],\"id\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}",
    b"{\"\\u041f\\u043e\\u043b\":\"\\u0437\\u0435\\u043c\"}", b"{\"$serde_json::private::Number\":\"1\"}",
    b"{\"$serde_json::private::RawValue\":\"1\"}",
];

/// No JSON at all, and never read as anything.
const NO: &[&[u8]] = &[
    // arrays
    b"[1 true]",
    b"[a\xe5]",
    b"[\"\": 1]",
    b"[\"\"],",
    b"[,1]",
    b"[1,,2]",
    b"[\"x\",,]",
    b"[\"x\"]]",
    b"[\"\",]",
    b"[\"x\"",
    b"[x",
    b"[3[4]]",
    b"[\xff]",
    b"[1:2]",
    b"[,]",
    b"[-]",
    b"[   , \"\"]",
    b"[\"a\",\n4\n,1,",
    b"[1,]",
    b"[\"\"",
    b"[*]",
    b"[1,\n1\n,1",
    b"[{}",
    b"]",
    b"[",
    b"[\"a",
    b"[\"a\"",
    b"[1][2]",
    b"[1]x",
    b"[][]",
    b"[\x0c]",
    b"[\xe2\x81\xa0]",
    b"(1)",
    b"[}",
    b"{]",
    b"[\"",
    // words
    b"[fals]",
    b"[nul]",
    b"[tru]",
    b"nulll",
    b"True",
    b"NULL",
    b"truefalse",
    b"undefined",
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"-NaN",
    b"+Infinity",
    b"nan",
    b"inf",
    b"None",
    b"TRUE",
    b"t\\u0072ue",
    // numbers
    b"++1234",
    b"+1",
    b"+Inf",
    b"-01",
    b"-1.0.",
    b"-2.",
    b".-1",
    b".2e-3",
    b"0.1.2",
    b"0.3e+",
    b"0.3e",
    b"0.e1",
    b"0E+",
    b"0E",
    b"0e",
    b"1.0e+",
    b"1.0e-",
    b"1.0e",
    b"1 000.0",
    b"1eE2",
    b"2.e+3",
    b"2.e-3",
    b"2.e3",
    b"9.e+",
    b"1+2",
    b"0x1",
    b"0x42",
    b"1_000",
    b"- 1",
    b"-foo",
    b"- ",
    b"-",
    b"012",
    b"-012",
    b"00",
    b"1.",
    b"-.123",
    b"1ea",
    b"1e1.5",
    b"1.8011670033376514H-308",
    b"1e\xe5",
    b"\xef\xbc\x91",
    b"0b1",
    b"0o7",
    b"1f",
    b"1e1e1",
    b"--1",
    b"1,000",
    b"1-2",
    b"[1.e]",
    b".5",
    b"+.5",
    b"1n",
    // objects
    b"{\"x\", null}",
    b"{\"x\"::\"b\"}",
    b"{\"a\":\"a\" 123}",
    b"{key: 'value'}",
    b"{\"\xb9\":\"0\",}",
    b"{\"a\" b}",
    b"{:\"b\"}",
    b"{\"a\" \"b\"}",
    b"{\"a\":",
    b"{\"a\"",
    b"{1:1}",
    b"{9999E9999:1}",
    b"{null:null}",
    b"{\"id\":0,,,,,}",
    b"{'a':0}",
    b"{\"id\":0,}",
    b"{\"a\":\"b\"}/**/",
    b"{\"a\":\"b\"}//",
    b"{\"a\":/*c*/\"b\"}",
    b"{\"a\":\"b\",,\"c\":\"d\"}",
    b"{a: \"b\"}",
    b"{\"a\":\"a",
    b"{ \"foo\" : \"bar\", \"a\" }",
    b"{\"a\":\"b\"}#",
    b"{",
    b"{[",
    b"{,",
    b"{\"",
    b"{}}",
    b"{\"a\":1,",
    b"{\"a\":true} \"x\"",
    b"{\"a\"=1}",
    b"{[]:1}",
    b"{{}:1}",
    b"{\"a\":}",
    b"{,\"a\":1}",
    b"}",
    // strings
    b"\"\\uD800\\u\"",
    b"\"\\uD800\\u1\"",
    b"\"\\uD800\\u1x\"",
    b"\"\\uD800\\\"",
    b"\"\\x00\"",
    b"\"\\\\\\\"",
    b"\"\\\t\"",
    b"\"\\\xf0\x9f\x8c\x80\"",
    b"\"\\\"",
    b"\"\\u00A\"",
    b"\"\\uD834\\uDd\"",
    b"\"\\u\xe5\"",
    b"\"\\a\"",
    b"\"\\uqqqq\"",
    b"\"\\v\"",
    b"\"\\0\"",
    b"\"\\'\"",
    b"\"\\u+123\"",
    b"\"\\u 123\"",
    b"\"\\U0041\"",
    b"'single quote'",
    b"abc",
    b"\"\\",
    b"\"",
    b"\"a\x00a\"",
    b"\"new\nline\"",
    b"\"\t\"",
    b"\"\x1f\"",
    b"\"\r\"",
    b"\"\"x",
    b"\xe2\x80\x9cx\xe2\x80\x9d",
    b"`x`",
    b"\\u0022x\"",
    b"\"\\u{41}\"",
    // structure
    b"",
    b" ",
    b"\xef\xbb\xbf",
    b"\xef\xbb\xbf{}",
    b"<.>",
    b"[<null>]",
    b"*",
    b"{} 1",
    b"1 2",
    b"\xe5",
    b"\"x\"//c",
    b"/*c*/1",
    b"#\n1",
    b"\xc2\xa01",
    b"1\xc2\xa0",
    b"[\xc2\x85]",
    b"\x00",
    b"1\x00",
    b"[1]\x00",
    b"\xff\xfe[\x00]\x00",
    b"\x00[\x00]",
    b"{}\x0b",
    b"\x0c{}",
    b"\xe2\x80\xa81",
    b"1;",
    b"data: {}",
    b"{}{}",
    b"{}\n{}",
    b"\x1e{}\n",
    b")]}',\n{}",
    b"[1]\x1a",
    b"{\"a\":\"b\"}\xe2\x80\x8b",
];

/// Left open by the standard, decided here: true is accepted.
const DECIDED: &[(&[u8], bool)] = &[
    // Any magnitude within the exponent's bound is carried; what a double cannot hold is a question about arguments.
    (b"123.456e-789", true),
    (b"1.5e+9999", true),
    (b"-1e+9999", true),
    (b"0.4e00669999", false),
    (b"123123e100000", false),
    (b"-123123e100000", false),
    (b"123e-10000000", false),
    (b"0.4e00669999999999999999999999999999999999", false),
    (b"-237462374673276894279832749832423479823246327846", true),
    (
        b"100000000000000000000000000000000000000000000000000000000000000000000000000000001",
        true,
    ),
    (b"1e-10000", true),
    (b"1e10001", false),
    // Half a pair is no character.
    (b"\"\\uDADA\"", false),
    (b"\"\\uDd1ea\"", false),
    (b"\"\\uD888\\u1234\"", false),
    (b"\"\\uD800\\n\"", false),
    (b"\"\\uD800\\uD800\\n\"", false),
    (b"\"\\ud800abc\"", false),
    (b"\"\\uDd1e\\uD834\"", false),
    (b"\"\\uDFAA\"", false),
    (b"{\"\\uDFAA\":0}", false),
    (b"\"\\uD800\"", false),
    // Not UTF-8: other encodings, overlong forms, encoded surrogates, cut sequences.
    (b"\"\xff\"", false),
    (b"\"\xe9\"", false),
    (b"\"\x81\"", false),
    (b"\"\xed\xa0\x80\"", false),
    (b"\"\xc0\xaf\"", false),
    (b"\"\xfc\x83\xbf\xbf\xbf\xbf\"", false),
    (b"\"\xfc\x80\x80\x80\x80\x80\"", false),
    (b"\"\xe0\xff\"", false),
    (b"\"\xe6\x97\xa5\xd1\x88\xfa\"", false),
    (b"\"\xf4\xbf\xbf\xbf\"", false),
    (b"\xff\xfe[\x00\"\x00\xe9\x00\"\x00]\x00", false),
    (b"\xfe\xff\x00[\x00]", false),
    (b"\"\xed\xa0\xbd\xed\xb8\x80\"", false),
    // Readers differ in which of two they take.
    (b"{\"a\":\"b\",\"a\":\"c\"}", false),
    (b"{\"a\":\"b\",\"a\":\"b\"}", false),
    (b"{\"a\":{},\"\\u0061\":{}}", false),
    (b"{\"a\":0,\"b\":0,\"a\":0}", false),
];

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn s12_valid_documents_are_accepted_and_read_as_serde_json_reads_them() {
    for bytes in YES {
        let json = AcceptedJson::check(bytes)
            .unwrap_or_else(|refusal| panic!("{}: {refusal}", shown(bytes)));
        assert_eq!(json.as_bytes(), bytes.trim_ascii());
        if json.numbers_fit_double().is_ok() {
            // Not through `Value` alone: some keys have a meaning of their own to serde_json.
            let theirs: serde_json::Value = json
                .parse()
                .unwrap_or_else(|error| panic!("{}: {error}", shown(bytes)));
            if !json.as_str().contains("$serde_json") {
                assert_eq!(json.to_value(), theirs, "{}", shown(bytes));
            }
        }
    }
}

#[test]
fn s12_what_is_not_exactly_one_value_is_refused() {
    for bytes in NO {
        let Err(refusal) = AcceptedJson::check(bytes) else {
            panic!("{} was accepted", shown(bytes))
        };
        let structural = !matches!(
            refusal.reason,
            RefusalReason::LoneSurrogate { .. }
                | RefusalReason::RepeatedKey { .. }
                | RefusalReason::NumberTooLong { .. }
                | RefusalReason::ExponentTooLarge
        );
        assert!(structural, "{}: {refusal}", shown(bytes));
        assert!(refusal.offset <= bytes.len());
    }
}

#[test]
fn s12_what_the_standard_leaves_open_is_decided() {
    for (bytes, decision) in DECIDED {
        assert_eq!(
            AcceptedJson::check(bytes).is_ok(),
            *decision,
            "{}",
            shown(bytes)
        );
    }
}

#[test]
fn every_cut_of_a_document_is_refused() {
    let text = r#"{"a":[1.5e-3,true,null,"\u00e9\ud83d\ude00é",{"b":false}],"c":{}}"#;
    AcceptedJson::check_str(text).unwrap();
    for end in 0..text.len() {
        assert!(
            AcceptedJson::check(&text.as_bytes()[..end]).is_err(),
            "{end}"
        );
    }
}

#[test]
fn refusals_name_the_place_and_what_was_expected() {
    for (text, message) in [
        ("", "empty, no json value at byte 0"),
        (
            "\u{feff}{}",
            "byte order mark before the json value at byte 0",
        ),
        (
            "[1 2]",
            "unexpected '2' where ',' or ']' is expected at byte 3",
        ),
        (
            "{\"a\" 1}",
            "unexpected '1' where ':' is expected at byte 5",
        ),
        (
            "{\"a\":1,}",
            "unexpected '}' where a key is expected at byte 7",
        ),
        (
            "{1}",
            "unexpected '1' where a key or '}' is expected at byte 1",
        ),
        ("{\"a\":", "input ends where a value is expected at byte 5"),
        ("nulx", "unexpected 'x' where null is expected at byte 3"),
        (
            "\"a\u{1}\"",
            "raw control character '\\u{1}' in a string at byte 2",
        ),
        (
            "1 2",
            "more than one value, '2' follows the first at byte 2",
        ),
        ("01", "more than one value, '1' follows the first at byte 1"),
        ("-x", "unexpected 'x' where a digit is expected at byte 1"),
        ("[é]", "unexpected 'é' where a value is expected at byte 1"),
    ] {
        assert_eq!(
            AcceptedJson::check_str(text).unwrap_err().to_string(),
            message
        );
    }
}
