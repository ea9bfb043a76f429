//! What is wrong with a tools file: collected with places, shown one per line in the order of the file.

use std::{
    fmt,
    ops::Range,
    path::{Path, PathBuf},
};

use serde::Serialize;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolsFileError {
    /// The line, counted from 1; none if the file could not be read.
    pub line: Option<usize>,
    /// The tool it is about, if it is about one that has a name.
    pub tool: Option<String>,
    /// What is wrong and what to do.
    pub message: String,
}

/// Everything that is wrong with one file; never empty. Shown as one line `FILE:LINE: tool "NAME": MESSAGE` each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolsFileErrors {
    path: PathBuf,
    errors: Vec<ToolsFileError>,
}

impl ToolsFileErrors {
    /// The file as a whole is unusable.
    pub(super) fn whole(path: &Path, message: String) -> Self {
        let error = ToolsFileError {
            line: None,
            tool: None,
            message,
        };
        Self {
            path: path.into(),
            errors: vec![error],
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The errors, by line.
    pub fn errors(&self) -> &[ToolsFileError] {
        &self.errors
    }
}

impl fmt::Display for ToolsFileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.errors.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}:", self.path.display())?;
            if let Some(line) = error.line {
                write!(f, "{line}:")?;
            }
            if let Some(tool) = &error.tool {
                write!(f, " tool {tool:?}:")?;
            }
            // An error is one line, whatever stands in the texts that it quotes.
            write!(f, " {}", error.message.trim().replace('\n', " "))?;
        }
        Ok(())
    }
}

impl std::error::Error for ToolsFileErrors {}

/// The collector.
pub(super) struct Faults<'a> {
    text: &'a str,
    /// The tool that is being read.
    pub(super) tool: Option<String>,
    found: Vec<ToolsFileError>,
}

impl<'a> Faults<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            tool: None,
            found: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, at: &Range<usize>, message: impl Into<String>) {
        let line = Some(self.line(at.start));
        let (tool, message) = (self.tool.clone(), message.into());
        self.found.push(ToolsFileError {
            line,
            tool,
            message,
        });
    }

    /// Adds the error, if it is one.
    pub(super) fn keep<T, E: fmt::Display>(
        &mut self,
        at: &Range<usize>,
        result: Result<T, E>,
    ) -> Option<T> {
        result.map_err(|error| self.add(at, error.to_string())).ok()
    }

    /// The line of a byte offset, counted from 1.
    pub(super) fn line(&self, offset: usize) -> usize {
        let before = self.text.as_bytes().iter().take(offset);
        1 + before.filter(|byte| **byte == b'\n').count()
    }

    /// The end: the value if nothing is wrong.
    pub(super) fn finish<T>(mut self, path: &Path, value: T) -> Result<T, ToolsFileErrors> {
        if self.found.is_empty() {
            return Ok(value);
        }
        self.found.sort_by_key(|error| error.line);
        Err(ToolsFileErrors {
            path: path.into(),
            errors: self.found,
        })
    }
}
