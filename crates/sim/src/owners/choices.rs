//! What may happen next in a situation: every step of every process, every word of an operator, every fault that the bound still allows.

use leasehold_protocol::Effect;

use super::state::{Drive, Node, State, bit};
use super::{Action, Bound, Says};
use crate::model::Ack;

impl Bound {
    /// Everything that may happen next.
    pub(super) fn choices(&self, state: &State, actions: &mut Vec<Action>) {
        // What is broken once stays broken.
        if state.stored.flaw.is_some() {
            return;
        }
        if let Some(alone) = self.local(state) {
            actions.push(alone);
            return;
        }
        for node in 0..state.nodes.len() {
            self.of_a_node(state, node, actions);
            self.faults_of_a_node(state, node, actions);
        }
        if state.waiting_call().is_some() {
            actions.push(Action::Work);
        }
        actions.extend((0..state.stored.late.len()).map(|index| Action::WriteLate { index }));
        self.people(state, actions);
        let journal = &state.stored.journal.state;
        if self.expiry && !state.late && !journal.approvals.is_empty() {
            actions.push(Action::TimePasses);
        }
        if state.may_fail(self) {
            if state.spent.deleted_leases < self.deleted_leases && state.lease.holder.is_some() {
                actions.push(Action::DeleteLease);
            }
            if state.spent.lost_buckets < self.lost_buckets && state.lease.revision > 0 {
                actions.push(Action::LoseBucket);
            }
        }
    }

    /// A step that commutes with everything that may still happen: it is carried out before anything else, and no order is lost.
    ///
    /// What agent and policy say depends on nothing that a later step does, a read chain is as good as the hint that follows it, and an
    /// acknowledgement matters to a crash or another delivery only.
    fn local(&self, state: &State) -> Option<Action> {
        let of_a_node = |node: usize| {
            let it = &state.nodes[node];
            if it.acks != 0 && !state.may_fail(self) {
                let (letter, ack) = (it.acks.trailing_zeros() as usize, Ack::Heard);
                return Some(Action::Acknowledge { node, letter, ack });
            }
            let Drive::Driving(driving) = &it.drive else {
                return None;
            };
            let mut effects = driving.effects.iter().enumerate();
            effects.find_map(|(index, effect)| {
                let alone = matches!(
                    **effect,
                    Effect::AskAgent(_) | Effect::AskPolicy(_) | Effect::ReadChain { .. }
                );
                alone.then(|| Action::Own {
                    node,
                    what: name_of(effect).0,
                    index,
                    ack: Ack::Heard,
                })
            })
        };
        (0..state.nodes.len())
            .filter(|node| state.runs(*node))
            .find_map(of_a_node)
    }

    fn people(&self, state: &State, actions: &mut Vec<Action>) {
        let journal = &state.stored.journal.state;
        if journal.ended.is_some() {
            return;
        }
        if state.letters.len() <= usize::from(self.letters) {
            let possible = |says: &&Says| match says {
                Says::Cancel => journal.n > 0,
                _ => !journal.approvals.is_empty(),
            };
            actions.extend(self.says.iter().filter(possible).copied().map(Action::Say));
        }
        if state.policy <= self.policies && !journal.approvals.is_empty() {
            actions.push(Action::PolicyChanges);
        }
    }

    fn of_a_node(&self, state: &State, node: usize, actions: &mut Vec<Action>) {
        let it = &state.nodes[node];
        if it.lingering.is_some() {
            actions.push(Action::Expire { node });
        }
        if it.paused {
            actions.push(Action::WakeUp { node });
        }
        if !state.runs(node) {
            return;
        }
        if !it.authority {
            actions.push(Action::Exit { node });
        }
        for letter in (0..state.letters.len()).filter(|letter| it.acks & bit(*letter) != 0) {
            for ack in self.acks(state) {
                actions.push(Action::Acknowledge { node, letter, ack });
            }
        }
        if it.authority {
            // Until something has happened to one of them, the nodes are the same.
            let twin = node == 1 && state.nodes.iter().all(Node::is_fresh);
            let fresh = |letter: &usize| it.bag & bit(*letter) == 0 && !twin;
            for letter in (0..state.letters.len()).filter(fresh) {
                let twice = state.may_fail(self) && state.spent.redeliveries < self.redeliveries;
                if state.is_waiting(letter) || (twice && !state.letters[letter].acked) {
                    actions.push(Action::Deliver { node, letter });
                }
            }
        }
        let now = super::shell::clock(state.late).wall;
        if it.authority && state.timer.is_some_and(|at| at <= now) {
            let matters = match &it.drive {
                Drive::Driving(driving) => !driving.ticked,
                Drive::Leaving { again, .. } => !again,
                Drive::Idle => true,
                Drive::Opening { .. } | Drive::Quarantined => false,
            };
            if matters {
                actions.push(Action::TimerDue { node });
            }
        }
        match &it.drive {
            Drive::Idle => {
                if it.authority && self.sweep_matters(state, node) {
                    actions.push(Action::Sweep { node });
                }
            }
            Drive::Opening { lease: None, .. } => actions.push(Action::TakeLease { node }),
            Drive::Opening { .. } => actions.push(Action::Load { node }),
            Drive::Driving(driving) => {
                for (index, effect) in driving.effects.iter().enumerate() {
                    let (what, write) = name_of(effect);
                    for ack in self.acks(state).take(if write { 3 } else { 1 }) {
                        actions.push(Action::Own {
                            node,
                            what,
                            index,
                            ack,
                        });
                    }
                }
                if state.has_news(node) {
                    actions.push(Action::Hear { node });
                }
                if state.late && !driving.ticked {
                    actions.push(Action::Tick { node });
                }
            }
            Drive::Leaving { .. } => {
                actions.extend(
                    self.acks(state)
                        .filter(|ack| *ack != Ack::LostAfter)
                        .map(|ack| Action::Leave { node, ack }),
                );
            }
            Drive::Quarantined => {}
        }
    }

    /// A sweep that would change nothing is none.
    fn sweep_matters(&self, state: &State, node: usize) -> bool {
        let mut after = state.clone();
        after.sweep(node, self);
        after != *state
    }

    fn faults_of_a_node(&self, state: &State, node: usize, actions: &mut Vec<Action>) {
        let it = &state.nodes[node];
        if !state.may_fail(self) || it.gone {
            return;
        }
        let writing = match &it.drive {
            Drive::Driving(driving) => driving.effects.iter().any(|effect| name_of(effect).1),
            _ => false,
        };
        // The end of a process that has nothing in hand, and of which no lease speaks, is seen by nobody.
        let matters = it.drive != Drive::Idle
            || it.bag != 0
            || it.acks != 0
            || state.lease.holder == Some(state.session(node));
        if state.spent.crashes < self.crashes && matters {
            for late_writes in [false, true].into_iter().take(if writing { 2 } else { 1 }) {
                for for_good in [false, true] {
                    let possible = !for_good || state.spent.losses < self.losses;
                    if possible {
                        actions.push(Action::Crash {
                            node,
                            late_writes,
                            for_good,
                        });
                    }
                }
            }
        }
        if state.spent.pauses < self.pauses && matters && !it.paused && it.authority {
            for checked in [false, true].into_iter().take(if writing { 2 } else { 1 }) {
                actions.push(Action::Pause { node, checked });
            }
        }
    }

    fn acks(&self, state: &State) -> impl Iterator<Item = Ack> + use<> {
        let lossy = state.spent.lost_acks < self.lost_acks && state.may_fail(self);
        Ack::all(lossy)
    }

    /// Whether nothing can happen any more.
    pub(super) fn is_terminal(&self, state: &State) -> bool {
        use stateright::Model;
        let mut actions = Vec::new();
        self.choices(state, &mut actions);
        actions
            .into_iter()
            .all(|action| self.next_state(state, action).is_none())
    }
}

/// An effect's name, and whether it is a write whose acknowledgement can be lost.
fn name_of(effect: &Effect) -> (&'static str, bool) {
    match effect {
        Effect::Commit(_) => ("commit", true),
        Effect::ReadJournal { .. } => ("read journal", false),
        Effect::ReadChain { .. } => ("read chain", false),
        Effect::WriteRegister(_) => ("revoke", true),
        Effect::Inspect { .. } => ("inspect", false),
        Effect::Probe(_) => ("probe", false),
        Effect::AskAgent(_) => ("ask agent", false),
        Effect::AskPolicy(_) => ("ask policy", false),
        Effect::SetTimer { .. } => ("set timer", false),
        _ => ("", false),
    }
}
