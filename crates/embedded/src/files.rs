//! Files that are whole or not there, and folders whose entries are durable.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use uuid::Uuid;

/// Fresh random text: for ids that are minted once, and for names of temporary files.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place of this crate that mints; these ids name files and folders and never enter a journal"
)]
pub(crate) fn random_id() -> String {
    Uuid::new_v4().simple().to_string()
}

/// Makes the entries of a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Creates the folder if it is missing, durably.
pub(crate) fn create_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_folder(parent),
        _ => sync_folder(Path::new(".")),
    }
}

/// Writes a file so that, whatever happens, it is there whole or as it was before. Durable once it returns.
pub(crate) fn write_whole(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = folder.join(format!("tmp-{}", random_id()));
    let written = File::create_new(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let placed = written.and_then(|()| fs::rename(&temporary, folder.join(name)));
    if let Err(error) = placed {
        // Best effort: a left-over temporary file wastes space and is never read.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    sync_folder(folder)
}
