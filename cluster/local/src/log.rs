//! A process's log: one file for all its lives, of which a reader wants the present one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// How much of a log's end is shown in an error: so many bytes are read, so many lines of them shown.
const END: u64 = 4096;
const LINES: usize = 6;

/// Opens it to add to, and says where what is added begins.
pub(crate) fn open(path: &Path) -> io::Result<(File, u64)> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

/// Its last lines that were written after `from`.
pub(crate) fn end(path: &Path, from: u64) -> io::Result<String> {
    let length = fs::metadata(path)?.len();
    let text = read(path, from.max(length.saturating_sub(END)))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let lines: Vec<&str> = lines.collect();
    Ok(lines[lines.len().saturating_sub(LINES)..].join("\n"))
}

/// The first whole line written after `from` that holds this text.
pub(crate) fn line_with(path: &Path, from: u64, wanted: &str) -> io::Result<Option<String>> {
    let text = read(path, from)?;
    let mut whole = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    Ok(whole
        .find(|line| line.contains(wanted))
        .map(|line| line.trim_end().to_owned()))
}

/// Every line of all its lives that holds this text.
pub(crate) fn lines_with(path: &Path, wanted: &str) -> io::Result<Vec<String>> {
    let text = read(path, 0)?;
    let lines = text.lines().filter(|line| line.contains(wanted));
    Ok(lines.map(str::to_owned).collect())
}

fn read(path: &Path, from: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
