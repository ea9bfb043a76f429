//! What the boundary refuses, in which order, and what it leaves alone.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test has no public items, and fails by panicking"
)]

use leasehold_json::{
    AcceptedJson, MAX_DEPTH, MAX_EXPONENT, MAX_NUMBER_LITERAL, Refusal, RefusalReason,
};

fn refusal(bytes: impl AsRef<[u8]>) -> Refusal {
    AcceptedJson::check(bytes.as_ref()).expect_err("must be refused")
}

fn accepted(text: &str) -> AcceptedJson {
    AcceptedJson::check_str(text).unwrap_or_else(|refusal| panic!("{text}: {refusal}"))
}

fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

/// Arrays and objects in turn.
fn nested_mixed(depth: usize) -> String {
    let mut text = String::from("0");
    for level in 0..depth {
        text = if level % 2 == 0 {
            format!("[{text}]")
        } else {
            format!(r#"{{"a":{text}}}"#)
        };
    }
    text
}

fn key(name: &str) -> RefusalReason {
    RefusalReason::RepeatedKey { key: name.into() }
}

#[test]
fn s12_depth_256_is_accepted_and_257_is_refused() {
    for text in [nested(MAX_DEPTH), nested_mixed(MAX_DEPTH)] {
        assert_eq!(accepted(&text).as_str(), text);
    }
    assert_eq!(
        refusal(nested(257)),
        Refusal {
            offset: 256,
            reason: RefusalReason::TooDeep
        }
    );
    assert_eq!(refusal(nested_mixed(257)).reason, RefusalReason::TooDeep);
}

#[test]
fn s12_depth_counts_open_levels_only() {
    let wide = format!("[{}0]", "[[]],".repeat(5_000));
    accepted(&wide);
    accepted(&format!("\"{}\"", "[".repeat(1_000)));
}

#[test]
fn k56_the_same_depth_is_read_by_every_reader_of_accepted_json() {
    for depth in [126, 127, 128, 129, 255, 256] {
        let json = accepted(&nested(depth));
        let typed: serde_json::Value = json.parse().unwrap();
        assert_eq!(typed, json.to_value());
        assert_eq!(json.canonical(), nested(depth));
        assert_eq!(
            json.pointer(&"/0".repeat(depth - 1)).unwrap().as_str(),
            "[]"
        );
        let carried = serde_json::to_string(&json).unwrap();
        let mut reader = serde_json::Deserializer::from_str(&carried);
        assert_eq!(
            serde::Deserialize::deserialize(&mut reader).ok(),
            Some(json)
        );
    }
}

#[test]
fn k56_a_hundred_thousand_brackets_are_refused_and_do_not_abort() {
    for open in ["[", "{\"a\":", "[{\"a\":", "[[],"] {
        let refusal = refusal(open.repeat(100_000));
        assert_eq!(refusal.reason, RefusalReason::TooDeep, "{open}");
    }
}

#[test]
fn s12_too_deep_beats_every_other_fault() {
    let deep = nested(300);
    let mut bad_utf8 = deep.clone().into_bytes();
    bad_utf8.insert(0, 0xff);
    for bytes in [
        bad_utf8,
        format!("[1,]{deep}").into_bytes(),
        format!(r#"["\ud800",{deep}]"#).into_bytes(),
        format!(r#"{{"a":1,"a":{deep}}}"#).into_bytes(),
        format!("[1e99999,{deep}]").into_bytes(),
        "[".repeat(300).into_bytes(),
    ] {
        assert_eq!(refusal(bytes).reason, RefusalReason::TooDeep);
    }
}

#[test]
fn s12_bad_utf8_beats_faults_of_later_rank() {
    let mut bytes = br#"{"a":1,"a":1e99999,"b":"\ud800"} x "#.to_vec();
    bytes.push(0xc3);
    let offset = bytes.len() - 1;
    assert_eq!(
        refusal(bytes),
        Refusal {
            offset,
            reason: RefusalReason::NotUtf8
        }
    );
}

#[test]
fn s12_not_exactly_one_value_beats_faults_of_later_rank() {
    let text = r#"{"a":1,"a":1e99999,"b":"\ud800"} x"#;
    assert_eq!(
        refusal(text),
        Refusal {
            offset: 33,
            reason: RefusalReason::AfterValue { found: 'x' }
        }
    );
}

#[test]
fn s12_surrogates_beat_keys_and_keys_beat_numbers() {
    let text = r#"[1e99999,{"a":1,"a":2},"\ud800"]"#;
    assert_eq!(
        refusal(text),
        Refusal {
            offset: 24,
            reason: RefusalReason::LoneSurrogate { unit: 0xd800 }
        }
    );
    let text = r#"[1e99999,{"a":1,"a":2},{"b":1,"b":2}]"#;
    assert_eq!(
        refusal(text),
        Refusal {
            offset: 16,
            reason: key("a")
        }
    );
    let text = "[1e99999,1e99998]";
    assert_eq!(
        refusal(text),
        Refusal {
            offset: 1,
            reason: RefusalReason::ExponentTooLarge
        }
    );
}

#[test]
fn s12_invalid_utf8_of_every_kind_is_refused_at_its_first_byte() {
    let cases: [&[u8]; 8] = [
        b"\"\xff\"",
        b"\"\x80\"",
        b"\"\xc0\xaf\"",
        b"\"\xe0\x80\x80\"",
        b"\"\xed\xa0\x80\"",
        b"\"\xf4\x90\x80\x80\"",
        b"\"\xe2\x82\"",
        b"\"\xf0\x9f\x98",
    ];
    for bytes in cases {
        assert_eq!(
            refusal(bytes),
            Refusal {
                offset: 1,
                reason: RefusalReason::NotUtf8
            }
        );
    }
}

#[test]
fn s12_repeated_key_is_refused() {
    assert_eq!(
        refusal(r#"{"a":1,"a":2}"#),
        Refusal {
            offset: 7,
            reason: key("a")
        }
    );
    assert_eq!(
        refusal(r#"{"a":1,"a":2}"#).to_string(),
        r#"repeated key "a" at byte 7"#
    );
}

#[test]
fn s12_keys_are_compared_after_unescaping() {
    for (text, name) in [
        (r#"{"a":1,"\u0061":2}"#, "a"),
        (r#"{"\u0061":1,"a":2}"#, "a"),
        (r#"{"/":1,"\/":2}"#, "/"),
        (r#"{"\n":1,"\u000A":2}"#, "\n"),
        (r#"{"😀":1,"\ud83d\ude00":2}"#, "😀"),
        (r#"{"":1,"":2}"#, ""),
        (r#"{"\u00e9":1,"é":2}"#, "é"),
    ] {
        assert_eq!(refusal(text).reason, key(name), "{text}");
    }
    // Not normalised: a composed and a decomposed é are two keys, and so are upper and lower case.
    accepted("{\"\u{e9}\":1,\"e\u{301}\":2,\"E\":3,\"e\":4}");
}

#[test]
fn s12_the_same_key_in_different_objects_is_no_repetition() {
    accepted(r#"{"a":{"a":{"a":[{"a":1},{"a":2}]}},"b":{"a":1}}"#);
}

#[test]
fn s12_a_repetition_is_found_beyond_nested_objects_and_in_large_ones() {
    assert_eq!(
        refusal(r#"{"a":{"b":1,"c":2},"b":3,"a":4}"#).reason,
        key("a")
    );
    for count in [2, 11, 12, 13, 14, 100, 1_000] {
        let members: Vec<_> = (0..count)
            .map(|n| format!(r#""k{n}":{{"k0":0}}"#))
            .collect();
        let members = members.join(",");
        accepted(&format!("{{{members}}}"));
        for repeated in [0, count / 2, count - 1] {
            let text = format!(r#"{{{members},"k{repeated}":1}}"#);
            let offset = text.rfind(r#","k"#).unwrap() + 1;
            assert_eq!(
                refusal(&text),
                Refusal {
                    offset,
                    reason: key(&format!("k{repeated}"))
                }
            );
        }
    }
}

#[test]
fn k55_a_repeated_key_is_refused_at_any_depth() {
    let twice = r#"{"path":"/tmp/a","path":"/"}"#;
    assert_eq!(refusal(twice).reason, key("path"));
    assert_eq!(refusal(r#"{"num":2,"num":123}"#).reason, key("num"));
    for depth in [1, 10, 127, 128, 255] {
        let text = format!("{}{twice}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(refusal(text).reason, key("path"), "depth {depth}");
    }
}

#[test]
fn k49_lone_surrogates_are_refused_in_values_and_keys() {
    for (text, offset, unit) in [
        (r#"{"t":"a\ud99c"}"#, 7, 0xd99c),
        (r#"{"\ud99c":1}"#, 2, 0xd99c),
        (r#""\ude00\ud83d""#, 1, 0xde00),
        (r#""\ud83d\ud83d\ude00""#, 1, 0xd83d),
        (r#""\ud83d\u0041""#, 1, 0xd83d),
        (r#""\ud83d\n""#, 1, 0xd83d),
        (r#""\ud83d ude00""#, 1, 0xd83d),
        (r#""\ud83d\\ude00""#, 1, 0xd83d),
        (r#""\ud83d\ude00\udc00""#, 13, 0xdc00),
        (r#""\uDFFF""#, 1, 0xdfff),
    ] {
        assert_eq!(
            refusal(text),
            Refusal {
                offset,
                reason: RefusalReason::LoneSurrogate { unit }
            },
            "{text}"
        );
    }
    assert_eq!(
        refusal(r#""\ud99c""#).to_string(),
        r"escaped surrogate \ud99c outside a pair at byte 1"
    );
    assert_eq!(accepted(r#""\ud83d\ude00""#).to_value(), "😀");
    assert_eq!(
        accepted(r#""\uD800\uDC00\uDBFF\uDFFF""#).to_value(),
        "\u{10000}\u{10ffff}"
    );
    accepted(r#""\\ud800""#);
}

#[test]
fn k51_empty_is_told_apart_from_malformed() {
    for text in ["", " ", "\t\r\n "] {
        assert_eq!(
            refusal(text),
            Refusal {
                offset: 0,
                reason: RefusalReason::Empty
            }
        );
        assert!(refusal(text).is_empty());
    }
    for text in [
        "{\"a\":1", "{", "\u{0}", "\u{b}", "\u{a0}", "\u{feff}", "nul", "''",
    ] {
        assert!(!refusal(text).is_empty(), "{text:?}");
    }
    for text in ["null", "[]", "\"x\"", "{}"] {
        accepted(text);
    }
}

#[test]
fn s12_number_literals_are_bounded_in_length() {
    let longest = "7".repeat(MAX_NUMBER_LITERAL);
    assert_eq!(accepted(&longest).as_str(), longest);
    assert_eq!(
        refusal(format!("[{longest}7]")),
        Refusal {
            offset: 1,
            reason: RefusalReason::NumberTooLong { length: 10_001 }
        }
    );
    // The sign and the point count.
    assert!(matches!(
        refusal(format!("-{longest}")).reason,
        RefusalReason::NumberTooLong { .. }
    ));
}

#[test]
fn s12_exponents_are_bounded_in_both_directions() {
    for text in [
        "1e10000",
        "1E+10000",
        "1e-10000",
        "0e10000",
        "1e00000000000000000000000010000",
        "-0e-10000",
    ] {
        accepted(text);
    }
    for text in [
        "1e10001",
        "1e-10001",
        "0e10001",
        "1e99999999999999999999999999999",
        "1E+0010001",
    ] {
        assert_eq!(
            refusal(text).reason,
            RefusalReason::ExponentTooLarge,
            "{text}"
        );
    }
    assert_eq!(MAX_EXPONENT, 10_000);
}

#[test]
fn s12_bytes_are_carried_verbatim() {
    for text in [
        "9007199254740993",
        "0.1234567890123456789",
        "18446744073709551616",
        "1e400",
        "-0",
        "-0.0",
        "1.0",
        "1E+02",
        r#"{ "b" : 1 , "a":"\u0041\/" }"#,
        "[\n1,\r\n\t2 ]",
        "\"\u{7f}\u{2028}\u{feff}\"",
        r#"{"id":9007199254740993}"#,
    ] {
        assert_eq!(accepted(text).as_str(), text);
        assert_eq!(accepted(&format!(" \n{text}\t\r ")).as_str(), text);
    }
}

#[test]
fn s12_an_argument_number_outside_the_range_of_a_double_is_refused() {
    for (text, offset) in [
        ("1e400", 0),
        ("[1,-1e309]", 3),
        (r#"{"a1":"1e400","b":1e400}"#, 18),
        ("1.8e308", 0),
        ("[1e-400]", 1),
    ] {
        let refusal = accepted(text).numbers_fit_double().expect_err(text);
        assert!(
            matches!(refusal.reason, RefusalReason::OutsideDouble { .. }),
            "{text}"
        );
        assert_eq!(refusal.offset, offset, "{text}");
    }
    let long = format!("1{}", "0".repeat(400));
    assert!(accepted(&long).numbers_fit_double().is_err());
    assert_eq!(
        accepted("[1e400]")
            .numbers_fit_double()
            .unwrap_err()
            .to_string(),
        "number 1e400 is outside the range of a double at byte 1"
    );
    for text in [
        "9007199254740993",
        "0.1234567890123456789",
        "1.7976931348623157e308",
        "5e-324",
        "0e10000",
        "-0.0e-400",
        r#""1e400""#,
        r#"{"1e400":"\"1e400"}"#,
        "0.00001",
        "[true,false,null]",
    ] {
        accepted(text)
            .numbers_fit_double()
            .unwrap_or_else(|refusal| panic!("{text}: {refusal}"));
    }
    accepted(&format!("0.{}1", "0".repeat(300)))
        .numbers_fit_double()
        .unwrap();
    assert!(
        accepted(&format!("0.{}1", "0".repeat(400)))
            .numbers_fit_double()
            .is_err()
    );
}

#[test]
fn errors_do_not_grow_with_their_input() {
    let name = "é".repeat(100_000);
    let text = format!(r#"{{"{name}":1,"{name}":2}}"#);
    assert!(refusal(text).to_string().len() < 300);
    let number = format!("1{}", "0".repeat(9_000));
    assert!(
        accepted(&number)
            .numbers_fit_double()
            .unwrap_err()
            .to_string()
            .len()
            < 300
    );
}

/// Quadratic work would take hours here, linear work takes a second even unoptimised.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "measures real time; no run depends on it"
)]
fn hostile_input_takes_linear_time() {
    let keys: String = (0..400_000).map(|n| format!(r#""{n:x}":0,"#)).collect();
    let one_object = format!(r#"{{{keys}"last":0}}"#);
    let escaped = format!(r#"["{}"]"#, r"\ud83d\ude00".repeat(400_000));
    let small_objects = format!("[{}0]", r#"{"a":{"b":{"c":0}}},"#.repeat(200_000));
    let unclosed = "\"".to_owned() + &"\\\"".repeat(2_000_000);
    let start = std::time::Instant::now();
    for text in [&one_object, &escaped, &small_objects] {
        let json = accepted(text);
        json.numbers_fit_double().unwrap();
        assert!(json.member("nothing").is_none());
    }
    assert!(matches!(
        refusal(unclosed).reason,
        RefusalReason::UnexpectedEnd { .. }
    ));
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}
