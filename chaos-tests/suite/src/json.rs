//! JSON that others wrote, read leniently: what is not there is empty. The suite shares no code with the runtime, so it has its own reader.

use serde_json::Value;

/// The value; `Null` if it is none.
#[expect(
    clippy::disallowed_methods,
    reason = "the suite judges the runtime from outside with its own reader; what it cannot read it treats as absent"
)]
pub(crate) fn read(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or(Value::Null)
}

/// A text member; empty if there is none.
pub(crate) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A number member; zero if there is none.
pub(crate) fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or(0)
}

/// The members of an array member; none if it is none.
pub(crate) fn elements<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value
        .get(name)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}
