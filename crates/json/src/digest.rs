//! SHA-256 as a value, and hashes over several fields that cannot be confused with each other.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// A SHA-256. Text form, in `Display`, `FromStr` and serde: 64 lowercase hexadecimal digits, nothing else is read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Thirty-two zero bytes: the predecessor of the first link of a chain.
    pub const ZERO: Self = Self([0; 32]);

    /// The SHA-256 of the bytes, nothing added.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// A digest that was computed elsewhere.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut text = String::with_capacity(64);
        for byte in self.0 {
            text.push(char::from(HEX[usize::from(byte >> 4)]));
            text.push(char::from(HEX[usize::from(byte & 15)]));
        }
        f.pad(&text)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a sha-256: 64 lowercase hexadecimal digits are expected")]
pub struct DigestError;

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let nibble = |digit: u8| match digit {
            b'0'..=b'9' => Ok(digit - b'0'),
            b'a'..=b'f' => Ok(digit - b'a' + 10),
            _ => Err(DigestError),
        };
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
            return Err(DigestError);
        };
        let mut bytes = [0; 32];
        if pairs.len() != bytes.len() {
            return Err(DigestError);
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = nibble(*high)? << 4 | nibble(*low)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// A SHA-256 over several fields.
///
/// The input is the domain tag and then each field, each preceded by its length in bytes (eight bytes, big endian). So
/// `["ab", "c"]` and `["a", "bc"]` differ, and a hash made for one purpose never equals one made for another.
#[derive(Clone)]
#[must_use]
pub struct DigestBuilder(Sha256);

impl DigestBuilder {
    /// Starts a hash for one purpose, for example `leasehold/approval/1`.
    pub fn new(domain: &str) -> Self {
        Self(Sha256::new()).field(domain)
    }

    /// Adds one field.
    pub fn field(mut self, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        // usize is at most 64 bits wide on every target there is.
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.0.update(length.to_be_bytes());
        self.0.update(bytes);
        self
    }

    /// The hash over everything added.
    #[must_use]
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl AsRef<[u8]> for Digest {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for DigestBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DigestBuilder(..)")
    }
}
