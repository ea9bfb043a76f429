//! One situation of the model: what is stored, who lives and what each of them has on its way, what the world saw, what faults are spent.
//!
//! Positions count per lane (the journal by hundreds, a chain from its call on): the machines compare positions within one lane only, and
//! so writes to different lanes lead to the same situation in whatever order they came.

use std::collections::BTreeMap;

use leasehold_protocol::invariant::{self, RunRecord};
use leasehold_protocol::{
    AttemptEffect, AttemptMachine, Body, Chain, ChainKey, ChainMessage, CommitRequest, Effect,
    Effects, Invariant, JournalSubject, Link, LogbookRecord, MAX_NOTES, Note, NoteKind,
    NoteMessage, RUNTIME_TOKEN, RegisterRequest, RunId, RunMachine, RunState, Seq, Step,
    StoredCommit, Violation,
};

use super::Bound;
use super::memo::Memos;
use super::printed::Printed;
use crate::outside;

/// Room between two journal positions for the chain that a call begins.
const LANE: u64 = 100;
/// Attempts that the ledger has a place for; more than any bound that is worth a check leads to.
pub(super) const ATTEMPTS: usize = 8;

/// The journal and its fold.
#[derive(Debug, Clone)]
pub(super) struct Journal {
    pub(super) commits: Vec<StoredCommit>,
    pub(super) state: RunState,
}

/// The chain of one attempt and the notes beside it.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    pub(super) key: ChainKey,
    pub(super) messages: Vec<ChainMessage>,
    pub(super) notes: Vec<NoteMessage>,
    pub(super) chain: Chain,
    /// What the notes say.
    pub(super) evidence: Vec<NoteKind>,
}

/// A write that its writer did not live to see answered.
#[derive(Debug)]
pub(super) enum LateWrite {
    Commit(CommitRequest),
    Register {
        write: RegisterRequest,
        writer: String,
    },
    Note {
        lane: usize,
        writer: String,
        body: Body,
        last_place: bool,
    },
}

/// The process that drives the run.
#[derive(Clone, PartialEq, Hash)]
pub(super) struct Owner {
    pub(super) machine: Printed<RunMachine>,
    pub(super) effects: Vec<Printed<Effect>>,
    /// How often its clock jumped past the silence of a claimed attempt.
    pub(super) jumps: u8,
    /// The last attempt for which it did.
    pub(super) silenced: usize,
    /// The latest attempt's messages and notes that it has been told of.
    pub(super) told: Told,
}

#[derive(Clone, Copy, PartialEq, Hash)]
pub(super) struct Told {
    pub(super) attempt: usize,
    pub(super) messages: usize,
    pub(super) notes: usize,
}

/// A worker: its process, and the disk that outlives it.
#[derive(Clone, PartialEq, Hash)]
pub(super) struct Worker {
    pub(super) alive: bool,
    /// Something was delivered to it at some time: until then the two workers are the same.
    pub(super) used: bool,
    pub(super) life: u8,
    pub(super) book: u8,
    /// Claims that this life has made.
    pub(super) claims: u8,
    pub(super) disk: BTreeMap<usize, Printed<LogbookRecord>>,
    /// Attempts whose logbook record the register is known to hold.
    pub(super) published: u8,
    pub(super) jobs: BTreeMap<usize, Job>,
}

/// One attempt on one worker.
#[derive(Clone, PartialEq, Hash)]
pub(super) struct Job {
    pub(super) machine: Printed<AttemptMachine>,
    pub(super) effects: Vec<Printed<AttemptEffect>>,
    /// Its deadline has passed.
    pub(super) late: bool,
    /// The tool's request, until the tool has returned.
    pub(super) request: Option<Request>,
}

/// Where a tool's request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Request {
    OnItsWay,
    Landed,
    /// Lost or refused: it has no effect and never will.
    Gone,
}

/// Faults and decisions so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Spent {
    pub(super) worker_crashes: u8,
    pub(super) owner_crashes: u8,
    pub(super) lost_logbooks: u8,
    pub(super) redeliveries: u8,
    pub(super) may: u8,
    pub(super) deadlines: u8,
    pub(super) pauses: u8,
    pub(super) lost_acks: u8,
    pub(super) run_again: u8,
}

impl Spent {
    /// Faults of every kind; what an operator decides is none, and a lost logbook is part of a crash.
    pub(super) fn faults(&self) -> u8 {
        self.worker_crashes
            + self.owner_crashes
            + self.redeliveries
            + self.may
            + self.deadlines
            + self.pauses
            + self.lost_acks
    }
}

/// One situation. Opaque: the model's properties look into it.
#[derive(Clone, PartialEq, Hash)]
pub struct State {
    pub(super) memos: Memos,
    pub(super) journal: Printed<Journal>,
    pub(super) lanes: Vec<Printed<Lane>>,
    /// Calls that were delivered at least once, and those acknowledged.
    pub(super) delivered: u8,
    pub(super) acked: u8,
    /// The operators' messages.
    pub(super) letters: Vec<Printed<(Seq, Body)>>,
    pub(super) owner: Option<Owner>,
    pub(super) owner_lives: u8,
    pub(super) workers: [Worker; 2],
    pub(super) late: Vec<Printed<LateWrite>>,
    /// Requests whose sender does not wait for them any more, per attempt.
    pub(super) adrift: [u8; ATTEMPTS],
    pub(super) effects: [u8; ATTEMPTS],
    /// The service refuses attempts up to this one.
    pub(super) fence: usize,
    pub(super) spent: Spent,
    /// A promise about a moment that was broken in that moment.
    pub(super) flaw: Option<Invariant>,
}

impl Lane {
    fn print(mut self) -> Printed<Self> {
        self.read();
        Printed::new(self)
    }

    fn read(&mut self) {
        let class = outside::registry()
            .get(&self.key.tool)
            .map_or(leasehold_tools::SideEffect::Destructive, |tool| {
                tool.spec().side_effect
            });
        self.chain = Chain::read(class, &self.messages);
        self.evidence = self
            .notes
            .iter()
            .filter_map(|note| Note::decode(note.body.as_bytes()).ok())
            .map(|note| note.evidence)
            .collect();
    }

    fn last(&self) -> Seq {
        self.messages
            .last()
            .map_or(Seq::NONE, |message| message.seq)
    }
}

impl State {
    pub(super) fn new(run: RunId, memos: Memos) -> Self {
        let worker = Worker {
            alive: true,
            used: false,
            life: 1,
            book: 0,
            claims: 0,
            disk: BTreeMap::new(),
            published: 0,
            jobs: BTreeMap::new(),
        };
        let journal = Journal {
            commits: Vec::new(),
            state: RunState::new(run),
        };
        Self {
            memos,
            journal: Printed::by(journal, &0),
            lanes: Vec::new(),
            delivered: 0,
            acked: 0,
            letters: Vec::new(),
            owner: None,
            owner_lives: 0,
            workers: [worker.clone(), worker],
            late: Vec::new(),
            adrift: [0; ATTEMPTS],
            effects: [0; ATTEMPTS],
            fence: 0,
            spent: Spent::default(),
            flaw: None,
        }
    }

    pub(super) fn may_fail(&self, bound: &Bound) -> bool {
        self.spent.faults() < bound.faults
    }

    /// The run's one step, once the agent has decided.
    pub(super) fn step(&self) -> Option<&Step> {
        self.journal.state.turns.first()?.steps.first()
    }

    /// The lane of the attempt that the journal says is open.
    pub(super) fn open_lane(&self) -> Option<usize> {
        let open = self.step()?.phase.has_open_attempt();
        open.then(|| self.lanes.len().checked_sub(1)).flatten()
    }

    pub(super) fn lane_of(&self, key: &ChainKey) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.key == *key)
    }

    pub(super) fn break_promise(&mut self, invariant: Invariant) {
        self.flaw.get_or_insert(invariant);
    }

    // ---- the store

    pub(super) fn append(&mut self, write: &CommitRequest) -> Result<Seq, ()> {
        let last = self
            .journal
            .commits
            .last()
            .map_or(Seq::NONE, |stored| stored.seq);
        if last != write.expected {
            return Err(());
        }
        let seq = Seq((self.journal.commits.len() as u64 + 1) * LANE);
        let stored = StoredCommit {
            seq,
            subject: write.subject.clone(),
            body: write.body.clone(),
        };
        let print = (self.journal.print(), &stored.subject, &stored.body);
        let (journal, counts) = self.memos.journal.of(&print, || {
            let mut journal = (*self.journal).clone();
            let counts = matches!(journal.state.apply(&stored), Ok(Some(_)));
            journal.commits.push(stored.clone());
            (Printed::by(journal, &print), counts)
        });
        self.journal = journal;
        if !counts {
            self.break_promise(Invariant::I8);
        }
        if let (JournalSubject::Call(key), Some(envelope)) = (&write.subject, &write.call) {
            let call = ChainMessage {
                seq,
                expected: None,
                link: Link::Call,
                writer: RUNTIME_TOKEN.into(),
                body: envelope.clone(),
            };
            let lane = || Lane {
                key: key.clone(),
                messages: vec![call.clone()],
                notes: Vec::new(),
                chain: Chain::default(),
                evidence: Vec::new(),
            };
            if self.lanes.len() == ATTEMPTS {
                self.break_promise(Invariant::I17);
                return Ok(seq);
            }
            let print = (seq, envelope, key);
            let lane = self.memos.lane.of(&print, || lane().print());
            self.lanes.push(lane);
            if self.lanes.len() > 1
                && let Some(violation) = self.check().first()
            {
                // Now, and not at the end: what permits an attempt has to stand in the registers before it.
                self.break_promise(violation.invariant);
            }
        }
        Ok(seq)
    }

    pub(super) fn register(&mut self, write: &RegisterRequest, writer: &str) -> Result<Seq, ()> {
        let Some(at) = self.lane_of(&write.chain) else {
            return Err(());
        };
        let before = self.lanes[at].clone();
        if before.last() != write.expected {
            return Err(());
        }
        let seq = Seq(before.last().0 + 1);
        let print = (before.print(), write.link, writer, &write.body);
        self.lanes[at] = self.memos.lane.of(&print, || {
            let mut lane = (*before).clone();
            lane.messages.push(ChainMessage {
                seq,
                expected: Some(write.expected),
                link: write.link,
                writer: writer.to_owned(),
                body: write.body.clone(),
            });
            lane.print()
        });
        Ok(seq)
    }

    pub(super) fn note(&mut self, at: usize, writer: &str, body: &Body, last_place: bool) {
        let before = self.lanes[at].clone();
        let room = if last_place { MAX_NOTES } else { MAX_NOTES - 1 };
        if before.notes.len() < room {
            self.lanes[at] = self.memos.lane.of(&(before.print(), writer, body), || {
                let mut lane = (*before).clone();
                lane.notes.push(NoteMessage {
                    seq: Seq(lane.notes.len() as u64 + 1),
                    writer: writer.to_owned(),
                    body: body.clone(),
                });
                lane.print()
            });
        } else if last_place {
            self.break_promise(Invariant::I15);
        }
    }

    pub(super) fn write_late(&mut self, write: &LateWrite) {
        // Nobody is left to be told.
        match write {
            LateWrite::Commit(write) => drop(self.append(write)),
            LateWrite::Register { write, writer } => drop(self.register(write, writer)),
            LateWrite::Note {
                lane,
                writer,
                body,
                last_place,
            } => self.note(*lane, writer, body, *last_place),
        }
    }

    pub(super) fn send_late(&mut self, write: LateWrite) {
        self.late.push(Printed::new(write));
        self.late.sort_by_key(Printed::print);
    }

    // ---- the world

    /// A request reaches the service. `true`: it took effect.
    pub(super) fn land(&mut self, at: usize) -> bool {
        let takes = at + 1 > self.fence;
        self.effects[at] += u8::from(takes);
        takes
    }

    pub(super) fn total(&self) -> usize {
        self.effects.iter().map(|count| usize::from(*count)).sum()
    }

    /// Every invariant that stored bytes can tell, as the simulator and `verify` check them.
    pub(super) fn check(&self) -> Vec<Violation> {
        let chains = self
            .lanes
            .iter()
            .map(|lane| (lane.key.clone(), lane.messages.clone()))
            .collect();
        let effects: Effects = self
            .lanes
            .iter()
            .zip(self.effects)
            .filter(|(_, count)| *count > 0)
            .map(|(lane, count)| ((lane.key.step, lane.key.attempt), u32::from(count)))
            .collect();
        let record = RunRecord {
            run: &self.journal.state.run,
            commits: &self.journal.commits,
            chains: &chains,
            effects: Some(&effects),
        };
        invariant::check(&record, &|_| leasehold_tools::SideEffect::LocalMutation)
    }
}
