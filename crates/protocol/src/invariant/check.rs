//! The numbered promises over stored bytes: journals, chains, and the external ledger of effects where there is one.
//!
//! The decoders are the runtime's own; none of its decisions is used.

use std::collections::BTreeMap;

use leasehold_json::Digest;
use leasehold_tools::SideEffect;

use super::{Invariant, RunRecord, Violation};
use crate::chain::Chain;
use crate::ids::{Attempt, ChainKey, Seq, StepId};
use crate::state::{AttemptState, FoldError, Phase, RunState};
use crate::wire::{Basis, Commit, Event, Finding, ObservationKind, OutcomeBody, Sealed};

/// Checks one run. `class` gives the class of a tool by name.
pub fn check(record: &RunRecord<'_>, class: &dyn Fn(&str) -> SideEffect) -> Vec<Violation> {
    let mut checker = Checker {
        record,
        class,
        found: Vec::new(),
    };
    checker.journal();
    checker.chains();
    let decoded: Vec<(Seq, Commit)> = record
        .commits
        .iter()
        .filter_map(|stored| {
            Commit::decode(stored.body.as_bytes())
                .ok()
                .map(|commit| (stored.seq, commit))
        })
        .collect();
    checker.attempts(&decoded);
    if let Ok(state) = RunState::fold(record.run.clone(), record.commits) {
        checker.ledger(&state);
        checker.orphans(&state);
    }
    checker.found
}

struct Checker<'a> {
    record: &'a RunRecord<'a>,
    class: &'a dyn Fn(&str) -> SideEffect,
    found: Vec<Violation>,
}

impl Checker<'_> {
    fn violate(&mut self, invariant: Invariant, text: String) {
        self.found.push(Violation {
            invariant,
            run: self.record.run.clone(),
            text,
        });
    }

    /// I3, I4, I8, I9, I10, I13 over the journal's bytes.
    fn journal(&mut self) {
        let commits = self.record.commits;
        if let Err(error) = RunState::fold(self.record.run.clone(), commits) {
            let invariant = if matches!(error, FoldError::Newer { .. }) {
                Invariant::I9
            } else {
                Invariant::I8
            };
            self.violate(invariant, error.to_string());
        }
        let (mut epoch, mut n, mut prev, mut ended) = (0, 0, Digest::ZERO, false);
        for stored in commits {
            let Ok(commit) = Commit::decode(stored.body.as_bytes()) else {
                self.violate(
                    Invariant::I8,
                    format!("position {} holds no readable commit", stored.seq),
                );
                continue;
            };
            let seq = stored.seq;
            if commit.encode() != stored.body.as_bytes() {
                self.violate(
                    Invariant::I9,
                    format!("position {seq} does not encode to the bytes it was read from"),
                );
            }
            if commit.run != *self.record.run {
                self.violate(
                    Invariant::I13,
                    format!("position {seq} is of run {}", commit.run),
                );
            }
            if ended {
                self.violate(Invariant::I10, format!("position {seq} follows the end"));
            }
            let owns = commit
                .events
                .iter()
                .any(|event| matches!(event, Event::Owned { .. }));
            if commit.epoch.get() < epoch {
                self.violate(
                    Invariant::I3,
                    format!(
                        "position {seq} is of epoch {}, after epoch {epoch}",
                        commit.epoch
                    ),
                );
            } else if owns && commit.epoch.get() == epoch {
                self.violate(
                    Invariant::I4,
                    format!("position {seq} takes over without a higher epoch than {epoch}"),
                );
            }
            epoch = epoch.max(commit.epoch.get());
            if commit.n != n + 1 || commit.prev != prev {
                self.violate(
                    Invariant::I8,
                    format!(
                        "position {seq} (commit {}) is not linked to commit {n}",
                        commit.n
                    ),
                );
            }
            (n, prev) = (commit.n, Digest::of(stored.body.as_bytes()));
            ended |= commit
                .events
                .iter()
                .any(|event| matches!(event, Event::Ended { .. }));
        }
        let opened = commits
            .first()
            .and_then(|stored| Commit::decode(stored.body.as_bytes()).ok());
        let submitted = opened
            .is_none_or(|commit| matches!(commit.events.first(), Some(Event::Submitted { .. })));
        if !submitted {
            self.violate(
                Invariant::I12,
                "the journal does not begin with a submission".into(),
            );
        }
    }

    /// I6, I7, I13 over the chains' bytes.
    fn chains(&mut self) {
        for (key, messages) in self.record.chains {
            let class = (self.class)(&key.tool);
            let chain = Chain::read(class, messages);
            let Some((call, envelope)) = &chain.call else {
                self.violate(
                    Invariant::I6,
                    format!("the chain of {key} has no call at its head"),
                );
                continue;
            };
            if envelope.run != key.run
                || envelope.step != key.step
                || envelope.attempt != key.attempt
                || envelope.tool != key.tool
            {
                self.violate(
                    Invariant::I13,
                    format!("the envelope at position {call} is of another attempt than {key}"),
                );
            }
            let worker_outcome = messages.iter().find(|message| {
                message.link == crate::chain::Link::Outcome
                    && message.writer != crate::ids::RUNTIME_TOKEN
            });
            if let (Some(outcome), false) = (worker_outcome, class.is_read_only())
                && chain
                    .claim
                    .as_ref()
                    .is_none_or(|(seq, _)| *seq > outcome.seq)
            {
                self.violate(
                    Invariant::I6,
                    format!(
                        "the outcome of {key} at position {} precedes every claim",
                        outcome.seq
                    ),
                );
            }
        }
    }

    fn chain_of(&self, step: StepId, attempt: Attempt) -> Option<(&ChainKey, Chain)> {
        let (key, messages) = self
            .record
            .chains
            .iter()
            .find(|(key, _)| key.step == step && key.attempt == attempt)?;
        Some((key, Chain::read((self.class)(&key.tool), messages)))
    }

    /// I7, I11, I20 over dispatches and findings.
    fn attempts(&mut self, commits: &[(Seq, Commit)]) {
        let mut judged = BTreeMap::new();
        for (seq, commit) in commits {
            for event in &commit.events {
                match event {
                    Event::Policy {
                        step, arguments, ..
                    } => {
                        judged.insert(*step, arguments.clone());
                    }
                    Event::Dispatched {
                        step,
                        attempt,
                        call,
                        basis,
                    } => {
                        self.dispatched(*seq, *step, *attempt, *call, judged.get(step));
                        self.basis(*seq, *step, *attempt, basis);
                    }
                    Event::Found {
                        step,
                        attempt,
                        finding,
                        register,
                        ..
                    } => self.finding(*seq, *step, *attempt, *finding, *register),
                    _ => {}
                }
            }
        }
    }

    fn dispatched(
        &mut self,
        seq: Seq,
        step: StepId,
        attempt: Attempt,
        call: Digest,
        judged: Option<&leasehold_json::AcceptedJson>,
    ) {
        let Some((_, chain)) = self.chain_of(step, attempt) else {
            return self.violate(
                Invariant::I6,
                format!(
                    "position {seq} dispatches step {step} attempt {attempt}, which has no chain"
                ),
            );
        };
        let Some((at, envelope)) = chain.call else {
            return;
        };
        if at != seq || Digest::of(&envelope.encode()) != call {
            self.violate(Invariant::I7, format!("the envelope of step {step} attempt {attempt} is not the one that position {seq} names"));
        }
        if judged != Some(&envelope.arguments) {
            self.violate(Invariant::I7, format!("step {step} attempt {attempt} was dispatched with other arguments than were judged"));
        }
    }

    /// I20: what permits an attempt stands in the registers of the one before it, before the dispatch.
    fn basis(&mut self, seq: Seq, step: StepId, attempt: Attempt, basis: &Basis) {
        let Some(before) = attempt.get().checked_sub(1).filter(|n| *n > 0) else {
            return;
        };
        let chain = before
            .to_string()
            .parse()
            .ok()
            .and_then(|before| self.chain_of(step, before).map(|(_, chain)| chain));
        let Some(chain) = chain else {
            return self.violate(
                Invariant::I20,
                format!("step {step} attempt {attempt} follows an attempt without a chain"),
            );
        };
        let outcome = chain
            .outcome
            .as_ref()
            .filter(|(at, _)| *at < seq)
            .map(|(at, outcome)| (*at, &outcome.fact));
        let revoked = chain
            .claim
            .as_ref()
            .filter(|(at, _)| chain.revoked() && *at < seq)
            .map(|(at, _)| *at);
        let proof = match outcome {
            Some((
                at,
                OutcomeBody::NotStarted { .. }
                | OutcomeBody::Sealed {
                    finding: Sealed::ProbeNotDone,
                    ..
                },
            )) => Some(at),
            Some(_) => None,
            None => revoked,
        };
        let ok = match basis {
            Basis::First { .. } => false,
            Basis::Proof { register } | Basis::Continue { register, .. } => {
                proof == Some(*register)
            }
            Basis::RunAgain { .. } => matches!(
                outcome,
                Some((
                    _,
                    OutcomeBody::Sealed {
                        finding: Sealed::RunAgain { .. },
                        ..
                    }
                ))
            ),
            Basis::Superseded => matches!(
                outcome,
                Some((
                    _,
                    OutcomeBody::Sealed {
                        finding: Sealed::Superseded,
                        ..
                    }
                ))
            ),
        };
        if !ok {
            self.violate(
                Invariant::I20,
                format!("position {seq} dispatches step {step} attempt {attempt} on {basis:?}, which the registers before it do not hold"),
            );
        }
    }

    /// I11: a finding names the register message that holds its fact.
    fn finding(
        &mut self,
        seq: Seq,
        step: StepId,
        attempt: Attempt,
        finding: Finding,
        register: Option<Seq>,
    ) {
        if matches!(finding, Finding::Unknown | Finding::Conflict) {
            return;
        }
        let Some((_, chain)) = self.chain_of(step, attempt) else {
            return;
        };
        let at_outcome = chain
            .outcome
            .as_ref()
            .filter(|(at, _)| Some(*at) == register)
            .map(|(_, outcome)| &outcome.fact);
        let ok = match (finding, at_outcome) {
            (
                Finding::Done,
                Some(
                    OutcomeBody::Done { .. }
                    | OutcomeBody::DoneUnusable { .. }
                    | OutcomeBody::Aborted { .. },
                ),
            ) => true,
            (Finding::NothingHappened, Some(OutcomeBody::NothingHappened { .. })) => true,
            (Finding::NotStarted, Some(OutcomeBody::NotStarted { .. })) => true,
            (
                Finding::ProbeDone,
                Some(OutcomeBody::Sealed {
                    finding: Sealed::ProbeDone { .. },
                    ..
                }),
            ) => true,
            (
                Finding::ProbeNotDone,
                Some(OutcomeBody::Sealed {
                    finding: Sealed::ProbeNotDone,
                    ..
                }),
            ) => true,
            (
                Finding::Superseded,
                Some(OutcomeBody::Sealed {
                    finding: Sealed::Superseded,
                    ..
                }),
            ) => true,
            (
                Finding::RunAgain,
                Some(OutcomeBody::Sealed {
                    finding: Sealed::RunAgain { .. },
                    ..
                }),
            ) => true,
            (Finding::Revoked, None) => {
                chain.revoked() && chain.claim.as_ref().map(|(at, _)| *at) == register
            }
            // A person's decision stands on its seal, or on the fact it met.
            (Finding::RecordedDone | Finding::Rejected, Some(_)) => true,
            (Finding::RecordedDone | Finding::Rejected, None) => {
                register.is_none() || chain.revoked()
            }
            _ => false,
        };
        if !ok {
            self.violate(
                Invariant::I11,
                format!("position {seq} finds {finding:?} of step {step} attempt {attempt}, which register message {register:?} does not hold"),
            );
        }
    }

    /// Whether the record says of an attempt that it had no effect: by a finding, or by the worker's own outcome.
    fn says_nothing_happened(&self, step: StepId, attempt: &AttemptState) -> bool {
        let found = matches!(
            attempt.finding,
            Some((
                Finding::NotStarted | Finding::Revoked | Finding::ProbeNotDone,
                _
            ))
        );
        let outcome = self
            .chain_of(step, attempt.attempt)
            .and_then(|(_, chain)| chain.outcome);
        found
            || outcome.is_some_and(|(_, outcome)| {
                matches!(
                    outcome.fact,
                    OutcomeBody::NothingHappened { .. } | OutcomeBody::NotStarted { .. }
                )
            })
    }

    /// I1, I2, I12 against the external ledger.
    fn ledger(&mut self, state: &RunState) {
        let Some(effects) = self.record.effects else {
            return;
        };
        for turn in &state.turns {
            for step in &turn.steps {
                let Some(accepted) = &step.accepted else {
                    continue;
                };
                if (self.class)(&accepted.tool).is_read_only() {
                    continue;
                }
                let count =
                    |attempt: Attempt| effects.get(&(step.id, attempt)).copied().unwrap_or(0);
                let total: u32 = step
                    .attempts
                    .iter()
                    .map(|attempt| count(attempt.attempt))
                    .sum();
                let again = step
                    .attempts
                    .iter()
                    .filter(|attempt| matches!(attempt.basis, Basis::RunAgain { .. }))
                    .count();
                if total as usize > 1 + again {
                    self.violate(
                        Invariant::I1,
                        format!(
                            "step {} had {total} effects, with {again} run-again decisions",
                            step.id
                        ),
                    );
                }
                for attempt in &step.attempts {
                    let proved = self.says_nothing_happened(step.id, attempt);
                    if count(attempt.attempt) > 1 {
                        self.violate(
                            Invariant::I1,
                            format!(
                                "step {} attempt {} had its effect twice",
                                step.id, attempt.attempt
                            ),
                        );
                    }
                    if proved && count(attempt.attempt) > 0 {
                        self.violate(
                            Invariant::I2,
                            format!(
                                "step {} attempt {} is proved not done and had its effect",
                                step.id, attempt.attempt
                            ),
                        );
                    }
                }
                let ok = step
                    .observation
                    .as_ref()
                    .is_some_and(|observation| observation.kind == ObservationKind::ToolResult);
                let by_person = step.latest().is_some_and(|latest| {
                    matches!(latest.finding, Some((Finding::RecordedDone, _)))
                });
                if ok && !by_person && total == 0 {
                    self.violate(
                        Invariant::I2,
                        format!("step {} is ok and the ledger has no effect of it", step.id),
                    );
                }
            }
        }
        let known = |id: StepId, attempt: Attempt| {
            state
                .step(id)
                .is_some_and(|step| step.attempts.iter().any(|known| known.attempt == attempt))
        };
        for (step, attempt) in effects
            .keys()
            .filter(|(step, attempt)| !known(*step, *attempt))
        {
            self.violate(Invariant::I12, format!("the ledger has an effect of step {step} attempt {attempt}, which was never dispatched"));
        }
    }

    /// I15 for runs that have ended: nothing is left open.
    fn orphans(&mut self, state: &RunState) {
        if state.ended.is_none() {
            return;
        }
        for step in state.turns.iter().flat_map(|turn| &turn.steps) {
            if step.phase != Phase::Finished {
                self.violate(
                    Invariant::I15,
                    format!("the run has ended and step {} has not", step.id),
                );
            }
        }
    }
}
