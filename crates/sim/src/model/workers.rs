//! The two workers in the model: [`AttemptMachine`]s whose effects are carried out one by one, a disk that outlives them, and the tool.

use std::hash::Hash;

use leasehold_json::AcceptedJson;
use leasehold_protocol::{
    AttemptEffect, AttemptInput, AttemptMachine, Chain, ClaimBody, ClaimId, IdError, Incarnation,
    Invariant, Link, LogbookAnswer, LogbookId, LogbookRecord, Now, Payload, RegisterRequest,
    ToolReturn, WorkerId, WorkerIdentity, WorkerWeakening, WriteAnswer,
};
use leasehold_tools::{Failure, SideEffect};

use super::memo::Worked;
use super::printed::Printed;
use super::state::{Job, Request, State};
use super::stored::LateWrite;
use super::{Ack, Bound, Crash, Returns};

/// A moment past every deadline, on the worker's own clock; calls are received at 0.
const LATE: Now = Now {
    wall: 1_000_000,
    boot: 1_000_000,
};
const EARLY: Now = Now { wall: 0, boot: 0 };

pub(super) fn name(worker: usize) -> String {
    format!("w{worker}")
}

/// A machine and what it wants, as the model keeps them.
fn worked((machine, effects): (AttemptMachine, Vec<AttemptEffect>)) -> Worked {
    Worked {
        machine: Printed::new(machine),
        effects: effects.into_iter().map(Printed::new).collect(),
    }
}

fn bit(attempt: usize) -> u8 {
    1 << attempt
}

impl State {
    fn identity(
        &self,
        worker: usize,
        weakening: WorkerWeakening,
    ) -> Result<WorkerIdentity, IdError> {
        let it = &self.workers[worker];
        Ok(WorkerIdentity {
            worker: WorkerId::new(name(worker))?,
            incarnation: Incarnation::new(format!("w{worker}-{}", it.life))?,
            logbook: LogbookId::new(format!("book-{worker}-{}", it.book))?,
            moved_from: None,
            weakening,
        })
    }

    /// A call is handed out until it is acknowledged: anew if nobody works on it, and a bounded number of times although somebody does.
    pub(super) fn may_deliver(&self, worker: usize, at: usize, bound: &Bound) -> bool {
        let it = &self.workers[worker];
        let twin = worker == 1 && !it.used && !self.workers[0].used;
        if self.acked & bit(at) != 0 || !it.alive || it.jobs.contains_key(&at) || twin {
            return false;
        }
        let busy = self.workers.iter().any(|it| it.jobs.contains_key(&at));
        !busy || (self.spent.redeliveries < bound.redeliveries && self.may_fail(bound))
    }

    pub(super) fn deliver(&mut self, worker: usize, at: usize, bound: &Bound) {
        let busy = self.workers.iter().any(|it| it.jobs.contains_key(&at));
        self.spent.redeliveries += u8::from(busy);
        let redelivered = self.delivered & bit(at) != 0;
        self.delivered |= bit(at);
        self.workers[worker].used = true;
        self.workers[worker].claims += 1;
        let lane = self.stored.lanes[at].clone();
        let it = &self.workers[worker];
        let fresh = ClaimId::new(format!("{worker}-{}-{}", it.life, it.claims));
        let (Ok(me), Ok(claim), Some((seq, envelope))) = (
            self.identity(worker, bound.worker),
            fresh,
            lane.chain.call.clone(),
        ) else {
            return;
        };
        let (key, claim_print) = (lane.key.clone(), claim.clone());
        let deliver = || {
            worked(AttemptMachine::deliver(
                me,
                SideEffect::LocalMutation,
                key,
                seq,
                envelope,
                redelivered,
                claim,
                EARLY,
            ))
        };
        let from = (lane.print(), worker, it.book, claim_print, redelivered);
        let worked = self.stored.memos.job.of(&from, deliver);
        self.begin(worker, at, worked);
    }

    pub(super) fn resolve(&mut self, worker: usize, at: usize) {
        // A machine that resolves claims nothing: no fresh bits are needed.
        let (Ok(me), Ok(claim)) = (
            self.identity(worker, WorkerWeakening::None),
            ClaimId::new("-"),
        ) else {
            return;
        };
        let key = self.stored.lanes[at].key.clone();
        let resolve = || {
            worked(AttemptMachine::resolve(
                me,
                SideEffect::LocalMutation,
                key,
                claim,
            ))
        };
        let it = &self.workers[worker];
        let from = (self.stored.lanes[at].print(), worker, it.book, it.life);
        let worked = self.stored.memos.job.of(&from, resolve);
        self.begin(worker, at, worked);
    }

    fn begin(&mut self, worker: usize, at: usize, worked: Worked) {
        let job = Job {
            machine: worked.machine,
            effects: Vec::new(),
            late: false,
            request: None,
        };
        self.workers[worker].jobs.insert(at, job);
        self.take_effects(worker, at, worked.effects);
    }

    fn take_effects(&mut self, worker: usize, at: usize, effects: Vec<Printed<AttemptEffect>>) {
        for effect in effects {
            match &*effect {
                AttemptEffect::Execute(execution) => self.execute(worker, at, &execution.intent),
                AttemptEffect::Published => self.workers[worker].published |= bit(at),
                // The tool is told; whether it listens is the tool's. The machine says itself that it is over.
                AttemptEffect::CancelTool | AttemptEffect::Over => {}
                _ => {
                    if let Some(job) = self.workers[worker].jobs.get_mut(&at) {
                        job.effects.push(effect);
                    }
                }
            }
        }
        if let Some(job) = self.workers[worker].jobs.get_mut(&at) {
            job.effects.sort_by_key(Printed::print);
            if job.machine.is_over() && job.effects.is_empty() {
                self.workers[worker].jobs.remove(&at);
            }
        }
    }

    /// Tells an attempt's machine something; `print` stands for the input.
    fn answer(&mut self, worker: usize, at: usize, print: &impl Hash, input: AttemptInput) {
        let Some(job) = self.workers[worker].jobs.get_mut(&at) else {
            return;
        };
        let now = if job.late { LATE } else { EARLY };
        let from = (job.machine.print(), job.late, print);
        let worked = self.stored.memos.job.of(&from, || {
            let mut machine = (*job.machine).clone();
            let effects = machine.step(now, true, input);
            worked((machine, effects))
        });
        job.machine = worked.machine;
        self.take_effects(worker, at, worked.effects);
    }

    /// The effect begins: I5 and I6 are about this moment.
    fn execute(
        &mut self,
        worker: usize,
        at: usize,
        intent: &leasehold_protocol::Recorded<leasehold_protocol::Intent>,
    ) {
        let chain: &Chain = &self.stored.lanes[at].chain;
        let mine = intent.get().claim.clone();
        let claimed = matches!(&chain.claim, Some((_, ClaimBody::Claim { claim, .. })) if Some(claim) == mine.as_ref());
        let armed = matches!(self.workers[worker].disk.get(&at).map(|record| &**record), Some(LogbookRecord::Armed(armed)) if Some(&armed.claim) == mine.as_ref());
        if chain.outcome.is_some() {
            self.stored.break_promise(Invariant::I5);
        }
        if !claimed || !armed {
            self.stored.break_promise(Invariant::I6);
        }
        if let Some(job) = self.workers[worker].jobs.get_mut(&at) {
            job.request = Some(Request::OnItsWay);
        }
    }

    /// Carries out one effect of an attempt; its answer comes at once, unless it is lost.
    pub(super) fn work(&mut self, worker: usize, at: usize, index: usize, ack: Ack) {
        let Some(job) = self.workers[worker].jobs.get_mut(&at) else {
            return;
        };
        let effect = job.effects.remove(index);
        self.spent.lost_acks += u8::from(ack != Ack::Heard);
        let input = match &*effect {
            AttemptEffect::ReadChain => AttemptInput::ChainRead {
                messages: self.stored.lanes[at].messages.clone(),
            },
            AttemptEffect::WriteClaim { .. } | AttemptEffect::WriteOutcome { .. } => {
                let answer = match (self.register_write(at, &effect), ack) {
                    (None, _) => return,
                    (Some(_), Ack::LostBefore) => WriteAnswer::Unknown,
                    (Some(write), _) => match self.stored.register(&write, &name(worker)) {
                        _ if ack == Ack::LostAfter => WriteAnswer::Unknown,
                        Ok(seq) => WriteAnswer::Stored(seq),
                        Err(()) => WriteAnswer::Refused,
                    },
                };
                if matches!(&*effect, AttemptEffect::WriteClaim { .. }) {
                    AttemptInput::ClaimTried(answer)
                } else {
                    AttemptInput::OutcomeTried(answer)
                }
            }
            AttemptEffect::CreateRecord { record } => {
                let disk = &mut self.workers[worker].disk;
                AttemptInput::LogbookTried(match disk.get(&at) {
                    Some(record) => LogbookAnswer::Present((**record).clone()),
                    None => {
                        disk.insert(at, Printed::new(record.clone()));
                        LogbookAnswer::Written
                    }
                })
            }
            AttemptEffect::LogOutcome { record } => {
                let disk = &mut self.workers[worker].disk;
                disk.insert(at, Printed::new(record.clone()));
                AttemptInput::OutcomeLogged(Ok(()))
            }
            AttemptEffect::WriteNote { body, last_place } => {
                self.stored.note(at, &name(worker), body, *last_place);
                AttemptInput::NoteTried
            }
            AttemptEffect::ReadRecord => {
                let record = self.workers[worker].disk.get(&at);
                AttemptInput::LogbookRead(Ok(record.map(|record| (**record).clone())))
            }
            AttemptEffect::AckCall { .. } => {
                self.acked |= bit(at);
                return self.take_effects(worker, at, Vec::new());
            }
            _ => return,
        };
        let text = match &input {
            AttemptInput::ChainRead { .. } => String::new(),
            input => format!("{input:?}"),
        };
        let print = (effect.print(), self.stored.lanes[at].print(), text);
        self.answer(worker, at, &print, input);
    }

    fn register_write(&self, at: usize, effect: &AttemptEffect) -> Option<RegisterRequest> {
        let (link, expected, body) = match effect {
            AttemptEffect::WriteClaim { expected, body } => (Link::Claim, expected, body),
            AttemptEffect::WriteOutcome { expected, body } => (Link::Outcome, expected, body),
            _ => return None,
        };
        Some(RegisterRequest {
            chain: self.stored.lanes[at].key.clone(),
            link,
            expected: *expected,
            body: body.clone(),
        })
    }

    // ---- the tool

    pub(super) fn arrive(&mut self, worker: usize, at: usize) {
        let took = self.land(at);
        if let Some(job) = self.workers[worker].jobs.get_mut(&at) {
            job.request = Some(if took { Request::Landed } else { Request::Gone });
        }
    }

    pub(super) fn lose(&mut self, worker: usize, at: usize) {
        if let Some(job) = self.workers[worker].jobs.get_mut(&at) {
            job.request = Some(Request::Gone);
        }
    }

    pub(super) fn arrive_late(&mut self, at: usize) {
        self.adrift[at] -= 1;
        self.land(at);
    }

    pub(super) fn returned(&mut self, worker: usize, at: usize, returns: Returns) {
        let Some(job) = self.workers[worker].jobs.get_mut(&at) else {
            return;
        };
        let on_its_way = job.request.take() == Some(Request::OnItsWay);
        self.adrift[at] += u8::from(on_its_way);
        let told = match returns {
            Returns::Done => ToolReturn::Done(Payload::Json(AcceptedJson::empty_object())),
            Returns::NothingHappened => ToolReturn::NothingHappened {
                failure: Failure::Error,
                message: "refused".into(),
            },
            Returns::MayHaveHappened | Returns::GivenUp => {
                self.spent.may += u8::from(returns == Returns::MayHaveHappened);
                ToolReturn::MayHaveHappened {
                    failure: Failure::Error,
                    message: "no answer".into(),
                }
            }
        };
        let print = format!("{told:?}");
        self.answer(worker, at, &print, AttemptInput::Returned(told));
    }

    pub(super) fn deadline(&mut self, worker: usize, at: usize) {
        self.spent.deadlines += 1;
        if let Some(job) = self.workers[worker].jobs.get_mut(&at) {
            job.late = true;
        }
        self.answer(worker, at, &"deadline", AttemptInput::Deadline);
    }

    // ---- crashes

    pub(super) fn crash_worker(&mut self, worker: usize, crash: Crash) {
        self.spent.worker_crashes += 1;
        let jobs = std::mem::take(&mut self.workers[worker].jobs);
        for (at, job) in jobs {
            self.adrift[at] += u8::from(job.request == Some(Request::OnItsWay));
            for effect in job.effects.iter().filter(|_| crash.late_writes) {
                let writer = name(worker);
                if let Some(write) = self.register_write(at, effect) {
                    self.stored.send_late(LateWrite::Register { write, writer });
                } else if let AttemptEffect::WriteNote { body, last_place } = &**effect {
                    self.stored.send_late(LateWrite::Note {
                        lane: at,
                        writer,
                        body: body.clone(),
                        last_place: *last_place,
                    });
                }
            }
        }
        let it = &mut self.workers[worker];
        (it.alive, it.claims) = (false, 0);
        it.life += 1;
        if crash.lost_logbook {
            // A fresh, cloned or rolled-back disk is recognised: it gets a new id.
            it.disk.clear();
            it.published = 0;
            it.book += 1;
            self.spent.lost_logbooks += 1;
        }
    }

    pub(super) fn restart(&mut self, worker: usize) {
        let it = &mut self.workers[worker];
        it.alive = true;
        let open: Vec<usize> = it
            .disk
            .keys()
            .copied()
            .filter(|at| it.published & bit(*at) == 0)
            .collect();
        for at in open {
            self.resolve(worker, at);
        }
    }
}
