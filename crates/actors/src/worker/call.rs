//! The call actor: one attempt's machine and what it asks for. There is one per call, and it ends with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_protocol::{
    AttemptEffect, AttemptInput, AttemptMachine, CallEnvelope, ChainKey, ClaimId, Seq,
};
use leasehold_tools::SideEffect;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::WorkerMsg;
use super::effects;
use super::pull::Places;
use crate::run::LEFT;
use crate::shared::WorkerSide;
use crate::tasks::{Tasks, caught};

/// What a call actor is told.
#[derive(Debug)]
pub(crate) enum CallMsg {
    /// Something for the machine.
    Input(AttemptInput),
    /// Nothing more can be done here: authority is lost, or a record can never be written. Whatever is written stands.
    Abandon(String),
    /// Something is wrong with this actor itself.
    Broken(String),
}

/// How a call comes into a worker's hands.
pub(super) enum Start {
    /// From the queue.
    Delivered {
        seq: Seq,
        envelope: CallEnvelope,
        redelivered: bool,
    },
    /// Left by an earlier life: to be settled, never executed.
    Left,
}

/// What a call actor is made of.
pub(super) struct CallArgs {
    pub(super) shared: Arc<WorkerSide>,
    pub(super) worker: ActorRef<WorkerMsg>,
    pub(super) chain: ChainKey,
    pub(super) class: SideEffect,
    pub(super) claim: ClaimId,
    pub(super) start: Start,
    pub(super) places: Option<Places>,
    /// Whether the effect may be happening: what an inspection is told.
    pub(super) running: Arc<AtomicBool>,
    pub(super) tasks: Tasks,
}

/// The actor's state.
pub(super) struct CallState {
    pub(super) shared: Arc<WorkerSide>,
    worker: ActorRef<WorkerMsg>,
    pub(super) me: ActorRef<CallMsg>,
    pub(super) chain: ChainKey,
    pub(super) class: SideEffect,
    machine: AttemptMachine,
    running: Arc<AtomicBool>,
    pub(super) tasks: Tasks,
    /// Tells the tool to stop.
    pub(super) cancel: CancellationToken,
    /// For the points W3 and W8: what has to be durable first.
    pub(super) claimed: Arc<Notify>,
    pub(super) logged: Arc<Notify>,
    _places: Option<Places>,
    _presence: TaskTrackerToken,
}

/// One call's actor.
pub(super) struct CallActor;

impl Actor for CallActor {
    type Msg = CallMsg;
    type State = CallState;
    type Arguments = CallArgs;

    async fn pre_start(
        &self,
        me: ActorRef<CallMsg>,
        args: CallArgs,
    ) -> Result<CallState, ActorProcessingErr> {
        let CallArgs {
            shared,
            worker,
            chain,
            class,
            claim,
            start,
            places,
            running,
            tasks,
        } = args;
        let identity = shared.identity.clone();
        let (machine, effects) = match start {
            Start::Delivered {
                seq,
                envelope,
                redelivered,
            } => {
                let now = shared.clock.now();
                AttemptMachine::deliver(
                    identity,
                    class,
                    chain.clone(),
                    seq,
                    envelope,
                    redelivered,
                    claim,
                    now,
                )
            }
            Start::Left => AttemptMachine::resolve(identity, class, chain.clone(), claim),
        };
        let cancel = tasks.token().child_token();
        let presence = shared.tasks.presence();
        let mut call = CallState {
            shared,
            worker,
            me,
            chain,
            class,
            machine,
            running,
            tasks,
            cancel,
            claimed: Arc::new(Notify::new()),
            logged: Arc::new(Notify::new()),
            _places: places,
            _presence: presence,
        };
        call.perform(effects);
        Ok(call)
    }

    async fn handle(
        &self,
        _: ActorRef<CallMsg>,
        message: CallMsg,
        call: &mut CallState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            CallMsg::Input(input) => call.feed(input),
            CallMsg::Abandon(why) => {
                tracing::warn!(chain = %call.chain, why, "a call is let go");
                call.leave();
            }
            CallMsg::Broken(why) => return Err(why.into()),
        }
        Ok(())
    }
}

impl CallState {
    fn feed(&mut self, input: AttemptInput) {
        let now = self.shared.clock.now();
        let authority = self.shared.authority.check();
        let effects = self.machine.step(now, authority, input);
        self.perform(effects);
    }

    fn perform(&mut self, effects: Vec<AttemptEffect>) {
        self.running
            .store(self.machine.is_running(), Ordering::Release);
        let publishes_both = effects
            .iter()
            .any(|effect| matches!(effect, AttemptEffect::LogOutcome { .. }));
        for effect in effects {
            match effect {
                AttemptEffect::Over => self.leave(),
                effect => effects::perform(self, effect, publishes_both),
            }
        }
    }

    fn leave(&self) {
        self.tasks.cancel();
        let _ = self
            .worker
            .cast(WorkerMsg::Over(self.chain.clone(), self.me.get_id()));
        self.me.stop(Some(LEFT.to_owned()));
    }

    pub(super) fn deadline_boot(&self) -> u64 {
        self.machine.deadline_boot()
    }

    /// Starts a task whose answer comes back as a message. A panic in it is a failure of this actor.
    pub(super) fn launch(&self, work: impl Future<Output = CallMsg> + Send + 'static) {
        let me = self.me.clone();
        self.tasks.spawn(async move {
            let answer = caught(work).await.unwrap_or_else(CallMsg::Broken);
            let _ = me.cast(answer);
        });
    }
}
