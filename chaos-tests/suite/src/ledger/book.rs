//! The book itself: every request that was received, every effect, every refusal and every fence, one line each, on the disk before
//! anything follows from it.
//!
//! A tool of the ledger does what a real one does: it checks its fence, and where it has promised so its deadline, and has its effect, under
//! one lock. A probe takes the same lock, so its answer and the effects have an order.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};

use super::mode::Mode;
use crate::clock;
use crate::json;
use crate::tools::{self, Probe, Tool};

/// Who asks, as the headers of a call or the body of a probe say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) key: String,
    pub(crate) run: String,
    pub(crate) step: String,
    pub(crate) attempt: u64,
    pub(crate) epoch: u64,
    /// Unix milliseconds; 0 of a probe.
    pub(crate) deadline: i64,
}

/// A request that was written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) n: u64,
    /// Of this request: the arguments' mode if it is the first of its key.
    pub(crate) mode: Mode,
}

/// What came of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Applied {
    /// It had its effect; the effect's number.
    Effect(u64),
    /// It was refused for good, and why.
    Refused(&'static str),
}

/// What a probe is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// There is an effect of this number.
    Done(u64),
    NotDone,
    /// This tool has no probe.
    Nothing,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Book(Mutex<Open>);

#[derive(Debug)]
struct Open {
    file: File,
    lines: u64,
    requests: u64,
    /// Keys that were seen before.
    seen: BTreeSet<String>,
    /// The first effect of each key.
    effects: BTreeMap<String, u64>,
    count: u64,
    /// The highest attempt of each key that is refused for ever.
    fences: BTreeMap<String, u64>,
}

impl Book {
    /// Opens or makes it; what an earlier life wrote counts, what a kill cut off does not.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .read(true)
            .open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        if !bytes.is_empty() && !bytes.ends_with(b"\n") {
            file.write_all(b"\n")?;
        }
        let mut open = Open {
            file,
            lines: 0,
            requests: 0,
            seen: BTreeSet::new(),
            effects: BTreeMap::new(),
            count: 0,
            fences: BTreeMap::new(),
        };
        for line in bytes.split(|byte| *byte == b'\n') {
            open.remember(&json::read(line));
        }
        let classes = tools::ALL.map(|tool| (tool.name.to_owned(), Value::from(tool.class)));
        open.write(json!({"kind": "opened", "tools": Map::from_iter(classes)}))?;
        Ok(Self(Mutex::new(open)))
    }

    /// Writes a request down. Nothing is done that is not written down first.
    pub(crate) fn receive(
        &self,
        tool: Tool,
        caller: &Caller,
        wanted: Mode,
        args_sha256: &str,
    ) -> io::Result<Received> {
        let mut open = self.lock();
        let mode = match open.seen.contains(&caller.key) {
            true => Mode::Ok,
            false => wanted,
        };
        let n = open.requests + 1;
        open.write(json!({
            "kind": "request", "n": n, "tool": tool.name, "key": caller.key, "run": caller.run, "step": caller.step,
            "attempt": caller.attempt, "epoch": caller.epoch, "deadline": caller.deadline, "args_sha256": args_sha256, "mode": mode.name(),
        }))?;
        open.requests = n;
        open.seen.insert(caller.key.clone());
        Ok(Received { n, mode })
    }

    /// Has the effect of a request, or refuses it for good.
    pub(crate) fn apply(&self, tool: Tool, caller: &Caller, request: u64) -> io::Result<Applied> {
        let mut open = self.lock();
        let fence = open.fences.get(&caller.key).copied().unwrap_or(0);
        let why = if caller.attempt <= fence {
            Some("fenced")
        } else if tool.probe == Probe::Observing && clock::now() >= caller.deadline {
            Some("late")
        } else {
            None
        };
        if let Some(why) = why {
            open.write(json!({"kind": "refused", "request": request, "why": why}))?;
            return Ok(Applied::Refused(why));
        }
        let count = open.count + 1;
        open.write(json!({
            "kind": "effect", "n": count, "request": request, "tool": tool.name, "key": caller.key, "run": caller.run,
            "step": caller.step, "attempt": caller.attempt, "epoch": caller.epoch,
        }))?;
        open.count = count;
        open.effects.entry(caller.key.clone()).or_insert(count);
        Ok(Applied::Effect(count))
    }

    /// Answers a probe. The no of a fencing tool is on the disk, and holds, before it is said.
    pub(crate) fn probe(&self, tool: Tool, caller: &Caller) -> io::Result<Answer> {
        if tool.probe == Probe::None {
            return Ok(Answer::Nothing);
        }
        let mut open = self.lock();
        let answer = match open.effects.get(&caller.key) {
            Some(effect) => Answer::Done(*effect),
            None => Answer::NotDone,
        };
        let fences = answer == Answer::NotDone && tool.probe == Probe::Fencing;
        open.write(json!({
            "kind": if fences { "fence" } else { "probe" }, "tool": tool.name, "key": caller.key, "run": caller.run,
            "step": caller.step, "attempt": caller.attempt, "done": matches!(answer, Answer::Done(_)),
        }))?;
        if fences {
            let fence = open.fences.entry(caller.key.clone()).or_insert(0);
            *fence = caller.attempt.max(*fence);
        }
        Ok(answer)
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// On the disk once it returns.
    fn write(&mut self, mut line: Value) -> io::Result<()> {
        if let Some(line) = line.as_object_mut() {
            line.insert("line".to_owned(), (self.lines + 1).into());
            line.insert("at".to_owned(), clock::now().into());
        }
        self.file.write_all(format!("{line}\n").as_bytes())?;
        self.file.sync_data()?;
        self.lines += 1;
        Ok(())
    }

    /// Takes in what an earlier life wrote.
    fn remember(&mut self, line: &Value) {
        let key = || json::text(line, "key").to_owned();
        self.lines = self.lines.max(json::number(line, "line"));
        match json::text(line, "kind") {
            "request" => {
                self.requests = self.requests.max(json::number(line, "n"));
                self.seen.insert(key());
            }
            "effect" => {
                self.count = self.count.max(json::number(line, "n"));
                self.effects.entry(key()).or_insert(json::number(line, "n"));
            }
            "fence" => {
                let fence = self.fences.entry(key()).or_insert(0);
                *fence = json::number(line, "attempt").max(*fence);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(attempt: u64) -> Caller {
        Caller {
            key: "k".to_owned(),
            run: "r".to_owned(),
            step: "1-0".to_owned(),
            attempt,
            epoch: 1,
            deadline: i64::MAX,
        }
    }

    fn tool(name: &str) -> Tool {
        Tool::named(name).unwrap()
    }

    #[test]
    fn a_fencing_tool_that_has_said_no_refuses_that_attempt_for_ever_and_takes_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let pay = tool("pay");
        let book = Book::open(&path).unwrap();
        assert_eq!(book.probe(pay, &caller(1)).unwrap(), Answer::NotDone);
        drop(book);
        let book = Book::open(&path).unwrap();
        let refused = book.apply(pay, &caller(1), 1).unwrap();
        assert_eq!(refused, Applied::Refused("fenced"));
        assert_eq!(book.apply(pay, &caller(2), 2).unwrap(), Applied::Effect(1));
        assert_eq!(book.probe(pay, &caller(1)).unwrap(), Answer::Done(1));
    }

    #[test]
    fn only_the_tool_that_promises_so_refuses_what_comes_after_its_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let book = Book::open(&folder.path().join("ledger")).unwrap();
        let late = Caller {
            deadline: 1,
            ..caller(1)
        };
        let refused = book.apply(tool("note"), &late, 1).unwrap();
        assert_eq!(refused, Applied::Refused("late"));
        assert_eq!(
            book.apply(tool("send"), &late, 2).unwrap(),
            Applied::Effect(1)
        );
    }

    #[test]
    fn a_mode_is_the_first_requests_alone_also_across_lives_and_a_cut_line_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let book = Book::open(&path).unwrap();
        let send = tool("send");
        let first = book.receive(send, &caller(1), Mode::Hang, "a").unwrap();
        assert_eq!((first.n, first.mode), (1, Mode::Hang));
        drop(book);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"kind\":\"eff").unwrap();
        let book = Book::open(&path).unwrap();
        let second = book.receive(send, &caller(2), Mode::Hang, "a").unwrap();
        assert_eq!((second.n, second.mode), (2, Mode::Ok));
        let lines = std::fs::read_to_string(&path).unwrap();
        assert_eq!(lines.lines().count(), 5);
        assert!(lines.ends_with("}\n"));
    }
}
