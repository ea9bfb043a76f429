//! The model of the claim, evidence and seal question: every order of everything, up to a bound, over the production machines.
//!
//! One run with one step that changes the world, from its dispatch to its end; one owner ([`RunMachine`](leasehold_protocol::RunMachine))
//! and two workers ([`AttemptMachine`](leasehold_protocol::AttemptMachine)); a store, a service that applies every request it gets, and an
//! operator. Each effect of a machine is carried out by itself, so that a crash, a late request or another's write falls between any two.
//! Nothing of the protocol is written down a second time here: the machines decide, the model only schedules.
//!
//! **The bound.** [`Bound`] says how often each fault may occur and how many faults together. Free, and therefore in every order: which
//! worker is handed the call, whether the request lands, is lost or lands after its sender died, what the tool then says, when the owner
//! hears of a message, when its patience ends, whether the dead process's last writes arrive, when processes come back, and what the
//! operator answers (run again once; record as done).
//!
//! **Left out.** Answers come with the effect that they answer (a machine that hears of it later is one that was scheduled later); one
//! step, no cancel, no two living owners, no unreadable logbook, no failing probe: the simulator has those.

mod choices;
pub(crate) mod memo;
mod owner;
pub(crate) mod printed;
mod promises;
mod state;
pub(crate) mod stored;
mod workers;

use leasehold_protocol::{
    Body, ClientId, Decision, Limits, RunId, RunWeakening, Submission, WIRE_VERSION,
    WorkerWeakening,
};
use stateright::{Model, Property};

use crate::checking::{self, Checked};

pub use state::State;

use memo::Memos;

/// The tool whose probe fences.
const FENCING: &str = "pay_fence";
/// The tool without a probe.
const PLAIN: &str = "pay_none";

/// What a check goes through.
#[derive(Debug, Clone)]
pub struct Bound {
    /// Faults of all kinds together.
    pub faults: u8,
    /// Crashes of a worker.
    pub worker_crashes: u8,
    /// Crashes that also lose the logbook.
    pub lost_logbooks: u8,
    /// Crashes of the owner.
    pub owner_crashes: u8,
    /// Deliveries of a call that somebody works on.
    pub redeliveries: u8,
    /// Tools that say "it may have happened" in time.
    pub may: u8,
    /// Deadlines that pass.
    pub deadlines: u8,
    /// Workers that pause, once their tool has returned, for longer than the owner waits.
    pub pauses: u8,
    /// Acknowledgements, or writes, that are lost.
    pub lost_acks: u8,
    /// Run-again decisions.
    pub run_again: u8,
    /// A negative control of the owner.
    pub run: RunWeakening,
    /// A negative control of the workers.
    pub worker: WorkerWeakening,
    submission: Body,
    memos: Memos,
}

impl Bound {
    /// Every fault at most once, at most `faults` of them together, over a tool without a probe or with a fencing one.
    pub fn new(faults: u8, fencing: bool) -> Self {
        Self {
            faults,
            worker_crashes: 1,
            lost_logbooks: 1,
            owner_crashes: 1,
            redeliveries: 1,
            may: 1,
            deadlines: 1,
            pauses: 1,
            lost_acks: 1,
            run_again: 1,
            run: RunWeakening::None,
            worker: WorkerWeakening::None,
            memos: Memos::default(),
            submission: submission(if fencing { FENCING } else { PLAIN }),
        }
    }
}

#[expect(
    clippy::expect_used,
    reason = "the model's own two names are valid identifiers"
)]
fn names() -> (RunId, ClientId) {
    (
        RunId::new("run").expect("a run id"),
        ClientId::new("model").expect("a client id"),
    )
}

fn submission(tool: &str) -> Body {
    let (run, client) = names();
    let limits = Limits {
        max_consecutive_failures: 50,
        ..Limits::default()
    };
    let submission = Submission {
        v: WIRE_VERSION,
        run,
        client,
        agent: "model".into(),
        goal: "change the world once".into(),
        input: None,
        tools: vec![tool.to_owned()],
        limits,
    };
    submission.encode().into()
}

/// What becomes of a conditional write and its acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// The writer hears the answer.
    Heard,
    /// The write is lost.
    LostBefore,
    /// The write arrives, its answer is lost.
    LostAfter,
}

impl Ack {
    /// What can become of a write, where acknowledgements may be lost and where not.
    pub(crate) fn all(lossy: bool) -> impl Iterator<Item = Self> {
        let all = [Ack::Heard, Ack::LostBefore, Ack::LostAfter];
        all.into_iter().take(if lossy { 3 } else { 1 })
    }
}

/// What a tool says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returns {
    /// It is done.
    Done,
    /// It was refused.
    NothingHappened,
    /// It cannot say, in time.
    MayHaveHappened,
    /// It says nothing until long after its deadline.
    GivenUp,
}

/// How a worker dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crash {
    /// Its disk is lost as well.
    pub lost_logbook: bool,
    /// What it was about to write arrives later.
    pub late_writes: bool,
}

/// One step of the model. Workers and attempts count from 0, effects stand in a canonical order.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names say what happens, and to whom")]
pub enum Action {
    Deliver {
        worker: usize,
        attempt: usize,
    },
    Work {
        worker: usize,
        attempt: usize,
        what: &'static str,
        index: usize,
        ack: Ack,
    },
    Land {
        worker: usize,
        attempt: usize,
    },
    Lose {
        worker: usize,
        attempt: usize,
    },
    Return {
        worker: usize,
        attempt: usize,
        returns: Returns,
    },
    Deadline {
        worker: usize,
        attempt: usize,
    },
    LandLate {
        attempt: usize,
    },
    LoseLate {
        attempt: usize,
    },
    CrashWorker {
        worker: usize,
        crash: Crash,
    },
    Restart {
        worker: usize,
    },
    WriteLate {
        index: usize,
    },
    StartOwner,
    Own {
        what: &'static str,
        index: usize,
        ack: Ack,
    },
    Hear,
    Silence,
    CrashOwner {
        late_writes: bool,
    },
    Decide(Decision),
}

impl Model for Bound {
    type State = State;
    type Action = Action;

    /// The call is dispatched; nobody has taken it.
    fn init_states(&self) -> Vec<State> {
        let mut state = State::new(names().0, self.memos.clone());
        state.start_owner(self);
        while state.stored.lanes.is_empty() && state.owner.is_some() {
            state.own(0, Ack::Heard);
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.choices(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Deliver { worker, attempt } => state.deliver(worker, attempt, self),
            Action::Work {
                worker,
                attempt,
                index,
                ack,
                ..
            } => state.work(worker, attempt, index, ack),
            Action::Land { worker, attempt } => state.arrive(worker, attempt),
            Action::Lose { worker, attempt } => state.lose(worker, attempt),
            Action::Return {
                worker,
                attempt,
                returns,
            } => state.returned(worker, attempt, returns),
            Action::Deadline { worker, attempt } => state.deadline(worker, attempt),
            Action::LandLate { attempt } => state.arrive_late(attempt),
            Action::LoseLate { attempt } => state.adrift[attempt] -= 1,
            Action::CrashWorker { worker, crash } => state.crash_worker(worker, crash),
            Action::Restart { worker } => state.restart(worker),
            Action::WriteLate { index } => {
                let write = state.stored.late.remove(index);
                state.stored.write_late(&write);
            }
            Action::StartOwner => state.start_owner(self),
            Action::Own { index, ack, .. } => state.own(index, ack),
            Action::Hear => state.hear(),
            Action::Silence => state.fall_silent(),
            Action::CrashOwner { late_writes } => state.crash_owner(late_writes),
            Action::Decide(decision) => state.decide(decision),
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::all(self.submission == submission(FENCING))
    }
}

impl Bound {
    /// Goes through every state within the bound, on all processors; stops at the first broken promise.
    pub fn check(self) -> Checked<Action> {
        checking::exhaust(self)
    }

    /// Goes on until the promise whose name begins like this is broken, or everything was seen.
    pub fn find(self, promise: &str) -> Checked<Action> {
        checking::find(self, promise)
    }
}
