//! A small world for one run: a store in memory, a clock that moves when told to, scripted answers, and the machines under test.
//!
//! Everything is synchronous and in order. [`World::go`] answers what is asked until nobody asks any more; [`World::pass`] lets time pass.
//! Whatever happens stays readable: the journal, the chains, the notes, the ledger of effects and every effect of every owner.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use leasehold_json::Kept;
use leasehold_protocol::invariant::{self, RunRecord};
use leasehold_protocol::{
    AgentView, AttemptMachine, Body, ChainKey, ChainMessage, CommitRequest, Effect, Effects,
    Execution, HookAnswer, Input, InspectAnswer, Limits, LogbookRecord, NoteMessage, Now,
    PolicyRequest, ProbeReply, ProbeRequest, RUNTIME_TOKEN, RunConfig, RunId, RunMachine,
    RunWeakening, Seq, StoredCommit, Submission, Verdict, WIRE_VERSION,
};
use leasehold_tools::Registry;

use crate::worker::Hand;

/// What the agent says when it is asked; `None`: nothing yet.
pub(crate) type Agent = Box<dyn FnMut(&AgentView) -> Option<Result<Vec<u8>, String>>>;
/// What the policy says when it is asked; `None`: nothing yet.
pub(crate) type Judge = Box<dyn FnMut(&PolicyRequest) -> Option<Result<Verdict, String>>>;

/// What becomes of a commit instead of being stored and acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing: stored and acknowledged.
    Fine,
    /// Stored, and the acknowledgement is lost.
    LostAck,
    /// Not stored, and nobody says so.
    Vanished,
    /// Another write is in flight: not stored, for now.
    Busy,
    /// On its way: the test answers.
    Held,
}

/// More inputs than any row needs: a machine that wants more runs in circles.
const MAX_INPUTS: usize = 20_000;

pub(crate) struct World {
    pub(crate) run: RunId,
    pub(crate) now: Now,
    pub(crate) tools: Arc<Registry>,
    pub(crate) limits: Limits,
    pub(crate) toolset: Vec<String>,
    pub(crate) agent: Agent,
    pub(crate) judge: Judge,
    pub(crate) policy: String,
    pub(crate) hook: Option<HookAnswer>,
    pub(crate) probes: VecDeque<ProbeReply>,
    pub(crate) asked_probes: Vec<ProbeRequest>,
    pub(crate) faults: VecDeque<Fault>,
    pub(crate) held: Option<CommitRequest>,
    /// Republished messages reach the owner.
    pub(crate) hints: bool,
    /// The owner dies right after the store's write of this number.
    pub(crate) deaths: BTreeSet<u64>,
    pub(crate) writes: u64,
    pub(crate) journal: Vec<StoredCommit>,
    pub(crate) chains: BTreeMap<ChainKey, Vec<ChainMessage>>,
    pub(crate) notes: BTreeMap<ChainKey, Vec<NoteMessage>>,
    pub(crate) inbox: BTreeMap<Seq, (Letter, Body, bool)>,
    pub(crate) seq: u64,
    pub(crate) owner: Option<RunMachine>,
    pub(crate) session: String,
    lives: u32,
    pub(crate) queue: VecDeque<Input>,
    wake: Option<u64>,
    pub(crate) timer: Option<i64>,
    pub(crate) seen: Vec<Effect>,
    // The workers' side.
    pub(crate) hands: BTreeMap<String, VecDeque<Hand>>,
    pub(crate) incarnation: u32,
    /// The machine that the logbook was moved from.
    pub(crate) moved_from: Option<String>,
    pub(crate) claims: u32,
    /// The worker's process is there and answers.
    pub(crate) worker_alive: bool,
    pub(crate) logbook: BTreeMap<ChainKey, LogbookRecord>,
    /// The logbook cannot be read.
    pub(crate) logbook_error: bool,
    pub(crate) running: BTreeMap<ChainKey, AttemptMachine>,
    /// Calls that no worker was there for.
    pub(crate) missed: Vec<ChainKey>,
    pub(crate) executed: Vec<Execution>,
    pub(crate) cancelled: Vec<ChainKey>,
    pub(crate) effects: Effects,
    /// The journal is broken on purpose: invariants do not hold.
    pub(crate) broken: bool,
}

/// What stands in the inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Letter {
    Submit,
    Decide,
    Cancel,
}

impl World {
    /// A world with the usual tools, in which the policy allows everything and every call succeeds.
    pub(crate) fn new() -> Self {
        let tools = crate::tools::registry();
        Self {
            run: "r-1".parse().unwrap(),
            now: Now {
                wall: 1_764_500_000_000,
                boot: 10_000,
            },
            toolset: tools
                .iter()
                .map(|tool| tool.spec().name.clone())
                .chain(["gone".to_owned()])
                .collect(),
            tools,
            limits: Limits::default(),
            agent: Box::new(|_| None),
            judge: Box::new(|_| Some(Ok(Verdict::Allow))),
            policy: "rows@1".into(),
            hook: None,
            probes: VecDeque::new(),
            asked_probes: Vec::new(),
            faults: VecDeque::new(),
            held: None,
            hints: true,
            deaths: BTreeSet::new(),
            writes: 0,
            journal: Vec::new(),
            chains: BTreeMap::new(),
            notes: BTreeMap::new(),
            inbox: BTreeMap::new(),
            seq: 0,
            owner: None,
            session: String::new(),
            lives: 0,
            queue: VecDeque::new(),
            wake: None,
            timer: None,
            seen: Vec::new(),
            hands: BTreeMap::new(),
            incarnation: 1,
            moved_from: None,
            claims: 0,
            worker_alive: true,
            logbook: BTreeMap::new(),
            logbook_error: false,
            running: BTreeMap::new(),
            missed: Vec::new(),
            executed: Vec::new(),
            cancelled: Vec::new(),
            effects: Effects::new(),
            broken: false,
        }
    }

    /// A world whose agent takes these decisions, in order, and then says nothing.
    pub(crate) fn deciding<I: Into<Vec<u8>>>(decisions: impl IntoIterator<Item = I>) -> Self {
        let mut world = Self::new();
        world.decides(decisions);
        world
    }

    pub(crate) fn decides<I: Into<Vec<u8>>>(&mut self, decisions: impl IntoIterator<Item = I>) {
        let decisions: Vec<Vec<u8>> = decisions.into_iter().map(Into::into).collect();
        self.agent = Box::new(move |view| decisions.get(view.turn as usize - 1).cloned().map(Ok));
    }

    /// What the workers do with the calls of a tool, in order; the last one repeats.
    pub(crate) fn hand(mut self, tool: &str, hands: impl IntoIterator<Item = Hand>) -> Self {
        self.hands
            .insert(tool.to_owned(), hands.into_iter().collect());
        self
    }

    /// Submits the run and lets everything happen that needs no time.
    pub(crate) fn submit(mut self) -> Self {
        let submission = Submission {
            v: WIRE_VERSION,
            run: self.run.clone(),
            client: "client".parse().unwrap(),
            agent: "scripted".into(),
            goal: "see what happens".into(),
            input: None,
            tools: self.toolset.clone(),
            limits: self.limits.clone(),
        };
        self.put(Letter::Submit, submission.encode().into());
        self.start();
        self.go();
        self
    }

    // ---- owners ----

    /// A new owner takes the run.
    pub(crate) fn start(&mut self) {
        self.lives += 1;
        self.session = format!("s-{}", self.lives);
        let config = RunConfig {
            cluster: "c-1".parse().unwrap(),
            node: format!("n-{}", self.lives).parse().unwrap(),
            session: self.session.parse().unwrap(),
            tools: self.tools.clone(),
            clock_bound_ms: 0,
            session_ttl_ms: crate::quarantine::TTL_MS,
            hook: self.hook.is_some(),
            weakening: RunWeakening::None,
        };
        self.owner = Some(RunMachine::new(config, self.run.clone()));
        (self.queue, self.wake) = (VecDeque::new(), None);
        let submission = self
            .inbox
            .iter()
            .find(|(_, (letter, _, _))| *letter == Letter::Submit);
        self.queue.push_back(Input::Load {
            commits: self.journal.clone(),
            submission: submission.map(|(seq, (_, body, _))| (*seq, body.clone())),
        });
        for (inbox, (letter, body, acked)) in &self.inbox {
            if !acked && *letter != Letter::Submit {
                self.queue.push_back(handed(*inbox, *letter, body.clone()));
            }
        }
    }

    /// The last life takes the run once more.
    pub(crate) fn start_again(&mut self) {
        self.lives -= 1;
        self.start();
    }

    /// The owner's process dies, and everything that was meant for it is lost.
    pub(crate) fn crash(&mut self) {
        self.owner = None;
        self.queue.clear();
        self.wake = None;
    }

    /// The owner dies and another takes over.
    pub(crate) fn takeover(&mut self) {
        self.crash();
        self.start();
        self.go();
    }

    /// Tells the owner something, and lets everything happen that needs no time.
    pub(crate) fn tell(&mut self, input: Input) {
        self.queue.push_back(input);
        self.go();
    }

    /// Tells the owner something and returns what it wants, without doing it.
    pub(crate) fn ask(&mut self, input: Input) -> Vec<Effect> {
        let now = self.now;
        self.owner.as_mut().expect("an owner").step(now, input)
    }

    /// Answers until nobody asks any more.
    pub(crate) fn go(&mut self) {
        for _ in 0..MAX_INPUTS {
            if self.owner.is_none() {
                // Intake: whoever receives a message of a run without an owner takes the run.
                let waits = self
                    .inbox
                    .values()
                    .any(|(letter, _, acked)| !acked && *letter != Letter::Submit);
                if !waits || self.lives == 0 || self.is_ended() {
                    return;
                }
                self.start();
            }
            let Some(input) = self.queue.pop_front() else {
                return;
            };
            let life = self.lives;
            for effect in self.ask(input) {
                self.seen.push(effect.clone());
                self.carry_out(effect);
                if self.owner.is_none() || self.lives != life {
                    break;
                }
            }
        }
        panic!("the machines do not come to rest");
    }

    /// Lets this much time pass, with everything that falls due in it.
    pub(crate) fn pass(&mut self, ms: u64) {
        let end = self.now.boot + ms;
        for _ in 0..MAX_INPUTS {
            self.go();
            let timer = self
                .timer
                .map(|at| self.now.boot + u64::try_from(at - self.now.wall).unwrap_or(0));
            let deadlines = self
                .running
                .values()
                .filter(|machine| machine.is_running())
                .map(AttemptMachine::deadline_boot);
            let due = deadlines.chain(self.wake).chain(timer).min();
            let at = due.unwrap_or(u64::MAX).min(end).max(self.now.boot);
            self.now.wall += i64::try_from(at - self.now.boot).unwrap();
            self.now.boot = at;
            self.deadlines();
            if self.timer.is_some_and(|timer| timer <= self.now.wall) {
                self.timer = None;
                if self.owner.is_none() && !self.is_ended() {
                    self.start();
                }
            }
            if self.owner.is_some() {
                self.wake = self.wake.filter(|wake| *wake > at);
                self.queue.push_back(Input::Tick);
            }
            self.go();
            if at >= end {
                return;
            }
        }
        panic!("time does not pass");
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Commit(request) => self.commit(request),
            Effect::ReadJournal { after } => {
                let commits = self.journal.iter().filter(|stored| stored.seq > after);
                let commits = commits.cloned().collect();
                self.queue.push_back(Input::JournalRead { commits });
            }
            Effect::ReadChain { chain } => {
                let input = self.chain_read(&chain);
                self.queue.push_back(input);
            }
            Effect::WriteRegister(write) => {
                let (step, attempt) = (write.chain.step, write.chain.attempt);
                let _ = self.register(
                    &write.chain,
                    write.link,
                    write.expected,
                    RUNTIME_TOKEN,
                    write.body,
                );
                self.answer(Input::RegisterTried { step, attempt });
            }
            Effect::Inspect { chain, worker: _ } => {
                let answer = self.inspect(&chain);
                let (step, attempt) = (chain.step, chain.attempt);
                self.answer(Input::Inspected {
                    step,
                    attempt,
                    answer,
                });
            }
            Effect::Probe(request) => {
                let (step, attempt) = (request.chain.step, request.chain.attempt);
                self.asked_probes.push(request);
                let answer = match self.probes.len() {
                    0 => return,
                    1 => self.probes[0].clone(),
                    _ => self.probes.pop_front().unwrap(),
                };
                self.answer(Input::Probed {
                    step,
                    attempt,
                    answer,
                });
            }
            Effect::AskAgent(view) => match (self.agent)(&view) {
                Some(Ok(bytes)) => self.answer(Input::AgentDecided {
                    turn: view.turn,
                    decision: Kept::from_bytes(&bytes),
                }),
                Some(Err(error)) => self.answer(Input::AgentFailed {
                    turn: view.turn,
                    error,
                }),
                None => {}
            },
            Effect::AskPolicy(request) => {
                if let Some(verdict) = (self.judge)(&request) {
                    self.answer(Input::Judged {
                        step: request.step,
                        policy: self.policy.clone(),
                        verdict,
                    });
                }
            }
            Effect::AskHook => {
                let answer = self.hook.clone().expect("a hook");
                self.answer(Input::HookAnswered(answer));
            }
            Effect::AckInbox { inbox } => self.inbox.get_mut(&inbox).expect("a letter").2 = true,
            Effect::SetTimer { at } => {
                self.timer = Some(at);
                self.answer(Input::TimerSet);
            }
            Effect::WakeAt { boot } => self.wake = Some(boot),
            Effect::Stop(_) => self.crash(),
        }
    }

    pub(crate) fn answer(&mut self, input: Input) {
        if self.owner.is_some() {
            self.queue.push_back(input);
        }
    }

    pub(crate) fn chain_read(&self, chain: &ChainKey) -> Input {
        Input::ChainRead {
            step: chain.step,
            attempt: chain.attempt,
            messages: self.chains.get(chain).cloned().unwrap_or_default(),
            notes: self.notes.get(chain).cloned().unwrap_or_default(),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() || self.broken {
            return;
        }
        let record = RunRecord {
            run: &self.run,
            commits: &self.journal,
            chains: &self.chains,
            effects: Some(&self.effects),
        };
        let violations = invariant::check(&record, &|tool| self.class(tool));
        assert!(violations.is_empty(), "{violations:#?}");
    }
}

pub(crate) fn handed(inbox: Seq, letter: Letter, body: Body) -> Input {
    match letter {
        Letter::Cancel => Input::Cancel { inbox, body },
        Letter::Decide | Letter::Submit => Input::Decide { inbox, body },
    }
}

/// What an inspection is answered, as the owner may see it.
pub(crate) const NOBODY: InspectAnswer = InspectAnswer::NoAnswer;
