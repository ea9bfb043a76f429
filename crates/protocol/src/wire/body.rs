//! Stored bytes on their way through the machines: cheap to clone, recorded losslessly.

use std::fmt;
use std::sync::Arc;

use leasehold_json::Kept;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The bytes of one stored message. Serialises (in recordings of inputs) as text, or as base64 where it is no UTF-8.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Body(Arc<[u8]>);

impl Body {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<&[u8]> for Body {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        Kept::from_bytes(&self.0).serialize(s)
    }
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(Self(Kept::deserialize(d)?.as_bytes().into()))
    }
}
