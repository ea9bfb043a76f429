//! How a run ends: nothing more is dispatched, what nobody claimed is revoked, what is claimed is waited for, then one last commit.

use super::RunMachine;
use super::io::Effect;
use super::observe::own;
use crate::ids::{Attempt, StepId};
use crate::state::{FoundAt, Phase, Step};
use crate::wire::{
    Decision, Event, Fate, Finding, InFlight, JournalSubject, ObservationKind, Payload, Reason,
};

impl RunMachine {
    /// Tells the run to end. Questions lose their object; steps that have no open attempt are over.
    pub(super) fn begin_ending(
        &mut self,
        reason: Reason,
        detail: Option<String>,
        result: Option<Payload>,
    ) -> Result<(), String> {
        if self.state.is_ending() {
            return Ok(());
        }
        self.draft(Event::Ending {
            status: reason.status(),
            reason,
            detail,
            result,
        })?;
        self.force();
        let open: Vec<_> = self
            .state
            .open_questions()
            .map(|(id, _)| id.clone())
            .collect();
        for approval in open {
            self.draft(Event::Withdrawn {
                approval,
                why: "the run is ending".into(),
            })?;
        }
        // A question about a proved attempt is not watched; now that it is withdrawn, the proof ends the step.
        self.take_over();
        let idle = self
            .state
            .current_steps()
            .iter()
            .filter(|step| is_idle(step))
            .map(|step| (step.id, latest(step)));
        for (step, latest) in idle.collect::<Vec<_>>() {
            let (attempt, finding) = latest.unzip();
            let text = match finding.flatten() {
                Some((Finding::RunAgain, _)) => {
                    "the run ended before another attempt; nobody can say whether the earlier one had its effect"
                }
                _ => "the run ended before the call was made",
            };
            self.finish(step, attempt, own(ObservationKind::Interrupted, None, text))?;
        }
        Ok(())
    }

    /// The last commit, once no step is open. Rides with what ended the last one.
    pub(super) fn end(&mut self) -> Result<(), String> {
        if !self.state.turn_is_over() {
            return if self.draft_is_forced() || self.ride_is_over() {
                self.flush()
            } else {
                Ok(())
            };
        }
        let Some(ending) = self.state.ending.clone() else {
            return Ok(());
        };
        let in_flight = self
            .state
            .open_at_ending
            .iter()
            .filter_map(|id| self.fate(*id))
            .collect();
        self.draft(Event::Ended {
            status: ending.status,
            reason: ending.reason,
            in_flight,
        })?;
        self.subject(JournalSubject::End, None);
        self.flush()
    }

    fn fate(&self, id: StepId) -> Option<InFlight> {
        let latest = self.state.step(id)?.latest()?;
        let fate = match latest.finding {
            Some((
                Finding::NotStarted
                | Finding::Revoked
                | Finding::ProbeNotDone
                | Finding::Superseded,
                _,
            )) => Fate::NotStarted,
            Some((
                Finding::Unknown | Finding::Conflict | Finding::RunAgain | Finding::Rejected,
                _,
            )) => Fate::InterruptedUnknown,
            _ => Fate::Done,
        };
        Some(InFlight {
            step: id,
            attempt: latest.attempt,
            fate,
        })
    }

    /// Lets go of a run that only operators or time can move: timers first, then the commit, then the lease.
    pub(super) fn park(&mut self) -> Result<(), String> {
        if !self.state.waits_for_operator()
            || self.draft.is_some()
            || !self.letters.is_empty()
            || self.watches.values().any(super::Watch::busy)
        {
            return Ok(());
        }
        let wake_at = self
            .state
            .open_questions()
            .filter_map(|(_, approval)| approval.expires_at)
            .min();
        if let Some(at) = wake_at
            && self.timer_set != Some(at)
        {
            self.timer_set = Some(at);
            self.timer_pending = true;
            self.out.push(Effect::SetTimer { at });
        }
        if self.timer_pending {
            return Ok(());
        }
        self.draft(Event::Parked { wake_at })?;
        self.force();
        self.flush()
    }

    /// Whether something came in that the ladder has not looked at yet.
    pub(super) fn has_news(&self) -> bool {
        !self.letters.is_empty() || self.watches.values().any(|watch| watch.fresh)
    }

    pub(super) fn timer_was_set(&mut self) {
        self.timer_pending = false;
    }
}

/// Whether nothing of this step is under way: its end needs no register.
fn is_idle(step: &Step) -> bool {
    match &step.phase {
        Phase::Proposed | Phase::Asked(_) | Phase::Granted(_) | Phase::Proven { .. } => true,
        // Another attempt was permitted, and is not made any more.
        Phase::Decided {
            decision: Decision::RunAgain | Decision::Continue,
            ..
        } => step.latest().is_some_and(|latest| latest.finding.is_some()),
        _ => false,
    }
}

fn latest(step: &Step) -> Option<(Attempt, Option<FoundAt>)> {
    step.latest().map(|latest| (latest.attempt, latest.finding))
}
