//! Why bytes are no usable JSON: one typed reason and the byte where it was found.

use crate::boundary::MAX_DEPTH;
use crate::number::{MAX_EXPONENT, MAX_NUMBER_LITERAL};

/// A piece of the input quoted in an error is cut after this many characters, so that no error grows with its input.
const MAX_QUOTED: usize = 64;

/// Bytes that were refused at the boundary.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason} at byte {offset}")]
pub struct Refusal {
    /// Where the fault begins, in bytes from the start of the input as it was given (0 is the first byte).
    pub offset: usize,
    /// What is wrong.
    pub reason: RefusalReason,
}

impl Refusal {
    pub(crate) fn new(offset: usize, reason: RefusalReason) -> Self {
        Self { offset, reason }
    }

    /// True if the input held nothing but whitespace. Some callers read that as "no arguments given".
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reason == RefusalReason::Empty
    }
}

/// What is wrong, in the order in which it is looked for: of several faults the one listed first is reported, and of
/// several of the same rank the one that comes first in the input. The reasons from `Empty` to `AfterValue` are one
/// rank: the input is not exactly one JSON value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusalReason {
    /// More than [`MAX_DEPTH`] arrays and objects inside each other.
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// Not UTF-8.
    #[error("not utf-8")]
    NotUtf8,
    /// Nothing but whitespace.
    #[error("empty, no json value")]
    Empty,
    /// A byte order mark before the value.
    #[error("byte order mark before the json value")]
    ByteOrderMark,
    /// The input stops inside the value.
    #[error("input ends where {expected} is expected")]
    UnexpectedEnd {
        /// What would have had to come.
        expected: &'static str,
    },
    /// A character that cannot stand here.
    #[error("unexpected {found:?} where {expected} is expected")]
    Unexpected {
        /// The character.
        found: char,
        /// What would have had to come.
        expected: &'static str,
    },
    /// A raw control character inside a string.
    #[error("raw control character {found:?} in a string")]
    ControlCharacter {
        /// The character.
        found: char,
    },
    /// Something follows the value.
    #[error("more than one value, {found:?} follows the first")]
    AfterValue {
        /// The first character that follows.
        found: char,
    },
    /// An escaped surrogate that is not half of a pair.
    #[error("escaped surrogate \\u{unit:04x} outside a pair")]
    LoneSurrogate {
        /// The UTF-16 code unit.
        unit: u16,
    },
    /// Two members of one object have the same name once escapes are resolved.
    #[error("repeated key {key:?}")]
    RepeatedKey {
        /// The name (cut when long).
        key: String,
    },
    /// A number literal longer than [`MAX_NUMBER_LITERAL`].
    #[error("number literal of {length} characters, the most is {MAX_NUMBER_LITERAL}")]
    NumberTooLong {
        /// Its length in characters.
        length: usize,
    },
    /// A number whose exponent, as written, is beyond [`MAX_EXPONENT`].
    #[error("exponent beyond {MAX_EXPONENT} in a number")]
    ExponentTooLarge,
    /// A number that no finite double comes near (only [`numbers_fit_double`](crate::AcceptedJson::numbers_fit_double)).
    #[error("number {literal} is outside the range of a double")]
    OutsideDouble {
        /// The literal (cut when long).
        literal: String,
    },
}

/// Cuts a text that goes into an error.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}
