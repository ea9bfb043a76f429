//! S33: one text for each value. Golden vectors first: other implementations of the wire contract must give the same.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test has no public items, and fails by panicking"
)]

use leasehold_json::{AcceptedJson, Decimal, Digest};
use proptest::prelude::*;

fn accepted(text: &str) -> AcceptedJson {
    AcceptedJson::check_str(text).unwrap_or_else(|refusal| panic!("{text}: {refusal}"))
}

/// Literals and the canonical form of their value.
const NUMBERS: &[(&[&str], &str)] = &[
    (&["0", "-0", "0.0", "-0.000e5", "0e-10000", "0e10000"], "0"),
    (
        &["1", "1.0", "1e0", "10e-1", "0.1e1", "0.0001E+4", "1.000"],
        "1",
    ),
    (&["-1", "-1.0", "-10e-1"], "-1"),
    (&["100", "1e2", "1E+02"], "100"),
    (&["0.5", "5e-1", "0.50"], "0.5"),
    (&["0.000001", "1e-6"], "0.000001"),
    (&["0.0000001", "1e-7"], "1e-7"),
    (&["100000000000000000000", "1e20"], "100000000000000000000"),
    (&["1000000000000000000000", "1e21"], "1e+21"),
    (
        &["9007199254740992", "9007199254740992.0"],
        "9007199254740992",
    ),
    (
        &[
            "9007199254740993",
            "9007199254740993.0",
            "9.007199254740993e15",
        ],
        "9007199254740993",
    ),
    (&["-9007199254740993"], "-9007199254740993"),
    (&["90071992547409930"], "9007199254740993e+1"),
    (&["18446744073709551615"], "18446744073709551615"),
    (&["18446744073709551616"], "18446744073709551616"),
    (&["0.1", "0.10", "1e-1"], "0.1"),
    // The double nearest to 0.1 is not 0.1; its own exact digits are another value.
    (
        &["0.1000000000000000055511151231257827021181583404541015625"],
        "1000000000000000055511151231257827021181583404541015625e-55",
    ),
    (
        &["0.1234567890123456789", "1234567890123456789e-19"],
        "1234567890123456789e-19",
    ),
    (
        &["1.7976931348623157e308", "1.7976931348623157e+308"],
        "1.7976931348623157e+308",
    ),
    (&["1e308"], "1e+308"),
    (&["1e309", "10e308"], "1e+309"),
    (&["1e400", "1E+400", "0.1e401"], "1e+400"),
    (&["-1.5e400"], "-15e+399"),
    (&["5e-324"], "5e-324"),
    // Rounds to the same double as 5e-324.
    (&["4e-324"], "4e-324"),
    (&["1e-400"], "1e-400"),
    // RFC 8785 would round this one, so it is kept instead.
    (&["333333333.33333329"], "33333333333333329e-8"),
    (&["1e23"], "1e+23"),
    (&["99999999999999991611392"], "99999999999999991611392"),
    (&["123456789012345678"], "123456789012345678"),
    (&["1234567890123456800"], "1234567890123456800"),
    (&["1e10000"], "1e+10000"),
];

#[test]
fn s33_numbers_have_one_text_each() {
    for (literals, canonical) in NUMBERS {
        for literal in *literals {
            assert_eq!(accepted(literal).canonical(), *canonical, "{literal}");
            assert_eq!(
                literal.parse::<Decimal>().unwrap().to_string(),
                *canonical,
                "{literal}"
            );
        }
        assert_eq!(accepted(canonical).canonical(), *canonical);
    }
}

#[test]
fn s33_documents_have_one_text_each() {
    for (text, canonical) in [
        (" {} ", "{}"),
        ("[ ]", "[]"),
        (
            r#"{ "b" : 2 , "a" : [ 1.0 , true , null ] }"#,
            r#"{"a":[1,true,null],"b":2}"#,
        ),
        (r#""\u0041\/\u00e9\ud83d\ude00""#, "\"A/é😀\""),
        (
            r#""\u0000\u0008\u0009\u000a\u000b\u000C\u000d\u001f\u007f\"\\""#,
            "\"\\u0000\\b\\t\\n\\u000b\\f\\r\\u001f\u{7f}\\\"\\\\\"",
        ),
        ("\"\u{2028}\u{feff}\u{e9}\"", "\"\u{2028}\u{feff}\u{e9}\""),
        // UTF-16 order: U+1F600 is D83D DE00 and comes before U+FB33, although its code point is larger.
        (
            "{\"\u{20ac}\":1,\"\\r\":2,\"\u{fb33}\":3,\"1\":4,\"\u{1f600}\":5,\"\u{80}\":6,\"\u{f6}\":7}",
            "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"\u{f6}\":7,\"\u{20ac}\":1,\"\u{1f600}\":5,\"\u{fb33}\":3}",
        ),
        (
            r#"{"aa":1,"a":2,"":3,"B":4}"#,
            r#"{"":3,"B":4,"a":2,"aa":1}"#,
        ),
        (
            r#"{"a":{"d":1,"c":{"f":1,"e":2}}}"#,
            r#"{"a":{"c":{"e":2,"f":1},"d":1}}"#,
        ),
    ] {
        assert_eq!(accepted(text).canonical(), canonical);
        assert_eq!(accepted(canonical).canonical(), canonical);
    }
}

#[test]
fn s33_digests_are_stable() {
    let one = accepted(r#"{"id":9007199254740993,"amount":1.50}"#);
    assert_eq!(one.canonical(), r#"{"amount":1.5,"id":9007199254740993}"#);
    assert_eq!(
        one.digest(),
        Digest::of(br#"{"amount":1.5,"id":9007199254740993}"#)
    );
    assert_eq!(
        one.bytes_digest(),
        Digest::of(br#"{"id":9007199254740993,"amount":1.50}"#)
    );
    assert_eq!(
        AcceptedJson::empty_object().digest().to_string(),
        "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    );
}

#[test]
fn s33_an_approval_for_one_id_does_not_cover_its_neighbour() {
    let ids = [
        "9007199254740992",
        "9007199254740993",
        "9007199254740994",
        "9007199254740992.5",
        "9.0071992547409925e15",
    ];
    let digests: std::collections::HashSet<_> =
        ids.iter().map(|id| accepted(id).digest()).collect();
    assert_eq!(digests.len(), 4, "only the last two are the same number");
}

#[test]
fn canonical_text_is_short_whatever_the_exponent() {
    let json = accepted(r#"[1e10000,-1e-10000,0.00001e-9999]"#);
    assert_eq!(json.canonical(), "[1e+10000,-1e-10000,1e-10004]");
}

/// Digits and exponents from so small a pool that equal values are common.
fn literal() -> impl Strategy<Value = String> {
    (
        "-?",
        "(0|10{0,3}|[1-9][09]{0,16})",
        "(\\.[01]{1,3}|\\.0|)",
        "([eE][+-]?0?[0-9]|)",
    )
        .prop_map(|(a, b, c, d)| a + &b + &c + &d)
}

/// The literal's value in units of 10^-12.
fn scaled(literal: &str) -> i128 {
    let (mantissa, exponent) = literal.split_once(['e', 'E']).unwrap_or((literal, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().unwrap();
    let power = 12 + exponent.parse::<i32>().unwrap() - i32::try_from(fraction.len()).unwrap();
    digits * 10_i128.pow(u32::try_from(power).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn s33_equal_numbers_share_a_text_and_others_do_not(a in literal(), b in literal()) {
        let equal = scaled(&a) == scaled(&b);
        prop_assert_eq!(accepted(&a).canonical() == accepted(&b).canonical(), equal, "{} {}", a, b);
        prop_assert_eq!(scaled(&a).cmp(&scaled(&b)), a.parse::<Decimal>().unwrap().cmp(&b.parse().unwrap()));
        let canonical = accepted(&a).canonical();
        prop_assert_eq!(canonical.parse::<Decimal>().unwrap(), a.parse::<Decimal>().unwrap());
    }

    #[test]
    fn s33_the_text_of_a_double_is_that_of_rfc_8785(double in proptest::num::f64::NORMAL | proptest::num::f64::SUBNORMAL | proptest::num::f64::ZERO) {
        let theirs = serde_json_canonicalizer::to_string(&double).unwrap();
        prop_assert_eq!(accepted(&format!("{double:?}")).canonical(), &*theirs);
        prop_assert_eq!(accepted(&format!("{double:e}")).canonical(), &*theirs);
    }

    #[test]
    fn decimal_order_is_that_of_doubles_where_both_are_exact(a in -1_000_000_i64..1_000_000, b in -1_000_000_i64..1_000_000, shift in 0_u32..8) {
        let scale = f64::from(2_u32.pow(shift));
        #[expect(clippy::cast_precision_loss, reason = "small integers are exact doubles")]
        let (a, b) = (a as f64 / scale, b as f64 / scale);
        let exact = |double: f64| format!("{double:?}").parse::<Decimal>().unwrap();
        prop_assert_eq!(Some(exact(a).cmp(&exact(b))), a.partial_cmp(&b));
    }
}

#[test]
fn decimals_sort_by_value() {
    let sorted = [
        "-1e10000",
        "-1e400",
        "-10",
        "-9.5",
        "-1",
        "-0.5",
        "-1e-400",
        "0",
        "1e-10000",
        "1e-400",
        "0.00001",
        "0.1",
        "0.11",
        "0.2",
        "1",
        "1.00000000000000000001",
        "2",
        "9",
        "10",
        "11",
        "9007199254740992",
        "9007199254740993",
        "1e400",
        "1.1e400",
        "1e10000",
    ];
    for (i, a) in sorted.iter().enumerate() {
        for (j, b) in sorted.iter().enumerate() {
            assert_eq!(
                a.parse::<Decimal>().unwrap().cmp(&b.parse().unwrap()),
                i.cmp(&j),
                "{a} {b}"
            );
        }
    }
}

#[test]
fn decimals_tell_zero_sign_and_integer() {
    let decimal = |text: &str| text.parse::<Decimal>().unwrap();
    assert!(
        decimal("-0.0e7").is_zero() && !decimal("-0").is_negative() && decimal("0").is_integer()
    );
    assert!(decimal("-1e-400").is_negative() && !decimal("-1e-400").is_integer());
    assert!(
        decimal("1.50e1").is_integer()
            && decimal("1e400").is_integer()
            && !decimal("1.5").is_integer()
    );
    assert_eq!(Decimal::from(i64::MIN), decimal("-9223372036854775808"));
    assert_eq!(Decimal::from(u64::MAX), decimal("18446744073709551615"));
    assert_eq!(Decimal::from(100_u64), decimal("1e2"));
}

#[test]
fn what_is_no_json_number_is_no_decimal() {
    for text in [
        "", " 1", "1 ", "+1", ".5", "1.", "01", "-", "1e", "NaN", "inf", "1_0", "0x1", "١",
    ] {
        assert!(text.parse::<Decimal>().is_err(), "{text:?}");
    }
    assert!("1e10001".parse::<Decimal>().is_err());
    assert!("7".repeat(10_001).parse::<Decimal>().is_err());
    assert_eq!(
        "1.".parse::<Decimal>().unwrap_err().to_string(),
        r#""1." is not a json number"#
    );
}
