//! One stored record: version, checksum, kind, position, and content. Checked on every read.
//!
//! Layout: CRC-32 (4 bytes, little endian, over the key and everything behind it), version (1), kind (1), position (8, big endian), number
//! (8, big endian; what it means depends on the kind), count of names (1), each name as length (2) and UTF-8, then a tag (1) and the body:
//! tag 0 the bytes themselves, tag 1 the SHA-256 (32) and length (8) of a body that lies in `blobs/`.

use bytes::Bytes;
use leasehold_json::Digest;
use leasehold_protocol::Seq;
use leasehold_store::StoreError;

/// The version of the layout above.
pub(crate) const RECORD_VERSION: u8 = 1;

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Journal; number: expected position. Names: none, of a call those of its chain.
    JournalOpen = 1,
    /// As above.
    JournalOwn = 2,
    /// As above.
    JournalNote = 3,
    /// As above.
    JournalEnd = 4,
    /// As above.
    JournalCall = 5,
    /// Chain; number: expected position. Names: writer's token.
    LinkCall = 6,
    /// As above.
    LinkClaim = 7,
    /// As above.
    LinkOutcome = 8,
    /// Note; number: how many stood before it. Names: writer's token.
    Note = 9,
    /// Inbox; names: the kind's letter and its ids.
    Inbox = 10,
    /// Lease; number: epoch. Names: the session, or none.
    Lease = 11,
    /// Timer; number: unix milliseconds, as two's complement.
    Timer = 12,
    /// An entry of an index. Names: what it points at.
    Index = 13,
    /// What the store is. Names: its id and so on.
    Meta = 14,
    /// A logbook's attempt.
    Attempt = 15,
}

impl Kind {
    const ALL: [Kind; 15] = [
        Kind::JournalOpen,
        Kind::JournalOwn,
        Kind::JournalNote,
        Kind::JournalEnd,
        Kind::JournalCall,
        Kind::LinkCall,
        Kind::LinkClaim,
        Kind::LinkOutcome,
        Kind::Note,
        Kind::Inbox,
        Kind::Lease,
        Kind::Timer,
        Kind::Index,
        Kind::Meta,
        Kind::Attempt,
    ];
}

/// A record's body, or where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// Here.
    Inline(Bytes),
    /// In `blobs/`: too large for sled, which does not sync large values.
    Spilled {
        /// Its digest.
        digest: Digest,
        /// Its length in bytes.
        size: u64,
    },
}

/// A stored record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    pub(crate) seq: Seq,
    pub(crate) number: u64,
    pub(crate) names: Vec<String>,
    pub(crate) content: Content,
}

/// Why a record cannot be believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damage(String);

impl Damage {
    pub(crate) fn new(detail: impl Into<String>) -> Self {
        Self(detail.into())
    }
    /// As the store's error about the record under this key.
    pub(crate) fn of(self, key: &[u8]) -> StoreError {
        StoreError::Damaged {
            what: describe(key),
            detail: self.0,
        }
    }
}

/// A key for people.
pub(crate) fn describe(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}

impl Record {
    /// A record without names and body.
    pub(crate) fn new(kind: Kind, seq: Seq) -> Self {
        Self {
            kind,
            seq,
            number: 0,
            names: Vec::new(),
            content: Content::Inline(Bytes::new()),
        }
    }
    pub(crate) fn number(mut self, number: u64) -> Self {
        self.number = number;
        self
    }
    pub(crate) fn names<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.names = names.into_iter().map(Into::into).collect();
        self
    }
    pub(crate) fn content(mut self, content: Content) -> Self {
        self.content = content;
        self
    }

    /// The name at this place.
    pub(crate) fn name(&self, index: usize) -> Result<&str, Damage> {
        self.names
            .get(index)
            .map(String::as_str)
            .ok_or_else(|| Damage::new(format!("name {index} is missing")))
    }

    /// The stored bytes under this key.
    pub(crate) fn encode(&self, key: &[u8]) -> Vec<u8> {
        let mut out = vec![0; 4];
        out.push(RECORD_VERSION);
        out.push(self.kind as u8);
        out.extend_from_slice(&self.seq.0.to_be_bytes());
        out.extend_from_slice(&self.number.to_be_bytes());
        // Names are identifiers of bounded length and count: neither saturates.
        out.push(u8::try_from(self.names.len()).unwrap_or(u8::MAX));
        for name in &self.names {
            out.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_be_bytes());
            out.extend_from_slice(name.as_bytes());
        }
        match &self.content {
            Content::Inline(bytes) => {
                out.push(0);
                out.extend_from_slice(bytes);
            }
            Content::Spilled { digest, size } => {
                out.push(1);
                out.extend_from_slice(digest.as_bytes());
                out.extend_from_slice(&size.to_be_bytes());
            }
        }
        let crc = checksum(key, &out[4..]).to_le_bytes();
        out[..4].copy_from_slice(&crc);
        out
    }

    /// Reads stored bytes and checks them against key, checksum, version and shape.
    pub(crate) fn decode(key: &[u8], bytes: &[u8]) -> Result<Self, StoreError> {
        Self::read(key, bytes).map_err(|damage| damage.of(key))
    }

    fn read(key: &[u8], bytes: &[u8]) -> Result<Self, Damage> {
        let short = || Damage::new(format!("cut off after {} bytes", bytes.len()));
        let (crc, checked) = bytes.split_first_chunk::<4>().ok_or_else(short)?;
        if checksum(key, checked) != u32::from_le_bytes(*crc) {
            return Err(Damage::new("checksum mismatch"));
        }
        let mut rest = Reader(checked);
        let version = rest.byte().ok_or_else(short)?;
        if version != RECORD_VERSION {
            return Err(Damage::new(format!(
                "record version {version}, this binary reads {RECORD_VERSION}: use a newer binary"
            )));
        }
        let kind = rest.byte().ok_or_else(short)?;
        let kind = Kind::ALL
            .into_iter()
            .find(|k| *k as u8 == kind)
            .ok_or_else(|| Damage::new(format!("unknown record kind {kind}")))?;
        let seq = Seq(rest.number().ok_or_else(short)?);
        let number = rest.number().ok_or_else(short)?;
        let count = rest.byte().ok_or_else(short)?;
        let mut names = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let length = u16::from_be_bytes(rest.array().ok_or_else(short)?);
            let name = rest.take(usize::from(length)).ok_or_else(short)?;
            names.push(
                std::str::from_utf8(name)
                    .map_err(|_| Damage::new("a name is no UTF-8"))?
                    .to_owned(),
            );
        }
        let content = match rest.byte().ok_or_else(short)? {
            0 => Content::Inline(Bytes::copy_from_slice(rest.0)),
            1 => Content::Spilled {
                digest: Digest::from_bytes(rest.array().ok_or_else(short)?),
                size: rest.number().ok_or_else(short)?,
            },
            tag => return Err(Damage::new(format!("unknown body tag {tag}"))),
        };
        Ok(Self {
            kind,
            seq,
            number,
            names,
            content,
        })
    }
}

fn checksum(key: &[u8], rest: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(rest);
    hasher.finalize()
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
    fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }
    fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Record {
        Record::new(Kind::LinkClaim, Seq(7))
            .number(6)
            .names(["w_2E1", "é"])
            .content(Content::Inline(Bytes::from_static(b"{\"v\":1}")))
    }

    #[test]
    fn records_come_back_as_they_were_written() {
        let spilled = sample().content(Content::Spilled {
            digest: Digest::of(b"x"),
            size: 70_000,
        });
        for record in [sample(), spilled, Record::new(Kind::Meta, Seq::NONE)] {
            assert_eq!(
                Record::decode(b"key", &record.encode(b"key")).unwrap(),
                record
            );
        }
    }

    #[test]
    fn k41_no_flipped_bit_and_no_cut_goes_unnoticed() {
        let bytes = sample().encode(b"key");
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(
                    matches!(
                        Record::decode(b"key", &flipped),
                        Err(StoreError::Damaged { .. })
                    ),
                    "byte {at} bit {bit}"
                );
            }
            assert!(Record::decode(b"key", &bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_record_under_another_key_is_damaged() {
        assert!(Record::decode(b"other", &sample().encode(b"key")).is_err());
    }
}
