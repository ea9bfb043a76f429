//! Large values by SHA-256, in pieces that fit a message. Each piece is written once; what is read is verified whole.

use async_nats::header::HeaderMap;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use leasehold_json::Digest;
use leasehold_protocol::Seq;
use leasehold_store::{Blobs, StoreError};

use crate::asking::Question;
use crate::error::Unstored;
use crate::store::NatsStore;
use crate::streams::BLOBS;
use crate::wire::{Stored, expecting_own};

/// Longest piece: half of what a server takes by default, with its headers.
const PIECE: usize = 512 * 1024;
/// How many pieces the value has; on each of them.
const PIECES: &str = "Lh-Pieces";

pub(crate) fn piece(digest: &Digest, n: usize) -> String {
    format!("lh.a.{digest}.{n}")
}

impl NatsStore {
    /// The value's pieces, one question each, up to the first that is not there.
    async fn ask_pieces(&self, digest: &Digest) -> Result<Vec<Stored>, StoreError> {
        let mut stored: Vec<Stored> = Vec::new();
        loop {
            let asked = Question::Piece(*digest, stored.len());
            let answer = self.wire().ask(&asked, Bytes::new()).await;
            let answer = answer.map_err(|error| error.store(&format!("blob {digest}")))?;
            let Some(next) = answer.into_iter().next() else {
                return Ok(stored);
            };
            let pieces = next.header(PIECES).and_then(|n| n.parse().ok());
            stored.push(next);
            if pieces.is_none_or(|pieces: usize| stored.len() >= pieces) {
                return Ok(stored);
            }
        }
    }
}

#[async_trait]
impl Blobs for NatsStore {
    async fn put_blob(&self, bytes: Bytes) -> Result<Digest, StoreError> {
        let digest = Digest::of(&bytes);
        let pieces = bytes.len().div_ceil(PIECE).max(1);
        for n in 0..pieces {
            let from = n.saturating_mul(PIECE);
            let part = bytes.slice(from..bytes.len().min(from.saturating_add(PIECE)));
            let mut headers: HeaderMap = expecting_own(Seq::NONE);
            headers.insert(PIECES, pieces.to_string());
            match self.wire().insist(piece(&digest, n), headers, part).await {
                // Written before: the same bytes, for they have the same digest.
                Ok(_) | Err(Unstored::WrongLast) => {}
                Err(error) => return Err(error.store()),
            }
        }
        Ok(digest)
    }

    async fn get_blob(&self, digest: &Digest) -> Result<Option<Bytes>, StoreError> {
        let mut stored = if self.wire().asks {
            self.ask_pieces(digest).await?
        } else {
            let filter = format!("lh.a.{digest}.*");
            self.wire().read(BLOBS, &filter, Seq::NONE).await?
        };
        let Some(pieces) = stored
            .first()
            .and_then(|first| first.header(PIECES)?.parse().ok())
        else {
            return Ok(None);
        };
        let number = |subject: &str| {
            subject
                .rsplit('.')
                .next()
                .and_then(|n| n.parse::<usize>().ok())
        };
        stored.sort_by_key(|stored| number(&stored.subject));
        if stored.len() < pieces {
            // Whoever wrote it was interrupted, or a replica lags: not there, or not yet.
            return Ok(None);
        }
        let mut bytes = BytesMut::new();
        for stored in &stored {
            bytes.extend_from_slice(&stored.payload);
        }
        let bytes = bytes.freeze();
        if Digest::of(&bytes) != *digest {
            return Err(StoreError::Damaged {
                what: format!("blob {digest}"),
                detail: "its bytes have another digest".to_owned(),
            });
        }
        Ok(Some(bytes))
    }
}
