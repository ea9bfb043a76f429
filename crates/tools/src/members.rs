//! Where the members of a top-level object stand in accepted text, so that an edit can leave all other bytes alone.

use std::{fmt, ops::Range};

use leasehold_json::AcceptedJson;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// One member of an object, by byte offsets in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// The key, unescaped.
    pub(crate) key: String,
    /// From the key's opening quote to the end of the value.
    pub(crate) whole: Range<usize>,
    /// The value alone.
    pub(crate) value: Range<usize>,
}

/// The members of an accepted object in the order written; none for anything else.
pub(crate) fn members(accepted: &AcceptedJson) -> Vec<Member> {
    let text = accepted.as_str();
    let Ok(RawMembers(raw)) = accepted.parse_borrowed() else {
        return Vec::new();
    };
    // Raw values are slices of the text, so their addresses say where they stand.
    let base = text.as_ptr().addr();
    let mut before = 1;
    raw.into_iter()
        .map(|(key, value)| {
            let start = value.get().as_ptr().addr().saturating_sub(base);
            let value = start..start + value.get().len();
            // Between two values stand a comma, a key and a colon: the first quote opens the key.
            let quote = text
                .get(before..start)
                .and_then(|between| between.find('"'))
                .unwrap_or_default();
            let whole = before + quote..value.end;
            before = value.end;
            Member { key, whole, value }
        })
        .collect()
}

struct RawMembers<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for RawMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = RawMembers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(RawMembers(members))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_where_they_stand() {
        let accepted = AcceptedJson::check_str(
            "{ \"a\\u0062\" :\t[1, \"}\"] ,\"c\":{\"d\":\"\\\"\"}, \"e\" : -1.0 }",
        )
        .unwrap();
        let text = accepted.as_str();
        let found: Vec<(String, &str, &str)> = members(&accepted)
            .into_iter()
            .map(|member| (member.key, &text[member.whole], &text[member.value]))
            .collect();
        let wanted = [
            ("ab", "\"a\\u0062\" :\t[1, \"}\"]", "[1, \"}\"]"),
            ("c", "\"c\":{\"d\":\"\\\"\"}", "{\"d\":\"\\\"\"}"),
            ("e", "\"e\" : -1.0", "-1.0"),
        ];
        assert_eq!(
            found,
            wanted.map(|(key, whole, value)| (key.to_owned(), whole, value))
        );
    }

    #[test]
    fn what_is_no_object_has_no_members() {
        for text in ["{}", "[1]", "null", "\"{\"", "7"] {
            assert_eq!(
                members(&AcceptedJson::check_str(text).unwrap()),
                [],
                "{text}"
            );
        }
    }
}
