//! Workers and their attempts, logbooks and tools. What is promised of a beginning effect is checked where it begins (I5, I6).

use leasehold_json::AcceptedJson;
use leasehold_protocol::{
    AttemptEffect, AttemptInput, AttemptMachine, CallEnvelope, Chain, ChainKey, ClaimBody, ClaimId,
    Execution, Hint, Incarnation, Input, InspectAnswer, Invariant, Link, LogbookAnswer, LogbookId,
    LogbookRecord, Note, NoteKind, RegisterRequest, RunId, Seq, ToolReturn, WorkerId,
    WorkerIdentity, WriteAnswer,
};
use leasehold_tools::{Failure, SideEffect};
use rand::Rng;

use super::*;
use crate::outside::TIMEOUT_MS;

impl World {
    pub(super) fn identity(&self, worker: usize) -> Option<WorkerIdentity> {
        let it = &self.workers[worker];
        Some(WorkerIdentity {
            worker: WorkerId::new(format!("w{worker}")).ok()?,
            incarnation: Incarnation::new(format!("w{worker}-{}", it.life)).ok()?,
            logbook: LogbookId::new(format!("book-{}", it.logbook)).ok()?,
            moved_from: None,
            weakening: self.config.worker,
        })
    }

    pub(super) fn class(&self, tool: &str) -> SideEffect {
        self.tools
            .get(tool)
            .map_or(SideEffect::Destructive, |tool| tool.spec().side_effect)
    }

    pub(super) fn fresh_claim(&mut self) -> Option<ClaimId> {
        ClaimId::new(format!("{:032x}", self.rng.random::<u128>())).ok()
    }

    pub(super) fn deliver(&mut self, worker: usize, seq: Seq) {
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

    pub(super) fn adopt_attempt(
        &mut self,
        worker: usize,
        key: ChainKey,
        machine: AttemptMachine,
        effects: Vec<AttemptEffect>,
    ) {
        self.workers[worker].attempts.insert(key.clone(), machine);
        self.attempt_effects(worker, key, effects);
    }

    pub(super) fn attempt_effects(
        &mut self,
        worker: usize,
        key: ChainKey,
        effects: Vec<AttemptEffect>,
    ) {
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

    pub(super) fn inspect(
        &mut self,
        node: usize,
        life: u64,
        run: RunId,
        chain: ChainKey,
        worker: &WorkerId,
    ) {
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

    pub(super) fn resolve(&mut self, worker: usize, chain: &ChainKey) {
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
    pub(super) fn execute(&mut self, worker: usize, key: ChainKey, execution: Execution) {
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

    pub(super) fn land(
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

    pub(super) fn answer(&mut self, worker: usize, life: u64, key: ChainKey, input: AttemptInput) {
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

    pub(super) fn attempt_effect(
        &mut self,
        worker: usize,
        life: u64,
        key: ChainKey,
        effect: AttemptEffect,
    ) {
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

    pub(super) fn try_register(&mut self, writer: &str, write: RegisterRequest) -> WriteAnswer {
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

    pub(super) fn deadlines(&mut self) {
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
}
