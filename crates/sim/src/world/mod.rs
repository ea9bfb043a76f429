//! The processes of one schedule and the messages between them.
//!
//! Time is virtual. Every effect of a machine becomes a message that is carried out after a random delay; its answer comes after another.
//! A crash drops the process and the answers meant for it; what it had sent may still arrive. While faults last, anything may be lost,
//! doubled or late; then everything heals and the schedule runs until nothing is left to do.

mod faults;
mod nodes;
mod operators;
mod verdict;
mod workers;

use std::collections::{BTreeMap, BTreeSet};

use leasehold_protocol::{
    AttemptEffect, AttemptInput, AttemptMachine, ChainKey, ClientId, Effect, Execution, Input,
    Invariant, Limits, LogbookRecord, Now, RunId, RunMachine, RunState, Seq, Submission,
    ToolReturn, Violation, WIRE_VERSION,
};
use leasehold_tools::Registry;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;

use crate::outside::{self, Outside, PICKS};
use crate::schedule::{Config, Tally};
use crate::store::{LetterKind, Store};

/// Faults stop here, milliseconds of virtual time; long enough for several takeovers of a step.
const FAULTS_END_MS: u64 = 12_000;
/// A schedule that is not done by then never will be.
const GIVE_UP_MS: u64 = 3_600_000;
/// More messages than any schedule needs: a schedule that sends more is running in circles.
const MAX_MESSAGES: u64 = 200_000;
/// How often owners are looked for, runs swept and calls delivered.
const SWEEP_MS: u64 = 150;

/// Something on its way.
#[derive(Debug)]
enum Message {
    /// Carry out what a run's machine wants.
    Run {
        node: usize,
        life: u64,
        run: RunId,
        effect: Effect,
    },
    /// Tell a run's machine.
    Tell {
        node: usize,
        life: u64,
        run: RunId,
        input: Input,
    },
    /// Carry out what an attempt's machine wants.
    Attempt {
        worker: usize,
        life: u64,
        key: ChainKey,
        effect: AttemptEffect,
    },
    /// Tell an attempt's machine.
    Answer {
        worker: usize,
        life: u64,
        key: ChainKey,
        input: AttemptInput,
    },
    /// A tool's request reaches the outside world, and perhaps an answer comes back.
    Land {
        worker: usize,
        life: u64,
        key: ChainKey,
        execution: Box<Execution>,
        then: Option<ToolReturn>,
    },
    /// Hand a call to a worker.
    Deliver { worker: usize, seq: Seq },
    /// Processes start, owners are found, messages are handed on.
    Sweep,
    /// A process dies.
    Crash {
        node: Option<usize>,
        worker: Option<usize>,
    },
    /// Another node takes a run whose owner is alive.
    Steal,
    /// An operator looks around.
    Operate,
}

#[derive(Debug)]
struct Node {
    life: u64,
    alive: bool,
    runs: BTreeMap<RunId, RunMachine>,
}

#[derive(Debug)]
struct Worker {
    life: u64,
    alive: bool,
    logbook: u64,
    disk: BTreeMap<ChainKey, LogbookRecord>,
    attempts: BTreeMap<ChainKey, AttemptMachine>,
    inspectors: BTreeMap<ChainKey, Vec<(usize, u64, RunId)>>,
}

pub(crate) struct World {
    config: Config,
    rng: SmallRng,
    now: u64,
    serial: u64,
    sent: u64,
    queue: BTreeMap<(u64, u64), Message>,
    store: Store,
    outside: Outside,
    tools: Arc<Registry>,
    nodes: Vec<Node>,
    workers: Vec<Worker>,
    runs: Vec<RunId>,
    decided: BTreeSet<(RunId, String)>,
    folded: BTreeMap<RunId, (usize, RunState)>,
    /// A run that ends the process of whoever takes it, and how many times more.
    poison: Option<(RunId, u32)>,
    violations: Vec<Violation>,
    pub(crate) tally: Tally,
}

impl World {
    pub(crate) fn new(seed: u64, config: Config) -> Self {
        let mut store = Store::default();
        store.weakening = config.store;
        let mut world = Self {
            config,
            rng: SmallRng::seed_from_u64(seed),
            now: 1_000,
            serial: 0,
            sent: 0,
            queue: BTreeMap::new(),
            store,
            outside: Outside::default(),
            tools: outside::registry(),
            nodes: (0..config.nodes)
                .map(|_| Node {
                    life: 1,
                    alive: true,
                    runs: BTreeMap::new(),
                })
                .collect(),
            workers: (0..config.workers)
                .map(|id| Worker {
                    life: 1,
                    alive: true,
                    logbook: id as u64 * 1_000,
                    disk: BTreeMap::new(),
                    attempts: BTreeMap::new(),
                    inspectors: BTreeMap::new(),
                })
                .collect(),
            runs: Vec::new(),
            decided: BTreeSet::new(),
            folded: BTreeMap::new(),
            poison: None,
            violations: Vec::new(),
            tally: Tally::default(),
        };
        world.submit_all();
        world.plan_faults();
        world.send(0, Message::Sweep);
        world.send(300, Message::Operate);
        world
    }

    fn submit_all(&mut self) {
        for n in 0..self.config.runs {
            let Ok(run) = RunId::new(format!("run-{n}")) else {
                continue;
            };
            let Ok(client) = ClientId::new("sim") else {
                continue;
            };
            let mut limits = Limits {
                max_consecutive_failures: 50,
                max_repeats: 50,
                ..Limits::default()
            };
            if self.chance(20) {
                limits.queue_ms = 2_000;
            }
            let submission = Submission {
                v: WIRE_VERSION,
                run: run.clone(),
                client,
                agent: "sim".into(),
                goal: "change the world".into(),
                input: None,
                tools: PICKS
                    .iter()
                    .chain(&["close"])
                    .map(|tool| (*tool).to_owned())
                    .collect(),
                limits,
            };
            self.store
                .put(&run, LetterKind::Submit, submission.encode().into());
            self.runs.push(run);
        }
    }

    fn faulty(&self) -> bool {
        self.now < FAULTS_END_MS
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn fault(&mut self, percent: u32) -> bool {
        self.faulty() && self.chance(percent)
    }

    fn clock(&self) -> Now {
        Now {
            wall: 1_700_000_000_000 + self.now as i64,
            boot: self.now,
        }
    }

    fn send(&mut self, delay: u64, message: Message) {
        self.serial += 1;
        self.queue.insert((self.now + delay, self.serial), message);
    }

    fn delay(&mut self) -> u64 {
        if self.fault(3) {
            self.rng.random_range(0..3_000)
        } else {
            self.rng.random_range(0..6)
        }
    }

    fn violate(&mut self, invariant: Invariant, run: &RunId, text: String) {
        self.violations.push(Violation {
            invariant,
            run: run.clone(),
            text,
        });
    }

    pub(crate) fn run(&mut self) {
        while let Some(((at, _), message)) = self.queue.pop_first() {
            self.now = at.max(self.now);
            self.sent += 1;
            if self.sent > MAX_MESSAGES || self.now > GIVE_UP_MS {
                break;
            }
            match message {
                Message::Run {
                    node,
                    life,
                    run,
                    effect,
                } => self.carry_out(node, life, run, effect),
                Message::Tell {
                    node,
                    life,
                    run,
                    input,
                } => self.tell(node, life, run, input),
                Message::Attempt {
                    worker,
                    life,
                    key,
                    effect,
                } => self.attempt_effect(worker, life, key, effect),
                Message::Answer {
                    worker,
                    life,
                    key,
                    input,
                } => self.answer(worker, life, key, input),
                Message::Land {
                    worker,
                    life,
                    key,
                    execution,
                    then,
                } => self.land(worker, life, key, &execution, then),
                Message::Deliver { worker, seq } => self.deliver(worker, seq),
                Message::Sweep => self.sweep(),
                Message::Crash { node, worker } => self.crash(node, worker),
                Message::Steal => self.steal(),
                Message::Operate => self.operate(),
            }
            if !self.faulty() && self.all_over() {
                break;
            }
        }
    }

    /// The run as its journal says, folded no further than needed.
    fn state(&mut self, run: &RunId) -> Option<&RunState> {
        let journal = self.store.journals.get(run)?;
        let (taken, state) = self
            .folded
            .entry(run.clone())
            .or_insert_with(|| (0, RunState::new(run.clone())));
        for stored in journal.iter().skip(*taken) {
            // What cannot be folded is the verdict's to report.
            let _ = state.apply(stored);
            *taken += 1;
        }
        Some(state)
    }

    fn ended(&self, run: &RunId) -> bool {
        use leasehold_protocol::JournalSubject;
        self.store
            .journals
            .get(run)
            .and_then(|journal| journal.last())
            .is_some_and(|stored| stored.subject == JournalSubject::End)
    }

    fn all_over(&self) -> bool {
        self.runs.iter().all(|run| self.ended(run))
            && self
                .workers
                .iter()
                .all(|worker| worker.alive && worker.attempts.is_empty())
            && self.store.inbox.values().all(|letter| letter.acked)
    }
}
