//! Bytes that are no usable JSON, kept aside whole so that a person can see what came.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Foreign bytes in a form that any record can hold: `{"text": "..."}` if they are UTF-8, else `{"base64": "..."}`
/// (RFC 4648, padded). Nothing is lost or replaced.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kept {
    /// UTF-8, as it came.
    Text(String),
    /// Anything else; decoded here, encoded in the record.
    #[serde(serialize_with = "encode", deserialize_with = "decode")]
    Base64(Vec<u8>),
}

impl Kept {
    /// Keeps the bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Base64(bytes.to_vec()),
        }
    }

    /// The bytes as they came.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Base64(bytes) => bytes,
        }
    }
}

fn encode<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes))
}

fn decode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    STANDARD.decode(text).map_err(D::Error::custom)
}
