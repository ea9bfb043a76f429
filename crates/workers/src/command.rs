//! A tool that is a program, started once per call without a shell.
//!
//! The arguments stand on its standard input, byte for byte; the result is its standard output; who asks, and until
//! when, stands in its environment: `LEASEHOLD_RUN`, `LEASEHOLD_STEP`, `LEASEHOLD_ATTEMPT`, `LEASEHOLD_EPOCH`,
//! `LEASEHOLD_IDEMPOTENCY_KEY`, `LEASEHOLD_SECONDS_LEFT`, `LEASEHOLD_DEADLINE_UNIX_MS`. The rest of the environment is
//! empty but for the variables that are let through.
//!
//! | the program | what that means |
//! |---|---|
//! | cannot be started | nothing happened |
//! | exits with 0 | done |
//! | exits with a code declared to mean so, leaving nobody behind | nothing happened; its standard error says why |
//! | exits otherwise, dies by a signal, or is stopped | unclassified: its effect may have happened |
//! | writes more than [`MAX_RESULT_BYTES`] | may have happened; it is killed |
//!
//! A program that leaves its process group (`setsid`) escapes the kill at the deadline. While it holds the standard
//! output the call is not over, and ends as unclassified; one that closed it as well is not noticed.
//! A worker that is itself killed kills nothing: its commands run on, which is why they are told their deadline.

use std::{collections::BTreeSet, env, ffi::OsString, path::PathBuf, time::Duration};

use async_trait::async_trait;
use leasehold_json::Digest;
use leasehold_tools::{Call, ProbeAnswer, ProbeError, ProbeQuestion, Tool, ToolError, ToolOutput};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::{
    bounds::{MAX_RESULT_BYTES, decimal_seconds},
    probe,
    process::{End, Job, run},
};

/// The variables that a program gets from the worker's environment until others are declared: what it needs to find
/// programs, its files and its language. Secrets of the worker are not among them.
pub const DEFAULT_ENV: [&str; 3] = ["PATH", "HOME", "LANG"];

/// Why a command is no tool.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CommandError {
    /// There is no program.
    #[error("the argument vector is empty; its first element is the program to start")]
    NoProgram,
    /// The code cannot mean that nothing happened.
    #[error("exit code {0} cannot mean that nothing happened; choose from 1 to 255 (0 means done)")]
    ExitCode(i64),
    /// No variable can have that name.
    #[error("{0:?} is no name of an environment variable; give names only, without values")]
    EnvName(String),
}

/// A [`Tool`] that starts a program per call.
#[derive(Debug, Clone)]
pub struct CommandTool {
    argv: Vec<String>,
    probe_argv: Option<Vec<String>>,
    nothing_happened_exit: BTreeSet<i32>,
    env: Vec<String>,
    cwd: Option<PathBuf>,
}

impl CommandTool {
    /// A program and its arguments. A name without a slash is looked for in `PATH`.
    pub fn new(argv: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, CommandError> {
        Ok(Self {
            argv: checked(argv)?,
            probe_argv: None,
            nothing_happened_exit: BTreeSet::new(),
            env: DEFAULT_ENV.map(String::from).into(),
            cwd: None,
        })
    }

    /// The program that answers probes; the tool's spec declares of which kind it is.
    pub fn with_probe(
        mut self,
        argv: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self, CommandError> {
        self.probe_argv = Some(checked(argv)?);
        Ok(self)
    }

    /// The exit codes by which the program says that it changed nothing; none until declared.
    pub fn with_nothing_happened_exit(
        mut self,
        codes: impl IntoIterator<Item = i64>,
    ) -> Result<Self, CommandError> {
        self.nothing_happened_exit = codes
            .into_iter()
            .map(|code| match i32::try_from(code) {
                Ok(code @ 1..=255) => Ok(code),
                _ => Err(CommandError::ExitCode(code)),
            })
            .collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// The names of the variables let through, in place of [`DEFAULT_ENV`].
    pub fn with_env(
        mut self,
        names: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self, CommandError> {
        self.env = names
            .into_iter()
            .map(|name| match name.into() {
                name if name.is_empty() || name.contains(['=', '\0']) => {
                    Err(CommandError::EnvName(name))
                }
                name => Ok(name),
            })
            .collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// The directory to start in, in place of the worker's own.
    #[must_use]
    pub fn with_cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    async fn run(&self, argv: &[String], stdin: &[u8], env: Environment<'_>) -> End {
        let passed_on = self
            .env
            .iter()
            .filter_map(|name| Some((OsString::from(name), env::var_os(name)?)));
        run(Job {
            argv,
            cwd: self.cwd.as_deref(),
            env: passed_on.chain(env.variables()).collect(),
            stdin,
            time_left: env.time_left,
            cancel: env.cancel,
        })
        .await
    }
}

fn checked(argv: impl IntoIterator<Item = impl Into<String>>) -> Result<Vec<String>, CommandError> {
    let argv: Vec<String> = argv.into_iter().map(Into::into).collect();
    match argv.first() {
        Some(program) if !program.is_empty() => Ok(argv),
        _ => Err(CommandError::NoProgram),
    }
}

/// Who asks, and until when.
struct Environment<'a> {
    run: &'a str,
    step: &'a str,
    attempt: u32,
    key: Digest,
    time_left: Duration,
    cancel: &'a CancellationToken,
    /// Epoch and deadline: a call has them, a probe has not.
    of_call: Option<(u64, i64)>,
}

impl Environment<'_> {
    fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> {
        let always = [
            ("LEASEHOLD_RUN", self.run.to_owned()),
            ("LEASEHOLD_STEP", self.step.to_owned()),
            ("LEASEHOLD_ATTEMPT", self.attempt.to_string()),
            ("LEASEHOLD_IDEMPOTENCY_KEY", self.key.to_string()),
            ("LEASEHOLD_SECONDS_LEFT", decimal_seconds(self.time_left)),
        ];
        let of_call = self.of_call.map(|(epoch, deadline)| {
            [
                ("LEASEHOLD_EPOCH", epoch.to_string()),
                ("LEASEHOLD_DEADLINE_UNIX_MS", deadline.to_string()),
            ]
        });
        always
            .into_iter()
            .chain(of_call.into_iter().flatten())
            .map(|(name, value)| (name.into(), value.into()))
    }
}

#[async_trait]
impl Tool for CommandTool {
    async fn call(&self, call: Call) -> Result<ToolOutput, ToolError> {
        let env = Environment {
            run: &call.run,
            step: &call.step,
            attempt: call.attempt,
            key: call.idempotency_key,
            time_left: call.time_left,
            cancel: &call.cancel,
            of_call: Some((call.epoch, call.deadline_unix_ms)),
        };
        let end = self.run(&self.argv, call.arguments.as_bytes(), env).await;
        if let End::Exited {
            status,
            strays: false,
            stderr,
            ..
        } = &end
            && status
                .code()
                .is_some_and(|code| self.nothing_happened_exit.contains(&code))
        {
            return Err(ToolError::nothing_happened(if stderr.is_empty() {
                format!("the command says that nothing happened ({status})")
            } else {
                stderr.clone()
            }));
        }
        match end {
            End::Exited { status, stdout, .. } if status.success() => Ok(ToolOutput::new(stdout)),
            End::NotStarted(error) => {
                Err(ToolError::nothing_happened(not_started(&self.argv, &error)))
            }
            End::TooMuch => Err(ToolError::may_have_happened(too_much())),
            other => Err(ToolError::Unclassified(failure(other))),
        }
    }

    async fn probe(&self, question: ProbeQuestion) -> Result<ProbeAnswer, ProbeError> {
        let argv = self.probe_argv.as_ref().ok_or(ProbeError::NoProbe)?;
        let cancel = CancellationToken::new();
        let env = Environment {
            run: &question.run,
            step: &question.step,
            attempt: question.attempt,
            key: question.idempotency_key,
            time_left: question.time_left,
            cancel: &cancel,
            of_call: None,
        };
        match self.run(argv, &probe::question_bytes(&question), env).await {
            End::Exited {
                status,
                stdout,
                stopped: None,
                ..
            } if status.success() => probe::read_answer(&stdout),
            End::NotStarted(error) => Err(ProbeError::Failed(not_started(argv, &error))),
            End::TooMuch => Err(ProbeError::Failed(too_much())),
            other => Err(ProbeError::Failed(failure(other))),
        }
    }
}

fn not_started(argv: &[String], error: &std::io::Error) -> String {
    let program = argv.first().map_or("", String::as_str);
    format!("the command {program:?} could not be started: {error}")
}

fn too_much() -> String {
    format!("the command wrote more than {MAX_RESULT_BYTES} bytes and was killed")
}

/// What to tell of an end that is no success.
fn failure(end: End) -> String {
    let (what, stderr) = match end {
        End::Exited {
            status,
            stderr,
            strays,
            stopped,
            ..
        } => {
            let why = stopped.map(|why| format!("{why} and ")).unwrap_or_default();
            let left = if strays {
                ", leaving processes behind that were killed"
            } else {
                ""
            };
            (format!("{why}it ended with {status}{left}"), stderr)
        }
        End::Unclear { why, stderr } => (why, stderr),
        End::NotStarted(error) => (error.to_string(), String::new()),
        End::TooMuch => (too_much(), String::new()),
    };
    match stderr.as_str() {
        "" => format!("the command failed: {what}"),
        stderr => format!("the command failed: {what}; the end of its standard error: {stderr}"),
    }
}
