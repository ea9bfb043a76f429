//! S15: a result is usable JSON, or it is kept whole beside the reason.

use leasehold_json::Kept;

use crate::accept_result;

#[test]
fn s15_usable_json_comes_back_verbatim_and_nothing_is_an_empty_object() {
    assert_eq!(
        accept_result(br#" {"n": 1e400, "id": 9007199254740993} "#)
            .unwrap()
            .as_str(),
        r#"{"n": 1e400, "id": 9007199254740993}"#
    );
    assert_eq!(accept_result(b"null").unwrap().as_str(), "null");
    for empty in [&b""[..], b" \n"] {
        assert_eq!(accept_result(empty).unwrap().as_str(), "{}");
    }
}

#[test]
fn s15_anything_else_is_kept_beside_the_reason() {
    for bytes in [
        &b"ok"[..],
        b"{\"a\":1",
        b"{\"a\":1,\"a\":2}",
        b"\xff\xfe",
        b"\"\xc3\x28\"",
        b"{} {}",
    ] {
        let invalid = accept_result(bytes).unwrap_err();
        assert_eq!(invalid.kept.as_bytes(), bytes);
        assert_eq!(
            matches!(invalid.kept, Kept::Text(_)),
            std::str::from_utf8(bytes).is_ok()
        );
        assert_eq!(
            invalid.to_string(),
            format!("the result is not usable JSON: {}", invalid.reason)
        );
    }
    let deep = "[".repeat(100_000);
    assert_eq!(
        accept_result(deep.as_bytes()).unwrap_err().kept,
        Kept::Text(deep)
    );
}
