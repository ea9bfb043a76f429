//! One process's runtime, as whoever starts it sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_agents::Agents;
use leasehold_protocol::{
    ClusterId, IdError, NodeId, Policy, RunWeakening, SessionId, WorkerId, WorkerIdentity,
    WorkerWeakening,
};
use leasehold_store::{Authority, Backend, Clock, LocalAuthority, Logbook, SystemClock};
use leasehold_tools::Registry;
use ractor::{Actor, ActorRef};
use tokio::sync::{broadcast, oneshot, watch};
use tokio::time::timeout;

use crate::hook::TakeoverHook;
use crate::ids::{Ids, RandomIds};
use crate::node::{NodeMsg, NodeStatus};
use crate::points::{NoPoints, Points};
use crate::recorder::{NoRecorder, Recorder};
use crate::root::{Root, RootArgs, Started};
use crate::shared::{Progress, Shared, WorkerSide};
use crate::tasks::Tasks;
use crate::worker::WorkerMsg;

/// How many events a slow listener may be behind before it has to read the journal again.
const PROGRESS_BACKLOG: usize = 4096;
/// Calls that run side by side unless said otherwise. Tools wait for other machines most of the time.
const USUAL_SLOTS: usize = 64;
/// The session TTL that a cluster's nodes have unless said otherwise. On a data folder a session ends with the process; the same time says
/// there how soon an owner's death is put down to its run.
const USUAL_SESSION_TTL: Duration = Duration::from_secs(30);

/// What a runtime is made of.
pub struct RuntimeOptions {
    /// The store.
    pub store: Arc<dyn Backend>,
    /// The tools, with what runs them.
    pub tools: Arc<Registry>,
    /// Says which calls may be made.
    pub policy: Arc<dyn Policy>,
    /// Who decides turns.
    pub agents: Agents,
    /// The store's cluster.
    pub cluster: ClusterId,
    /// This life of the process: the one that the store was opened with.
    pub session: SessionId,
    /// The node's name, if this process drives runs.
    pub node: Option<NodeId>,
    /// The worker, if this process executes calls.
    pub worker: Option<WorkerOptions>,
    /// How far the clocks of machines may be apart, milliseconds; 0 on one host.
    pub clock_bound_ms: u64,
    /// How long a node's session lives without a renewal: within twice that of one another, owners that die are put down to their run.
    pub session_ttl: Duration,
    /// Asked when a run changes hands.
    pub hook: Option<Arc<dyn TakeoverHook>>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Fresh names.
    pub ids: Arc<dyn Ids>,
    /// Whether this process may act.
    pub authority: Arc<dyn Authority>,
    /// Is told of named moments.
    pub points: Arc<dyn Points>,
    /// Is given every input of every run's machine.
    pub recorder: Arc<dyn Recorder>,
    /// A negative control.
    pub run_weakening: RunWeakening,
    /// A negative control.
    pub worker_weakening: WorkerWeakening,
}

/// What a worker is made of.
#[derive(Clone)]
pub struct WorkerOptions {
    /// Its name: the same in every life of the process.
    pub worker: WorkerId,
    /// Its own logbook.
    pub logbook: Arc<dyn Logbook>,
    /// The machine on which the logbook was made, if it is another one than this.
    pub moved_from: Option<String>,
    /// How many calls run side by side; at least 1.
    pub slots: usize,
}

impl RuntimeOptions {
    /// Node and worker in one process, both called `local`, on one host; everything else as usual.
    pub fn new(
        store: Arc<dyn Backend>,
        logbook: Arc<dyn Logbook>,
        tools: Arc<Registry>,
        policy: Arc<dyn Policy>,
        agents: Agents,
        cluster: ClusterId,
        session: SessionId,
    ) -> Result<Self, IdError> {
        let mut options = Self::reader(store, tools, policy, agents, cluster, session);
        options.node = Some(NodeId::new("local")?);
        options.worker = Some(WorkerOptions {
            worker: WorkerId::new("local")?,
            logbook,
            moved_from: None,
            slots: USUAL_SLOTS,
        });
        Ok(options)
    }

    /// A runtime that neither drives runs nor executes calls: it submits, decides, cancels and shows. Set `node` or `worker` for more.
    pub fn reader(
        store: Arc<dyn Backend>,
        tools: Arc<Registry>,
        policy: Arc<dyn Policy>,
        agents: Agents,
        cluster: ClusterId,
        session: SessionId,
    ) -> Self {
        Self {
            store,
            tools,
            policy,
            agents,
            cluster,
            session,
            node: None,
            worker: None,
            clock_bound_ms: 0,
            session_ttl: USUAL_SESSION_TTL,
            hook: None,
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
            authority: Arc::new(LocalAuthority::new()),
            points: Arc::new(NoPoints),
            recorder: Arc::new(NoRecorder),
            run_weakening: RunWeakening::default(),
            worker_weakening: WorkerWeakening::default(),
        }
    }
}

/// Why a runtime does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The source of identifiers gave something unusable.
    #[error("a fresh identifier is unusable: {0}")]
    Ids(#[from] IdError),
    /// The actors did not start.
    #[error("the runtime's actors did not start: {0}")]
    Actors(String),
}

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Every run is released and every call finished.
    Clean,
    /// The bound came first: what was in hand is settled by the next life of the process.
    CutShort,
}

/// A running runtime. Dropping it stops it like [`abort`](Self::abort), without waiting.
pub struct Runtime {
    pub(crate) shared: Arc<Shared>,
    root: ActorRef<()>,
    actors: Started,
    bringing: Tasks,
    failed: watch::Receiver<Option<String>>,
    draining: AtomicBool,
    hurry: tokio_util::sync::CancellationToken,
}

impl Runtime {
    /// Starts a new life of the process: its node and its worker take up what earlier lives left, then serve.
    pub async fn start(options: RuntimeOptions) -> Result<Self, StartError> {
        let tasks = Tasks::new();
        let bringing = tasks.child();
        let shared = Arc::new(Shared {
            store: options.store,
            tools: options.tools,
            policy: options.policy,
            agents: options.agents,
            hook: options.hook,
            clock: options.clock,
            ids: options.ids,
            authority: options.authority,
            points: options.points,
            recorder: options.recorder,
            cluster: options.cluster,
            session: options.session,
            clock_bound_ms: options.clock_bound_ms,
            session_ttl_ms: u64::try_from(options.session_ttl.as_millis()).unwrap_or(u64::MAX),
            weakening: options.run_weakening,
            progress: broadcast::channel(PROGRESS_BACKLOG).0,
            machines: Default::default(),
            tasks,
        });
        let worker = match options.worker {
            Some(worker) => {
                let identity = WorkerIdentity {
                    worker: worker.worker,
                    incarnation: shared.ids.incarnation()?,
                    logbook: worker.logbook.id().clone(),
                    moved_from: worker.moved_from,
                    weakening: options.worker_weakening,
                };
                let side = WorkerSide {
                    shared: shared.clone(),
                    identity,
                    logbook: worker.logbook,
                };
                Some((Arc::new(side), worker.slots))
            }
            None => None,
        };
        let (failed_tx, failed) = watch::channel(None);
        let (started, actors) = oneshot::channel();
        let args = RootArgs {
            shared: shared.clone(),
            node: options.node,
            worker,
            bringing: bringing.clone(),
            failed: failed_tx,
            started,
        };
        let stopped = |error: String| StartError::Actors(error);
        let (root, _) = Actor::spawn(None, Root, args)
            .await
            .map_err(|error| stopped(error.to_string()))?;
        let actors = actors.await.map_err(|error| stopped(error.to_string()))?;
        let hurry = tokio_util::sync::CancellationToken::new();
        Ok(Self {
            shared,
            root,
            actors,
            bringing,
            failed,
            draining: AtomicBool::new(false),
            hurry,
        })
    }

    /// This life's session.
    pub fn session(&self) -> &SessionId {
        &self.shared.session
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Backend> {
        &self.shared.store
    }

    /// The tools.
    pub fn tools(&self) -> &Arc<Registry> {
        &self.shared.tools
    }

    /// What happens to runs from now on. A listener that falls behind is told so, and reads the journal again.
    pub fn watch(&self) -> broadcast::Receiver<Progress> {
        self.shared.progress.subscribe()
    }

    /// What the node does now.
    pub async fn status(&self) -> NodeStatus {
        let (answer, answered) = oneshot::channel();
        match &self.actors.node {
            Some(node) if node.cast(NodeMsg::Tell(answer)).is_ok() => {
                answered.await.unwrap_or_default()
            }
            _ => NodeStatus::default(),
        }
    }

    /// Returns, with the reason, once the runtime can do nothing more and its process should be started again.
    pub async fn failed(&self) -> String {
        let mut failed = self.failed.clone();
        let why = failed
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|why| why.clone());
        why.unwrap_or_else(|| "the runtime has stopped".to_owned())
    }

    /// Stops in good order: takes nothing new, releases runs, lets calls in flight finish, for at most `bound`; then stops. A second call,
    /// while the first waits, makes both end at once.
    pub async fn drain(&self, bound: Duration) -> Drained {
        if self.draining.swap(true, Ordering::AcqRel) {
            self.hurry.cancel();
        }
        self.bringing.cancel();
        let orderly = async { self.released().await && self.idle().await };
        let clean = matches!(
            self.hurry
                .run_until_cancelled(timeout(bound, orderly))
                .await,
            Some(Ok(true))
        );
        self.abort().await;
        if clean {
            Drained::Clean
        } else {
            Drained::CutShort
        }
    }

    /// Every run that is driven here is released.
    async fn released(&self) -> bool {
        let Some(node) = &self.actors.node else {
            return true;
        };
        let (tell, told) = oneshot::channel();
        node.cast(NodeMsg::Drain(tell)).is_ok() && told.await.is_ok()
    }

    /// Every call in hand is over.
    async fn idle(&self) -> bool {
        let Some(worker) = &self.actors.worker else {
            return true;
        };
        let (tell, told) = oneshot::channel();
        worker.cast(WorkerMsg::TellIdle(tell)).is_ok() && told.await.is_ok()
    }

    /// Tells everybody who watches of what happens to runs elsewhere.
    pub fn teller(&self) -> Teller {
        Teller(self.shared.progress.clone())
    }

    /// Stops at once: drops every task at its next await and every actor, and returns when none is left. What was in hand is as after a
    /// crash of the process.
    pub async fn abort(&self) {
        self.shared.tasks.cancel();
        // Its children are killed with it.
        let _ = self.root.kill_and_wait(None).await;
        let node = self.actors.node.iter().map(ActorRef::get_cell);
        let worker = self.actors.worker.iter().map(ActorRef::get_cell);
        for actor in node.chain(worker) {
            let _ = actor.kill_and_wait(None).await;
        }
        self.shared.tasks.ended().await;
    }
}

/// See [`Runtime::teller`].
#[derive(Clone)]
pub struct Teller(broadcast::Sender<Progress>);

impl Teller {
    /// Tells whoever listens; nobody is nobody's loss.
    pub fn tell(&self, progress: Progress) {
        let _ = self.0.send(progress);
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.shared.tasks.cancel();
        self.root.kill();
    }
}
