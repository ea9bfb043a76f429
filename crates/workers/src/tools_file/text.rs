//! The two small languages inside the strings of a tools file: durations and `${NAME}`.

use std::time::Duration;

use thiserror::Error;

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{0:?} is no duration; write a whole number and a unit, such as \"1500ms\", \"5s\" or \"2m\""
)]
pub(super) struct DurationError(String);

/// A whole number and one of the units `ms`, `s`, `m`.
pub(super) fn duration(text: &str) -> Result<Duration, DurationError> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(unit_at.unwrap_or(text.len()));
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => return Err(DurationError(text.into())),
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(milliseconds))
        .map(Duration::from_millis)
        .ok_or_else(|| DurationError(text.into()))
}

/// Why a `${NAME}` has no value.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum ExpandError {
    #[error("${{{0}}} is not set; set {0}, or write its value here")]
    Unset(String),
    #[error(
        "\"${{\" is not followed by a name and \"}}\"; write ${{NAME}}, or $${{ for the characters themselves"
    )]
    Malformed,
}

/// Replaces every `${NAME}`, once: what stands in a value stays as it is. `$${` stands for `${`.
pub(super) fn expand(
    text: &str,
    vars: &dyn Fn(&str) -> Option<String>,
) -> Result<String, ExpandError> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(before) = before.strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str("${");
            rest = after;
            continue;
        }
        let (name, after) = after.split_once('}').ok_or(ExpandError::Malformed)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(ExpandError::Malformed);
        }
        expanded.push_str(before);
        expanded.push_str(&vars(name).ok_or_else(|| ExpandError::Unset(name.into()))?);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_whole_number_and_a_unit() {
        assert_eq!(duration("1500ms"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        for bad in [
            "",
            "5",
            "s",
            "-5s",
            "1.5s",
            "5 s",
            "5h",
            "5S",
            "+5s",
            "18446744073709551615m",
            "5sé",
        ] {
            assert_eq!(duration(bad), Err(DurationError(bad.into())), "{bad}");
        }
    }

    #[test]
    fn names_are_replaced_once_and_an_unset_one_is_named() {
        let vars = |name: &str| match name {
            "HOST" => Some("127.0.0.1:80".into()),
            "ODD" => Some("${HOST}".into()),
            _ => None,
        };
        let expand = |text| expand(text, &vars);
        assert_eq!(
            expand("http://${HOST}/a${HOST}").as_deref(),
            Ok("http://127.0.0.1:80/a127.0.0.1:80")
        );
        assert_eq!(expand("é${ODD}$").as_deref(), Ok("é${HOST}$"));
        assert_eq!(
            expand("$HOME $${HOST} $5").as_deref(),
            Ok("$HOME ${HOST} $5")
        );
        assert_eq!(expand("${NONE}"), Err(ExpandError::Unset("NONE".into())));
        for bad in ["${", "${}", "${HOST", "${A B}", "${é}"] {
            assert_eq!(expand(bad), Err(ExpandError::Malformed), "{bad}");
        }
    }
}
