//! Inspection of the one worker of this process.

use async_trait::async_trait;
use leasehold_protocol::{ChainKey, InspectAnswer, WorkerId};
use ractor::ActorRef;
use tokio::sync::oneshot;

use super::WorkerMsg;
use crate::run::Inspector;

/// Asks the worker of this process; of any other worker nobody answers.
pub(crate) struct LocalInspector {
    pub(crate) worker: WorkerId,
    pub(crate) actor: ActorRef<WorkerMsg>,
}

#[async_trait]
impl Inspector for LocalInspector {
    async fn inspect(&self, chain: &ChainKey, worker: &WorkerId) -> InspectAnswer {
        if *worker != self.worker {
            return InspectAnswer::NoAnswer;
        }
        let (answer, answered) = oneshot::channel();
        if self
            .actor
            .cast(WorkerMsg::Inspect(chain.clone(), answer))
            .is_err()
        {
            return InspectAnswer::NoAnswer;
        }
        answered.await.unwrap_or(InspectAnswer::NoAnswer)
    }
}
