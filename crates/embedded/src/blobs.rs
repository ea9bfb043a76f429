//! Values by SHA-256, each its own file: written whole, synced, renamed into place, and verified on every read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_json::Digest;
use leasehold_store::{Blobs, StoreError};

use crate::EmbeddedStore;
use crate::files::{create_folder, sync_folder, write_whole};

/// The folder of blobs: `<first two digits>/<digest>`.
#[derive(Debug, Clone)]
pub(crate) struct BlobFolder(PathBuf);

impl BlobFolder {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    fn place(&self, digest: &Digest) -> (PathBuf, String) {
        let name = digest.to_string();
        (self.0.join(&name[..2]), name)
    }

    /// Stores the bytes durably. Off the async threads: it syncs.
    pub(crate) async fn put(&self, bytes: Bytes) -> Result<Digest, StoreError> {
        let folder = self.clone();
        tokio::task::spawn_blocking(move || folder.write(&bytes))
            .await
            .map_err(|e| StoreError::Unavailable(e.to_string()))?
    }

    fn write(&self, bytes: &[u8]) -> Result<Digest, StoreError> {
        let digest = Digest::of(bytes);
        let (folder, name) = self.place(&digest);
        let refuses =
            |e: io::Error| StoreError::Refuses(format!("{}: {e}", folder.join(&name).display()));
        create_folder(&self.0).map_err(refuses)?;
        create_folder(&folder).map_err(refuses)?;
        match fs::read(folder.join(&name)) {
            // It may have been renamed by a process that died before the folder was synced.
            Ok(there) if there == bytes => sync_folder(&folder).map_err(refuses)?,
            // Missing, unreadable or damaged: what is written now is whole.
            _ => write_whole(&folder, &name, bytes).map_err(refuses)?,
        }
        Ok(digest)
    }

    /// The verified bytes; `None` if there is no such file.
    pub(crate) fn read(&self, digest: &Digest) -> Result<Option<Bytes>, StoreError> {
        let (folder, name) = self.place(digest);
        let path: &Path = &folder.join(name);
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(StoreError::Unavailable(format!(
                    "{}: {error}",
                    path.display()
                )));
            }
        };
        if Digest::of(&bytes) != *digest {
            let detail = format!("its {} bytes have another digest", bytes.len());
            return Err(StoreError::Damaged {
                what: path.display().to_string(),
                detail,
            });
        }
        Ok(Some(bytes.into()))
    }
}

#[async_trait]
impl Blobs for EmbeddedStore {
    async fn put_blob(&self, bytes: Bytes) -> Result<Digest, StoreError> {
        self.blobs().put(bytes).await
    }

    async fn get_blob(&self, digest: &Digest) -> Result<Option<Bytes>, StoreError> {
        let (folder, digest) = (self.blobs().clone(), *digest);
        tokio::task::spawn_blocking(move || folder.read(&digest))
            .await
            .map_err(|e| StoreError::Unavailable(e.to_string()))?
    }
}
