//! Clients and operators, as the product's users are: each request is the `leasehold` command, in a process of its own.
//!
//! The history has two lines for each request: `invoke`, and then `ok`, `fail` or `info`. *Fail* means that the command said for certain
//! that nothing was changed; whatever was cut short, timed out or got no answer is *info*: it may have happened, and may be asked again in
//! the same words.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use crate::board::Question;
use crate::clock;

/// How long a command may take. An operator is answered within 10 s, and an election may come before that.
const PATIENCE: Duration = Duration::from_secs(20);
/// The command's exit codes that matter here: see `leasehold --help`.
const DONE: i32 = 0;
const USAGE: i32 = 2;

/// What a request came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// It is stored.
    Ok,
    /// It changed nothing.
    Fail,
    /// Nobody can say yet.
    Info,
}

impl Said {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Said::Ok => "ok",
            Said::Fail => "fail",
            Said::Info => "info",
        }
    }
}

/// What an operator decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Approve,
    Reject,
    RunAgain,
    Continue,
    Done(String),
}

/// How often a kind of request came to what, for the report.
pub(crate) type Tally = std::collections::BTreeMap<(String, &'static str), usize>;

/// See the module. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    program: PathBuf,
    nats: String,
    history: Arc<Mutex<History>>,
}

#[derive(Debug)]
struct History {
    file: File,
    requests: u64,
    tally: Tally,
}

impl Client {
    pub(crate) fn new(program: &Path, nats: String, history: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(history)
            .with_context(|| format!("opening {}", history.display()))?;
        Ok(Self {
            program: program.to_owned(),
            nats,
            history: Arc::new(Mutex::new(History {
                file,
                requests: 0,
                tally: Tally::new(),
            })),
        })
    }

    /// Submits a run file, as JSON.
    pub(crate) async fn submit(&self, run: &str, file: &Value) -> Said {
        let words = ["run", "-"].map(str::to_owned);
        self.ask("submit", run, "client", &words, Some(file.to_string()))
            .await
    }

    /// Answers a question.
    pub(crate) async fn decide(&self, question: &Question, by: &str, decision: &Decision) -> Said {
        let (command, choice): (&str, &[&str]) = match decision {
            Decision::Approve => ("approve", &[]),
            // Of a call that may have acted, rejecting is one of several ways to resolve it.
            Decision::Reject => ("reject", &[]),
            Decision::RunAgain => ("resolve", &["--run-again"]),
            Decision::Continue => ("resolve", &["--continue"]),
            Decision::Done(result) => ("resolve", &["--done", result]),
        };
        let named = [command, &question.run, &question.approval];
        let rest = ["--by", by, "--yes", "--hash", &question.hash];
        let words = named.iter().chain(choice).chain(&rest);
        let words: Vec<String> = words.map(|word| (*word).to_owned()).collect();
        self.ask("decide", &question.run, by, &words, None).await
    }

    /// Asks a run to end.
    pub(crate) async fn cancel(&self, run: &str, by: &str) -> Said {
        let words = ["cancel", run, "--by", by].map(str::to_owned);
        self.ask("cancel", run, by, &words, None).await
    }

    pub(crate) fn tally(&self) -> Tally {
        let history = self.history.lock();
        history
            .unwrap_or_else(PoisonError::into_inner)
            .tally
            .clone()
    }

    async fn ask(
        &self,
        op: &str,
        run: &str,
        by: &str,
        words: &[String],
        input: Option<String>,
    ) -> Said {
        let request = self.write(None, op, json!({"run": run, "by": by, "words": words}));
        let (said, note) = match timeout(PATIENCE, self.run(words, input)).await {
            Ok(Ok((code, text))) => {
                let said = match code {
                    Some(DONE) => Said::Ok,
                    Some(USAGE) => Said::Fail,
                    _ => Said::Info,
                };
                (said, text)
            }
            Ok(Err(error)) => (Said::Info, format!("{error:#}")),
            Err(_) => (Said::Info, "no answer in time".to_owned()),
        };
        self.write(
            Some((request, said)),
            op,
            json!({"run": run, "by": by, "note": note}),
        );
        said
    }

    async fn run(
        &self,
        words: &[String],
        input: Option<String>,
    ) -> anyhow::Result<(Option<i32>, String)> {
        let mut child = Command::new(&self.program)
            .args(["--nats", &self.nats, "--json"])
            .args(words)
            .stdin(if input.is_some() {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting the command")?;
        if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
            pipe.write_all(input.as_bytes()).await?;
        }
        let output = child.wait_with_output().await?;
        let said = match output.stderr.is_empty() {
            true => output.stdout,
            false => output.stderr,
        };
        let text = String::from_utf8_lossy(&said).trim().to_owned();
        Ok((output.status.code(), text))
    }

    /// Writes one line; the request's number. A history that cannot be written is only a history.
    fn write(&self, answer: Option<(u64, Said)>, op: &str, more: Value) -> u64 {
        let history = self.history.lock();
        let mut history = history.unwrap_or_else(PoisonError::into_inner);
        let (request, kind) = match answer {
            Some((request, said)) => (request, said.name()),
            None => {
                history.requests += 1;
                (history.requests, "invoke")
            }
        };
        let mut line = json!({"at": clock::now(), "request": request, "op": op, "type": kind});
        if let (Some(line), Some(more)) = (line.as_object_mut(), more.as_object()) {
            line.extend(more.clone());
        }
        *history.tally.entry((op.to_owned(), kind)).or_default() += 1;
        let _ = writeln!(history.file, "{line}");
        request
    }
}
