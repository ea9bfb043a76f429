//! The ledger's file, read while it grows: what operators and the report look at.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::Value;

use crate::json;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LineOf {
    /// Unix milliseconds.
    pub(crate) at: i64,
    /// `opened`, `request`, `effect`, `refused`, `probe` or `fence`.
    pub(crate) kind: String,
    /// Of a request or effect its number.
    pub(crate) n: u64,
    pub(crate) tool: String,
    pub(crate) run: String,
    pub(crate) step: String,
    pub(crate) attempt: u64,
    pub(crate) mode: String,
    /// Of a refusal why.
    pub(crate) why: String,
}

impl LineOf {
    fn read(line: &Value) -> Self {
        let text = |name| json::text(line, name).to_owned();
        Self {
            at: line.get("at").and_then(Value::as_i64).unwrap_or(0),
            kind: text("kind"),
            n: json::number(line, "n"),
            tool: text("tool"),
            run: text("run"),
            step: text("step"),
            attempt: json::number(line, "attempt"),
            mode: text("mode"),
            why: text("why"),
        }
    }
}

/// What was read so far.
#[derive(Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
    from: u64,
    partial: Vec<u8>,
    lines: Vec<LineOf>,
}

impl Ledger {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            from: 0,
            partial: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// Reads on, as far as there are whole lines. All of them.
    pub(crate) fn read(&mut self) -> anyhow::Result<&[LineOf]> {
        let what = || format!("reading the ledger {}", self.path.display());
        let mut file = File::open(&self.path).with_context(what)?;
        file.seek(SeekFrom::Start(self.from)).with_context(what)?;
        let read = file.read_to_end(&mut self.partial).with_context(what)?;
        self.from += u64::try_from(read)?;
        while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            self.lines.push(LineOf::read(&json::read(&line)));
        }
        Ok(&self.lines)
    }

    /// The number of a step's effect, if it has one by now.
    pub(crate) fn effect(&mut self, run: &str, step: &str) -> anyhow::Result<Option<u64>> {
        let lines = self.read()?.iter();
        let mut effects = lines.filter(|line| line.kind == "effect");
        let effect = effects.find(|line| line.run == run && line.step == step);
        Ok(effect.map(|line| line.n))
    }
}
