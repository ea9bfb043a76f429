//! The shell around the machines, as a projection: each rule here is one of `leasehold-actors`, named beside it, with everything left out
//! that decides nothing about lease, journal, inbox and timer.
//!
//! Two steps of the shell are one here where nothing that another process does between them can matter: the lease is read, its holder
//! judged and the record put (a put that meets another revision reads again, and a holder's death is for good); the lease is let go and the
//! actor leaves the directory (what comes between is found in the bag). A commit's look at the authority and its write are one, unless the
//! process is paused between them.

use std::hash::Hash;

use leasehold_json::{AcceptedJson, Kept};
use leasehold_protocol::{
    ClusterId, Effect, Hint, IdError, Input, InspectAnswer, Invariant, NodeId, Now, ProbeReply,
    RUNTIME_TOKEN, RunConfig, RunMachine, RunWeakening, SessionId, Verdict,
};

use super::state::{Drive, Driving, Left, Session, State, bit, letter_at, position};
use super::{Bound, PATIENCE_MS, Says, TOOL, Weakening};
use crate::model::Ack;
use crate::model::memo::Owned;
use crate::model::printed::Printed;
use crate::outside;

/// The clock before anything has expired, and after.
pub(super) fn clock(late: bool) -> Now {
    let passed = if late { 2 * PATIENCE_MS } else { 0 };
    Now {
        wall: 1_700_000_000_000 + i64::try_from(passed).unwrap_or(0),
        // What is claimed has its outcome: an owner waits for nothing on this clock.
        boot: 1_000,
    }
}

fn config(session: Session, weakening: RunWeakening) -> Result<RunConfig, IdError> {
    Ok(RunConfig {
        cluster: ClusterId::new("model")?,
        node: NodeId::new(format!("n{}", session.node))?,
        session: SessionId::new(format!("n{}-{}", session.node, session.life))?,
        tools: outside::registry(),
        clock_bound_ms: 0,
        // No owner counts as lost: quarantine is not in this model.
        session_ttl_ms: 0,
        hook: false,
        weakening,
    })
}

impl State {
    // ---- the way in: `opening::try_open`, `Run::opened`

    /// `NodeState::start`.
    fn start(&mut self, node: usize, by_timer: bool) {
        if self.nodes[node].authority && self.nodes[node].drive == Drive::Idle {
            self.nodes[node].drive = Drive::Opening {
                by_timer,
                lease: None,
            };
        }
    }

    /// `opening::try_open` up to the lease, with `opening::take_lease`.
    pub(super) fn take_lease(&mut self, node: usize) {
        let Drive::Opening { by_timer, .. } = self.nodes[node].drive else {
            return;
        };
        if by_timer {
            self.timer = None;
        }
        let me = self.session(node);
        if let Some(holder) = self.lease.holder
            && holder != me
            && self.is_alive(holder)
        {
            self.nodes[node].drive = Drive::Leaving {
                lease: None,
                reason: Left::Fenced,
                holder: Some(holder),
                again: false,
            };
            return;
        }
        let lease = self.put_lease(self.lease.revision, Some(me));
        self.nodes[node].drive = Drive::Opening { by_timer, lease };
    }

    /// The journal and the submission are read, the machine begins.
    pub(super) fn load(&mut self, node: usize, bound: &Bound) {
        let (Drive::Opening { lease, .. }, Ok(config)) = (
            self.nodes[node].drive.clone(),
            config(self.session(node), bound.run),
        ) else {
            return;
        };
        let machine = RunMachine::new(config, self.stored.journal.state.run.clone());
        self.nodes[node].drive = Drive::Driving(Box::new(Driving {
            machine: Printed::new(machine),
            effects: Vec::new(),
            lease,
            stands: !self.stored.journal.commits.is_empty(),
            given: 0,
            told: 0,
            ticked: self.late,
            checked: false,
        }));
        let empty = self.stored.journal.commits.is_empty();
        let input = Input::Load {
            commits: self.stored.journal.commits.clone(),
            submission: empty.then(|| (position(0), (*self.letters[0].body).clone())),
        };
        let print = self.stored.journal.print();
        self.tell(node, bound, &print, || input);
        self.read_mail(node, bound);
    }

    // ---- the machine: `Run::feed`, `effects::perform`

    /// Tells a node's machine something; `print` stands for the input.
    fn tell(
        &mut self,
        node: usize,
        bound: &Bound,
        print: &(impl Hash + ?Sized),
        input: impl FnOnce() -> Input,
    ) {
        let (late, journal) = (self.late, &self.stored.journal);
        let Drive::Driving(driving) = &mut self.nodes[node].drive else {
            return;
        };
        let from = (driving.machine.print(), late, print);
        let ended = journal.state.ended.is_some();
        let owned = self.stored.memos.owner.of(&from, || {
            Owned::step(&driving.machine, clock(late), input())
        });
        driving.machine = owned.machine;
        for effect in owned.effects {
            match &*effect {
                Effect::AckInbox { inbox } => {
                    let letter = letter_at(*inbox);
                    self.nodes[node].bag &= !bit(letter);
                    self.send_ack(node, letter);
                }
                Effect::WakeAt { .. } => {}
                _ => {
                    if let Drive::Driving(driving) = &mut self.nodes[node].drive {
                        driving.effects.push(effect);
                        driving.effects.sort_by_key(Printed::print);
                    }
                }
            }
        }
        if let Some(reason) = owned.stopped {
            let reason = Left::of(&reason);
            self.fenced |= reason == Left::Fenced;
            if reason == Left::Unreadable && !ended {
                self.stored.break_promise(Invariant::I16);
            }
            self.stop(node, reason);
        } else if bound.shell == Weakening::LeaseBeforePark {
            self.let_go_early(node);
        }
    }

    /// `Run::stop`.
    fn stop(&mut self, node: usize, reason: Left) {
        if let Drive::Driving(driving) = &self.nodes[node].drive {
            self.nodes[node].drive = Drive::Leaving {
                lease: driving.lease,
                reason,
                holder: None,
                again: false,
            };
        }
    }

    /// A negative control: the lease goes before the park commit.
    fn let_go_early(&mut self, node: usize) {
        let Drive::Driving(driving) = &mut self.nodes[node].drive else {
            return;
        };
        let parks = driving.machine.state().parked
            && driving
                .effects
                .iter()
                .any(|effect| matches!(**effect, Effect::Commit(_)));
        if parks && let Some(revision) = driving.lease.take() {
            self.put_lease(revision, None);
        }
    }

    /// `Run::settle_submissions`: a submission is over once a journal stands, and no commit is on its way.
    fn settle_submissions(&mut self, node: usize, bound: &Bound) {
        let it = &mut self.nodes[node];
        let Drive::Driving(driving) = &it.drive else {
            return;
        };
        let waits = driving
            .effects
            .iter()
            .any(|effect| matches!(**effect, Effect::Commit(_) | Effect::ReadJournal { .. }));
        // A draft is in the machine's state before it is stored.
        let stands = driving.stands || bound.shell == Weakening::DraftCounts;
        if it.bag & bit(0) != 0 && !waits && stands && driving.machine.state().opened.is_some() {
            it.bag &= !bit(0);
            self.send_ack(node, 0);
        }
    }

    /// `Run::read_mail`.
    fn read_mail(&mut self, node: usize, bound: &Bound) {
        for letter in 1..self.letters.len() {
            let it = &mut self.nodes[node];
            let Drive::Driving(driving) = &mut it.drive else {
                return;
            };
            if it.bag & bit(letter) == 0 || driving.given & bit(letter) != 0 {
                continue;
            }
            driving.given |= bit(letter);
            let inbox = position(letter);
            let (says, body) = (self.letters[letter].says, self.letters[letter].body.clone());
            self.tell(node, bound, &(letter, body.print()), || {
                let body = (*body).clone();
                match says {
                    Some(Says::Cancel) => Input::Cancel { inbox, body },
                    _ => Input::Decide { inbox, body },
                }
            });
        }
        self.settle_submissions(node, bound);
    }

    /// Carries out one effect of a machine; its answer comes at once, unless it is lost.
    pub(super) fn own(&mut self, node: usize, index: usize, ack: Ack, bound: &Bound) {
        let it = &mut self.nodes[node];
        let may_write = it.authority || bound.shell == Weakening::NoAuthority;
        let authority = it.authority;
        let Drive::Driving(driving) = &mut it.drive else {
            return;
        };
        let effect = driving.effects.remove(index);
        let checked = std::mem::take(&mut driving.checked);
        self.spent.lost_acks += u8::from(ack != Ack::Heard);
        // What the answer comes from, where that is more than the effect and the answer's own text.
        let mut print = 0;
        let input = match &*effect {
            // `effects::commit` and `effects::write_register`: the authority is read at the last moment before the write.
            Effect::Commit(_) | Effect::WriteRegister(_) if !may_write && !checked => {
                Input::AuthorityLost
            }
            Effect::Commit(write) => {
                if !authority && !checked {
                    self.stored.break_promise(Invariant::I19);
                }
                let stored = match ack {
                    Ack::LostBefore => Err(()),
                    _ => self.append(write, bound),
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
                let lane = self.stored.lanes[at].clone();
                if let Drive::Driving(driving) = &mut self.nodes[node].drive {
                    driving.told = lane.messages.len();
                }
                print = lane.print();
                Input::ChainRead {
                    step: chain.step,
                    attempt: chain.attempt,
                    messages: lane.messages.clone(),
                    notes: Vec::new(),
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
            Effect::Inspect { chain, .. } => Input::Inspected {
                step: chain.step,
                attempt: chain.attempt,
                answer: InspectAnswer::NoAnswer,
            },
            Effect::Probe(request) => Input::Probed {
                step: request.chain.step,
                attempt: request.chain.attempt,
                answer: ProbeReply::Unknown {
                    detail: "not asked".into(),
                },
            },
            Effect::AskPolicy(request) => Input::Judged {
                step: request.step,
                policy: format!("model@{}", self.policy),
                verdict: Ok(self.verdict(bound)),
            },
            Effect::AskAgent(view) => {
                let decision = match view.turn {
                    1 => {
                        serde_json::json!({ "kind": "tool_calls", "calls": [{ "tool": TOOL, "arguments": {} }] })
                    }
                    _ => serde_json::json!({ "kind": "complete", "result": {} }),
                };
                Input::AgentDecided {
                    turn: view.turn,
                    decision: Kept::from_bytes(decision.to_string().as_bytes()),
                }
            }
            Effect::SetTimer { at } => {
                self.timer = Some(*at);
                Input::TimerSet
            }
            _ => return,
        };
        let text = match &input {
            Input::JournalRead { .. } | Input::ChainRead { .. } => String::new(),
            input => format!("{input:?}"),
        };
        // `Run::feed` settles before what the machine wants next is begun.
        let stored = match &input {
            Input::CommitStored { .. } => Some(true),
            Input::JournalRead { commits } => Some(!commits.is_empty()),
            _ => None,
        };
        if let (Some(stands), Drive::Driving(driving)) = (stored, &mut self.nodes[node].drive) {
            driving.stands |= stands;
            self.settle_submissions(node, bound);
        }
        self.tell(node, bound, &(effect.print(), print, text), || input);
    }

    fn verdict(&self, bound: &Bound) -> Verdict {
        if !bound.approval {
            return Verdict::Allow;
        }
        Verdict::RequireApproval {
            approval_kind: "payment".into(),
            capability: format!("as policy {} sees it", self.policy),
            presentation: AcceptedJson::empty_object(),
        }
    }

    /// The chain of the attempt that a node's machine believes to be open.
    fn watched(&self, node: usize) -> Option<usize> {
        let Drive::Driving(driving) = &self.nodes[node].drive else {
            return None;
        };
        let step = driving.machine.state().current_steps().first()?;
        let latest = step.latest().filter(|_| step.phase.has_open_attempt())?;
        let mut lanes = self.stored.lanes.iter();
        lanes.position(|lane| lane.key.step == step.id && lane.key.attempt == latest.attempt)
    }

    /// Whether a machine has not been told of everything that is stored of the attempt that it waits for.
    pub(super) fn has_news(&self, node: usize) -> bool {
        let (Drive::Driving(driving), Some(at)) = (&self.nodes[node].drive, self.watched(node))
        else {
            return false;
        };
        driving.told.max(1) < self.stored.lanes[at].messages.len()
    }

    /// `Hints`, or the next look at the chain.
    pub(super) fn hear(&mut self, node: usize, bound: &Bound) {
        let Some(at) = self.watched(node) else { return };
        let Drive::Driving(driving) = &mut self.nodes[node].drive else {
            return;
        };
        let lane = self.stored.lanes[at].clone();
        let (before, told) = (driving.machine.print(), driving.told);
        let next = told.max(1);
        driving.told = next + 1;
        self.tell(node, bound, &(lane.print(), next), || {
            Input::Hint(Hint {
                chain: lane.key.clone(),
                message: lane.messages.get(next).cloned(),
            })
        });
        // A hint about a call whose commit is in doubt is news to nobody; the first scheduled read brings it again.
        if let Drive::Driving(driving) = &mut self.nodes[node].drive
            && driving.machine.print() == before
        {
            driving.told = told;
        }
    }

    /// The wish to be woken, or a due timer that finds the run driven.
    pub(super) fn tick(&mut self, node: usize, bound: &Bound) {
        if let Drive::Driving(driving) = &mut self.nodes[node].drive {
            driving.ticked = self.late;
            self.tell(node, bound, "tick", || Input::Tick);
        }
    }

    // ---- the way out: `opening::release`, `NodeState::over`

    pub(super) fn leave(&mut self, node: usize, ack: Ack, bound: &Bound) {
        let Drive::Leaving {
            lease,
            reason,
            holder,
            again,
        } = self.nodes[node].drive
        else {
            return;
        };
        self.spent.lost_acks += u8::from(ack != Ack::Heard);
        if self.nodes[node].authority {
            if reason == Left::Ended {
                self.timer = None;
            }
            if let Some(revision) = lease
                && ack != Ack::LostBefore
            {
                self.put_lease(revision, None);
            }
        }
        self.nodes[node].drive = if reason == Left::Unreadable {
            Drive::Quarantined
        } else {
            Drive::Idle
        };
        let bag = self.nodes[node].bag;
        match reason {
            // `NodeState::acknowledge_all`.
            Left::Ended => {
                self.nodes[node].bag = 0;
                for letter in (0..self.letters.len()).filter(|letter| bag & bit(*letter) != 0) {
                    self.send_ack(node, letter);
                }
            }
            Left::Parked if again || bag != 0 => self.start(node, false),
            Left::Parked => {}
            // `NodeState::pass_on`.
            Left::Fenced => {
                self.nodes[node].bag = 0;
                for letter in (0..self.letters.len()).filter(|letter| bag & bit(*letter) != 0) {
                    if let Some(holder) = holder
                        && holder == self.session(holder.node)
                        && self.runs(holder.node)
                    {
                        self.mail(holder.node, letter, bound);
                    }
                }
            }
            // Nobody here holds them any more: they come again in their time.
            Left::Unreadable | Left::AuthorityLost => self.nodes[node].bag = 0,
        }
    }

    // ---- mail, timers, sweep: `NodeState::mail`, `NodeState::timer`, `loops::sweep_once`

    /// Whether nobody has the message in hand, and it is handed out (again).
    pub(super) fn is_waiting(&self, letter: usize) -> bool {
        let held = |node: &super::state::Node| (node.bag | node.acks) & bit(letter) != 0;
        !self.letters[letter].acked && !self.nodes.iter().any(held)
    }

    pub(super) fn deliver(&mut self, node: usize, letter: usize, bound: &Bound) {
        self.spent.redeliveries += u8::from(!self.is_waiting(letter));
        if bound.shell == Weakening::AckBeforeCommit {
            self.send_ack(node, letter);
        }
        self.mail(node, letter, bound);
    }

    fn mail(&mut self, node: usize, letter: usize, bound: &Bound) {
        self.nodes[node].bag |= bit(letter);
        match self.nodes[node].drive {
            Drive::Driving(_) => self.read_mail(node, bound),
            Drive::Idle => self.start(node, false),
            Drive::Opening { .. } | Drive::Leaving { .. } | Drive::Quarantined => {}
        }
    }

    fn send_ack(&mut self, node: usize, letter: usize) {
        self.dropped |= !self.is_settled(letter);
        self.nodes[node].acks |= bit(letter);
    }

    pub(super) fn acknowledge(&mut self, node: usize, letter: usize, ack: Ack) {
        self.nodes[node].acks &= !bit(letter);
        self.spent.lost_acks += u8::from(ack != Ack::Heard);
        self.letters[letter].acked |= ack != Ack::LostBefore;
    }

    pub(super) fn timer_due(&mut self, node: usize, bound: &Bound) {
        match &mut self.nodes[node].drive {
            Drive::Driving(_) => self.tick(node, bound),
            Drive::Idle => self.start(node, true),
            Drive::Leaving { again, .. } => *again = true,
            Drive::Opening { .. } | Drive::Quarantined => {}
        }
    }

    pub(super) fn sweep(&mut self, node: usize, bound: &Bound) {
        let (state, me) = (&self.stored.journal.state, self.session(node));
        let open = !self.stored.journal.commits.is_empty() && state.ended.is_none();
        let (head, parked, wake_at) = (state.last, state.parked, state.wake_at);
        if !open || self.nodes[node].drive != Drive::Idle {
            return;
        }
        if bound.shell == Weakening::SweepLeases && self.lease.holder.is_none() {
            return;
        }
        // Where no timer can be missing, what was found before is found again.
        let looked = wake_at.map(|_| head);
        if looked.is_some() && self.nodes[node].swept == looked {
            return;
        }
        self.nodes[node].swept = None;
        // `loops::is_held`.
        let held = self
            .lease
            .holder
            .is_some_and(|holder| holder != me && self.is_alive(holder));
        if held {
            return;
        }
        if parked {
            self.timer = wake_at.or(self.timer);
            self.nodes[node].swept = looked;
        } else {
            self.start(node, false);
        }
    }
}
