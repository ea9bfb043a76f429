//! Bodies that are too large for sled lie in `blobs/`, written and synced before the record that names them.

use bytes::Bytes;
use leasehold_store::StoreError;

use crate::blobs::BlobFolder;
use crate::record::Content;

/// Largest body in bytes inside sled. Larger pages than a quarter segment would go to files that sled does not sync; a page holds up to 17
/// records.
pub(crate) const MAX_INLINE_BODY: usize = 16 * 1024;

/// Makes a body ready to be stored. A spilled one is durable in its file when this returns; if its record is then refused, the file is
/// garbage and harms nobody.
pub(crate) async fn place(blobs: &BlobFolder, body: Bytes) -> Result<Content, StoreError> {
    if body.len() <= MAX_INLINE_BODY {
        return Ok(Content::Inline(body));
    }
    let size = u64::try_from(body.len()).unwrap_or(u64::MAX);
    let digest = blobs.put(body).await?;
    Ok(Content::Spilled { digest, size })
}

/// The body's bytes.
pub(crate) fn load(blobs: &BlobFolder, content: Content) -> Result<Bytes, StoreError> {
    match content {
        Content::Inline(bytes) => Ok(bytes),
        Content::Spilled { digest, size } => {
            blobs.read(&digest)?.ok_or_else(|| StoreError::Damaged {
                what: format!("body {digest}"),
                detail: format!("its file of {size} bytes is missing from blobs/"),
            })
        }
    }
}
