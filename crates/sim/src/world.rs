//! The processes of one schedule and the messages between them.
//!
//! Time is virtual. Every effect of a machine becomes a message that is carried out after a random delay; its answer comes after another.
//! A crash drops the process and the answers meant for it; what it had sent may still arrive. While faults last, anything may be lost,
//! doubled or late; then everything heals and the schedule runs until nothing is left to do.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_json::{AcceptedJson, Kept};
use leasehold_protocol::invariant::{self, RunRecord};
use leasehold_protocol::{
    AgentView, AttemptEffect, AttemptInput, AttemptMachine, CallEnvelope, CancelRequest, Chain,
    ChainKey, ClaimBody, ClaimId, ClientId, ClusterId, DecideRequest, Decision, Effect, Event,
    Execution, Finding, Hint, Incarnation, Input, InspectAnswer, Invariant, Limits, Link,
    LogbookAnswer, LogbookId, LogbookRecord, NodeId, Note, NoteKind, Now, OperatorId, ProbeReply,
    Question, RUNTIME_TOKEN, RegisterRequest, RunConfig, RunId, RunMachine, RunState, Seq,
    SessionId, StopReason, Submission, ToolReturn, Verdict, Violation, WIRE_VERSION, WorkerId,
    WorkerIdentity, WriteAnswer,
};
use leasehold_tools::{Failure, Registry, SideEffect};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;

use crate::outside::{self, Outside, PICKS, TIMEOUT_MS};
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

    fn plan_faults(&mut self) {
        for _ in 0..self.rng.random_range(0..6) {
            let at = self.rng.random_range(10..FAULTS_END_MS);
            let node = self
                .chance(50)
                .then(|| self.rng.random_range(0..self.config.nodes));
            let worker = (node.is_none() || self.chance(20))
                .then(|| self.rng.random_range(0..self.config.workers));
            self.send(at, Message::Crash { node, worker });
        }
        for _ in 0..self.rng.random_range(0..3) {
            let at = self.rng.random_range(10..FAULTS_END_MS);
            self.send(at, Message::Steal);
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

    // ---- nodes

    fn start_run(&mut self, node: usize, run: &RunId) {
        let life = self.nodes[node].life;
        let (Ok(cluster), Ok(name), Ok(session)) = (
            ClusterId::new("sim"),
            NodeId::new(format!("n{node}")),
            SessionId::new(format!("n{node}-{life}-{}", self.serial)),
        ) else {
            return;
        };
        let config = RunConfig {
            cluster,
            node: name,
            session,
            tools: self.tools.clone(),
            clock_bound_ms: 0,
            hook: false,
            weakening: self.config.run,
        };
        self.nodes[node]
            .runs
            .insert(run.clone(), RunMachine::new(config, run.clone()));
        let submission = self
            .store
            .inbox
            .iter()
            .find(|(_, letter)| letter.run == *run && letter.kind == LetterKind::Submit);
        let submission = submission.map(|(seq, letter)| (*seq, letter.body.clone()));
        let input = Input::Load {
            commits: self.store.journal_after(run, Seq::NONE),
            submission,
        };
        self.tell(node, life, run.clone(), input);
    }

    fn tell(&mut self, node: usize, life: u64, run: RunId, input: Input) {
        let now = self.clock();
        if !self.nodes[node].alive || self.nodes[node].life != life {
            return;
        }
        let Some(machine) = self.nodes[node].runs.get_mut(&run) else {
            return;
        };
        self.tally.steps += 1;
        for effect in machine.step(now, input) {
            if let Effect::Stop(reason) = &effect {
                if let StopReason::Unreadable(why) = reason {
                    self.violate(Invariant::I16, &run, format!("a machine stopped: {why}"));
                }
                self.tally.fenced += u64::from(matches!(reason, StopReason::Fenced(_)));
                self.nodes[node].runs.remove(&run);
                return;
            }
            let delay = match &effect {
                Effect::WakeAt { boot } => boot.saturating_sub(self.now),
                Effect::AskPolicy(_) => 0,
                _ => self.delay(),
            };
            self.send(
                delay,
                Message::Run {
                    node,
                    life,
                    run: run.clone(),
                    effect,
                },
            );
        }
    }

    fn reply(&mut self, node: usize, life: u64, run: &RunId, input: Input) {
        let delay = self.delay();
        self.send(
            delay,
            Message::Tell {
                node,
                life,
                run: run.clone(),
                input,
            },
        );
    }

    fn carry_out(&mut self, node: usize, life: u64, run: RunId, effect: Effect) {
        let dead = !self.nodes[node].alive || self.nodes[node].life != life;
        if dead {
            // What a process had sent may arrive after its death.
            if !matches!(effect, Effect::Commit(_) | Effect::WriteRegister(_)) || !self.chance(50) {
                return;
            }
            self.tally.late_writes += 1;
        }
        let answer = match effect {
            Effect::Commit(write) => {
                let busy = self.fault(2);
                let lost_before = self.fault(3);
                let stored = if busy || lost_before {
                    None
                } else {
                    Some(self.store.append(&run, &write))
                };
                let lost_after = self.fault(4);
                self.tally.lost_acks += u64::from(lost_before || lost_after);
                match stored {
                    _ if busy => Input::CommitBusy,
                    Some(Ok(seq)) if !lost_after => Input::CommitStored { seq },
                    _ => Input::CommitDoubtful,
                }
            }
            Effect::ReadJournal { after } => Input::JournalRead {
                commits: self.store.journal_after(&run, after),
            },
            Effect::ReadChain { chain } => Input::ChainRead {
                step: chain.step,
                attempt: chain.attempt,
                messages: self.store.chain(&chain),
                notes: self.store.notes(&chain),
            },
            Effect::WriteRegister(write) => {
                if !self.fault(4) {
                    // The machine reads what stands there, whatever the answer was.
                    let _ = self.write_register(&write, RUNTIME_TOKEN);
                }
                Input::RegisterTried {
                    step: write.chain.step,
                    attempt: write.chain.attempt,
                }
            }
            Effect::Inspect { chain, worker } => {
                return self.inspect(node, life, run, chain, &worker);
            }
            Effect::Probe(request) => {
                let answer = if self.fault(20) {
                    ProbeReply::Failed {
                        error: "the service is down".into(),
                    }
                } else {
                    self.outside.probe(&request)
                };
                Input::Probed {
                    step: request.chain.step,
                    attempt: request.chain.attempt,
                    answer,
                }
            }
            Effect::AskAgent(view) => self.decide(&view),
            Effect::AskPolicy(request) => {
                let verdict = if request.tool == "wipe" {
                    Verdict::RequireApproval {
                        approval_kind: "wipe".into(),
                        capability: "wipe".into(),
                        presentation: request.arguments.clone(),
                    }
                } else {
                    Verdict::Allow
                };
                Input::Judged {
                    step: request.step,
                    policy: "sim@1".into(),
                    verdict: Ok(verdict),
                }
            }
            Effect::AckInbox { inbox } => {
                if let Some(letter) = self.store.inbox.get_mut(&inbox) {
                    letter.acked = true;
                }
                return;
            }
            Effect::SetTimer { .. } => Input::TimerSet,
            Effect::WakeAt { .. } => return self.tell(node, life, run, Input::Tick),
            Effect::AskHook | Effect::Stop(_) => return,
        };
        self.reply(node, life, &run, answer);
    }

    /// An agent that makes a few turns of random calls and then closes or completes.
    fn decide(&mut self, view: &AgentView) -> Input {
        let calls = |tools: &[&str]| {
            let calls: Vec<_> = tools
                .iter()
                .enumerate()
                .map(|(index, tool)| serde_json::json!({ "tool": tool, "arguments": { "turn": view.turn, "index": index } }))
                .collect();
            serde_json::json!({ "kind": "tool_calls", "calls": calls })
        };
        let decision = if view.turn > 3 {
            if self.chance(50) {
                calls(&["close"])
            } else {
                serde_json::json!({ "kind": "complete", "result": {} })
            }
        } else if self.chance(5) {
            serde_json::json!({ "kind": "nonsense" })
        } else {
            let picks: Vec<&str> = (0..self.rng.random_range(1..3))
                .map(|_| PICKS[self.rng.random_range(0..PICKS.len())])
                .collect();
            calls(&picks)
        };
        Input::AgentDecided {
            turn: view.turn,
            decision: Kept::from_bytes(decision.to_string().as_bytes()),
        }
    }

    fn write_register(&mut self, write: &RegisterRequest, writer: &str) -> Result<Seq, ()> {
        let stored = self.store.register(write, writer);
        if let Ok(seq) = stored {
            let message = self
                .store
                .chain(&write.chain)
                .into_iter()
                .find(|message| message.seq == seq);
            self.hint(Hint {
                chain: write.chain.clone(),
                message,
            });
        }
        stored
    }

    /// Hints reach the dispatching session's node, at most once, perhaps never.
    fn hint(&mut self, hint: Hint) {
        let run = hint.chain.run.clone();
        for node in 0..self.nodes.len() {
            if self.nodes[node].runs.contains_key(&run) && !self.fault(20) {
                let life = self.nodes[node].life;
                self.reply(node, life, &run, Input::Hint(hint.clone()));
            }
        }
    }

    // ---- workers

    fn identity(&self, worker: usize) -> Option<WorkerIdentity> {
        let it = &self.workers[worker];
        Some(WorkerIdentity {
            worker: WorkerId::new(format!("w{worker}")).ok()?,
            incarnation: Incarnation::new(format!("w{worker}-{}", it.life)).ok()?,
            logbook: LogbookId::new(format!("book-{}", it.logbook)).ok()?,
            weakening: self.config.worker,
        })
    }

    fn class(&self, tool: &str) -> SideEffect {
        self.tools
            .get(tool)
            .map_or(SideEffect::Destructive, |tool| tool.spec().side_effect)
    }

    fn fresh_claim(&mut self) -> Option<ClaimId> {
        ClaimId::new(format!("{:032x}", self.rng.random::<u128>())).ok()
    }

    fn deliver(&mut self, worker: usize, seq: Seq) {
        let Some(call) = self.store.calls.get_mut(&seq).filter(|call| !call.acked) else {
            return;
        };
        if !self.workers[worker].alive || self.workers[worker].attempts.contains_key(&call.key) {
            return;
        }
        let redelivered = call.deliveries > 0;
        call.deliveries += 1;
        self.tally.redeliveries += u64::from(redelivered);
        let (key, envelope) = (call.key.clone(), call.envelope.clone());
        let (Ok(envelope), Some(me), Some(claim)) = (
            CallEnvelope::decode(envelope.as_bytes()),
            self.identity(worker),
            self.fresh_claim(),
        ) else {
            return;
        };
        let (now, class) = (self.clock(), self.class(&key.tool));
        let (machine, effects) = AttemptMachine::deliver(
            me,
            class,
            key.clone(),
            seq,
            envelope,
            redelivered,
            claim,
            now,
        );
        self.adopt_attempt(worker, key, machine, effects);
    }

    fn adopt_attempt(
        &mut self,
        worker: usize,
        key: ChainKey,
        machine: AttemptMachine,
        effects: Vec<AttemptEffect>,
    ) {
        self.workers[worker].attempts.insert(key.clone(), machine);
        self.attempt_effects(worker, key, effects);
    }

    fn attempt_effects(&mut self, worker: usize, key: ChainKey, effects: Vec<AttemptEffect>) {
        let life = self.workers[worker].life;
        for effect in effects {
            match effect {
                AttemptEffect::Execute(execution) => self.execute(worker, key.clone(), execution),
                effect => {
                    let delay = self.delay();
                    self.send(
                        delay,
                        Message::Attempt {
                            worker,
                            life,
                            key: key.clone(),
                            effect,
                        },
                    );
                }
            }
        }
    }

    fn inspect(&mut self, node: usize, life: u64, run: RunId, chain: ChainKey, worker: &WorkerId) {
        let asked = (0..self.workers.len()).find(|id| format!("w{id}") == worker.as_str());
        let answer = match asked {
            Some(id) if self.workers[id].alive && !self.fault(10) => {
                if self.workers[id]
                    .attempts
                    .get(&chain)
                    .is_some_and(AttemptMachine::is_running)
                {
                    InspectAnswer::Running
                } else {
                    self.workers[id]
                        .inspectors
                        .entry(chain.clone())
                        .or_default()
                        .push((node, life, run));
                    self.resolve(id, &chain);
                    return;
                }
            }
            _ => InspectAnswer::NoAnswer,
        };
        self.reply(
            node,
            life,
            &run,
            Input::Inspected {
                step: chain.step,
                attempt: chain.attempt,
                answer,
            },
        );
    }

    fn resolve(&mut self, worker: usize, chain: &ChainKey) {
        if self.workers[worker].attempts.contains_key(chain) {
            return;
        }
        let (Some(me), Some(claim)) = (self.identity(worker), self.fresh_claim()) else {
            return;
        };
        let (machine, effects) =
            AttemptMachine::resolve(me, self.class(&chain.tool), chain.clone(), claim);
        self.adopt_attempt(worker, chain.clone(), machine, effects);
    }

    /// The effect begins. Whether, when and how often it lands is the outside world's; what is promised here is checked here.
    fn execute(&mut self, worker: usize, key: ChainKey, execution: Execution) {
        let class = self.class(&key.tool);
        let chain = Chain::read(class, &self.store.chain(&key));
        if !class.is_read_only() {
            if chain.outcome.is_some() {
                self.violate(
                    Invariant::I5,
                    &key.run,
                    format!("{key} is started although its outcome is known"),
                );
            }
            let mine = execution.intent.get().claim.clone();
            let claimed = matches!(&chain.claim, Some((_, ClaimBody::Claim { claim, .. })) if Some(claim) == mine.as_ref());
            let armed = matches!(self.workers[worker].disk.get(&key), Some(LogbookRecord::Armed(armed)) if Some(&armed.claim) == mine.as_ref());
            if !claimed || !armed {
                self.violate(
                    Invariant::I6,
                    &key.run,
                    format!("{key} is started: claimed {claimed}, armed {armed}"),
                );
            }
        }
        let life = self.workers[worker].life;
        let done = ToolReturn::Done(leasehold_protocol::Payload::Json(
            AcceptedJson::empty_object(),
        ));
        let nothing = ToolReturn::NothingHappened {
            failure: Failure::Error,
            message: "declined".into(),
        };
        let maybe = ToolReturn::MayHaveHappened {
            failure: Failure::Error,
            message: "connection reset".into(),
        };
        let fast = self.rng.random_range(0..20);
        let late = self.rng.random_range(TIMEOUT_MS - 50..TIMEOUT_MS * 3);
        let boxed = Box::new(execution);
        let land = |then| Message::Land {
            worker,
            life,
            key: key.clone(),
            execution: boxed.clone(),
            then,
        };
        match if self.faulty() {
            self.rng.random_range(0..100)
        } else {
            0
        } {
            0..55 => self.send(fast, land(Some(done))),
            55..65 => self.send(fast, land(Some(maybe))),
            65..72 => self.send(fast, land(None)),
            72..80 => self.send(late, land(Some(done))),
            80..88 => self.send(
                fast,
                Message::Answer {
                    worker,
                    life,
                    key,
                    input: AttemptInput::Returned(nothing),
                },
            ),
            88..95 => self.send(
                fast,
                Message::Answer {
                    worker,
                    life,
                    key,
                    input: AttemptInput::Returned(maybe),
                },
            ),
            _ => {
                self.send(
                    fast,
                    Message::Answer {
                        worker,
                        life,
                        key: key.clone(),
                        input: AttemptInput::Returned(maybe),
                    },
                );
                self.send(
                    late,
                    Message::Land {
                        worker,
                        life,
                        key,
                        execution: boxed,
                        then: None,
                    },
                );
            }
        }
    }

    fn land(
        &mut self,
        worker: usize,
        life: u64,
        key: ChainKey,
        execution: &Execution,
        then: Option<ToolReturn>,
    ) {
        // A request that its sender's death caught on the way may still arrive, or not.
        let dead = self.workers[worker].life != life;
        if dead && self.chance(50) {
            return;
        }
        let wall = self.clock().wall;
        let took = self.outside.land(execution, wall);
        self.tally.effects += u64::from(took);
        let Some(then) = then else { return };
        let refused = ToolReturn::NothingHappened {
            failure: Failure::Error,
            message: "refused".into(),
        };
        let input = AttemptInput::Returned(if took { then } else { refused });
        let delay = self.delay();
        self.send(
            delay,
            Message::Answer {
                worker,
                life,
                key,
                input,
            },
        );
    }

    fn answer(&mut self, worker: usize, life: u64, key: ChainKey, input: AttemptInput) {
        if !self.workers[worker].alive || self.workers[worker].life != life {
            return;
        }
        let now = self.clock();
        let Some(machine) = self.workers[worker].attempts.get_mut(&key) else {
            return;
        };
        let effects = machine.step(now, true, input);
        self.attempt_effects(worker, key, effects);
    }

    fn attempt_effect(&mut self, worker: usize, life: u64, key: ChainKey, effect: AttemptEffect) {
        let alive = self.workers[worker].alive && self.workers[worker].life == life;
        if !alive {
            if !matches!(
                effect,
                AttemptEffect::WriteClaim { .. } | AttemptEffect::WriteOutcome { .. }
            ) || !self.chance(50)
            {
                return;
            }
            self.tally.late_writes += 1;
        }
        let token = format!("w{worker}");
        let input = match effect {
            AttemptEffect::ReadChain => AttemptInput::ChainRead {
                messages: self.store.chain(&key),
            },
            AttemptEffect::WriteClaim { expected, body } => {
                AttemptInput::ClaimTried(self.try_register(
                    &token,
                    RegisterRequest {
                        chain: key.clone(),
                        link: Link::Claim,
                        expected,
                        body,
                    },
                ))
            }
            AttemptEffect::WriteOutcome { expected, body } => {
                AttemptInput::OutcomeTried(self.try_register(
                    &token,
                    RegisterRequest {
                        chain: key.clone(),
                        link: Link::Outcome,
                        expected,
                        body,
                    },
                ))
            }
            AttemptEffect::CreateRecord { record } => {
                let disk = &mut self.workers[worker].disk;
                AttemptInput::LogbookTried(match disk.get(&key) {
                    Some(record) => LogbookAnswer::Present(record.clone()),
                    None => {
                        disk.insert(key.clone(), record);
                        LogbookAnswer::Written
                    }
                })
            }
            AttemptEffect::LogOutcome { record } => {
                self.workers[worker].disk.insert(key.clone(), record);
                AttemptInput::OutcomeLogged(Ok(()))
            }
            AttemptEffect::WriteNote { body, last_place } => {
                if let Ok(Note {
                    evidence: NoteKind::MetSeal { .. },
                    ..
                }) = Note::decode(body.as_bytes())
                {
                    self.tally.met_seal += 1;
                }
                if self.store.note(&key, &token, body, last_place) {
                    self.hint(Hint {
                        chain: key.clone(),
                        message: None,
                    });
                } else if last_place {
                    self.violate(
                        Invariant::I15,
                        &key.run,
                        format!("{key}: an outcome that met a seal has no place to go"),
                    );
                }
                AttemptInput::NoteTried
            }
            AttemptEffect::ReadRecord => {
                // K34: a logbook that cannot be read is no empty one.
                let unreadable = self.fault(10);
                let record = self.workers[worker].disk.get(&key).cloned();
                AttemptInput::LogbookRead(if unreadable {
                    Err("input/output error".into())
                } else {
                    Ok(record)
                })
            }
            AttemptEffect::AckCall { seq } => {
                if let Some(call) = self.store.calls.get_mut(&seq) {
                    call.acked = true;
                }
                return;
            }
            AttemptEffect::Over => {
                self.workers[worker].attempts.remove(&key);
                for (node, life, run) in self.workers[worker]
                    .inspectors
                    .remove(&key)
                    .unwrap_or_default()
                {
                    let input = Input::Inspected {
                        step: key.step,
                        attempt: key.attempt,
                        answer: InspectAnswer::Settled,
                    };
                    self.reply(node, life, &run, input);
                }
                return;
            }
            AttemptEffect::CancelTool | AttemptEffect::Published | AttemptEffect::Execute(_) => {
                return;
            }
        };
        let delay = self.delay();
        self.send(
            delay,
            Message::Answer {
                worker,
                life,
                key,
                input,
            },
        );
    }

    fn try_register(&mut self, writer: &str, write: RegisterRequest) -> WriteAnswer {
        let lost_before = self.fault(3);
        let stored = if lost_before {
            Err(())
        } else {
            self.write_register(&write, writer)
        };
        let lost_after = self.fault(4);
        self.tally.lost_acks += u64::from(lost_before || lost_after);
        match stored {
            _ if lost_before || lost_after => WriteAnswer::Unknown,
            Ok(seq) => WriteAnswer::Stored(seq),
            Err(()) => WriteAnswer::Refused,
        }
    }

    // ---- faults and healing

    fn crash(&mut self, node: Option<usize>, worker: Option<usize>) {
        if let Some(node) = node {
            self.tally.crashes += 1;
            let it = &mut self.nodes[node];
            (it.alive, it.life) = (false, it.life + 1);
            it.runs.clear();
        }
        if let Some(worker) = worker {
            self.tally.crashes += 1;
            let lost = self.chance(15);
            let it = &mut self.workers[worker];
            (it.alive, it.life) = (false, it.life + 1);
            it.attempts.clear();
            it.inspectors.clear();
            if lost {
                // A fresh, cloned or rolled-back disk is recognised: it gets a new id.
                it.disk.clear();
                it.logbook += 1;
                self.tally.lost_logbooks += 1;
            }
        }
    }

    /// Another node takes a run although its owner lives: the journal has to decide.
    fn steal(&mut self) {
        let run = self.runs[self.rng.random_range(0..self.runs.len())].clone();
        let thief = (0..self.nodes.len())
            .find(|id| self.nodes[*id].alive && !self.nodes[*id].runs.contains_key(&run));
        if let Some(thief) = thief
            && !self.ended(&run)
        {
            self.tally.takeovers += 1;
            self.start_run(thief, &run);
        }
    }

    fn sweep(&mut self) {
        for worker in 0..self.workers.len() {
            if !self.workers[worker].alive && self.chance(30) {
                self.workers[worker].alive = true;
                let open: Vec<_> = self.workers[worker].disk.keys().cloned().collect();
                for chain in open {
                    self.resolve(worker, &chain);
                }
            }
        }
        for node in 0..self.nodes.len() {
            if !self.nodes[node].alive && self.chance(30) {
                self.nodes[node].alive = true;
            }
        }
        for run in self.runs.clone() {
            self.find_owner(&run);
            self.hand_on(&run);
        }
        let calls: Vec<Seq> = self
            .store
            .calls
            .iter()
            .filter(|(_, call)| !call.acked)
            .map(|(seq, _)| *seq)
            .collect();
        for seq in calls {
            let busy = self.workers.iter().any(|worker| {
                self.store
                    .calls
                    .get(&seq)
                    .is_some_and(|call| worker.attempts.contains_key(&call.key))
            });
            if !busy || self.fault(10) {
                let worker = self.rng.random_range(0..self.workers.len());
                let delay = self.delay();
                self.send(delay, Message::Deliver { worker, seq });
            }
        }
        self.deadlines();
        self.send(SWEEP_MS, Message::Sweep);
    }

    fn deadlines(&mut self) {
        for worker in 0..self.workers.len() {
            let due: Vec<_> = self.workers[worker]
                .attempts
                .iter()
                .filter(|(_, machine)| machine.deadline_boot() <= self.now)
                .map(|(key, _)| key.clone())
                .collect();
            let life = self.workers[worker].life;
            for key in due {
                self.answer(worker, life, key.clone(), AttemptInput::Deadline);
                // After its grace a tool that does not return is given up; what it may have done stands in the note.
                let gone = self.workers[worker]
                    .attempts
                    .get(&key)
                    .is_some_and(|machine| machine.deadline_boot() + 4 * TIMEOUT_MS < self.now);
                if gone {
                    let given_up = ToolReturn::MayHaveHappened {
                        failure: Failure::Timeout,
                        message: "given up".into(),
                    };
                    self.answer(worker, life, key, AttemptInput::Returned(given_up));
                }
            }
        }
    }

    fn owner(&self, run: &RunId) -> Option<usize> {
        (0..self.nodes.len())
            .find(|id| self.nodes[*id].alive && self.nodes[*id].runs.contains_key(run))
    }

    fn find_owner(&mut self, run: &RunId) {
        if self.ended(run) || self.owner(run).is_some() {
            return;
        }
        let Some(node) = (0..self.nodes.len()).find(|id| self.nodes[*id].alive) else {
            return;
        };
        let parked = self.state(run).is_some_and(|state| state.parked);
        let letters = self
            .store
            .inbox
            .values()
            .any(|letter| letter.run == *run && !letter.acked);
        // A late outcome wakes a parked run as well.
        let late = parked && self.has_news(run);
        if !parked || letters || late {
            self.tally.takeovers += u64::from(self.store.journals.contains_key(run));
            self.start_run(node, run);
        }
    }

    fn has_news(&mut self, run: &RunId) -> bool {
        use leasehold_protocol::{OutcomeBody, Phase};
        let Some(state) = self.state(run) else {
            return false;
        };
        let open = state
            .current_steps()
            .iter()
            .filter(|step| matches!(step.phase, Phase::Interrupted(_)));
        let open: Vec<_> = open
            .filter_map(|step| Some((step.id, step.latest()?.attempt)))
            .collect();
        self.store
            .chains
            .iter()
            .filter(|(key, _)| key.run == *run && open.contains(&(key.step, key.attempt)))
            .any(|(key, messages)| {
                let outcome = Chain::read(self.class(&key.tool), messages).outcome;
                outcome.is_some_and(|(_, outcome)| {
                    matches!(
                        outcome.fact,
                        OutcomeBody::Done { .. } | OutcomeBody::NothingHappened { .. }
                    )
                })
            })
    }

    fn hand_on(&mut self, run: &RunId) {
        let letters: Vec<_> = self
            .store
            .inbox
            .iter()
            .filter(|(_, letter)| letter.run == *run && !letter.acked)
            .map(|(seq, letter)| (*seq, letter.clone()))
            .collect();
        for (seq, letter) in letters {
            if self.ended(run) {
                if let Some(letter) = self.store.inbox.get_mut(&seq) {
                    letter.acked = true;
                }
                continue;
            }
            let Some(node) = self.owner(run) else {
                continue;
            };
            let life = self.nodes[node].life;
            match letter.kind {
                LetterKind::Submit => {
                    let named = self
                        .state(run)
                        .is_some_and(|state| state.folded.contains(&seq));
                    if let (true, Some(letter)) = (named, self.store.inbox.get_mut(&seq)) {
                        letter.acked = true;
                    }
                }
                LetterKind::Decide => self.reply(
                    node,
                    life,
                    run,
                    Input::Decide {
                        inbox: seq,
                        body: letter.body,
                    },
                ),
                LetterKind::Cancel => self.reply(
                    node,
                    life,
                    run,
                    Input::Cancel {
                        inbox: seq,
                        body: letter.body,
                    },
                ),
            }
        }
    }

    // ---- operators

    fn operate(&mut self) {
        for run in self.runs.clone() {
            if self.ended(&run) {
                continue;
            }
            if self.fault(2) {
                let request = CancelRequest {
                    v: WIRE_VERSION,
                    by: operator("anna"),
                    note: None,
                };
                self.store
                    .put(&run, LetterKind::Cancel, request.encode().into());
            }
            let Some(state) = self.state(&run) else {
                continue;
            };
            let open: Vec<_> = state
                .open_questions()
                .map(|(id, approval)| (id.clone(), approval.clone()))
                .collect();
            for (id, approval) in open {
                if !self.decided.insert((run.clone(), id.to_string())) {
                    continue;
                }
                // Two people at once, and now and then somebody who was shown something else.
                for name in if self.chance(30) {
                    vec!["anna", "bob"]
                } else {
                    vec!["anna"]
                } {
                    let decision = self.choose(&run, &approval.question, approval.step);
                    let wrong = name == "bob" && self.chance(30);
                    let hash = if wrong {
                        leasehold_json::Digest::ZERO
                    } else {
                        approval.hash
                    };
                    let request = DecideRequest {
                        v: WIRE_VERSION,
                        approval: id.clone(),
                        hash,
                        decision,
                        by: operator(name),
                        note: None,
                    };
                    self.store
                        .put(&run, LetterKind::Decide, request.encode().into());
                }
            }
        }
        self.send(400, Message::Operate);
    }

    fn choose(
        &mut self,
        run: &RunId,
        question: &Question,
        step: leasehold_protocol::StepId,
    ) -> Decision {
        let result = AcceptedJson::empty_object();
        let pick = self.rng.random_range(0..10);
        match question {
            Question::Approve { .. } if pick < 9 => Decision::Approve,
            Question::Approve { .. } => Decision::Reject,
            // A careful operator looks at the world first; a careless one permits a second effect, and that is counted.
            Question::InterruptedSideEffect { .. }
                if pick < 4 && self.outside.happened(run, step) =>
            {
                Decision::RecordDone { result }
            }
            Question::InterruptedSideEffect { .. } if pick < 8 => Decision::RunAgain,
            Question::InterruptedSideEffect { .. } if pick < 9 => Decision::RecordDone { result },
            Question::Exhausted { .. } if pick < 7 => Decision::Continue,
            Question::Exhausted { .. } if pick < 9 => Decision::RecordDone { result },
            _ => Decision::Reject,
        }
    }

    // ---- the verdict

    pub(crate) fn verdict(&mut self, trace: bool) -> (Vec<Violation>, Vec<String>) {
        let tools = self.tools.clone();
        let class = move |tool: &str| {
            tools
                .get(tool)
                .map_or(SideEffect::Destructive, |tool| tool.spec().side_effect)
        };
        let mut journals = Vec::new();
        for run in self.runs.clone() {
            let commits = self.store.journals.get(&run).cloned().unwrap_or_default();
            let chains: BTreeMap<_, _> = self
                .store
                .chains
                .iter()
                .filter(|(key, _)| key.run == run)
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            let effects = self.outside.effects.get(&run).cloned().unwrap_or_default();
            let record = RunRecord {
                run: &run,
                commits: &commits,
                chains: &chains,
                effects: Some(&effects),
            };
            self.violations.extend(invariant::check(&record, &class));
            if !self.ended(&run) {
                self.violate(
                    Invariant::I14,
                    &run,
                    format!(
                        "not ended after {} ms of virtual time and {} messages",
                        self.now, self.sent
                    ),
                );
            }
            self.count(&run);
            if self.violations.is_empty() && !trace {
                continue;
            }
            journals.extend(
                commits
                    .iter()
                    .map(|stored| format!("{} {:?} {:?}", stored.seq, stored.subject, stored.body)),
            );
            journals.extend(chains.iter().flat_map(|(key, messages)| {
                messages.iter().map(move |message| {
                    format!(
                        "{} {key} {:?} {} {:?}",
                        message.seq, message.link, message.writer, message.body
                    )
                })
            }));
        }
        let open: Vec<_> = self
            .store
            .inbox
            .iter()
            .filter(|(_, letter)| !letter.acked)
            .map(|(seq, letter)| (*seq, letter.run.clone()))
            .collect();
        for (seq, run) in open {
            self.violate(
                Invariant::I21,
                &run,
                format!("inbox message {seq} was neither folded nor answered"),
            );
        }
        (std::mem::take(&mut self.violations), journals)
    }

    fn count(&mut self, run: &RunId) {
        let journal = self.store.journals.get(run).cloned().unwrap_or_default();
        for commit in journal
            .iter()
            .filter_map(|stored| leasehold_protocol::Commit::decode(stored.body.as_bytes()).ok())
        {
            for event in commit.events {
                let Event::Found { finding, .. } = event else {
                    continue;
                };
                self.tally.orphans += 1;
                match finding {
                    Finding::NotStarted => self.tally.tombstones += 1,
                    Finding::Revoked => self.tally.revoked += 1,
                    Finding::ProbeDone => self.tally.probe_done += 1,
                    Finding::ProbeNotDone => self.tally.probe_not_done += 1,
                    Finding::RunAgain => self.tally.run_again += 1,
                    Finding::RecordedDone | Finding::Rejected => self.tally.operator += 1,
                    _ => {}
                }
            }
        }
    }
}

#[expect(
    clippy::expect_used,
    reason = "the simulator's own two operators have valid names"
)]
fn operator(name: &str) -> OperatorId {
    OperatorId::new(name).expect("a valid name")
}
