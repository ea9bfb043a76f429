//! The worker's actor: which attempts are in its hands.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_protocol::{CallEnvelope, ChainKey, InspectAnswer};
use leasehold_store::Delivery;
use leasehold_tools::SideEffect;
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::oneshot;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::call::{CallActor, CallArgs, CallMsg, Start};
use super::pull::{self, Places};
use crate::points::Point;
use crate::restart::{Failures, RestartPolicy};
use crate::run::LEFT;
use crate::shared::WorkerSide;
use crate::tasks::Tasks;

/// What the worker is told.
#[derive(Debug)]
pub(crate) enum WorkerMsg {
    /// A call was pulled.
    Delivered(Delivery, Places),
    /// Settle what a predecessor left.
    Resolve(ChainKey),
    /// Somebody wants to know about an attempt.
    Inspect(ChainKey, oneshot::Sender<InspectAnswer>),
    /// A call actor is done.
    Over(ChainKey, ActorId),
    /// Tell when no call is in hand.
    TellIdle(oneshot::Sender<()>),
}

/// What a worker is made of.
pub(crate) struct WorkerArgs {
    pub(crate) shared: Arc<WorkerSide>,
    pub(crate) slots: usize,
    /// Ended by a drain: nothing is pulled any more.
    pub(crate) pulling: Tasks,
}

/// An attempt in this worker's hands.
struct InHand {
    actor: ActorRef<CallMsg>,
    tasks: Tasks,
    class: SideEffect,
    running: Arc<AtomicBool>,
    /// Left by an earlier life.
    is_left: bool,
    waiting: Vec<oneshot::Sender<InspectAnswer>>,
    /// The same call, delivered meanwhile: begun when this is over.
    next: Option<(Delivery, Places)>,
}

/// The actor's state.
pub(crate) struct Worker {
    shared: Arc<WorkerSide>,
    me: ActorRef<WorkerMsg>,
    in_hand: HashMap<ChainKey, InHand>,
    by_actor: HashMap<ActorId, ChainKey>,
    failures: HashMap<ChainKey, Failures>,
    idle: Vec<oneshot::Sender<()>>,
    _presence: TaskTrackerToken,
}

/// The tool worker's actor.
pub(crate) struct ToolWorker;

impl Actor for ToolWorker {
    type Msg = WorkerMsg;
    type State = Worker;
    type Arguments = WorkerArgs;

    async fn pre_start(
        &self,
        me: ActorRef<WorkerMsg>,
        args: WorkerArgs,
    ) -> Result<Worker, ActorProcessingErr> {
        pull::start(args.shared.clone(), me.clone(), args.slots, args.pulling);
        Ok(Worker {
            _presence: args.shared.tasks.presence(),
            shared: args.shared,
            me,
            in_hand: HashMap::new(),
            by_actor: HashMap::new(),
            failures: HashMap::new(),
            idle: Vec::new(),
        })
    }

    async fn handle(
        &self,
        _: ActorRef<WorkerMsg>,
        message: WorkerMsg,
        worker: &mut Worker,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            WorkerMsg::Delivered(delivery, places) => worker.delivered(delivery, places).await?,
            WorkerMsg::Resolve(chain) => worker.resolve(chain, None).await?,
            WorkerMsg::Inspect(chain, answer) => worker.inspect(chain, answer).await?,
            WorkerMsg::Over(chain, actor) => worker.over(&chain, actor).await?,
            WorkerMsg::TellIdle(tell) => worker.idle.push(tell),
        }
        worker.tell_if_idle();
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<WorkerMsg>,
        event: SupervisionEvent,
        worker: &mut Worker,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(cell, error) => {
                worker.failed(cell.get_id(), &error.to_string()).await?
            }
            SupervisionEvent::ActorTerminated(cell, _, reason)
                if reason.as_deref() != Some(LEFT) =>
            {
                worker
                    .failed(cell.get_id(), reason.as_deref().unwrap_or("it was stopped"))
                    .await?;
            }
            _ => {}
        }
        worker.tell_if_idle();
        Ok(())
    }
}

impl Worker {
    async fn delivered(
        &mut self,
        delivery: Delivery,
        places: Places,
    ) -> Result<(), ActorProcessingErr> {
        if let Some(in_hand) = self.in_hand.get_mut(&delivery.chain) {
            in_hand.next = Some((delivery, places));
            return Ok(());
        }
        let envelope = match CallEnvelope::decode(&delivery.call) {
            Ok(envelope) => envelope,
            Err(error) => {
                // Not acknowledged: a newer binary may be able to read it; and what is damaged has to stay visible.
                tracing::error!(chain = %delivery.chain, %error, "a call cannot be read; it is left alone");
                return Ok(());
            }
        };
        let chain = delivery.chain.clone();
        let start = Start::Delivered {
            seq: delivery.seq,
            envelope,
            redelivered: delivery.redelivered,
        };
        self.start(chain, start, Some(places), Vec::new()).await
    }

    async fn resolve(
        &mut self,
        chain: ChainKey,
        waiting: Option<oneshot::Sender<InspectAnswer>>,
    ) -> Result<(), ActorProcessingErr> {
        match self.in_hand.get_mut(&chain) {
            Some(in_hand) => {
                in_hand.waiting.extend(waiting);
                Ok(())
            }
            None => {
                self.start(chain, Start::Left, None, waiting.into_iter().collect())
                    .await
            }
        }
    }

    async fn inspect(
        &mut self,
        chain: ChainKey,
        answer: oneshot::Sender<InspectAnswer>,
    ) -> Result<(), ActorProcessingErr> {
        if self
            .in_hand
            .get(&chain)
            .is_some_and(|in_hand| in_hand.running.load(Ordering::Acquire))
        {
            // The asker may have stopped waiting.
            let _ = answer.send(InspectAnswer::Running);
            return Ok(());
        }
        self.resolve(chain, Some(answer)).await
    }

    async fn start(
        &mut self,
        chain: ChainKey,
        start: Start,
        places: Option<Places>,
        waiting: Vec<oneshot::Sender<InspectAnswer>>,
    ) -> Result<(), ActorProcessingErr> {
        // A tool that is gone is treated as the worst it could be.
        let class = self
            .shared
            .tools
            .get(&chain.tool)
            .map_or(SideEffect::Destructive, |tool| tool.spec().side_effect);
        let running = Arc::new(AtomicBool::new(false));
        let is_left = matches!(start, Start::Left);
        let tasks = self.shared.tasks.child();
        let args = CallArgs {
            shared: self.shared.clone(),
            worker: self.me.clone(),
            chain: chain.clone(),
            class,
            claim: self.shared.ids.claim()?,
            start,
            places,
            running: running.clone(),
            tasks: tasks.clone(),
        };
        let (actor, _) = Actor::spawn_linked(None, CallActor, args, self.me.get_cell()).await?;
        self.by_actor.insert(actor.get_id(), chain.clone());
        self.in_hand.insert(
            chain,
            InHand {
                actor,
                tasks,
                class,
                running,
                is_left,
                waiting,
                next: None,
            },
        );
        Ok(())
    }

    /// The actor is done with the attempt; whatever is known of it is written.
    async fn over(&mut self, chain: &ChainKey, actor: ActorId) -> Result<(), ActorProcessingErr> {
        self.by_actor.remove(&actor);
        if self
            .in_hand
            .get(chain)
            .is_none_or(|in_hand| in_hand.actor.get_id() != actor)
        {
            return Ok(());
        }
        let Some(in_hand) = self.in_hand.remove(chain) else {
            return Ok(());
        };
        self.failures.remove(chain);
        if in_hand.is_left {
            // Its owner may have parked the run long ago.
            let (shared, run) = (self.shared.clone(), chain.run.clone());
            self.shared
                .tasks
                .spawn(async move { shared.store.wake(&run).await });
        }
        for answer in in_hand.waiting {
            let _ = answer.send(InspectAnswer::Settled);
        }
        match in_hand.next {
            Some((delivery, places)) => self.delivered(delivery, places).await,
            None => Ok(()),
        }
    }

    /// A call actor failed: nothing is known but what is written.
    async fn failed(&mut self, actor: ActorId, why: &str) -> Result<(), ActorProcessingErr> {
        let Some(chain) = self.by_actor.remove(&actor) else {
            return Ok(());
        };
        let Some(in_hand) = self.in_hand.remove(&chain) else {
            return Ok(());
        };
        in_hand.tasks.cancel();
        tracing::error!(%chain, why, "a call's actor failed; settling the attempt from what is written");
        let failures = self.failures.entry(chain.clone()).or_default();
        if !failures.may_restart(RestartPolicy::USUAL, self.shared.clock.now().boot) {
            tracing::error!(%chain, "settling the attempt failed too often; it is left to the run's owner");
            self.failures.remove(&chain);
            for answer in in_hand.waiting {
                let _ = answer.send(InspectAnswer::NoAnswer);
            }
            return Ok(());
        }
        if in_hand.class.is_read_only() {
            // No claim, no logbook: the owner's wait runs out and gives it another attempt.
            return Ok(());
        }
        self.start(chain.clone(), Start::Left, None, in_hand.waiting)
            .await?;
        if let Some(entry) = self.in_hand.get_mut(&chain) {
            entry.next = in_hand.next;
        }
        Ok(())
    }

    fn tell_if_idle(&mut self) {
        if self.in_hand.is_empty() {
            for tell in self.idle.drain(..) {
                let _ = tell.send(());
            }
        }
    }
}

/// Hands a pulled call to the worker.
pub(super) async fn hand_over(
    shared: &WorkerSide,
    worker: &ActorRef<WorkerMsg>,
    delivery: Delivery,
    places: Places,
) {
    shared
        .reach(Point::W1, &delivery.chain.run, Some(&delivery.chain))
        .await;
    let _ = worker.cast(WorkerMsg::Delivered(delivery, places));
}
