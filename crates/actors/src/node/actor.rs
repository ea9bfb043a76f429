//! The node's actor: starts, routes to, restarts and forgets run actors.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use leasehold_protocol::{Input, NodeId, RunConfig, RunId, SessionId, StopReason};
use leasehold_store::TimerEntry;
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{Directory, Hints, loops};
use crate::mail::{Bag, Mail};
use crate::restart::{Failures, RestartPolicy};
use crate::run::{Inspector, LEFT, RunActor, RunArgs, RunMsg};
use crate::shared::{Progress, Shared, jittered};
use crate::tasks::Tasks;

/// Most runs that are opened side by side: after a restart or a neighbour's death hundreds are due at once, and those that are driven
/// already must not stand behind them.
const OPENINGS: usize = 32;
/// Wait before a failed run is started again: long enough for a passing fault, short for whoever waits.
const RESTART_WAIT: Duration = Duration::from_millis(200);
/// How long an inbox message that this node cannot use now stays away.
const NAK_WAIT: Duration = Duration::from_secs(2);

/// What the node is told.
#[derive(Debug)]
pub(crate) enum NodeMsg {
    /// The run may need an owner.
    Wake(RunId),
    /// An inbox message came.
    Mail(Mail),
    /// Durable timers are due.
    TimersDue(Vec<TimerEntry>),
    /// A run's actor is done.
    RunOver {
        run: RunId,
        actor: ActorId,
        reason: StopReason,
        /// Something came in that the actor did not look at.
        again: bool,
        /// Who holds the run instead, where that is known.
        holder: Option<SessionId>,
    },
    /// Start the run again after a failure.
    Restart(RunId, Bag),
    /// Let go of every run; tell when none is left.
    Drain(oneshot::Sender<()>),
    /// What does this node do?
    Tell(oneshot::Sender<NodeStatus>),
}

/// What a node does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeStatus {
    /// Runs that it drives now.
    pub driven: Vec<RunId>,
    /// Runs that are left alone until the process is started again, and why.
    pub quarantined: BTreeMap<RunId, String>,
}

/// What a node is made of.
pub(crate) struct NodeArgs {
    pub(crate) shared: Arc<Shared>,
    pub(crate) node: NodeId,
    pub(crate) directory: Directory,
    pub(crate) inspector: Arc<dyn Inspector>,
    /// Ended by a drain: intake, timers and sweep.
    pub(crate) bringing: Tasks,
}

struct Driven {
    tasks: Tasks,
    bag: Bag,
    again: bool,
}

/// The actor's state.
pub(crate) struct NodeState {
    shared: Arc<Shared>,
    config: Arc<RunConfig>,
    me: ActorRef<NodeMsg>,
    directory: Directory,
    hints: Arc<Hints>,
    inspector: Arc<dyn Inspector>,
    openings: Arc<Semaphore>,
    driven: HashMap<RunId, Driven>,
    by_actor: HashMap<ActorId, RunId>,
    /// Runs between a failure and their restart.
    resting: HashMap<RunId, Bag>,
    failures: HashMap<RunId, Failures>,
    quarantined: BTreeMap<RunId, String>,
    draining: Option<oneshot::Sender<()>>,
    drained: bool,
    _presence: TaskTrackerToken,
}

/// The node's actor.
pub(crate) struct Node;

impl Actor for Node {
    type Msg = NodeMsg;
    type State = NodeState;
    type Arguments = NodeArgs;

    async fn pre_start(
        &self,
        me: ActorRef<NodeMsg>,
        args: NodeArgs,
    ) -> Result<NodeState, ActorProcessingErr> {
        let NodeArgs {
            shared,
            node,
            directory,
            inspector,
            bringing,
        } = args;
        let hints = Arc::new(Hints::new(shared.clone(), directory.clone(), me.clone()));
        loops::start(shared.clone(), directory.clone(), me.clone(), &bringing);
        Ok(NodeState {
            _presence: shared.tasks.presence(),
            config: Arc::new(shared.run_config(node)),
            shared,
            me,
            directory,
            hints,
            inspector,
            openings: Arc::new(Semaphore::new(OPENINGS)),
            driven: HashMap::new(),
            by_actor: HashMap::new(),
            resting: HashMap::new(),
            failures: HashMap::new(),
            quarantined: BTreeMap::new(),
            draining: None,
            drained: false,
        })
    }

    async fn handle(
        &self,
        _: ActorRef<NodeMsg>,
        message: NodeMsg,
        node: &mut NodeState,
    ) -> Result<(), ActorProcessingErr> {
        node.take(message).await
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<NodeMsg>,
        event: SupervisionEvent,
        node: &mut NodeState,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(cell, error) => {
                node.failed(cell.get_id(), &error.to_string())
            }
            SupervisionEvent::ActorTerminated(cell, _, reason)
                if reason.as_deref() != Some(LEFT) =>
            {
                node.failed(cell.get_id(), reason.as_deref().unwrap_or("it was stopped"));
            }
            _ => {}
        }
        node.tell_if_drained();
        Ok(())
    }
}

impl NodeState {
    async fn take(&mut self, message: NodeMsg) -> Result<(), ActorProcessingErr> {
        match message {
            NodeMsg::Wake(run) => self.wake(run).await?,
            NodeMsg::Mail(mail) => self.mail(mail).await?,
            NodeMsg::TimersDue(due) => {
                for timer in due {
                    self.timer(timer.run).await?;
                }
            }
            NodeMsg::RunOver {
                run,
                actor,
                reason,
                again,
                holder,
            } => self.over(run, actor, reason, again, holder).await?,
            NodeMsg::Restart(run, bag) => {
                self.resting.remove(&run);
                if !self.drained {
                    self.start(run, bag, false).await?;
                }
            }
            NodeMsg::Drain(done) => self.drain(done),
            NodeMsg::Tell(answer) => {
                let status = NodeStatus {
                    driven: self.driven.keys().cloned().collect(),
                    quarantined: self.quarantined.clone(),
                };
                let _ = answer.send(status);
            }
        }
        self.tell_if_drained();
        Ok(())
    }

    async fn wake(&mut self, run: RunId) -> Result<(), ActorProcessingErr> {
        if let Some(driven) = self.driven.get_mut(&run) {
            // Its actor may just be leaving.
            driven.again |= !self.directory.contains(&run);
            return Ok(());
        }
        self.start(run, Bag::default(), false).await
    }

    async fn timer(&mut self, run: RunId) -> Result<(), ActorProcessingErr> {
        if self.driven.contains_key(&run) {
            self.directory.send(&run, RunMsg::input(Input::Tick));
            return Ok(());
        }
        self.start(run, Bag::default(), true).await
    }

    async fn mail(&mut self, mail: Mail) -> Result<(), ActorProcessingErr> {
        let run = mail.message.run.clone();
        if let Some(driven) = self.driven.get(&run) {
            driven.bag.put(mail);
            self.directory.send(&run, RunMsg::Mail);
            return Ok(());
        }
        if let Some(bag) = self.resting.get(&run) {
            bag.put(mail);
            return Ok(());
        }
        let bag = Bag::default();
        bag.put(mail);
        if self.drained || self.quarantined.contains_key(&run) {
            // Stays in the store for the next life of this process.
            return Ok(());
        }
        self.start(run, bag, false).await
    }

    async fn start(
        &mut self,
        run: RunId,
        bag: Bag,
        by_timer: bool,
    ) -> Result<(), ActorProcessingErr> {
        if self.drained
            || self.quarantined.contains_key(&run)
            || self.resting.contains_key(&run)
            || !self.shared.authority.check()
        {
            return Ok(());
        }
        let tasks = self.shared.tasks.child();
        let args = RunArgs {
            shared: self.shared.clone(),
            config: self.config.clone(),
            run: run.clone(),
            node: self.me.clone(),
            directory: self.directory.clone(),
            hints: self.hints.clone(),
            inspector: self.inspector.clone(),
            openings: self.openings.clone(),
            bag: bag.clone(),
            tasks: tasks.clone(),
            by_timer,
        };
        let (actor, _) = Actor::spawn_linked(None, RunActor, args, self.me.get_cell()).await?;
        self.by_actor.insert(actor.get_id(), run.clone());
        self.directory.insert(run.clone(), actor);
        self.driven.insert(
            run,
            Driven {
                tasks,
                bag,
                again: false,
            },
        );
        Ok(())
    }

    async fn over(
        &mut self,
        run: RunId,
        actor: ActorId,
        reason: StopReason,
        again: bool,
        holder: Option<SessionId>,
    ) -> Result<(), ActorProcessingErr> {
        if self.by_actor.remove(&actor).is_none() {
            return Ok(());
        }
        let Some(driven) = self.driven.remove(&run) else {
            return Ok(());
        };
        self.shared.tell(Progress::Left {
            run: run.clone(),
            reason: reason.clone(),
        });
        match reason {
            StopReason::Ended => {
                self.failures.remove(&run);
                self.acknowledge_all(&driven.bag);
            }
            StopReason::Parked => {
                self.failures.remove(&run);
                if again || driven.again || !driven.bag.is_empty() {
                    self.start(run, driven.bag, false).await?;
                }
            }
            StopReason::Fenced(why) => {
                tracing::info!(%run, why, "somebody else drives the run");
                self.pass_on(&driven.bag, holder);
            }
            StopReason::Unreadable(why) => self.quarantine(run, why),
            StopReason::Released | StopReason::AuthorityLost => {}
        }
        Ok(())
    }

    /// A run's actor failed: its journal says how to go on, so many times.
    fn failed(&mut self, actor: ActorId, why: &str) {
        let Some(run) = self.by_actor.remove(&actor) else {
            return;
        };
        self.directory.remove(&run);
        let Some(driven) = self.driven.remove(&run) else {
            return;
        };
        driven.tasks.cancel();
        let failures = self.failures.entry(run.clone()).or_default();
        if !failures.may_restart(RestartPolicy::USUAL, self.shared.clock.now().boot) {
            return self.quarantine(run, format!("its actor failed too often, last with: {why}"));
        }
        tracing::error!(%run, why, "a run's actor failed; starting it again from its journal");
        self.resting.insert(run.clone(), driven.bag.clone());
        let (me, wait) = (
            self.me.clone(),
            jittered(RESTART_WAIT, self.shared.ids.bits()),
        );
        self.shared.tasks.spawn(async move {
            tokio::time::sleep(wait).await;
            let _ = me.cast(NodeMsg::Restart(run, driven.bag));
        });
    }

    fn quarantine(&mut self, run: RunId, why: String) {
        tracing::error!(%run, why, "the run is left alone until this process is started again");
        self.failures.remove(&run);
        self.shared.tell(Progress::Quarantined {
            run: run.clone(),
            why: why.clone(),
        });
        self.quarantined.insert(run, why);
    }

    /// The run has ended: no message can change anything any more.
    fn acknowledge_all(&self, bag: &Bag) {
        for mail in bag.all().into_iter().filter_map(|seq| bag.take(seq)) {
            let shared = self.shared.clone();
            self.shared.tasks.spawn(async move {
                if let Err(error) = shared.store.ack_message(&mail.message.run, mail.message.seq).await {
                    tracing::debug!(%error, "an inbox message was not acknowledged; it will come again");
                }
            });
        }
    }

    /// Hands the messages to the run's holder; what does not get there is put back, for whoever is handed it next.
    fn pass_on(&self, bag: &Bag, holder: Option<SessionId>) {
        for mail in bag.all().into_iter().filter_map(|seq| bag.take(seq)) {
            let (shared, holder) = (self.shared.clone(), holder.clone());
            let wait = jittered(NAK_WAIT, self.shared.ids.bits());
            self.shared.tasks.spawn(async move {
                if let Some(holder) = holder {
                    match shared.store.forward(&holder, &mail.message).await {
                        Ok(()) => return,
                        Err(error) => tracing::debug!(%error, "an inbox message was not forwarded"),
                    }
                }
                if let Err(error) = shared.store.nak_message(&mail.message.run, mail.message.seq, wait).await {
                    tracing::debug!(%error, "an inbox message was not put back; the next life of this process gets it");
                }
            });
        }
    }

    fn drain(&mut self, done: oneshot::Sender<()>) {
        self.drained = true;
        self.resting.clear();
        for run in self.driven.keys() {
            self.directory.send(run, RunMsg::input(Input::Drain));
        }
        self.draining = Some(done);
    }

    fn tell_if_drained(&mut self) {
        if self.driven.is_empty()
            && let Some(done) = self.draining.take()
        {
            let _ = done.send(());
        }
    }
}
