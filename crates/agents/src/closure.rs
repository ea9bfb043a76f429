//! An agent that is a closure: for tests, and for deterministic plans written in Rust.

use async_trait::async_trait;
use leasehold_protocol::AgentView;

use crate::{Agent, AgentError};

/// A named closure from view to decision.
pub struct FnAgent<F> {
    name: String,
    decide: F,
}

impl<F> FnAgent<F>
where
    F: Fn(&AgentView) -> Result<Vec<u8>, AgentError> + Send + Sync + 'static,
{
    /// An agent of this name that decides by this closure.
    pub fn new(name: impl Into<String>, decide: F) -> Self {
        Self {
            name: name.into(),
            decide,
        }
    }
}

#[async_trait]
impl<F> Agent for FnAgent<F>
where
    F: Fn(&AgentView) -> Result<Vec<u8>, AgentError> + Send + Sync + 'static,
{
    fn name(&self) -> &str {
        &self.name
    }

    async fn decide(&self, view: AgentView) -> Result<Vec<u8>, AgentError> {
        (self.decide)(&view)
    }
}
