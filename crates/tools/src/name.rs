//! Names of tools, and how any name becomes one subject token.
//!
//! A tool name is any text of 1 to 128 characters. Run ids, worker ids and tool names become tokens of a message
//! subject (and parts of store keys) by one injective encoding, so that no two names ever meet and no name can
//! carry a separator or a wildcard.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The most characters a tool name may have. One character takes at most 12 bytes of a subject token, so a name
/// stays far below the 64 KiB that a broker allows a subject.
pub const MAX_NAME_CHARS: usize = 128;

/// The checked name of a tool: 1 to 128 characters of any text.
///
/// Cheap to clone; ordered by the bytes of its text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ToolName(Arc<str>);

/// Why a text is no tool name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// The name has no character.
    #[error("the tool name is empty; give it 1 to {MAX_NAME_CHARS} characters")]
    Empty,
    /// The name is over the bound.
    #[error("the tool name has {chars} characters; at most {MAX_NAME_CHARS} are allowed")]
    TooLong {
        /// How many characters it has.
        chars: usize,
    },
}

impl ToolName {
    /// Checks a name.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        match text.chars().count() {
            0 => Err(NameError::Empty),
            chars if chars > MAX_NAME_CHARS => Err(NameError::TooLong { chars }),
            _ => Ok(Self(text.into())),
        }
    }

    /// The name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as one subject token.
    pub fn token(&self) -> String {
        subject_token(&self.0)
    }
}

impl FromStr for ToolName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for ToolName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        Self::parse(&text)
    }
}

impl From<ToolName> for String {
    fn from(name: ToolName) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl AsRef<str> for ToolName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Why a token is not the encoding of any text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TokenError {
    /// A byte stands at `at` that the encoding never produces.
    #[error("byte {at} of the subject token cannot stand there; it was not made by this encoding")]
    Stray {
        /// Byte offset in the token.
        at: usize,
    },
    /// The bytes that the token stands for are not UTF-8.
    #[error("the subject token stands for bytes that are not UTF-8")]
    NotUtf8,
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

fn stands_for_itself(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

/// Encodes any text as one subject token: `[A-Za-z0-9-]` as they are, every other byte of the UTF-8 as `_HH` with
/// upper-case digits. Two different texts never have the same token; only the empty text has the empty token.
pub fn subject_token(text: &str) -> String {
    let mut token = String::with_capacity(text.len());
    for byte in text.bytes() {
        if stands_for_itself(byte) {
            token.push(char::from(byte));
        } else {
            token.push('_');
            token.push(char::from(HEX[usize::from(byte >> 4)]));
            token.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    token
}

/// The text that a subject token stands for. Only what [`subject_token`] writes is accepted (no lower-case digits,
/// no encoded letter), so that a text has exactly one token in this direction too.
pub fn from_subject_token(token: &str) -> Result<String, TokenError> {
    let bytes = token.as_bytes();
    let mut text = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if stands_for_itself(byte) {
            text.push(byte);
            at += 1;
            continue;
        }
        let stray = TokenError::Stray { at };
        if byte != b'_' {
            return Err(stray);
        }
        let digit = |offset: usize| {
            let digit = bytes.get(at + offset)?;
            HEX.iter()
                .zip(0u8..)
                .find(|(hex, _)| *hex == digit)
                .map(|(_, value)| value)
        };
        match (digit(1), digit(2)) {
            (Some(high), Some(low)) if !stands_for_itself(high << 4 | low) => {
                text.push(high << 4 | low)
            }
            _ => return Err(stray),
        }
        at += 3;
    }
    String::from_utf8(text).map_err(|_| TokenError::NotUtf8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn s10_a_name_has_1_to_128_characters() {
        assert_eq!(ToolName::parse(""), Err(NameError::Empty));
        let longest = "é".repeat(MAX_NAME_CHARS);
        assert_eq!(ToolName::parse(&longest).unwrap().as_str(), longest);
        assert_eq!(
            ToolName::parse(&"é".repeat(129)),
            Err(NameError::TooLong { chars: 129 })
        );
    }

    #[test]
    fn s10_a_name_survives_serde_and_a_bad_one_is_refused_there() {
        let name = ToolName::parse("a b\n*").unwrap();
        assert_eq!(
            serde_json::to_value(&name).unwrap(),
            serde_json::json!("a b\n*")
        );
        assert_eq!(
            serde_json::from_value::<ToolName>(serde_json::json!("a b\n*")).unwrap(),
            name
        );
        let refused = serde_json::from_value::<ToolName>(serde_json::json!("")).unwrap_err();
        assert_eq!(refused.to_string(), NameError::Empty.to_string());
    }

    #[test]
    fn k58_awkward_names_have_tokens_of_their_own() {
        let golden = [
            ("a b", "a_20b"),
            ("a.b", "a_2Eb"),
            ("a..b", "a_2E_2Eb"),
            ("a_b", "a_5Fb"),
            ("*", "_2A"),
            (">", "_3E"),
            ("$SYS.x", "_24SYS_2Ex"),
            ("é", "_C3_A9"),
            ("\r\n", "_0D_0A"),
            ("refund-order9", "refund-order9"),
            ("a_2Eb", "a_5F2Eb"),
        ];
        for (text, token) in golden {
            assert_eq!(subject_token(text), token);
            assert_eq!(from_subject_token(token).as_deref(), Ok(text));
        }
    }

    #[test]
    fn k58_a_token_that_the_encoding_never_writes_is_refused() {
        let stray = |at| Err(TokenError::Stray { at });
        assert_eq!(from_subject_token("a.b"), stray(1));
        assert_eq!(from_subject_token("_2e"), stray(0));
        assert_eq!(from_subject_token("x_2"), stray(1));
        assert_eq!(from_subject_token("_41"), stray(0));
        assert_eq!(from_subject_token("_FF"), Err(TokenError::NotUtf8));
    }

    proptest! {
        #[test]
        fn k58_every_text_comes_back_from_its_token(text in any::<String>()) {
            let token = subject_token(&text);
            prop_assert!(token.bytes().all(|byte| stands_for_itself(byte) || byte == b'_'));
            prop_assert_eq!(from_subject_token(&token), Ok(text));
        }

        #[test]
        fn k58_every_token_comes_back_from_its_text(token in "[A-Za-z0-9_.-]{0,12}") {
            if let Ok(text) = from_subject_token(&token) {
                prop_assert_eq!(subject_token(&text), token);
            }
        }
    }
}
