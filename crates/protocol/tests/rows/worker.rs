//! The workers of a [`World`]: real attempt machines, a logbook in memory, and a script of what becomes of each call.

use std::collections::VecDeque;

use leasehold_json::AcceptedJson;
use leasehold_protocol::{
    AttemptEffect, AttemptInput, AttemptMachine, CallEnvelope, ChainKey, Execution, InspectAnswer,
    Link, LogbookAnswer, Payload, ToolReturn, WorkerId, WorkerIdentity, WorkerWeakening,
    WriteAnswer,
};
use leasehold_tools::Failure;

use crate::harness::{NOBODY, World};

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Hand {
    /// Nobody takes it.
    Absent,
    /// The tool acts (if it says so) and returns.
    Returns(ToolReturn),
    /// The tool runs until the test lets it return.
    Runs,
    /// The process dies when the claim is stored, before it armed.
    DiesClaimed,
    /// The process dies armed, before the effect.
    DiesArmed,
    /// The process dies after the effect, before anything is written about it.
    DiesActed,
}

/// A result.
pub(crate) fn done(json: &str) -> ToolReturn {
    ToolReturn::Done(payload(json))
}

pub(crate) fn payload(json: &str) -> Payload {
    Payload::Json(json_of(json))
}

pub(crate) fn json_of(json: &str) -> AcceptedJson {
    AcceptedJson::check_str(json).unwrap()
}

/// The tool says that it failed without effect.
pub(crate) fn nothing() -> ToolReturn {
    ToolReturn::NothingHappened {
        failure: Failure::Error,
        message: "card declined".into(),
    }
}

/// The tool fails and cannot say that nothing happened.
pub(crate) fn perhaps(failure: Failure) -> ToolReturn {
    ToolReturn::MayHaveHappened {
        failure,
        message: "connection reset".into(),
    }
}

/// What a tool does that returns this.
fn acts(returned: &ToolReturn) -> bool {
    !matches!(returned, ToolReturn::NothingHappened { .. })
}

pub(crate) fn worker() -> WorkerId {
    "w".parse().unwrap()
}

impl World {
    pub(crate) fn identity(&self) -> WorkerIdentity {
        WorkerIdentity {
            worker: worker(),
            incarnation: format!("i-{}", self.incarnation).parse().unwrap(),
            logbook: "lb-1".parse().unwrap(),
            moved_from: self.moved_from.clone(),
            weakening: WorkerWeakening::None,
        }
    }

    fn fresh(&mut self) -> leasehold_protocol::ClaimId {
        self.claims += 1;
        format!("claim-{}", self.claims).parse().unwrap()
    }

    fn next_hand(&mut self, tool: &str) -> Hand {
        match self.hands.get_mut(tool) {
            Some(hands) if hands.len() > 1 => hands.pop_front().unwrap(),
            Some(hands) => hands[0].clone(),
            None => Hand::Returns(done("{}")),
        }
    }

    /// A call is handed to the worker, if there is one for it.
    pub(crate) fn deliver(&mut self, key: &ChainKey) {
        if !self.worker_alive {
            return self.missed.push(key.clone());
        }
        let hand = self.next_hand(&key.tool);
        if hand == Hand::Absent {
            return;
        }
        let call = &self.chains[key][0];
        let (seq, envelope) = (
            call.seq,
            CallEnvelope::decode(call.body.as_bytes()).unwrap(),
        );
        let (class, me, claim) = (self.class(&key.tool), self.identity(), self.fresh());
        let (machine, effects) = AttemptMachine::deliver(
            me,
            class,
            key.clone(),
            seq,
            envelope,
            false,
            claim,
            self.now,
        );
        self.work(machine, effects, Some(hand));
    }

    /// The worker's process starts again and settles what its predecessor left.
    pub(crate) fn restart_worker(&mut self) {
        self.incarnation += 1;
        self.worker_alive = true;
        self.running.clear();
        let keys: Vec<ChainKey> = self.chains.keys().cloned().collect();
        for key in keys {
            self.settle(&key);
        }
        for key in std::mem::take(&mut self.missed) {
            self.deliver(&key);
        }
        self.go();
    }

    /// A later life of the worker settles this one attempt; whatever runs elsewhere runs on.
    pub(crate) fn successor_settles(&mut self, key: &ChainKey) {
        self.incarnation += 1;
        self.worker_alive = true;
        self.settle(key);
        self.go();
    }

    fn settle(&mut self, key: &ChainKey) {
        let (class, me, claim) = (self.class(&key.tool), self.identity(), self.fresh());
        let (machine, effects) = AttemptMachine::resolve(me, class, key.clone(), claim);
        self.work(machine, effects, None);
    }

    /// What the holder of the logbook says.
    pub(crate) fn inspect(&mut self, key: &ChainKey) -> InspectAnswer {
        if !self.worker_alive {
            return NOBODY;
        }
        if self
            .running
            .get(key)
            .is_some_and(AttemptMachine::is_running)
        {
            return InspectAnswer::Running;
        }
        self.settle(key);
        InspectAnswer::Settled
    }

    /// The tool of a running attempt returns.
    pub(crate) fn returns(&mut self, key: &ChainKey, returned: ToolReturn) {
        let mut machine = self.running.remove(key).expect("a running attempt");
        if acts(&returned) {
            self.act(key);
        }
        let effects = machine.step(self.now, true, AttemptInput::Returned(returned));
        self.work(machine, effects, None);
        self.go();
    }

    fn act(&mut self, key: &ChainKey) {
        *self.effects.entry((key.step, key.attempt)).or_default() += 1;
    }

    /// Tells every running attempt whose deadline has passed.
    pub(crate) fn deadlines(&mut self) {
        let due = |machine: &AttemptMachine| machine.deadline_boot() <= self.now.boot;
        let keys: Vec<ChainKey> = self
            .running
            .iter()
            .filter(|(_, machine)| machine.is_running() && due(machine))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            let mut machine = self.running.remove(&key).unwrap();
            let effects = machine.step(self.now, true, AttemptInput::Deadline);
            self.work(machine, effects, None);
        }
    }

    /// Carries out what an attempt's machine wants until it wants nothing more, or its process dies.
    fn work(
        &mut self,
        mut machine: AttemptMachine,
        effects: Vec<AttemptEffect>,
        hand: Option<Hand>,
    ) {
        let key = machine.key().clone();
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            let dies = match (&hand, &effect) {
                (Some(Hand::DiesClaimed), AttemptEffect::CreateRecord { .. }) => true,
                (Some(Hand::DiesArmed), AttemptEffect::Execute(_)) => true,
                (Some(Hand::DiesActed), AttemptEffect::Execute(execution)) => {
                    self.executed.push(execution.clone());
                    self.act(&key);
                    true
                }
                _ => false,
            };
            if dies {
                self.worker_alive = false;
                return;
            }
            if let Some(input) = self.answer_worker(&key, effect, hand.as_ref()) {
                effects.extend(machine.step(self.now, true, input));
            }
        }
        if !machine.is_over() {
            self.running.insert(key, machine);
        }
    }

    fn answer_worker(
        &mut self,
        key: &ChainKey,
        effect: AttemptEffect,
        hand: Option<&Hand>,
    ) -> Option<AttemptInput> {
        let me = worker().token();
        Some(match effect {
            AttemptEffect::ReadChain => AttemptInput::ChainRead {
                messages: self.chains[key].clone(),
            },
            AttemptEffect::WriteClaim { expected, body } => AttemptInput::ClaimTried(tried(
                self.register(key, Link::Claim, expected, &me, body),
            )),
            AttemptEffect::WriteOutcome { expected, body } => AttemptInput::OutcomeTried(tried(
                self.register(key, Link::Outcome, expected, &me, body),
            )),
            AttemptEffect::CreateRecord { record } => {
                AttemptInput::LogbookTried(match self.logbook.get(key) {
                    Some(present) => LogbookAnswer::Present(present.clone()),
                    None => {
                        self.logbook.insert(key.clone(), record);
                        LogbookAnswer::Written
                    }
                })
            }
            AttemptEffect::LogOutcome { record } => {
                self.logbook.insert(key.clone(), record);
                AttemptInput::OutcomeLogged(Ok(()))
            }
            AttemptEffect::ReadRecord if self.logbook_error => {
                AttemptInput::LogbookRead(Err("input/output error".into()))
            }
            AttemptEffect::ReadRecord => {
                AttemptInput::LogbookRead(Ok(self.logbook.get(key).cloned()))
            }
            AttemptEffect::WriteNote { body, .. } => {
                self.note(key, &me, body);
                AttemptInput::NoteTried
            }
            AttemptEffect::Execute(execution) => return self.execute(key, execution, hand),
            AttemptEffect::CancelTool => {
                self.cancelled.push(key.clone());
                return None;
            }
            AttemptEffect::Published | AttemptEffect::AckCall { .. } | AttemptEffect::Over => {
                return None;
            }
        })
    }

    fn execute(
        &mut self,
        key: &ChainKey,
        execution: Execution,
        hand: Option<&Hand>,
    ) -> Option<AttemptInput> {
        self.executed.push(execution);
        let Some(Hand::Returns(returned)) = hand else {
            return None;
        };
        if acts(returned) {
            self.act(key);
        }
        Some(AttemptInput::Returned(returned.clone()))
    }
}

fn tried(stored: Option<leasehold_protocol::Seq>) -> WriteAnswer {
    stored.map_or(WriteAnswer::Refused, WriteAnswer::Stored)
}
