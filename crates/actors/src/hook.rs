//! A consumer's word on a run that changes hands (S52).

use async_trait::async_trait;
use leasehold_protocol::{HookAnswer, RunId};

/// Asked once per takeover, before the new owner does anything else.
#[async_trait]
pub trait TakeoverHook: Send + Sync + 'static {
    /// Whether the run goes on, or how it is over. A panic counts as [`HookAnswer::Error`].
    async fn taken_over(&self, run: &RunId) -> HookAnswer;
}
