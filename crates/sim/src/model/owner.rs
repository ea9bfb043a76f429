//! The run's owner in the model: a [`RunMachine`] whose effects are carried out one by one, in any order.

use leasehold_json::{AcceptedJson, Kept};
use leasehold_protocol::{
    ClusterId, DecideRequest, Decision, Effect, Hint, IdError, Input, InspectAnswer, Invariant,
    NodeId, Now, OperatorId, ProbeReply, RUNTIME_TOKEN, RunConfig, RunMachine, RunWeakening, Seq,
    SessionId, StopReason, Verdict, WIRE_VERSION,
};

use super::printed::Printed;
use super::state::{LateWrite, Owner, State, Told};
use super::{Ack, Bound};
use crate::outside;

/// The owner's clock at its start, milliseconds.
const START_MS: u64 = 1_000;
/// One jump of the owner's clock: longer than the wait for a claimed attempt that says nothing.
const JUMP_MS: u64 = 10_000;
/// Where the operators' messages stand.
const LETTERS: u64 = 1_000_000;
/// Where the submission stands.
pub(super) const SUBMISSION: Seq = Seq(1);

fn config(life: u8, weakening: RunWeakening) -> Result<RunConfig, IdError> {
    Ok(RunConfig {
        cluster: ClusterId::new("model")?,
        node: NodeId::new("n")?,
        session: SessionId::new(format!("s{life}"))?,
        tools: outside::registry(),
        clock_bound_ms: 0,
        hook: false,
        weakening,
    })
}

fn clock(jumps: u8) -> Now {
    let boot = START_MS + u64::from(jumps) * JUMP_MS;
    Now {
        wall: 1_700_000_000_000 + i64::try_from(boot).unwrap_or(0),
        boot,
    }
}

impl State {
    /// A node takes the run: because nobody has it, because an operator wrote, or because a truth arrived late.
    pub(super) fn may_start_owner(&self) -> bool {
        let state = &self.journal.state;
        if self.owner.is_some() || state.ended.is_some() {
            return false;
        }
        let news = self
            .open_lane()
            .is_some_and(|lane| self.lanes[lane].chain.outcome.is_some());
        !state.parked || news || self.unread_letters().next().is_some()
    }

    fn unread_letters(&self) -> impl Iterator<Item = &Printed<(Seq, leasehold_protocol::Body)>> {
        self.letters
            .iter()
            .filter(|letter| !self.journal.state.folded.contains(&letter.0))
    }

    pub(super) fn start_owner(&mut self, bound: &Bound) {
        self.owner_lives += 1;
        let Ok(config) = config(self.owner_lives, bound.run) else {
            return;
        };
        let machine = RunMachine::new(config, self.journal.state.run.clone());
        self.owner = Some(Owner {
            machine: Printed::new(machine),
            effects: Vec::new(),
            jumps: 0,
            silenced: 0,
            told: Told {
                attempt: 0,
                messages: 0,
                notes: 0,
            },
        });
        let load = Input::Load {
            commits: self.journal.commits.clone(),
            submission: Some((SUBMISSION, bound.submission.clone())),
        };
        self.tell(load);
        let unread: Vec<_> = self.unread_letters().cloned().collect();
        for letter in unread {
            self.tell(Input::Decide {
                inbox: letter.0,
                body: letter.1.clone(),
            });
        }
    }

    pub(super) fn tell(&mut self, input: Input) {
        let Some(mut owner) = self.owner.take() else {
            return;
        };
        let mut machine = (*owner.machine).clone();
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for effect in machine.step(clock(owner.jumps), input) {
                match effect {
                    Effect::Stop(reason) => {
                        if matches!(reason, StopReason::Unreadable(_)) {
                            self.break_promise(Invariant::I16);
                        }
                        return;
                    }
                    Effect::SetTimer { .. } => inputs.push(Input::TimerSet),
                    // Time is the model's; the inbox is read from the journal.
                    Effect::WakeAt { .. } | Effect::AckInbox { .. } | Effect::AskHook => {}
                    effect => owner.effects.push(Printed::new(effect)),
                }
            }
        }
        owner.effects.sort_by_key(Printed::print);
        owner.machine = Printed::new(machine);
        self.owner = Some(owner);
    }

    /// Carries out one effect of the owner; its answer comes at once, unless it is lost.
    pub(super) fn own(&mut self, index: usize, ack: Ack) {
        let Some(owner) = &mut self.owner else { return };
        let effect = owner.effects.remove(index);
        self.spent.lost_acks += u8::from(ack != Ack::Heard);
        let input = match &*effect {
            Effect::Commit(write) => {
                let stored = match ack {
                    Ack::LostBefore => Err(()),
                    _ => self.append(write),
                };
                match stored {
                    Ok(seq) if ack == Ack::Heard => Input::CommitStored { seq },
                    _ => Input::CommitDoubtful,
                }
            }
            Effect::ReadJournal { after } => {
                let commits = self.journal.commits.iter();
                Input::JournalRead {
                    commits: commits
                        .filter(|stored| stored.seq > *after)
                        .cloned()
                        .collect(),
                }
            }
            Effect::ReadChain { chain } => {
                let Some(at) = self.lane_of(chain) else {
                    return;
                };
                let lane = &self.lanes[at];
                let told = Told {
                    attempt: at + 1,
                    messages: lane.messages.len(),
                    notes: lane.notes.len(),
                };
                if let Some(owner) = &mut self.owner {
                    owner.told = told;
                }
                Input::ChainRead {
                    step: chain.step,
                    attempt: chain.attempt,
                    messages: lane.messages.clone(),
                    notes: lane.notes.clone(),
                }
            }
            Effect::WriteRegister(write) => {
                if ack != Ack::LostBefore {
                    // The machine reads what stands there, whatever the answer was.
                    let _ = self.register(write, RUNTIME_TOKEN);
                }
                Input::RegisterTried {
                    step: write.chain.step,
                    attempt: write.chain.attempt,
                }
            }
            Effect::Inspect { chain, worker } => Input::Inspected {
                step: chain.step,
                attempt: chain.attempt,
                answer: self.inspect(chain, worker),
            },
            Effect::Probe(request) => Input::Probed {
                step: request.chain.step,
                attempt: request.chain.attempt,
                answer: self.probe(request.chain.attempt.get() as usize),
            },
            Effect::AskPolicy(request) => Input::Judged {
                step: request.step,
                policy: "model@1".into(),
                verdict: Ok(Verdict::Allow),
            },
            Effect::AskAgent(view) => {
                let decision = match (view.turn, view.tools.first()) {
                    (1, Some(tool)) => {
                        serde_json::json!({ "kind": "tool_calls", "calls": [{ "tool": tool, "arguments": {} }] })
                    }
                    _ => serde_json::json!({ "kind": "complete", "result": {} }),
                };
                Input::AgentDecided {
                    turn: view.turn,
                    decision: Kept::from_bytes(decision.to_string().as_bytes()),
                }
            }
            _ => return,
        };
        self.tell(input);
    }

    fn inspect(
        &mut self,
        chain: &leasehold_protocol::ChainKey,
        worker: &leasehold_protocol::WorkerId,
    ) -> InspectAnswer {
        let (Some(at), Some(id)) = (
            self.lane_of(chain),
            (0..2).find(|id| super::workers::name(*id) == worker.as_str()),
        ) else {
            return InspectAnswer::NoAnswer;
        };
        if !self.workers[id].alive {
            return InspectAnswer::NoAnswer;
        }
        match self.workers[id].jobs.get(&at) {
            Some(job) if job.machine.is_running() => InspectAnswer::Running,
            Some(_) => InspectAnswer::NoAnswer,
            None => {
                // What comes of it stands in the registers and notes, and the owner hears of those by itself.
                self.resolve(id, at);
                InspectAnswer::NoAnswer
            }
        }
    }

    /// The service looks for the step's key; told that it is not there, it refuses this attempt and all before it.
    fn probe(&mut self, attempt: usize) -> ProbeReply {
        if self.total() > 0 {
            let result = leasehold_protocol::Payload::Json(AcceptedJson::empty_object());
            return ProbeReply::Done { result };
        }
        self.fence = self.fence.max(attempt);
        ProbeReply::NotDone
    }

    /// Whether something of the open attempt is stored that the owner has not been told of.
    pub(super) fn has_news(&self) -> bool {
        let (Some(owner), Some(at)) = (&self.owner, self.open_lane()) else {
            return false;
        };
        let told = self.told(owner, at);
        let lane = &self.lanes[at];
        told.messages < lane.messages.len() || told.notes < lane.notes.len()
    }

    /// Of an attempt that it was told nothing of, an owner knows the call at most.
    fn told(&self, owner: &Owner, at: usize) -> Told {
        if owner.told.attempt == at + 1 {
            owner.told
        } else {
            Told {
                attempt: at + 1,
                messages: 1,
                notes: 0,
            }
        }
    }

    /// The store's republished message reaches the owner, or its next look at the chain does.
    pub(super) fn hear(&mut self) {
        let (Some(owner), Some(at)) = (&self.owner, self.open_lane()) else {
            return;
        };
        let mut told = self.told(owner, at);
        let lane = self.lanes[at].clone();
        let message = lane.messages.get(told.messages).cloned();
        if message.is_some() {
            told.messages += 1;
        } else {
            told.notes = lane.notes.len();
        }
        if let Some(owner) = &mut self.owner {
            owner.told = told;
        }
        self.tell(Input::Hint(Hint {
            chain: lane.key.clone(),
            message,
        }));
    }

    /// Whether time can make a difference to the owner: it has seen a claim, it waits for nothing else, and the claim's worker is dead,
    /// done, or past its deadline. (The wait is longer than the deadline, and both run from the claim.)
    pub(super) fn may_be_silent(&self) -> bool {
        let (Some(owner), Some(at)) = (&self.owner, self.open_lane()) else {
            return false;
        };
        let lane = &self.lanes[at];
        let in_flight = self
            .step()
            .is_some_and(|step| step.phase == leasehold_protocol::Phase::InFlight);
        in_flight
            && owner.effects.is_empty()
            && owner.silenced != at + 1
            && self.told(owner, at).messages > 1
            && lane.chain.claim.is_some()
            && lane.chain.outcome.is_none()
            && !self.workers.iter().any(|worker| {
                worker
                    .jobs
                    .get(&at)
                    .is_some_and(|job| job.machine.is_running() && !job.late)
            })
    }

    pub(super) fn fall_silent(&mut self) {
        let lanes = self.lanes.len();
        if let Some(owner) = &mut self.owner {
            owner.jumps += 1;
            owner.silenced = lanes;
        }
        self.tell(Input::Tick);
    }

    pub(super) fn crash_owner(&mut self, late: bool) {
        self.spent.owner_crashes += 1;
        let Some(owner) = self.owner.take() else {
            return;
        };
        for effect in owner.effects.iter().filter(|_| late) {
            match &**effect {
                Effect::Commit(write) => self.send_late(LateWrite::Commit(write.clone())),
                Effect::WriteRegister(write) => self.send_late(LateWrite::Register {
                    write: write.clone(),
                    writer: RUNTIME_TOKEN.into(),
                }),
                _ => {}
            }
        }
    }

    /// Whether an operator sees a question that nobody has answered.
    pub(super) fn is_asked(&self) -> bool {
        self.journal.state.open_questions().count() > self.unread_letters().count()
    }

    pub(super) fn decide(&mut self, decision: Decision) {
        self.spent.run_again += u8::from(decision == Decision::RunAgain);
        let (Some((approval, asked)), Ok(by)) = (
            self.journal.state.open_questions().next(),
            OperatorId::new("anna"),
        ) else {
            return;
        };
        let request = DecideRequest {
            v: WIRE_VERSION,
            approval: approval.clone(),
            hash: asked.hash,
            decision,
            by,
            note: None,
        };
        let inbox = Seq(LETTERS + self.letters.len() as u64);
        let body = leasehold_protocol::Body::from(request.encode());
        self.letters.push(Printed::new((inbox, body.clone())));
        self.tell(Input::Decide { inbox, body });
    }
}
