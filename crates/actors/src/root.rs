//! The root of the actors of one runtime: it starts the worker and the node, and it sees them fail.
//!
//! Neither is started again in place. Each would have to be told what it had in hand, and the process has better means: everything is in the
//! store, and a new process reads it. So the failure ends this process's authority, and whoever runs it is told.

use std::sync::Arc;

use leasehold_protocol::NodeId;
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::watch;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::node::{Node, NodeArgs, NodeMsg};
use crate::shared::{Shared, WorkerSide};
use crate::tasks::Tasks;
use crate::worker::{AnyInspector, ToolWorker, WorkerArgs, WorkerMsg, answer_others};

/// What the root is made of.
pub(crate) struct RootArgs {
    pub(crate) shared: Arc<Shared>,
    /// The node's name, if this process drives runs.
    pub(crate) node: Option<NodeId>,
    /// The worker and how many calls it runs side by side, if this process executes any.
    pub(crate) worker: Option<(Arc<WorkerSide>, usize)>,
    pub(crate) bringing: Tasks,
    pub(crate) failed: watch::Sender<Option<String>>,
    pub(crate) started: tokio::sync::oneshot::Sender<Started>,
}

/// The actors of a process.
#[derive(Default)]
pub(crate) struct Started {
    pub(crate) node: Option<ActorRef<NodeMsg>>,
    pub(crate) worker: Option<ActorRef<WorkerMsg>>,
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
            node,
            worker,
            bringing,
            failed,
            started,
        } = args;
        let mut actors = Started::default();
        let mut local = None;
        if let Some((side, slots)) = worker {
            let args = WorkerArgs {
                shared: side.clone(),
                slots,
                pulling: bringing.clone(),
            };
            let (actor, _) = Actor::spawn_linked(None, ToolWorker, args, me.get_cell()).await?;
            local = Some((side.identity.worker.clone(), actor.clone()));
            shared.tasks.spawn(answer_others(side, actor.clone()));
            actors.worker = Some(actor);
        }
        if let Some(node) = node {
            let args = NodeArgs {
                node,
                shared: shared.clone(),
                directory: Default::default(),
                inspector: Arc::new(AnyInspector {
                    shared: shared.clone(),
                    local,
                }),
                bringing,
            };
            let (actor, _) = Actor::spawn_linked(None, Node, args, me.get_cell()).await?;
            actors.node = Some(actor);
        }
        // The starter may have given up.
        let _ = started.send(actors);
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
