//! The floor: what one durable write costs on this disk without anything around it.
//!
//! Two of them. Appending makes the file longer, so the file system has to sync its own records too; a file that is there already, and is
//! only written over, is spared that. A log that grows in large steps, as the store's does, is nearer to the second: it is the one that goals are
//! held against.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::Context as _;

use crate::load::InTurns;
use crate::stats::{Times, now};

/// Bytes of one record: about what a commit of one step has.
pub(crate) const RECORD: [u8; 600] = [b'x'; 600];
/// Bytes of the file that is written over, again from its beginning when its end is reached.
const LENGTH: u64 = 16 * 1024 * 1024;

/// What the floor's writes took.
#[derive(Debug, Clone, Default)]
pub(crate) struct FloorTimes {
    pub(crate) append: Times,
    pub(crate) overwrite: Times,
}

impl FloorTimes {
    pub(crate) fn is_empty(&self) -> bool {
        self.append.is_empty()
    }
}

/// Two files that are written to and synced.
pub(crate) struct Floor {
    grows: File,
    stays: File,
    place: u64,
}

impl Floor {
    pub(crate) fn new(folder: &Path) -> anyhow::Result<Self> {
        let open = |name: &str| {
            let path = folder.join(name);
            let file = OpenOptions::new()
                .create(true)
                .read(true)
                .append(name == "grows")
                .write(true)
                .open(&path);
            file.with_context(|| path.display().to_string())
        };
        let (grows, mut stays) = (open("grows")?, open("stays")?);
        let block = vec![0; 1024 * 1024];
        for _ in 0..LENGTH / (block.len() as u64) {
            stays.write_all(&block)?;
        }
        stays.sync_all()?;
        Ok(Self {
            grows,
            stays,
            place: 0,
        })
    }

    /// Writes one record after the other, to each file in turn, each with its own `fdatasync`.
    pub(crate) fn write(&mut self, count: u64, times: &mut FloorTimes) -> anyhow::Result<()> {
        for _ in 0..count {
            let start = now();
            self.grows.write_all(&RECORD)?;
            self.grows.sync_data()?;
            times.append.push(start.elapsed());
            let start = now();
            self.stays.write_all_at(&RECORD, self.place)?;
            self.stays.sync_data()?;
            times.overwrite.push(start.elapsed());
            self.place = (self.place + RECORD.len() as u64) % (LENGTH - RECORD.len() as u64);
        }
        Ok(())
    }
}

impl InTurns for (&mut Floor, &mut FloorTimes) {
    async fn turn(&mut self, count: u64) -> anyhow::Result<()> {
        self.0.write(count, self.1)
    }
}
