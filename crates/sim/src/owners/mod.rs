//! The models of who drives a run and of who decides: every order of everything, up to a bound, over two production
//! [`RunMachine`](leasehold_protocol::RunMachine)s.
//!
//! One run with one step that changes the world; two nodes, a store, operators, and a worker that does in one go what it does (the other
//! model takes it apart). Lease, epoch and journal fence, inbox, park, sweep, timer and approval are all in play; every effect of a machine
//! and every step of the shell around it is one step of the model, so that a crash, a pause or another node's write falls between any two.
//!
//! **What decides.** Whatever is committed, acknowledged, asked or dispatched is decided by the production machine. What the shell decides
//! is a projection of it, in `shell` (opening and leaving a run, mail, acknowledgements, timers, sweep), each rule beside the name of the
//! function that it projects. The store is a few lines of conditional writes.
//!
//! **The bound.** [`Bound`] says how often each fault may occur and how many together. Free, and therefore in every order: who gets a
//! message, sweeps, hears of an outcome or of a timer, when time passes, when processes come back, and what operators say.
//!
//! **Left out.** Several runs, the ladder beyond an outcome that is there (the other model), drains, actors that fail, answers of a busy
//! journal, hints between nodes other than forwarded mail (they only hasten what the sweep does), clocks that differ, a lost bucket of sessions.

mod choices;
mod promises;
mod shell;
mod state;
mod worker;

use leasehold_protocol::{Body, ClientId, Limits, RunId, RunWeakening, Submission, WIRE_VERSION};
use stateright::{Model, Property};

use crate::checking::{self, Checked, Settles};
use crate::model::Ack;
use crate::model::memo::Memos;

pub use state::State;

/// The tool that changes the world.
const TOOL: &str = "pay_none";
/// How long a question waits, and how long a grant counts, milliseconds; and how far the clock jumps, once.
const PATIENCE_MS: u64 = 60_000;

/// A deliberate weakening of the shell or of the store, for the negative controls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Weakening {
    /// None.
    #[default]
    None,
    /// An inbox message is acknowledged when it is received.
    AckBeforeCommit,
    /// A submission is acknowledged although the commit that names it is only drafted: what the shell does today, and has to stop doing.
    DraftCounts,
    /// The lease is let go before the park commit is stored.
    LeaseBeforePark,
    /// Journal writes are taken whatever they expect.
    NoFence,
    /// A commit is written without looking at the authority.
    NoAuthority,
    /// The sweep goes over leases, not over runs.
    SweepLeases,
}

/// What a check goes through.
#[derive(Debug, Clone)]
pub struct Bound {
    /// Faults of all kinds together.
    pub faults: u8,
    /// Crashes of a node.
    pub crashes: u8,
    /// Of them, those after which the node never comes back.
    pub losses: u8,
    /// Pauses of a node beyond its session's time.
    pub pauses: u8,
    /// Writes, or acknowledgements of writes or of messages, that are lost.
    pub lost_acks: u8,
    /// Deliveries of a message that a node has in hand.
    pub redeliveries: u8,
    /// Leases that are deleted by hand.
    pub deleted_leases: u8,
    /// Losses of the lease bucket; it is made anew and counts from the beginning.
    pub lost_buckets: u8,
    /// Messages of operators.
    pub letters: u8,
    /// What an operator may say.
    pub says: Vec<Says>,
    /// Whether a call needs an approval.
    pub approval: bool,
    /// How often the policy changes its mind about what has to be approved.
    pub policies: u8,
    /// Whether time may pass until questions and grants expire.
    pub expiry: bool,
    /// A negative control of the owners.
    pub run: RunWeakening,
    /// A negative control of the shell or the store.
    pub shell: Weakening,
    memos: Memos,
}

/// What an operator may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Says {
    /// The latest question: yes.
    Approve,
    /// The latest question: no.
    Reject,
    /// Yes, to the latest question, with a hash that was shown nowhere.
    Unseen,
    /// The run shall end.
    Cancel,
}

impl Bound {
    /// Model (a): who drives the run. One operator approves, rejects or cancels; every fault of ownership and delivery at most once.
    pub fn ownership(faults: u8) -> Self {
        Self {
            faults,
            crashes: 1,
            losses: 0,
            pauses: 1,
            lost_acks: 1,
            redeliveries: 1,
            deleted_leases: 1,
            lost_buckets: 1,
            letters: 1,
            says: vec![Says::Approve, Says::Cancel],
            approval: true,
            policies: 0,
            expiry: false,
            run: RunWeakening::None,
            shell: Weakening::None,
            memos: Memos::default(),
        }
    }

    /// Model (c): who decides. Two operators, a policy that changes its mind; crashes, redeliveries and lost acknowledgements.
    pub fn approval(faults: u8) -> Self {
        Self {
            pauses: 0,
            deleted_leases: 0,
            lost_buckets: 0,
            letters: 2,
            says: vec![Says::Approve, Says::Reject, Says::Unseen],
            policies: 1,
            expiry: false,
            ..Self::ownership(faults)
        }
    }

    /// The same without any fault, to which a caller adds the kinds that it is about.
    pub fn without_faults(self) -> Self {
        Self {
            crashes: 0,
            losses: 0,
            pauses: 0,
            lost_acks: 0,
            redeliveries: 0,
            deleted_leases: 0,
            lost_buckets: 0,
            ..self
        }
    }

    /// Goes through every state within the bound; stops at the first broken promise.
    pub fn check(self) -> Checked<Action> {
        checking::exhaust(self)
    }

    /// Goes on until the promise whose name begins like this is broken, or everything was seen.
    pub fn find(self, promise: &str) -> Checked<Action> {
        checking::find(self, promise)
    }

    /// Whether from every state within the bound one in which the run has ended, or is parked for good, can still be reached.
    pub fn settles(self) -> Settles<Action> {
        checking::settles(self, promises::is_settled)
    }

    fn submission(&self) -> Option<Body> {
        let limits = Limits {
            approval_ttl_ms: if self.expiry { PATIENCE_MS } else { 0 },
            grant_ttl_ms: if self.expiry { PATIENCE_MS } else { 0 },
            ..Limits::default()
        };
        let submission = Submission {
            v: WIRE_VERSION,
            run: run()?,
            client: ClientId::new("model").ok()?,
            agent: "model".into(),
            goal: "change the world once".into(),
            input: None,
            tools: vec![TOOL.to_owned()],
            limits,
        };
        Some(submission.encode().into())
    }
}

fn run() -> Option<RunId> {
    RunId::new("run").ok()
}

/// One step of the model. Nodes and messages count from 0; message 0 is the submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say what happens, and to whom")]
pub enum Action {
    Deliver {
        node: usize,
        letter: usize,
    },
    TakeLease {
        node: usize,
    },
    Load {
        node: usize,
    },
    Own {
        node: usize,
        what: &'static str,
        index: usize,
        ack: Ack,
    },
    Leave {
        node: usize,
        ack: Ack,
    },
    Acknowledge {
        node: usize,
        letter: usize,
        ack: Ack,
    },
    Sweep {
        node: usize,
    },
    TimerDue {
        node: usize,
    },
    Tick {
        node: usize,
    },
    Hear {
        node: usize,
    },
    Work,
    Say(Says),
    PolicyChanges,
    TimePasses,
    Crash {
        node: usize,
        late_writes: bool,
        for_good: bool,
    },
    Exit {
        node: usize,
    },
    /// The session of a process that is gone runs out.
    Expire {
        node: usize,
    },
    /// `checked`: it had looked at its authority and was about to write.
    Pause {
        node: usize,
        checked: bool,
    },
    WakeUp {
        node: usize,
    },
    DeleteLease,
    LoseBucket,
    WriteLate {
        index: usize,
    },
}

impl Model for Bound {
    type State = State;
    type Action = Action;

    /// The submission is in the inbox; nobody has it.
    fn init_states(&self) -> Vec<State> {
        let submission = run().zip(self.submission());
        submission
            .map(|(run, body)| State::new(run, body, self.memos.clone()))
            .into_iter()
            .collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.choices(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Deliver { node, letter } => state.deliver(node, letter, self),
            Action::TakeLease { node } => state.take_lease(node),
            Action::Load { node } => state.load(node, self),
            Action::Own {
                node, index, ack, ..
            } => state.own(node, index, ack, self),
            Action::Leave { node, ack } => state.leave(node, ack, self),
            Action::Acknowledge { node, letter, ack } => state.acknowledge(node, letter, ack),
            Action::Sweep { node } => state.sweep(node, self),
            Action::TimerDue { node } => state.timer_due(node, self),
            Action::Tick { node } => state.tick(node, self),
            Action::Hear { node } => state.hear(node, self),
            Action::Work => state.work(),
            Action::Say(says) => state.say(says),
            Action::PolicyChanges => state.policy += 1,
            Action::TimePasses => state.late = true,
            Action::Crash {
                node,
                late_writes,
                for_good,
            } => state.crash(node, late_writes, for_good),
            Action::Exit { node } => state.exit(node),
            Action::Expire { node } => state.nodes[node].lingering = None,
            Action::Pause { node, checked } => state.pause(node, checked),
            Action::WakeUp { node } => state.nodes[node].paused = false,
            Action::DeleteLease => state.delete_lease(),
            Action::LoseBucket => state.lose_bucket(),
            Action::WriteLate { index } => {
                let write = state.stored.late.remove(index);
                state.write_late(&write, self);
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::all(self)
    }
}
