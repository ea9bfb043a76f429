//! A consumer's word on a run that changes hands (S52).

use async_trait::async_trait;
use leasehold_protocol::{HookAnswer, RunId};

/// Asked once per takeover, before the new owner does anything else; not while a question that it had asked ([`HookAnswer::Waiting`]) is
/// open. A run that wakes from its wait for an operator changes hands too.
#[async_trait]
pub trait TakeoverHook: Send + Sync + 'static {
    /// Whether the run goes on, waits for an operator's approval, or how it is over. A panic, a silence and an answer that is too large
    /// to be recorded count as [`HookAnswer::Error`].
    async fn taken_over(&self, run: &RunId) -> HookAnswer;
}
