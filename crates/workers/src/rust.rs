//! A tool that is Rust code in the worker's own process.
//!
//! It is a pair of async closures. What they return is passed on unchanged; a panic in them is left to the caller,
//! who knows whose call it was.

use std::{fmt, future::Future, pin::Pin};

use async_trait::async_trait;
use leasehold_tools::{Call, ProbeAnswer, ProbeError, ProbeQuestion, Tool, ToolError, ToolOutput};

type Answer<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;
type CallFn = dyn Fn(Call) -> Answer<ToolOutput, ToolError> + Send + Sync;
type ProbeFn = dyn Fn(ProbeQuestion) -> Answer<ProbeAnswer, ProbeError> + Send + Sync;

/// A [`Tool`] made of closures.
///
/// ```
/// use leasehold_tools::{Call, ToolOutput};
/// use leasehold_workers::RustTool;
///
/// let echo = RustTool::new(async |call: Call| Ok(ToolOutput::new(call.arguments.as_bytes())));
/// ```
pub struct RustTool {
    call: Box<CallFn>,
    probe: Option<Box<ProbeFn>>,
}

impl RustTool {
    /// A tool without a probe.
    pub fn new<F, Fut>(call: F) -> Self
    where
        F: Fn(Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
    {
        Self {
            call: Box::new(move |given| Box::pin(call(given))),
            probe: None,
        }
    }

    /// Gives the tool a probe; its spec declares of which kind.
    #[must_use]
    pub fn with_probe<F, Fut>(mut self, probe: F) -> Self
    where
        F: Fn(ProbeQuestion) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ProbeAnswer, ProbeError>> + Send + 'static,
    {
        self.probe = Some(Box::new(move |question| Box::pin(probe(question))));
        self
    }
}

impl fmt::Debug for RustTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RustTool")
            .field("probe", &self.probe.is_some())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Tool for RustTool {
    async fn call(&self, call: Call) -> Result<ToolOutput, ToolError> {
        (self.call)(call).await
    }

    async fn probe(&self, question: ProbeQuestion) -> Result<ProbeAnswer, ProbeError> {
        match &self.probe {
            Some(probe) => probe(question).await,
            None => Err(ProbeError::NoProbe),
        }
    }
}
