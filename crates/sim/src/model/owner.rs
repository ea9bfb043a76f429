//! The run's owner in the model: a [`RunMachine`] whose effects are carried out one by one, in any order.

use std::hash::Hash;

use leasehold_json::{AcceptedJson, Kept};
use leasehold_protocol::{
    ClusterId, DecideRequest, Decision, Effect, Hint, IdError, Input, InspectAnswer, Invariant,
    NodeId, Now, OperatorId, ProbeReply, RUNTIME_TOKEN, RunConfig, RunMachine, RunWeakening, Seq,
    SessionId, StopReason, Verdict, WIRE_VERSION,
};

use super::memo::Owned;
use super::printed::Printed;
use super::state::{Job, Owner, State, Told};
use super::stored::LateWrite;
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
        session_ttl_ms: 30_000,
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

/// Time is the model's, no question of the model expires, and the inbox is read from the journal.
fn is_left_out(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::WakeAt { .. } | Effect::AckInbox { .. } | Effect::SetTimer { .. } | Effect::AskHook
    )
}

impl State {
    /// A node takes the run: because nobody has it, because an operator wrote, or because a truth arrived late.
    pub(super) fn may_start_owner(&self) -> bool {
        let state = &self.stored.journal.state;
        if self.owner.is_some() || state.ended.is_some() {
            return false;
        }
        let news = self
            .stored
            .open_lane()
            .is_some_and(|lane| self.stored.lanes[lane].chain.outcome.is_some());
        !state.parked || news || self.unread_letters().next().is_some()
    }

    fn unread_letters(&self) -> impl Iterator<Item = &Printed<(Seq, leasehold_protocol::Body)>> {
        self.letters
            .iter()
            .filter(|letter| !self.stored.journal.state.folded.contains(&letter.0))
    }

    pub(super) fn start_owner(&mut self, bound: &Bound) {
        self.owner_lives += 1;
        let Ok(config) = config(self.owner_lives, bound.run) else {
            return;
        };
        let machine = RunMachine::new(config, self.stored.journal.state.run.clone());
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
            commits: self.stored.journal.commits.clone(),
            submission: Some((SUBMISSION, bound.submission.clone())),
        };
        let print = self.stored.journal.print();
        self.tell(&print, || load);
        let unread: Vec<_> = self.unread_letters().cloned().collect();
        for letter in unread {
            self.read_letter(&letter);
        }
    }

    fn read_letter(&mut self, letter: &Printed<(Seq, leasehold_protocol::Body)>) {
        let (inbox, body) = (**letter).clone();
        self.tell(&letter.print(), || Input::Decide { inbox, body });
    }

    /// Tells the machine something; `print` stands for the input.
    fn tell(&mut self, print: &(impl Hash + ?Sized), input: impl FnOnce() -> Input) {
        let Some(mut owner) = self.owner.take() else {
            return;
        };
        let from = (owner.machine.print(), owner.jumps, print);
        let owned = self.stored.memos.owner.of(&from, || {
            Owned::step(&owner.machine, clock(owner.jumps), input())
        });
        if let Some(reason) = owned.stopped {
            if matches!(reason, StopReason::Unreadable(_)) {
                self.stored.break_promise(Invariant::I16);
            }
            return;
        }
        owner.machine = owned.machine;
        let wanted = owned.effects.into_iter();
        owner
            .effects
            .extend(wanted.filter(|effect| !is_left_out(effect)));
        owner.effects.sort_by_key(Printed::print);
        self.owner = Some(owner);
    }

    /// Carries out one effect of the owner; its answer comes at once, unless it is lost.
    pub(super) fn own(&mut self, index: usize, ack: Ack) {
        let Some(owner) = &mut self.owner else { return };
        let effect = owner.effects.remove(index);
        self.spent.lost_acks += u8::from(ack != Ack::Heard);
        // What the answer comes from, where that is more than the effect and the answer's own text.
        let mut print = 0;
        let input = match &*effect {
            Effect::Commit(write) => {
                let stored = match ack {
                    Ack::LostBefore => Err(()),
                    _ => self.stored.append(write),
                };
                match stored {
                    Ok(seq) if ack == Ack::Heard => Input::CommitStored { seq },
                    _ => Input::CommitDoubtful,
                }
            }
            Effect::ReadJournal { after } => {
                print = self.stored.journal.print();
                Input::JournalRead {
                    commits: self.stored.commits_after(*after),
                }
            }
            Effect::ReadChain { chain } => {
                let Some(at) = self.stored.lane_of(chain) else {
                    return;
                };
                let lane = &self.stored.lanes[at];
                let told = Told {
                    attempt: at + 1,
                    messages: lane.messages.len(),
                    notes: lane.notes.len(),
                };
                if let Some(owner) = &mut self.owner {
                    owner.told = told;
                }
                print = lane.print();
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
                    let _ = self.stored.register(write, RUNTIME_TOKEN);
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
        let text = match &input {
            Input::JournalRead { .. } | Input::ChainRead { .. } => String::new(),
            input => format!("{input:?}"),
        };
        self.tell(&(effect.print(), print, text), || input);
    }

    fn inspect(
        &mut self,
        chain: &leasehold_protocol::ChainKey,
        worker: &leasehold_protocol::WorkerId,
    ) -> InspectAnswer {
        let (Some(at), Some(id)) = (
            self.stored.lane_of(chain),
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
        if self.stored.total() > 0 {
            let result = leasehold_protocol::Payload::Json(AcceptedJson::empty_object());
            return ProbeReply::Done { result };
        }
        self.fence = self.fence.max(attempt);
        ProbeReply::NotDone
    }

    /// Whether something of the open attempt is stored that the owner has not been told of.
    pub(super) fn has_news(&self) -> bool {
        let (Some(owner), Some(at)) = (&self.owner, self.stored.open_lane()) else {
            return false;
        };
        let told = self.told(owner, at);
        let lane = &self.stored.lanes[at];
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
        let (Some(owner), Some(at)) = (&self.owner, self.stored.open_lane()) else {
            return;
        };
        let mut told = self.told(owner, at);
        let lane = self.stored.lanes[at].clone();
        let message = lane.messages.get(told.messages).cloned();
        if message.is_some() {
            told.messages += 1;
        } else {
            told.notes = lane.notes.len();
        }
        let before = owner.machine.print();
        self.tell(&(lane.print(), told), || {
            Input::Hint(Hint {
                chain: lane.key.clone(),
                message,
            })
        });
        // A hint about a call whose commit is in doubt is news to nobody; the first scheduled read brings it again.
        if let Some(owner) = &mut self.owner
            && owner.machine.print() != before
        {
            owner.told = told;
        }
    }

    /// Whether time can make a difference to the owner: it has seen a claim, it waits for nothing else, and the claim's worker is dead,
    /// done, or past its deadline. (The wait is longer than the deadline, and both run from the claim.)
    pub(super) fn may_be_silent(&self, bound: &Bound) -> bool {
        let (Some(owner), Some(at)) = (&self.owner, self.stored.open_lane()) else {
            return false;
        };
        let lane = &self.stored.lanes[at];
        let in_flight = self
            .stored
            .step()
            .is_some_and(|step| step.phase == leasehold_protocol::Phase::InFlight);
        in_flight
            && owner.effects.is_empty()
            && owner.silenced != at + 1
            && self.told(owner, at).messages > 1
            && lane.chain.claim.is_some()
            && lane.chain.outcome.is_none()
            && !self.on_time(at).any(|job| job.machine.is_running())
            && (self.on_time(at).next().is_none()
                || (self.spent.pauses < bound.pauses && self.may_fail(bound)))
    }

    fn on_time(&self, at: usize) -> impl Iterator<Item = &Job> {
        let jobs = self.workers.iter().filter_map(move |it| it.jobs.get(&at));
        jobs.filter(|job| !job.late && !job.machine.is_over())
    }

    pub(super) fn fall_silent(&mut self) {
        let lanes = self.stored.lanes.len();
        let paused = lanes > 0 && self.on_time(lanes - 1).next().is_some();
        self.spent.pauses += u8::from(paused);
        if let Some(owner) = &mut self.owner {
            owner.jumps += 1;
            owner.silenced = lanes;
        }
        self.tell("tick", || Input::Tick);
    }

    pub(super) fn crash_owner(&mut self, late: bool) {
        self.spent.owner_crashes += 1;
        let Some(owner) = self.owner.take() else {
            return;
        };
        for effect in owner.effects.iter().filter(|_| late) {
            match &**effect {
                Effect::Commit(write) => self.stored.send_late(LateWrite::Commit(write.clone())),
                Effect::WriteRegister(write) => self.stored.send_late(LateWrite::Register {
                    write: write.clone(),
                    writer: RUNTIME_TOKEN.into(),
                }),
                _ => {}
            }
        }
    }

    /// Whether an operator sees a question that nobody has answered.
    pub(super) fn is_asked(&self) -> bool {
        self.stored.journal.state.open_questions().count() > self.unread_letters().count()
    }

    pub(super) fn decide(&mut self, decision: Decision) {
        self.spent.run_again += u8::from(decision == Decision::RunAgain);
        let (Some((approval, asked)), Ok(by)) = (
            self.stored.journal.state.open_questions().next(),
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
        let letter = Printed::new((inbox, body));
        self.letters.push(letter.clone());
        self.read_letter(&letter);
    }
}
