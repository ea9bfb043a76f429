//! [`AcceptedJson`]: text that passed the boundary, carried byte for byte, and the ways to look into it.

use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeOwned, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::boundary;
use crate::canonical::{self, write_string};
use crate::digest::Digest;
use crate::number;
use crate::read::Reader;
use crate::refusal::Refusal;

/// The exact bytes of one usable JSON value.
///
/// Whitespace around the value is dropped; everything inside it stays as it was written, numbers and escapes included.
/// Equality, order and hash are those of the bytes: two spellings of one value differ here and agree in
/// [`canonical`](Self::canonical). Clones share the bytes.
///
/// In a record it is a JSON *string* that holds the text, so that any tool carries it without loss; reading it back makes
/// the full check again.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AcceptedJson {
    text: Arc<str>,
}

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// A value of the program itself that does not become usable JSON.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// It has no JSON form, for example a map whose keys are not strings.
    #[error("value cannot be written as json: {0}")]
    Unwritable(#[from] serde_json::Error),
    /// It has one, but not one that passes the boundary.
    #[error("value written as json is refused: {0}")]
    Refused(#[from] Refusal),
}

impl AcceptedJson {
    /// The boundary: depth, UTF-8, exactly one value, surrogates, repeated keys, number bounds, looked for in this order.
    ///
    /// # Errors
    /// The first fault, by rank and then by place; offsets count from the start of `bytes`. Whitespace alone is
    /// [`RefusalReason::Empty`](crate::RefusalReason::Empty).
    pub fn check(bytes: &[u8]) -> Result<Self, Refusal> {
        boundary::check(bytes).map(Self::trusted)
    }

    /// As [`check`](Self::check).
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_str(text: &str) -> Result<Self, Refusal> {
        Self::check(text.as_bytes())
    }

    /// `{}`
    #[must_use]
    pub fn empty_object() -> Self {
        Self::trusted("{}")
    }

    /// `null`
    #[must_use]
    pub fn null() -> Self {
        Self::trusted("null")
    }

    /// A value that some typed read left raw. It is checked again: a raw value may come from anywhere.
    ///
    /// # Errors
    /// As [`check`](Self::check); never for a part of accepted JSON.
    pub fn from_raw(raw: &RawValue) -> Result<Self, Refusal> {
        Self::check_str(raw.get())
    }

    /// A value that the program itself builds.
    ///
    /// # Errors
    /// It has no JSON form, or nests too deep.
    pub fn from_serialize<T: Serialize + ?Sized>(value: &T) -> Result<Self, BuildError> {
        let text = serde_json::to_string(value)?;
        Ok(Self::check_str(&text)?)
    }

    /// An object of accepted parts, each part verbatim, in the order given.
    ///
    /// # Errors
    /// A repeated key, or too deep.
    pub fn object<'a>(
        members: impl IntoIterator<Item = (&'a str, &'a Self)>,
    ) -> Result<Self, Refusal> {
        let mut text = String::from("{");
        for (key, value) in members {
            if text.len() > 1 {
                text.push(',');
            }
            write_string(key, &mut text);
            text.push(':');
            text.push_str(value.as_str());
        }
        text.push('}');
        Self::check_str(&text)
    }

    /// An array of accepted parts, each part verbatim, in the order given.
    ///
    /// # Errors
    /// Too deep.
    pub fn array<'a>(elements: impl IntoIterator<Item = &'a Self>) -> Result<Self, Refusal> {
        let mut text = String::from("[");
        for element in elements {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(element.as_str());
        }
        text.push(']');
        Self::check_str(&text)
    }

    /// Text that is known to be one usable value: checked just now, or a part of an accepted value.
    fn trusted(text: &str) -> Self {
        Self {
            text: Arc::from(text),
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The bytes of the text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    /// What the value is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.as_bytes().first() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'n') => Kind::Null,
            _ => Kind::Number,
        }
    }

    /// The value as a tree, for code that takes one, such as a schema validator.
    ///
    /// A number is a 64-bit integer if it is written as one that fits, otherwise the nearest finite double; see
    /// [`numbers_fit_double`](Self::numbers_fit_double). Never send a re-serialised tree in place of the bytes.
    #[must_use]
    pub fn to_value(&self) -> serde_json::Value {
        Reader::new(&self.text).node().into_value()
    }

    /// The one sanctioned typed read.
    ///
    /// # Errors
    /// The value has not the shape of `T`, or holds a number outside the range of the type that takes it.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        self.parse_borrowed()
    }

    /// A typed read that may borrow, for `&str` and `&RawValue` fields.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_borrowed<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_str(&self.text);
        // Safe: the depth was bounded at the boundary, and serde_json's own limit lies below that bound.
        deserializer.disable_recursion_limit();
        let value = T::deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(value)
    }

    /// The canonical form: RFC 8785, with numbers that the RFC would change as [`Decimal`](crate::Decimal) writes them.
    ///
    /// It is meant for hashing. It is usable JSON itself, except when a number near the bounds comes out longer than
    /// [`MAX_NUMBER_LITERAL`](crate::MAX_NUMBER_LITERAL) or with an exponent beyond [`MAX_EXPONENT`](crate::MAX_EXPONENT).
    #[must_use]
    pub fn canonical(&self) -> String {
        canonical::canonical(&self.text)
    }

    /// SHA-256 of the canonical form: the identity of the value.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(self.canonical().as_bytes())
    }

    /// SHA-256 of the exact bytes.
    #[must_use]
    pub fn bytes_digest(&self) -> Digest {
        Digest::of(self.as_bytes())
    }

    /// Whether each number has a double near it: none is beyond the largest double, and none that is not zero is so small
    /// that its double is zero. Asked of arguments, because a validator compares doubles and must not see another sign,
    /// another size class or an infinity.
    ///
    /// # Errors
    /// The first number that has none; the offset counts in the accepted text.
    pub fn numbers_fit_double(&self) -> Result<(), Refusal> {
        let mut reader = Reader::new(&self.text);
        while let Some((offset, literal)) = reader.next_number() {
            if let Some(reason) = number::outside_double(literal) {
                return Err(Refusal::new(offset, reason));
            }
        }
        Ok(())
    }

    /// The members of an object with their unescaped keys, in the order written; none for anything else.
    #[must_use]
    pub fn members(&self) -> Vec<(String, Self)> {
        let mut members = Vec::new();
        if self.kind() == Kind::Object {
            let mut reader = Reader::new(&self.text);
            while let Some(key) = reader.next_key() {
                members.push((key.into_owned(), Self::trusted(reader.skip_value())));
            }
        }
        members
    }

    /// The elements of an array, in order; none for anything else.
    #[must_use]
    pub fn elements(&self) -> Vec<Self> {
        let mut elements = Vec::new();
        if self.kind() == Kind::Array {
            let mut reader = Reader::new(&self.text);
            while reader.next_item() {
                elements.push(Self::trusted(reader.skip_value()));
            }
        }
        elements
    }

    /// The member of an object with this key (compared after unescaping), its exact bytes.
    #[must_use]
    pub fn member(&self, key: &str) -> Option<Self> {
        member(&self.text, key).map(Self::trusted)
    }

    /// The part at an RFC 6901 pointer, its exact bytes: `""` is the whole value, `"/a/0/b"` looks into it. A pointer
    /// that leads nowhere, or is none, gives nothing.
    #[must_use]
    pub fn pointer(&self, pointer: &str) -> Option<Self> {
        if pointer.is_empty() {
            return Some(self.clone());
        }
        let mut part = &*self.text;
        for token in pointer.strip_prefix('/')?.split('/') {
            let key = pointer_token(token)?;
            part = match part.as_bytes().first()? {
                b'{' => member(part, &key)?,
                b'[' => element(part, &key)?,
                _ => return None,
            };
        }
        Some(Self::trusted(part))
    }
}

fn member<'a>(accepted: &'a str, key: &str) -> Option<&'a str> {
    if !accepted.starts_with('{') {
        return None;
    }
    let mut reader = Reader::new(accepted);
    while let Some(found) = reader.next_key() {
        let value = reader.skip_value();
        if found == key {
            return Some(value);
        }
    }
    None
}

fn element<'a>(accepted: &'a str, index: &str) -> Option<&'a str> {
    let plain =
        index == "0" || !index.starts_with('0') && index.bytes().all(|byte| byte.is_ascii_digit());
    let index: usize = if plain {
        index.parse().ok()?
    } else {
        return None;
    };
    let mut reader = Reader::new(accepted);
    let mut at = 0;
    while reader.next_item() {
        let value = reader.skip_value();
        if at == index {
            return Some(value);
        }
        at += 1;
    }
    None
}

/// Resolves `~0` and `~1`; any other tilde is an error.
fn pointer_token(token: &str) -> Option<String> {
    let mut out = String::with_capacity(token.len());
    let mut chars = token.chars();
    while let Some(character) = chars.next() {
        match character {
            '~' => match chars.next()? {
                '0' => out.push('~'),
                '1' => out.push('/'),
                _ => return None,
            },
            other => out.push(other),
        }
    }
    Some(out)
}

impl fmt::Debug for AcceptedJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for AcceptedJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for AcceptedJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for AcceptedJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = AcceptedJson;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string that holds json text")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<AcceptedJson, E> {
                AcceptedJson::check_str(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}
