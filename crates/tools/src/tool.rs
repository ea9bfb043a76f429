//! How a tool runs: one [`Call`] in, one output or one classified error out, and the probe that says afterwards
//! whether the effect happened.
//!
//! The call is the only place where a tool learns which run it works for. A tool that is not read-only says on
//! failure whether anything may have happened; what it leaves unsaid counts as "may have happened", so that silence
//! never becomes a second effect.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_json::{AcceptedJson, Digest};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::spec::{ResultTrust, SideEffect};

/// Where an implementation comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Rust code in the worker's own process.
    Rust,
    /// A command started per call.
    Command,
    /// An HTTP service.
    Http,
    /// A service on NATS.
    NatsService,
    /// A server of the Model Context Protocol.
    Mcp,
    /// An executor that holds no authority.
    Sandbox,
    /// Workers of the cluster that do not read this declaration, in another language say.
    Elsewhere,
}

impl Origin {
    /// The trust that results of this origin have until the registrar declares another: only code of the worker's
    /// own process is inside.
    pub const fn default_result_trust(self) -> ResultTrust {
        match self {
            Self::Rust => ResultTrust::Trusted,
            Self::Command
            | Self::Http
            | Self::NatsService
            | Self::Mcp
            | Self::Sandbox
            | Self::Elsewhere => ResultTrust::Untrusted,
        }
    }
}

/// One permission to execute: what a tool is asked to do, for whom, and until when.
///
/// A further attempt is the same request on the same step: `run`, `step`, `idempotency_key` and `arguments` do not
/// change, `attempt` and perhaps `epoch` do.
#[derive(Debug, Clone)]
pub struct Call {
    /// The run's id.
    pub run: String,
    /// The step's id, unique in the run.
    pub step: String,
    /// The attempt, counted from 1.
    pub attempt: u32,
    /// How often the run has changed hands.
    pub epoch: u64,
    /// The key of the step's effect: equal on every attempt and every hop.
    pub idempotency_key: Digest,
    /// What was left of the timeout when the call was handed over.
    pub time_left: Duration,
    /// The same deadline on the wall clock of this host, in milliseconds since 1970, for services that refuse late
    /// requests.
    pub deadline_unix_ms: i64,
    /// The arguments, exactly as they were accepted and approved.
    pub arguments: AcceptedJson,
    /// Cancelled when the answer is no longer wanted and at the deadline. A tool that goes on beyond the grace that
    /// follows loses its process.
    pub cancel: CancellationToken,
}

/// What a tool gives back: bytes that nobody has checked yet. The worker puts them through
/// [`accept_result`](crate::accept_result); no bytes at all mean `{}`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolOutput {
    /// The bytes.
    pub content: Vec<u8>,
}

impl ToolOutput {
    /// An output of these bytes.
    pub fn new(content: impl Into<Vec<u8>>) -> Self {
        Self {
            content: content.into(),
        }
    }
}

/// The machine code that stands in a `tool_error` observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// The tool reported an error.
    Error,
    /// The tool panicked.
    Panic,
    /// The tool did not answer in time.
    Timeout,
    /// The tool's result is not usable JSON. Its effect did happen.
    InvalidContent,
    /// No worker took the call within the run's queue limit.
    NoWorker,
    /// No sandboxed executor is attached.
    NoExecutor,
}

impl Failure {
    /// The machine code.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Panic => "panic",
            Self::Timeout => "timeout",
            Self::InvalidContent => "invalid_content",
            Self::NoWorker => "no_worker",
            Self::NoExecutor => "no_executor",
        }
    }
}

/// How a call failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ToolError {
    /// The tool knows that it changed nothing: a plain `tool_error` for the agent.
    #[error("{message}")]
    NothingHappened {
        /// What the agent reads.
        message: String,
        /// The code beside it.
        failure: Failure,
    },
    /// The change may have been made; a tool that is not read-only leaves an orphan to reconcile.
    #[error("{message}")]
    MayHaveHappened {
        /// What the operator reads.
        message: String,
    },
    /// The whole run must end (only a tool whose spec says `may_abort`).
    #[error("the tool ends the run: {detail}")]
    Abort {
        /// Why; recorded with the run's end.
        detail: String,
    },
    /// An error that says nothing about the effect, so it counts as "may have happened".
    #[error("{0}")]
    Unclassified(String),
}

impl ToolError {
    /// The tool failed and changed nothing.
    pub fn nothing_happened(message: impl Into<String>) -> Self {
        Self::NothingHappened {
            message: message.into(),
            failure: Failure::Error,
        }
    }

    /// The tool failed and may have changed something.
    pub fn may_have_happened(message: impl Into<String>) -> Self {
        Self::MayHaveHappened {
            message: message.into(),
        }
    }

    /// Whether this error alone ends the attempt of a tool of this class. If not, the attempt is an orphan: what
    /// happened has to be found out before the agent hears of it.
    pub const fn settles(&self, class: SideEffect) -> bool {
        match self {
            Self::NothingHappened { .. } | Self::Abort { .. } => true,
            Self::MayHaveHappened { .. } | Self::Unclassified(_) => class.is_read_only(),
        }
    }
}

/// What the reconciler asks about an attempt whose fate is unknown.
#[derive(Debug, Clone)]
pub struct ProbeQuestion {
    /// The run's id.
    pub run: String,
    /// The step's id.
    pub step: String,
    /// The attempt in question; a fencing probe refuses this one and all before it for ever.
    pub attempt: u32,
    /// The key the effect was asked for under.
    pub idempotency_key: Digest,
    /// The arguments it was asked with.
    pub arguments: AcceptedJson,
    /// How long the asker waits.
    pub time_left: Duration,
}

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// The effect happened; these unchecked bytes are its result.
    Done(Vec<u8>),
    /// It did not happen. What that is worth depends on the declared [`ProbeKind`](crate::ProbeKind).
    NotDone,
    /// The probe could not find out, for this reason.
    Unknown(String),
    /// The key was used for something else: the run must end.
    Conflict(String),
}

/// Why a probe gave no answer. Never read as "it did not happen".
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProbeError {
    /// The tool has no probe.
    #[error("the tool has no probe; an operator has to say what happened")]
    NoProbe,
    /// The probe failed.
    #[error("the probe failed: {0}")]
    Failed(String),
}

/// A tool's implementation.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// Executes one call. May be dropped at any await once the call is cancelled, and once the deadline has passed
    /// its answer may be kept only as late evidence.
    async fn call(&self, call: Call) -> Result<ToolOutput, ToolError>;

    /// Says whether an earlier call's effect happened, without causing it.
    async fn probe(&self, question: ProbeQuestion) -> Result<ProbeAnswer, ProbeError> {
        let _ = question;
        Err(ProbeError::NoProbe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s16_an_error_settles_a_call_only_if_nothing_can_have_happened() {
        let errors = [
            (ToolError::nothing_happened("refused"), true),
            (
                ToolError::Abort {
                    detail: "stop".into(),
                },
                true,
            ),
            (ToolError::may_have_happened("connection lost"), false),
            (ToolError::Unclassified("exit code 3".into()), false),
        ];
        for (error, settles) in errors {
            assert!(error.settles(SideEffect::ReadOnly), "{error}");
            for class in [
                SideEffect::LocalMutation,
                SideEffect::RemoteMutation,
                SideEffect::Destructive,
            ] {
                assert_eq!(error.settles(class), settles, "{error} {class}");
            }
        }
    }

    #[test]
    fn s16_the_codes_are_those_of_the_wire() {
        let all = [
            Failure::Error,
            Failure::Panic,
            Failure::Timeout,
            Failure::InvalidContent,
            Failure::NoWorker,
            Failure::NoExecutor,
        ];
        for failure in all {
            assert_eq!(
                serde_json::to_value(failure).unwrap(),
                serde_json::json!(failure.as_str())
            );
        }
    }

    #[test]
    fn a5_only_code_of_the_own_process_is_trusted_by_default() {
        assert_eq!(Origin::Rust.default_result_trust(), ResultTrust::Trusted);
        for outside in [
            Origin::Command,
            Origin::Http,
            Origin::NatsService,
            Origin::Mcp,
            Origin::Sandbox,
        ] {
            assert_eq!(outside.default_result_trust(), ResultTrust::Untrusted);
        }
    }

    #[tokio::test]
    async fn a_tool_without_a_probe_says_so() {
        struct Plain;
        #[async_trait]
        impl Tool for Plain {
            async fn call(&self, _: Call) -> Result<ToolOutput, ToolError> {
                Ok(ToolOutput::default())
            }
        }
        let question = ProbeQuestion {
            run: "r".into(),
            step: "1".into(),
            attempt: 1,
            idempotency_key: AcceptedJson::empty_object().digest(),
            arguments: AcceptedJson::empty_object(),
            time_left: Duration::from_secs(1),
        };
        assert_eq!(Plain.probe(question).await, Err(ProbeError::NoProbe));
    }
}
