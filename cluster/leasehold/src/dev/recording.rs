//! `--record FILE`: every input of every run's machine, as lines of JSON; one header per life of the process.
//!
//! A line reaches the operating system before its machine is stepped, so a kill -9 loses nothing that had a consequence. It may leave a
//! last line that is cut; the next life ends that line before its header, and a reader skips a cut line only there.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use leasehold_actors::{FileRecorder, Recorded, Recorder};
use leasehold_json::AcceptedJson;
use leasehold_protocol::SessionId;
use leasehold_tools::{Registry, ToolSpec};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

const FORMAT: u32 = 1;

/// The first line of each life: what a machine's configuration needs beside its own line.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Life {
    /// The format's version.
    pub(crate) life: u32,
    pub(crate) session: SessionId,
    pub(crate) tools: Vec<ToolSpec>,
}

/// One line of a recording.
#[derive(Debug)]
pub(crate) enum Line {
    Life(Life),
    Record(Box<Recorded>),
    /// The last line of a life that was killed while it wrote, or damage.
    Unreadable(String),
}

impl Line {
    /// Reads a line.
    pub(crate) fn read(text: &[u8]) -> Self {
        let json = match AcceptedJson::check(text) {
            Ok(json) => json,
            Err(error) => return Line::Unreadable(error.to_string()),
        };
        if let Ok(life) = json.parse::<Life>() {
            return match life.life {
                FORMAT => Line::Life(life),
                found => {
                    Line::Unreadable(format!("format {found}; this binary reads format {FORMAT}"))
                }
            };
        }
        match json.parse() {
            Ok(record) => Line::Record(Box::new(record)),
            Err(error) => Line::Unreadable(error.to_string()),
        }
    }
}

/// The recorder of one life.
#[derive(Debug)]
pub(crate) struct Recording(FileRecorder);

impl Recording {
    /// Opens the file for appending and writes this life's header.
    pub(crate) fn append(
        path: &Path,
        session: &SessionId,
        tools: &Registry,
    ) -> Result<Self, Failure> {
        let life = Life {
            life: FORMAT,
            session: session.clone(),
            tools: tools.iter().map(|tool| tool.spec().clone()).collect(),
        };
        let opened = begin(path, &life).and_then(|()| FileRecorder::append(path));
        opened.map(Self).map_err(|error| {
            Failure::usage(format!("{} cannot be recorded to: {error}", path.display()))
        })
    }
}

fn begin(path: &Path, life: &Life) -> std::io::Result<()> {
    let mut file = File::options()
        .read(true)
        .append(true)
        .create(true)
        .open(path)?;
    let mut text = Vec::new();
    if file.metadata()?.len() > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            text.push(b'\n');
        }
    }
    serde_json::to_writer(&mut text, life)?;
    text.push(b'\n');
    file.write_all(&text)
}

impl Recorder for Recording {
    fn on(&self) -> bool {
        self.0.on()
    }

    fn record(&self, record: Recorded) {
        self.0.record(record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_line_is_ended_before_the_next_header() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("inputs.jsonl");
        let session = SessionId::new("s").unwrap();
        let registry = Registry::default();
        Recording::append(&path, &session, &registry).unwrap();
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(br#"{"record":"inp"#).unwrap();
        Recording::append(&path, &session, &registry).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Line> = text
            .lines()
            .map(|line| Line::read(line.as_bytes()))
            .collect();
        assert!(
            matches!(
                lines.as_slice(),
                [Line::Life(_), Line::Unreadable(_), Line::Life(_)]
            ),
            "{lines:?}"
        );
    }
}
