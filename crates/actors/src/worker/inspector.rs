//! Inspection: the one worker of this process is asked directly, any other one through the store.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_protocol::{ChainKey, InspectAnswer, WorkerId};
use leasehold_store::Inspection;
use ractor::ActorRef;
use tokio::sync::oneshot;

use super::WorkerMsg;
use crate::run::Inspector;
use crate::shared::{Shared, WorkerSide};

/// Asks workers about attempts.
pub(crate) struct AnyInspector {
    pub(crate) shared: Arc<Shared>,
    /// This process's worker.
    pub(crate) local: Option<(WorkerId, ActorRef<WorkerMsg>)>,
}

#[async_trait]
impl Inspector for AnyInspector {
    async fn inspect(&self, chain: &ChainKey, worker: &WorkerId) -> InspectAnswer {
        let Some((_, actor)) = self.local.as_ref().filter(|(local, _)| local == worker) else {
            return self.shared.store.inspect(chain, worker).await;
        };
        let (answer, answered) = oneshot::channel();
        if actor
            .cast(WorkerMsg::Inspect(chain.clone(), answer))
            .is_err()
        {
            return InspectAnswer::NoAnswer;
        }
        answered.await.unwrap_or(InspectAnswer::NoAnswer)
    }
}

/// Hands the questions of other processes to the worker, for as long as it lives.
pub(crate) async fn answer_others(side: Arc<WorkerSide>, worker: ActorRef<WorkerMsg>) {
    let mut questions = side.store.inspections(&side.identity.worker);
    while let Some(Inspection { chain, answer }) = questions.recv().await {
        let _ = worker.cast(WorkerMsg::Inspect(chain, answer));
    }
}
