//! What may happen next in a situation: every effect that waits, every word of the tool, every fault that the bound still allows.

use leasehold_json::AcceptedJson;
use leasehold_protocol::{AttemptEffect, Decision, Effect};
use stateright::Model;

use super::state::{Request, State};
use super::{Ack, Action, Bound, Crash, Returns};

impl Bound {
    /// Everything that may happen next.
    pub(super) fn choices(&self, state: &State, actions: &mut Vec<Action>) {
        if let Some(alone) = self.local(state) {
            actions.push(alone);
            return;
        }
        self.work_of_workers(state, actions);
        self.work_of_the_owner(state, actions);
        self.faults(state, actions);
    }

    /// An effect that commutes with everything that may still happen: it is carried out before anything else, and no order is lost.
    ///
    /// A read is as good as the hint that follows it, and what agent and policy say depends on nothing. What is written to a disk or
    /// acknowledged matters to a crash or another delivery only.
    fn local(&self, state: &State) -> Option<Action> {
        let fails = state.may_fail(self);
        let crashes = fails && state.spent.worker_crashes < self.worker_crashes;
        let again = crashes || (fails && state.spent.redeliveries < self.redeliveries);
        for (index, effect) in state
            .owner
            .iter()
            .flat_map(|owner| owner.effects.iter().enumerate())
        {
            if matches!(
                **effect,
                Effect::AskAgent(_) | Effect::AskPolicy(_) | Effect::ReadChain { .. }
            ) {
                let (what, _) = name_of_effect(effect);
                return Some(Action::Own {
                    what,
                    index,
                    ack: Ack::Heard,
                });
            }
        }
        for (worker, it) in state.workers.iter().enumerate() {
            for (&attempt, job) in &it.jobs {
                for (index, effect) in job.effects.iter().enumerate() {
                    let alone = match **effect {
                        AttemptEffect::ReadChain | AttemptEffect::ReadRecord => true,
                        AttemptEffect::CreateRecord { .. } | AttemptEffect::LogOutcome { .. } => {
                            !crashes
                        }
                        AttemptEffect::AckCall { .. } => !again,
                        _ => false,
                    };
                    if alone {
                        let (what, _) = name_of_attempt_effect(effect);
                        return Some(Action::Work {
                            worker,
                            attempt,
                            what,
                            index,
                            ack: Ack::Heard,
                        });
                    }
                }
            }
        }
        None
    }

    fn work_of_workers(&self, state: &State, actions: &mut Vec<Action>) {
        for (worker, it) in state.workers.iter().enumerate() {
            for attempt in 0..state.stored.lanes.len() {
                if state.may_deliver(worker, attempt, self) {
                    actions.push(Action::Deliver { worker, attempt });
                }
            }
            for (&attempt, job) in &it.jobs {
                for (index, effect) in job.effects.iter().enumerate() {
                    let (what, conditional) = name_of_attempt_effect(effect);
                    for ack in self.acks(state, conditional) {
                        actions.push(Action::Work {
                            worker,
                            attempt,
                            what,
                            index,
                            ack,
                        });
                    }
                }
                let returns = match job.request {
                    None => &[][..],
                    Some(Request::OnItsWay) => {
                        actions.push(Action::Land { worker, attempt });
                        actions.push(Action::Lose { worker, attempt });
                        &[Returns::MayHaveHappened, Returns::GivenUp][..]
                    }
                    Some(Request::Landed) => {
                        &[Returns::Done, Returns::MayHaveHappened, Returns::GivenUp][..]
                    }
                    Some(Request::Gone) => &[
                        Returns::NothingHappened,
                        Returns::MayHaveHappened,
                        Returns::GivenUp,
                    ][..],
                };
                for &returns in returns {
                    let possible = match returns {
                        Returns::Done | Returns::NothingHappened => true,
                        Returns::MayHaveHappened => {
                            !job.late && state.spent.may < self.may && state.may_fail(self)
                        }
                        Returns::GivenUp => job.late,
                    };
                    if possible {
                        actions.push(Action::Return {
                            worker,
                            attempt,
                            returns,
                        });
                    }
                }
            }
            if !it.alive {
                actions.push(Action::Restart { worker });
            }
        }
        for attempt in (0..state.stored.lanes.len()).filter(|attempt| state.adrift[*attempt] > 0) {
            actions.push(Action::LandLate { attempt });
            actions.push(Action::LoseLate { attempt });
        }
        actions.extend((0..state.stored.late.len()).map(|index| Action::WriteLate { index }));
    }

    fn work_of_the_owner(&self, state: &State, actions: &mut Vec<Action>) {
        if state.may_start_owner() {
            actions.push(Action::StartOwner);
        }
        for (index, effect) in state
            .owner
            .iter()
            .flat_map(|owner| owner.effects.iter().enumerate())
        {
            let (what, conditional) = name_of_effect(effect);
            for ack in self.acks(state, conditional) {
                actions.push(Action::Own { what, index, ack });
            }
        }
        if state.has_news() {
            actions.push(Action::Hear);
        }
        if state.may_be_silent(self) {
            actions.push(Action::Silence);
        }
        if state.is_asked() {
            if state.spent.run_again < self.run_again {
                actions.push(Action::Decide(Decision::RunAgain));
            }
            let result = AcceptedJson::empty_object();
            actions.push(Action::Decide(Decision::RecordDone { result }));
        }
    }

    fn faults(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.may_fail(self) {
            return;
        }
        for (worker, it) in state.workers.iter().enumerate() {
            for (&attempt, job) in &it.jobs {
                if state.spent.deadlines < self.deadlines && !job.late && job.machine.is_running() {
                    actions.push(Action::Deadline { worker, attempt });
                }
            }
            // A crash in a moment without work changes nothing that the call's next delivery would not show.
            if state.spent.worker_crashes < self.worker_crashes && !it.jobs.is_empty() {
                for lost_logbook in [false, true] {
                    let possible = !lost_logbook || state.spent.lost_logbooks < self.lost_logbooks;
                    for late_writes in [false, true].into_iter().filter(|_| possible) {
                        let crash = Crash {
                            lost_logbook,
                            late_writes,
                        };
                        actions.push(Action::CrashWorker { worker, crash });
                    }
                }
            }
        }
        if state.spent.owner_crashes < self.owner_crashes && state.owner.is_some() {
            for late_writes in [false, true] {
                actions.push(Action::CrashOwner { late_writes });
            }
        }
    }

    fn acks(&self, state: &State, conditional: bool) -> impl Iterator<Item = Ack> + use<> {
        let lossy = conditional && state.spent.lost_acks < self.lost_acks && state.may_fail(self);
        Ack::all(lossy)
    }

    /// Whether nothing can happen any more.
    pub(super) fn is_terminal(&self, state: &State) -> bool {
        let mut actions = Vec::new();
        self.choices(state, &mut actions);
        // All other actions change something whenever they are offered; this one may be news to nobody.
        actions
            .into_iter()
            .all(|action| action == Action::Hear && self.next_state(state, action).is_none())
    }

    /// Whether nothing can happen any more although the run has neither ended nor waits for an operator.
    pub(super) fn is_stuck(&self, state: &State) -> bool {
        let journal = &state.stored.journal.state;
        journal.ended.is_none()
            && journal.open_questions().next().is_none()
            && self.is_terminal(state)
    }
}

/// An effect's name, and whether it is a write whose acknowledgement can be lost.
fn name_of_attempt_effect(effect: &AttemptEffect) -> (&'static str, bool) {
    match effect {
        AttemptEffect::ReadChain => ("read chain", false),
        AttemptEffect::WriteClaim { .. } => ("write claim", true),
        AttemptEffect::CreateRecord { .. } => ("create record", false),
        AttemptEffect::WriteOutcome { .. } => ("write outcome", true),
        AttemptEffect::LogOutcome { .. } => ("log outcome", false),
        AttemptEffect::WriteNote { .. } => ("write note", false),
        AttemptEffect::ReadRecord => ("read record", false),
        AttemptEffect::AckCall { .. } => ("acknowledge", false),
        _ => ("", false),
    }
}

fn name_of_effect(effect: &Effect) -> (&'static str, bool) {
    match effect {
        Effect::Commit(_) => ("commit", true),
        Effect::ReadJournal { .. } => ("read journal", false),
        Effect::ReadChain { .. } => ("read chain", false),
        Effect::WriteRegister(_) => ("seal", true),
        Effect::Inspect { .. } => ("inspect", false),
        Effect::Probe(_) => ("probe", false),
        Effect::AskAgent(_) => ("ask agent", false),
        Effect::AskPolicy(_) => ("ask policy", false),
        _ => ("", false),
    }
}
