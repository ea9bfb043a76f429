//! The root of the actors of one runtime: it starts the worker and the node, and it sees them fail.
//!
//! Neither is started again in place. Each would have to be told what it had in hand, and the process has better means: everything is in the
//! store, and a new process reads it. So the failure ends this process's authority, and whoever runs it is told.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::watch;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::node::{Node, NodeArgs, NodeMsg};
use crate::shared::Shared;
use crate::tasks::Tasks;
use crate::worker::{LocalInspector, ToolWorker, WorkerArgs, WorkerMsg};

/// What the root is made of.
pub(crate) struct RootArgs {
    pub(crate) shared: Arc<Shared>,
    pub(crate) slots: usize,
    pub(crate) bringing: Tasks,
    pub(crate) failed: watch::Sender<Option<String>>,
    pub(crate) started: tokio::sync::oneshot::Sender<(ActorRef<NodeMsg>, ActorRef<WorkerMsg>)>,
}

/// The root's actor. It is told nothing.
pub(crate) struct Root;

pub(crate) struct RootState {
    shared: Arc<Shared>,
    failed: watch::Sender<Option<String>>,
    _presence: TaskTrackerToken,
}

impl Actor for Root {
    type Msg = ();
    type State = RootState;
    type Arguments = RootArgs;

    async fn pre_start(
        &self,
        me: ActorRef<()>,
        args: RootArgs,
    ) -> Result<RootState, ActorProcessingErr> {
        let RootArgs {
            shared,
            slots,
            bringing,
            failed,
            started,
        } = args;
        let worker = WorkerArgs {
            shared: shared.clone(),
            slots,
            pulling: bringing.clone(),
        };
        let (worker, _) = Actor::spawn_linked(None, ToolWorker, worker, me.get_cell()).await?;
        let inspector = Arc::new(LocalInspector {
            worker: shared.worker.worker.clone(),
            actor: worker.clone(),
        });
        let node = NodeArgs {
            shared: shared.clone(),
            directory: Default::default(),
            inspector,
            bringing,
        };
        let (node, _) = Actor::spawn_linked(None, Node, node, me.get_cell()).await?;
        // The starter may have given up.
        let _ = started.send((node, worker));
        Ok(RootState {
            _presence: shared.tasks.presence(),
            shared,
            failed,
        })
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        event: SupervisionEvent,
        root: &mut RootState,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(_, error) = event {
            let why = format!(
                "an actor that everything rests on failed: {error}; start the process again"
            );
            root.shared.authority.lose(&why);
            root.failed.send_replace(Some(why));
        }
        Ok(())
    }
}
