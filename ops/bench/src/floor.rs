//! The floor: what one durable write costs on this disk without anything around it.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;

use crate::stats::{Times, now};

/// Bytes of one record: about what a commit of one step has.
const RECORD: [u8; 600] = [b'x'; 600];

/// A file that is appended to and synced.
pub(crate) struct Floor(File);

impl Floor {
    pub(crate) fn new(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join("floor");
        let file = OpenOptions::new().create(true).append(true).open(&path);
        Ok(Self(file.with_context(|| path.display().to_string())?))
    }

    /// Appends one record after the other, each with its own `fdatasync`.
    pub(crate) fn append(&mut self, count: u64, times: &mut Times) -> anyhow::Result<()> {
        for _ in 0..count {
            let start = now();
            self.0.write_all(&RECORD)?;
            self.0.sync_data()?;
            times.push(start.elapsed());
        }
        Ok(())
    }
}
