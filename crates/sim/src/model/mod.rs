//! The model of the claim, evidence and seal question: every order of everything, up to a bound, over the production machines.
//!
//! One run with one step that changes the world, from its dispatch to its end; one owner ([`RunMachine`](leasehold_protocol::RunMachine))
//! and two workers ([`AttemptMachine`](leasehold_protocol::AttemptMachine)); a store, a service that applies every request it gets, and an
//! operator. Each effect of a machine is carried out by itself, so that a crash, a late request or another's write falls between any two.
//! Nothing of the protocol is written down a second time here: the machines decide, the model only schedules.
//!
//! **The bound.** [`Bound`] says how often each fault may occur and how many faults together. Free, and therefore in every order: which
//! worker is handed the call, whether the request lands, is lost or lands after its sender died, what the tool then says, when the owner
//! hears of a message, when its patience ends, whether the dead process's last writes arrive, when processes come back, and what the
//! operator answers (run again once; record as done).
//!
//! **Left out.** Answers come with the effect that they answer (a machine that hears of it later is one that was scheduled later); one
//! step, no cancel, no two living owners, no unreadable logbook, no failing probe: the simulator has those.

mod owner;
mod printed;
mod state;
mod workers;

use leasehold_json::AcceptedJson;
use leasehold_protocol::{
    AttemptEffect, Basis, Body, ClaimBody, ClientId, Decision, Effect, Finding, Limits,
    LogbookRecord, Note, NoteKind, ObservationKind, OutcomeBody, Phase, RunId, RunWeakening,
    Sealed, Submission, WIRE_VERSION, WorkerWeakening,
};
use stateright::{Checker, HasDiscoveries, Model, Property};

pub use state::State;

use state::Request;

/// What a check goes through.
#[derive(Debug, Clone)]
pub struct Bound {
    /// Faults of all kinds together.
    pub faults: u8,
    /// Crashes of a worker.
    pub worker_crashes: u8,
    /// Crashes that also lose the logbook.
    pub lost_logbooks: u8,
    /// Crashes of the owner.
    pub owner_crashes: u8,
    /// Deliveries of a call that somebody works on.
    pub redeliveries: u8,
    /// Tools that say "it may have happened" in time.
    pub may: u8,
    /// Deadlines that pass.
    pub deadlines: u8,
    /// Acknowledgements, or writes, that are lost.
    pub lost_acks: u8,
    /// Run-again decisions.
    pub run_again: u8,
    /// A negative control of the owner.
    pub run: RunWeakening,
    /// A negative control of the workers.
    pub worker: WorkerWeakening,
    submission: Body,
}

impl Bound {
    /// Every fault at most once, at most `faults` of them together, over a tool without a probe or with a fencing one.
    pub fn new(faults: u8, fencing: bool) -> Self {
        Self {
            faults,
            worker_crashes: 1,
            lost_logbooks: 1,
            owner_crashes: 1,
            redeliveries: 1,
            may: 1,
            deadlines: 1,
            lost_acks: 1,
            run_again: 1,
            run: RunWeakening::None,
            worker: WorkerWeakening::None,
            submission: submission(if fencing { "pay_fence" } else { "pay_none" }),
        }
    }
}

#[expect(
    clippy::expect_used,
    reason = "the model's own two names are valid identifiers"
)]
fn names() -> (RunId, ClientId) {
    (
        RunId::new("run").expect("a run id"),
        ClientId::new("model").expect("a client id"),
    )
}

fn submission(tool: &str) -> Body {
    let (run, client) = names();
    let limits = Limits {
        max_consecutive_failures: 50,
        ..Limits::default()
    };
    let submission = Submission {
        v: WIRE_VERSION,
        run,
        client,
        agent: "model".into(),
        goal: "change the world once".into(),
        input: None,
        tools: vec![tool.to_owned()],
        limits,
    };
    submission.encode().into()
}

/// What becomes of a conditional write and its acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// The writer hears the answer.
    Heard,
    /// The write is lost.
    LostBefore,
    /// The write arrives, its answer is lost.
    LostAfter,
}

/// What a tool says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returns {
    /// It is done.
    Done,
    /// It was refused.
    NothingHappened,
    /// It cannot say, in time.
    MayHaveHappened,
    /// It says nothing until long after its deadline.
    GivenUp,
}

/// How a worker dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crash {
    /// Its disk is lost as well.
    pub lost_logbook: bool,
    /// What it was about to write arrives later.
    pub late_writes: bool,
}

/// One step of the model. Workers and attempts count from 0, effects stand in a canonical order.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names say what happens, and to whom")]
pub enum Action {
    Deliver {
        worker: usize,
        attempt: usize,
    },
    Work {
        worker: usize,
        attempt: usize,
        what: &'static str,
        index: usize,
        ack: Ack,
    },
    Land {
        worker: usize,
        attempt: usize,
    },
    Lose {
        worker: usize,
        attempt: usize,
    },
    Return {
        worker: usize,
        attempt: usize,
        returns: Returns,
    },
    Deadline {
        worker: usize,
        attempt: usize,
    },
    LandLate {
        attempt: usize,
    },
    LoseLate {
        attempt: usize,
    },
    CrashWorker {
        worker: usize,
        crash: Crash,
    },
    Restart {
        worker: usize,
    },
    WriteLate {
        index: usize,
    },
    StartOwner,
    Own {
        what: &'static str,
        index: usize,
        ack: Ack,
    },
    Hear,
    Silence,
    CrashOwner {
        late_writes: bool,
    },
    Decide(Decision),
}

impl Model for Bound {
    type State = State;
    type Action = Action;

    /// The call is dispatched; nobody has taken it.
    fn init_states(&self) -> Vec<State> {
        let mut state = State::new(names().0);
        state.start_owner(self);
        while state.lanes.is_empty() && state.owner.is_some() {
            state.own(0, Ack::Heard);
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.work_of_workers(state, actions);
        self.work_of_the_owner(state, actions);
        self.faults(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Deliver { worker, attempt } => state.deliver(worker, attempt, self),
            Action::Work {
                worker,
                attempt,
                index,
                ack,
                ..
            } => state.work(worker, attempt, index, ack),
            Action::Land { worker, attempt } => state.arrive(worker, attempt),
            Action::Lose { worker, attempt } => state.lose(worker, attempt),
            Action::Return {
                worker,
                attempt,
                returns,
            } => state.returned(worker, attempt, returns),
            Action::Deadline { worker, attempt } => state.deadline(worker, attempt),
            Action::LandLate { attempt } => state.arrive_late(attempt),
            Action::LoseLate { attempt } => state.adrift[attempt] -= 1,
            Action::CrashWorker { worker, crash } => state.crash_worker(worker, crash),
            Action::Restart { worker } => state.restart(worker),
            Action::WriteLate { index } => {
                let write = state.late.remove(index);
                state.write_late(&write);
            }
            Action::StartOwner => state.start_owner(self),
            Action::Own { index, ack, .. } => state.own(index, ack),
            Action::Hear => state.hear(),
            Action::Silence => state.fall_silent(),
            Action::CrashOwner { late_writes } => state.crash_owner(late_writes),
            Action::Decide(decision) => state.decide(decision),
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("I1: effects <= 1 + run-again decisions", |_, state: &State| {
                i1(state)
            }),
            Property::always(
                "I2: proved not done means no effect, ok means one",
                |_, state: &State| i2(state),
            ),
            Property::always(
                "promises about a moment (I5, I6, I8, I15, I16, I20)",
                |_, state: &State| state.flaw.is_none(),
            ),
            Property::always("no stuck state", |model: &Self, state: &State| {
                !model.is_stuck(state)
            }),
            Property::always(
                "every invariant over the stored bytes",
                |model: &Self, state: &State| !model.is_terminal(state) || state.check().is_empty(),
            ),
            Property::sometimes("a tombstone", |_, state: &State| {
                state.workers.iter().any(|worker| {
                    worker
                        .disk
                        .values()
                        .any(|record| matches!(**record, LogbookRecord::Tombstone { .. }))
                })
            }),
            Property::sometimes("an unsure note", |_, state: &State| {
                noted(state, |kind| matches!(kind, NoteKind::Unsure { .. }))
            }),
            Property::sometimes("an outcome that met a seal", |_, state: &State| {
                noted(state, |kind| matches!(kind, NoteKind::MetSeal { .. }))
            }),
            Property::sometimes("a further attempt on a proof", |_, state: &State| {
                has_basis(state, |basis| matches!(basis, Basis::Proof { .. }))
            }),
            Property::sometimes("an end", |_, state: &State| state.journal.state.ended.is_some()),
            Property::sometimes("an effect that lands after its worker's end", |_, state: &State| {
                state.spent.worker_crashes > 0 && state.adrift[0] > 0
            }),
        ];
        if self.is_fencing() {
            properties.push(Property::sometimes("a sealed not-done", |_, state: &State| {
                sealed(state, |finding| matches!(finding, Sealed::ProbeNotDone))
            }));
            properties.push(Property::sometimes("a sealed done", |_, state: &State| {
                sealed(state, |finding| matches!(finding, Sealed::ProbeDone { .. }))
            }));
        } else {
            properties.push(Property::sometimes(
                "run again, and two effects",
                |_, state: &State| state.total() == 2,
            ));
            properties.push(Property::sometimes("a continue", |_, state: &State| {
                has_basis(state, |basis| matches!(basis, Basis::Continue { .. }))
            }));
        }
        properties
    }
}

impl Bound {
    fn is_fencing(&self) -> bool {
        self.submission == submission("pay_fence")
    }

    fn work_of_workers(&self, state: &State, actions: &mut Vec<Action>) {
        for (worker, it) in state.workers.iter().enumerate() {
            for attempt in 0..state.lanes.len() {
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
        for attempt in (0..state.lanes.len()).filter(|attempt| state.adrift[*attempt] > 0) {
            actions.push(Action::LandLate { attempt });
            actions.push(Action::LoseLate { attempt });
        }
        actions.extend((0..state.late.len()).map(|index| Action::WriteLate { index }));
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
        if state.may_be_silent() {
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
        let all = [Ack::Heard, Ack::LostBefore, Ack::LostAfter];
        all.into_iter().take(if lossy { 3 } else { 1 })
    }

    /// Whether nothing can happen any more.
    fn is_terminal(&self, state: &State) -> bool {
        let mut actions = Vec::new();
        self.actions(state, &mut actions);
        // All other actions change something whenever they are offered; this one may be news to nobody.
        actions
            .into_iter()
            .all(|action| action == Action::Hear && self.next_state(state, action).is_none())
    }

    /// Whether nothing can happen any more although the run has neither ended nor waits for an operator.
    fn is_stuck(&self, state: &State) -> bool {
        let journal = &state.journal.state;
        journal.ended.is_none()
            && journal.open_questions().next().is_none()
            && self.is_terminal(state)
    }

    /// Goes through every state within the bound, on all processors; stops at the first broken promise.
    pub fn check(self) -> Checked {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let checker = self
            .checker()
            .threads(threads)
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        let mut broken = Vec::new();
        let mut seen = Vec::new();
        for (name, path) in checker.discoveries() {
            let failure = checker
                .model()
                .property(name)
                .expectation
                .discovery_is_failure();
            if failure {
                let trace = path.into_actions();
                broken.push((name, trace));
            } else {
                seen.push(name);
            }
        }
        let never = checker.model().properties().into_iter();
        let never = never
            .filter(|property| !property.expectation.discovery_is_failure())
            .map(|property| property.name)
            .filter(|name| !seen.contains(name))
            .collect();
        Checked {
            states: checker.unique_state_count(),
            transitions: checker.state_count(),
            depth: checker.max_depth(),
            broken,
            never,
        }
    }
}

/// What came of a check.
#[derive(Debug)]
pub struct Checked {
    /// Different states.
    pub states: usize,
    /// Steps between them.
    pub transitions: usize,
    /// Steps of the longest way that was gone.
    pub depth: usize,
    /// Broken promises, each with a way to it.
    pub broken: Vec<(&'static str, Vec<Action>)>,
    /// Situations that the model is about and that never came about: a check with one of them proves less than it says.
    pub never: Vec<&'static str>,
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

fn i1(state: &State) -> bool {
    let again = state.step().map_or(0, |step| {
        let attempts = step.attempts.iter();
        attempts
            .filter(|attempt| matches!(attempt.basis, Basis::RunAgain { .. }))
            .count()
    });
    state.total() <= 1 + again && state.effects.iter().all(|count| *count <= 1)
}

fn i2(state: &State) -> bool {
    let idle = |(at, lane): (usize, &printed::Printed<state::Lane>)| {
        let claim = lane.chain.claim.as_ref().map(|(_, claim)| claim);
        let outcome = lane
            .chain
            .outcome
            .as_ref()
            .map(|(_, outcome)| &outcome.fact);
        let proved = matches!(
            outcome,
            Some(
                OutcomeBody::NotStarted { .. }
                    | OutcomeBody::NothingHappened { .. }
                    | OutcomeBody::Sealed {
                        finding: Sealed::ProbeNotDone,
                        ..
                    }
            )
        ) || matches!(claim, Some(ClaimBody::Revoke { .. }));
        !proved || state.effects[at] == 0
    };
    let ok = state.step().is_some_and(|step| {
        let by_person = step
            .latest()
            .is_some_and(|latest| matches!(latest.finding, Some((Finding::RecordedDone, _))));
        step.phase == Phase::Finished
            && !by_person
            && step
                .observation
                .as_ref()
                .is_some_and(|told| told.kind == ObservationKind::ToolResult)
    });
    state.lanes.iter().enumerate().all(idle) && (!ok || state.total() > 0)
}

fn noted(state: &State, wanted: fn(&NoteKind) -> bool) -> bool {
    let notes = state.lanes.iter().flat_map(|lane| &lane.notes);
    notes
        .filter_map(|note| Note::decode(note.body.as_bytes()).ok())
        .any(|note| wanted(&note.evidence))
}

fn sealed(state: &State, wanted: fn(&Sealed) -> bool) -> bool {
    state.lanes.iter().any(|lane| {
        matches!(&lane.chain.outcome, Some((_, outcome)) if matches!(&outcome.fact, OutcomeBody::Sealed { finding, .. } if wanted(finding)))
    })
}

fn has_basis(state: &State, wanted: fn(&Basis) -> bool) -> bool {
    state
        .step()
        .is_some_and(|step| step.attempts.iter().any(|attempt| wanted(&attempt.basis)))
}
