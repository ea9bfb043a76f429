//! The marker beside a store: says that one was made here, of which format, under which id.
//!
//! It is written last when a store is made. So a marker without its store means that the store was taken away, and never that this is a
//! fresh folder.

use std::path::Path;
use std::{fs, io};

use leasehold_json::AcceptedJson;
use serde::{Deserialize, Serialize};

use crate::OpenError;
use crate::files::write_whole;

/// The newest format of a data folder that this code writes and reads.
pub(crate) const FORMAT: u32 = 1;

/// Largest marker that is read: a real one has some hundred bytes.
const MAX_MARKER: u64 = 64 * 1024;

/// What a marker file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Marker {
    /// Format of the folder.
    pub(crate) format: u32,
    /// `store` or `logbook`.
    pub(crate) kind: String,
    /// Cluster id or logbook id; stands in the store too, and both must agree.
    pub(crate) id: String,
    /// Unix milliseconds.
    pub(crate) created: i64,
    /// The machine that made it, if it has an id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) machine: Option<String>,
    /// The worker, of a logbook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) worker: Option<String>,
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

impl Marker {
    /// Reads the marker, if there is one. The format is judged first: a newer marker may have other fields.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, OpenError> {
        let damaged = |detail: String| OpenError::Damaged {
            path: path.to_owned(),
            detail,
        };
        match fs::metadata(path) {
            Ok(meta) if meta.len() > MAX_MARKER => {
                return Err(damaged(format!(
                    "{} bytes are too many for a marker",
                    meta.len()
                )));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(OpenError::io(path, &error)),
        }
        let bytes = fs::read(path).map_err(|e| OpenError::io(path, &e))?;
        let json = AcceptedJson::check(&bytes).map_err(|e| damaged(e.to_string()))?;
        let Format { format } = json.parse().map_err(|e| damaged(e.to_string()))?;
        if format > FORMAT {
            return Err(OpenError::NewerVersion {
                path: path.to_owned(),
                found: format,
                known: FORMAT,
            });
        }
        json.parse().map(Some).map_err(|e| damaged(e.to_string()))
    }

    /// Writes the marker durably.
    pub(crate) fn write(&self, folder: &Path, name: &str) -> Result<(), OpenError> {
        let path = folder.join(name);
        let mut text = serde_json::to_vec_pretty(self).map_err(|e| OpenError::Io {
            path: path.clone(),
            detail: e.to_string(),
        })?;
        text.push(b'\n');
        write_whole(folder, name, &text).map_err(|e| OpenError::io(&path, &e))
    }
}

/// The id of this machine, where it has one.
pub(crate) fn machine_id() -> Option<String> {
    let text = fs::read_to_string("/etc/machine-id").ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
