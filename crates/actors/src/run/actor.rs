//! The actor itself: what it is told, and what it keeps beside the machine.

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use leasehold_protocol::{
    Effect, Input, RunConfig, RunId, RunMachine, Seq, SessionId, StopReason, StoredCommit,
};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::ask::Inspector;
use super::effects::{self, Pending};
use super::opening::{self, Opened};
use crate::mail::Bag;
use crate::node::{Directory, Hints, NodeMsg};
use crate::recorder::Recorded;
use crate::shared::{Progress, Shared};
use crate::tasks::{Tasks, caught};

/// What a run actor is told.
#[derive(Debug)]
pub(crate) enum RunMsg {
    /// The lease is held and the journal is read.
    Opened(Box<Opened>),
    /// The run is not for this node now: who holds it, where that is known, and why.
    NotOurs(Option<SessionId>, String),
    /// Something for the machine.
    Input(Box<Input>),
    /// The bag holds something new.
    Mail,
    /// An effect met something that no further try changes.
    Broken(String),
    /// The lease is let go; nothing is left to do.
    Released,
    /// The last message: whatever was sent through the directory came before it.
    Last,
}

impl RunMsg {
    pub(crate) fn input(input: Input) -> Self {
        RunMsg::Input(Box::new(input))
    }
}

/// What a run actor is made of.
pub(crate) struct RunArgs {
    pub(crate) shared: Arc<Shared>,
    pub(crate) config: Arc<RunConfig>,
    pub(crate) run: RunId,
    pub(crate) node: ActorRef<NodeMsg>,
    pub(crate) directory: Directory,
    pub(crate) hints: Arc<Hints>,
    pub(crate) inspector: Arc<dyn Inspector>,
    pub(crate) openings: Arc<Semaphore>,
    pub(crate) bag: Bag,
    /// End with the actor; its supervisor cancels them if it fails.
    pub(crate) tasks: Tasks,
    /// Whether a due timer woke it: the timer is removed before anything else.
    pub(crate) by_timer: bool,
}

/// The actor's state.
pub(crate) struct Run {
    pub(super) args: RunArgs,
    pub(super) me: ActorRef<RunMsg>,
    pub(super) machine: RunMachine,
    number: u64,
    pub(super) lease: Option<Seq>,
    loaded: bool,
    /// Whether the run is known to have a journal. What the machine has drafted does not count: it may never be stored.
    stands: bool,
    /// Whether a timer may stand: this life or an earlier one has set it.
    pub(super) may_have_timer: bool,
    draining: bool,
    given: BTreeSet<Seq>,
    pub(super) pending: Option<Pending>,
    /// Answers in a row that the journal was busy.
    pub(super) busy: u32,
    /// Something was heard of an attempt since the last commit was asked for.
    pub(super) heard: bool,
    /// Chains that are being read.
    pub(super) reading: u32,
    pub(super) alarm: Option<(u64, AbortHandle)>,
    leaving: Option<StopReason>,
    /// Who holds the run instead.
    holder: Option<SessionId>,
    /// Something came in while leaving that the next owner has to look at.
    again: bool,
    _presence: TaskTrackerToken,
}

/// One run's actor.
pub(crate) struct RunActor;

impl Actor for RunActor {
    type Msg = RunMsg;
    type State = Run;
    type Arguments = RunArgs;

    async fn pre_start(
        &self,
        me: ActorRef<RunMsg>,
        args: RunArgs,
    ) -> Result<Run, ActorProcessingErr> {
        let machine = RunMachine::new((*args.config).clone(), args.run.clone());
        let number = args.shared.machines.fetch_add(1, Ordering::Relaxed);
        let run = Run {
            me,
            machine,
            number,
            lease: None,
            loaded: false,
            stands: false,
            may_have_timer: false,
            draining: false,
            given: BTreeSet::new(),
            pending: None,
            busy: 0,
            heard: false,
            reading: 0,
            alarm: None,
            leaving: None,
            holder: None,
            again: false,
            _presence: args.shared.tasks.presence(),
            args,
        };
        run.launch(opening::open(
            run.args.shared.clone(),
            run.args.run.clone(),
            run.args.openings.clone(),
            run.args.by_timer,
        ));
        Ok(run)
    }

    async fn handle(
        &self,
        _: ActorRef<RunMsg>,
        message: RunMsg,
        run: &mut Run,
    ) -> Result<(), ActorProcessingErr> {
        run.take(message).map_err(ActorProcessingErr::from)
    }
}

impl Run {
    fn take(&mut self, message: RunMsg) -> Result<(), String> {
        match message {
            RunMsg::Broken(why) => return Err(why),
            RunMsg::Released => {
                self.args.directory.remove(&self.args.run);
                self.cast(RunMsg::Last);
            }
            RunMsg::Last => self.leave(),
            _ if self.leaving.is_some() => self.again |= matches!(message, RunMsg::Input(_)),
            RunMsg::Opened(opened) => self.opened(*opened),
            RunMsg::NotOurs(holder, why) => {
                self.holder = holder;
                self.stop(StopReason::Fenced(why));
            }
            RunMsg::Input(input) if !self.loaded => {
                // Anything else is read with the journal and the chains.
                self.draining |= *input == Input::Drain;
            }
            RunMsg::Input(input) => self.feed(*input),
            RunMsg::Mail => self.read_mail(),
        }
        Ok(())
    }

    fn opened(&mut self, opened: Opened) {
        self.lease = opened.lease;
        self.loaded = true;
        self.stands = !opened.commits.is_empty();
        self.may_have_timer = self.stands;
        if self.args.shared.recorder.on() {
            self.record_machine();
        }
        self.feed(Input::Load {
            commits: opened.commits,
            submission: opened.submission,
        });
        self.read_mail();
        if self.draining {
            self.feed(Input::Drain);
        }
    }

    fn read_mail(&mut self) {
        if !self.loaded || self.leaving.is_some() {
            return;
        }
        for (seq, input) in self.args.bag.inputs(&self.given) {
            self.given.insert(seq);
            self.feed(input);
        }
        self.settle_submissions();
    }

    /// Steps the machine until nothing is left that can be answered without waiting.
    fn feed(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            if self.leaving.is_some() {
                return;
            }
            let now = self.args.shared.clock.now();
            self.observe(&input);
            if self.args.shared.recorder.on() {
                let session = self.args.shared.session.clone();
                self.args.shared.recorder.record(Recorded::Input {
                    machine: self.number,
                    session,
                    now,
                    input: input.clone(),
                });
            }
            let stored = matches!(
                input,
                Input::CommitStored { .. } | Input::JournalRead { .. }
            );
            let effects = self.machine.step(now, input);
            if stored {
                self.settle_submissions();
            }
            for effect in effects {
                match effect {
                    Effect::Stop(reason) => self.stop(reason),
                    effect => inputs.extend(effects::perform(self, effect)),
                }
            }
        }
    }

    /// What the shell itself makes of an input before the machine sees it.
    fn observe(&mut self, input: &Input) {
        match input {
            Input::CommitBusy => self.busy = self.busy.saturating_add(1),
            Input::CommitStored { seq } => {
                self.busy = 0;
                self.stands = true;
                if let Some(Pending { subject, body }) = self.pending.take() {
                    self.publish(StoredCommit {
                        seq: *seq,
                        subject,
                        body,
                    });
                }
            }
            Input::JournalRead { commits } => {
                self.pending = None;
                self.stands |= !commits.is_empty();
                commits
                    .iter()
                    .cloned()
                    .for_each(|commit| self.publish(commit));
            }
            Input::Hint(_) => self.heard = true,
            Input::ChainRead { .. } => self.reading = self.reading.saturating_sub(1),
            _ => {}
        }
    }

    fn publish(&self, commit: StoredCommit) {
        self.args.shared.tell(Progress::Committed {
            run: self.args.run.clone(),
            commit,
        });
    }

    /// A submission is over once a journal stands: it was folded, or another one came first.
    fn settle_submissions(&self) {
        if self.stands && self.pending.is_none() && self.machine.state().opened.is_some() {
            for seq in self.args.bag.submissions() {
                effects::acknowledge(self, seq);
            }
        }
    }

    fn record_machine(&self) {
        let shared = &self.args.shared;
        shared.recorder.record(Recorded::Machine {
            machine: self.number,
            run: self.args.run.clone(),
            cluster: shared.cluster.clone(),
            node: self.args.config.node.clone(),
            session: shared.session.clone(),
            clock_bound_ms: shared.clock_bound_ms,
            session_ttl_ms: shared.session_ttl_ms,
            hook: shared.hook.is_some(),
            weakening: format!("{:?}", shared.weakening),
        });
    }

    /// The machine has stopped: let the lease go, then leave.
    fn stop(&mut self, reason: StopReason) {
        if self.leaving.is_some() {
            return;
        }
        // What came while the park commit was on its way was not looked at: the truth may be among it, and nobody else would look.
        self.again |= reason == StopReason::Parked && (self.heard || self.reading > 0);
        self.args.tasks.cancel();
        let lease = self.lease.take();
        let release = opening::release(
            self.args.shared.clone(),
            self.args.run.clone(),
            lease,
            reason.clone(),
            self.may_have_timer,
        );
        self.leaving = Some(reason);
        let me = self.me.clone();
        self.args.shared.tasks.spawn(async move {
            release.await;
            let _ = me.cast(RunMsg::Released);
        });
    }

    fn leave(&mut self) {
        let reason = self.leaving.clone().unwrap_or(StopReason::Released);
        let over = NodeMsg::RunOver {
            run: self.args.run.clone(),
            actor: self.me.get_id(),
            reason,
            again: self.again,
            holder: self.holder.take(),
        };
        let _ = self.args.node.cast(over);
        self.me.stop(Some(LEFT.to_owned()));
    }

    pub(super) fn cast(&self, message: RunMsg) {
        // Only a stopped actor refuses: then nobody waits for the answer.
        let _ = self.me.cast(message);
    }

    /// Starts a task whose answer comes back as a message. A panic in it is a failure of this actor.
    pub(super) fn launch(&self, work: impl Future<Output = RunMsg> + Send + 'static) {
        let me = self.me.clone();
        self.args.tasks.spawn(async move {
            let answer = caught(work).await.unwrap_or_else(RunMsg::Broken);
            let _ = me.cast(answer);
        });
    }
}

/// The reason with which an actor stops that has told its supervisor everything.
pub(crate) const LEFT: &str = "left";
