//! One situation: what is stored, what each node is doing, what time it is, what faults are spent.

use leasehold_json::Digest;
use leasehold_protocol::Invariant;
use leasehold_protocol::{
    Body, CancelRequest, DecideRequest, Decision, Effect, OperatorId, RunId, RunMachine, Seq,
    StopReason, WIRE_VERSION,
};

use super::{Bound, Says, Weakening};
use crate::model::memo::Memos;
use crate::model::printed::Printed;
use crate::model::stored::{LateWrite, Stored};

/// Commits that no schedule within a bound needs: a run that writes more is running in circles.
const MOST_COMMITS: usize = 24;
/// Between two positions of the inbox and the first journal position.
const INBOX: u64 = 1_000_000;

/// A message in the inbox.
#[derive(Clone, PartialEq, Hash)]
pub(super) struct Letter {
    pub(super) says: Option<Says>,
    pub(super) body: Printed<Body>,
    pub(super) acked: bool,
}

/// Where an inbox message stands.
pub(super) fn position(letter: usize) -> Seq {
    Seq(INBOX + letter as u64)
}

/// The message at a position.
pub(super) fn letter_at(inbox: Seq) -> usize {
    usize::try_from(inbox.0.saturating_sub(INBOX)).unwrap_or(usize::MAX)
}

pub(super) fn bit(letter: usize) -> u8 {
    1 << letter
}

/// A node's life: which one, and how often it has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Session {
    pub(super) node: usize,
    pub(super) life: u8,
}

/// The record that says who should drive the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Lease {
    pub(super) revision: u8,
    pub(super) holder: Option<Session>,
}

/// One node: a process that may die, and what it knows of the run.
#[derive(Clone, PartialEq, Hash)]
pub(super) struct Node {
    pub(super) life: u8,
    /// It will not come back.
    pub(super) gone: bool,
    pub(super) paused: bool,
    /// The store says that its session is alive.
    pub(super) listed: bool,
    /// A life whose end the store has not seen yet.
    pub(super) lingering: Option<u8>,
    /// It believes so itself.
    pub(super) authority: bool,
    /// Messages in hand.
    pub(super) bag: u8,
    /// Acknowledgements on their way.
    pub(super) acks: u8,
    /// The head that its last sweep found parked.
    pub(super) swept: Option<Seq>,
    pub(super) drive: Drive,
}

impl Node {
    pub(super) fn new(life: u8) -> Self {
        Self {
            life,
            gone: false,
            paused: false,
            listed: true,
            lingering: None,
            authority: true,
            bag: 0,
            acks: 0,
            swept: None,
            drive: Drive::Idle,
        }
    }

    /// Nothing has ever happened to it.
    pub(super) fn is_fresh(&self) -> bool {
        *self == Self::new(1)
    }
}

/// What a node does about the run.
#[derive(Clone, PartialEq, Hash)]
pub(super) enum Drive {
    Idle,
    Opening {
        by_timer: bool,
        /// The revision of the lease, once it is taken.
        lease: Option<u8>,
    },
    Driving(Box<Driving>),
    Leaving {
        lease: Option<u8>,
        reason: Left,
        holder: Option<Session>,
        again: bool,
    },
    /// It cannot read what is stored.
    Quarantined,
}

/// A stop reason without its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Left {
    Ended,
    Parked,
    Fenced,
    Unreadable,
    AuthorityLost,
}

impl Left {
    pub(super) fn of(reason: &StopReason) -> Self {
        match reason {
            StopReason::Ended => Left::Ended,
            StopReason::Parked => Left::Parked,
            StopReason::Fenced(_) => Left::Fenced,
            StopReason::AuthorityLost => Left::AuthorityLost,
            StopReason::Released | StopReason::Unreadable(_) => Left::Unreadable,
        }
    }
}

/// A run's actor.
#[derive(Clone, PartialEq, Hash)]
pub(super) struct Driving {
    pub(super) machine: Printed<RunMachine>,
    pub(super) effects: Vec<Printed<Effect>>,
    pub(super) lease: Option<u8>,
    /// It has seen that the run has a journal.
    pub(super) stands: bool,
    /// Messages that the machine was given.
    pub(super) given: u8,
    /// The latest call's messages that it was told of.
    pub(super) told: usize,
    /// It was woken after time had passed.
    pub(super) ticked: bool,
    /// It looked at its authority, and was paused before the write.
    pub(super) checked: bool,
}

/// Faults so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Spent {
    pub(super) crashes: u8,
    pub(super) losses: u8,
    pub(super) pauses: u8,
    pub(super) lost_acks: u8,
    pub(super) redeliveries: u8,
    pub(super) deleted_leases: u8,
    pub(super) lost_buckets: u8,
}

impl Spent {
    /// Faults of every kind; a node that is lost for good is one that crashed.
    pub(super) fn faults(&self) -> u8 {
        self.crashes
            + self.pauses
            + self.lost_acks
            + self.redeliveries
            + self.deleted_leases
            + self.lost_buckets
    }
}

/// One situation. Opaque: the model's properties look into it.
#[derive(Clone, PartialEq, Hash)]
pub struct State {
    pub(super) stored: Stored,
    pub(super) letters: Vec<Letter>,
    pub(super) lease: Lease,
    /// A durable timer stands.
    pub(super) timer: Option<i64>,
    pub(super) nodes: [Node; 2],
    /// Which policy answers.
    pub(super) policy: u8,
    /// Time has passed until everything expired that was asked or granted before.
    pub(super) late: bool,
    pub(super) spent: Spent,
    /// An owner was fenced by the journal.
    pub(super) fenced: bool,
    /// A message was acknowledged that no commit names, in a run that has not ended.
    pub(super) dropped: bool,
}

impl State {
    pub(super) fn new(run: RunId, submission: Body, memos: Memos) -> Self {
        Self {
            stored: Stored::new(run, memos),
            letters: vec![Letter {
                says: None,
                body: Printed::new(submission),
                acked: false,
            }],
            lease: Lease {
                revision: 0,
                holder: None,
            },
            timer: None,
            nodes: [Node::new(1), Node::new(1)],
            policy: 1,
            late: false,
            spent: Spent::default(),
            fenced: false,
            dropped: false,
        }
    }

    pub(super) fn may_fail(&self, bound: &Bound) -> bool {
        self.spent.faults() < bound.faults
    }

    pub(super) fn session(&self, node: usize) -> Session {
        Session {
            node,
            life: self.nodes[node].life,
        }
    }

    /// What the store says of a session.
    pub(super) fn is_alive(&self, session: Session) -> bool {
        let node = &self.nodes[session.node];
        (node.life == session.life && node.listed) || node.lingering == Some(session.life)
    }

    /// Whether a node does anything at all.
    pub(super) fn runs(&self, node: usize) -> bool {
        !self.nodes[node].gone && !self.nodes[node].paused
    }

    /// The letter has its commit, or needs none any more.
    pub(super) fn is_settled(&self, letter: usize) -> bool {
        let journal = &self.stored.journal.state;
        journal.ended.is_some() || journal.folded.contains(&position(letter))
    }

    // ---- the store

    pub(super) fn append(
        &mut self,
        write: &leasehold_protocol::CommitRequest,
        bound: &Bound,
    ) -> Result<Seq, ()> {
        let mut write = write.clone();
        if bound.shell == Weakening::NoFence {
            write.expected = self
                .stored
                .journal
                .commits
                .last()
                .map_or(Seq::NONE, |stored| stored.seq);
        }
        let seq = self.stored.append(&write)?;
        let memos = self.stored.memos.clone();
        let print = (self.stored.journal.print(), self.stored.effects);
        let broken = memos
            .verdict
            .of(&print, || super::promises::broken(&self.stored));
        // Over a flaw that the fold alone shows, what the numbered promises say of the same bytes.
        if let Some(invariant) = broken {
            self.stored.flaw = Some(invariant);
        }
        if self.stored.journal.commits.len() > MOST_COMMITS {
            self.stored.break_promise(Invariant::I17);
        }
        Ok(seq)
    }

    pub(super) fn write_late(&mut self, write: &LateWrite, bound: &Bound) {
        match write {
            LateWrite::Commit(write) => drop(self.append(write, bound)),
            write => self.stored.write_late(write),
        }
    }

    pub(super) fn put_lease(&mut self, expected: u8, holder: Option<Session>) -> Option<u8> {
        if self.lease.revision != expected {
            return None;
        }
        self.lease = Lease {
            revision: expected + 1,
            holder,
        };
        Some(self.lease.revision)
    }

    pub(super) fn delete_lease(&mut self) {
        self.spent.deleted_leases += 1;
        self.put_lease(self.lease.revision, None);
    }

    pub(super) fn lose_bucket(&mut self) {
        self.spent.lost_buckets += 1;
        self.lease = Lease {
            revision: 0,
            holder: None,
        };
    }

    // ---- operators

    /// The next operator writes what they have to say.
    pub(super) fn say(&mut self, says: Says) {
        let Ok(by) = OperatorId::new(format!("o{}", self.letters.len())) else {
            return;
        };
        let latest = self.stored.journal.state.approvals.iter().next_back();
        let body = match (says, latest) {
            (Says::Cancel, _) => CancelRequest {
                v: WIRE_VERSION,
                by,
                note: None,
            }
            .encode(),
            (_, None) => return,
            (_, Some((approval, asked))) => DecideRequest {
                v: WIRE_VERSION,
                approval: approval.clone(),
                hash: if says == Says::Unseen {
                    Digest::ZERO
                } else {
                    asked.hash
                },
                decision: if says == Says::Reject {
                    Decision::Reject
                } else {
                    Decision::Approve
                },
                by,
                note: None,
            }
            .encode(),
        };
        self.letters.push(Letter {
            says: Some(says),
            body: Printed::new(Body::from(body)),
            acked: false,
        });
    }

    // ---- what happens to processes

    pub(super) fn crash(&mut self, node: usize, late_writes: bool, for_good: bool) {
        self.spent.crashes += 1;
        self.spent.losses += u8::from(for_good);
        if let Drive::Driving(driving) = &self.nodes[node].drive
            && late_writes
        {
            for effect in driving.effects.clone() {
                match &*effect {
                    Effect::Commit(write) => {
                        self.stored.send_late(LateWrite::Commit(write.clone()));
                    }
                    Effect::WriteRegister(write) => self.stored.send_late(LateWrite::Register {
                        write: write.clone(),
                        writer: leasehold_protocol::RUNTIME_TOKEN.into(),
                    }),
                    _ => {}
                }
            }
        }
        self.exit(node);
        let it = &mut self.nodes[node];
        it.gone = for_good;
        it.listed &= !for_good;
    }

    /// The process is gone, and with it everything it had in hand. It is back at once: a process that is away is one that is not scheduled.
    /// The store learns of its end when the session's time is over.
    pub(super) fn exit(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        *it = Node {
            lingering: it.listed.then_some(it.life),
            ..Node::new(it.life + 1)
        };
    }

    pub(super) fn pause(&mut self, node: usize, checked: bool) {
        self.spent.pauses += 1;
        let it = &mut self.nodes[node];
        (it.paused, it.listed, it.authority) = (true, false, false);
        if let Drive::Driving(driving) = &mut it.drive {
            driving.checked = checked;
        }
    }
}
