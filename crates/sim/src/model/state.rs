//! One situation of the model: what is stored, who lives and what each of them has on its way, what the world saw, what faults are spent.

use std::collections::BTreeMap;

use leasehold_protocol::{
    AttemptEffect, AttemptMachine, Body, Effect, LogbookRecord, RunId, RunMachine, Seq,
};

use super::Bound;
use super::memo::Memos;
use super::printed::Printed;
use super::stored::{ATTEMPTS, Stored};

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
    pub(super) stored: Stored,
    /// Calls that were delivered at least once, and those acknowledged.
    pub(super) delivered: u8,
    pub(super) acked: u8,
    /// The operators' messages.
    pub(super) letters: Vec<Printed<(Seq, Body)>>,
    pub(super) owner: Option<Owner>,
    pub(super) owner_lives: u8,
    pub(super) workers: [Worker; 2],
    /// Requests whose sender does not wait for them any more, per attempt.
    pub(super) adrift: [u8; ATTEMPTS],
    /// The service refuses attempts up to this one.
    pub(super) fence: usize,
    pub(super) spent: Spent,
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
        Self {
            stored: Stored::new(run, memos),
            delivered: 0,
            acked: 0,
            letters: Vec::new(),
            owner: None,
            owner_lives: 0,
            workers: [worker.clone(), worker],
            adrift: [0; ATTEMPTS],
            fence: 0,
            spent: Spent::default(),
        }
    }

    pub(super) fn may_fail(&self, bound: &Bound) -> bool {
        self.spent.faults() < bound.faults
    }

    /// A request reaches the service. `true`: it took effect.
    pub(super) fn land(&mut self, at: usize) -> bool {
        let takes = at + 1 > self.fence;
        self.stored.effects[at] += u8::from(takes);
        takes
    }
}
