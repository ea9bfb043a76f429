//! The boundary between two turns: limits in their order, then the agent, then what its decision says as a whole.

use leasehold_json::Kept;

use super::io::{AgentView, Effect, Left};
use super::{AgentSlot, RunMachine};
use crate::ids::StepId;
use crate::proposal::Proposal;
use crate::wire::{Event, Payload, Reason};

impl RunMachine {
    pub(super) fn turn_boundary(&mut self) -> Result<(), String> {
        if !self.state.turn_is_over() {
            return Ok(());
        }
        match std::mem::replace(&mut self.agent, AgentSlot::Idle) {
            AgentSlot::Idle => self.ask_agent(),
            AgentSlot::Asked => {
                self.agent = AgentSlot::Asked;
                Ok(())
            }
            AgentSlot::Failed(error) => {
                self.begin_ending(Reason::AgentError, Some(error), None)?;
                self.end()
            }
            AgentSlot::Decided(decision) => self.decided(decision),
        }
    }

    fn ask_agent(&mut self) -> Result<(), String> {
        if let Some((reason, text)) = self.limit_met() {
            self.begin_ending(reason, Some(text), None)?;
            return self.end();
        }
        let Some(view) = self.view() else {
            return Err("a run without a submission has no turns".into());
        };
        self.agent = AgentSlot::Asked;
        self.out.push(Effect::AskAgent(view));
        Ok(())
    }

    /// The first limit that is met, in the order of S40.
    fn limit_met(&self) -> Option<(Reason, String)> {
        let opened = self.state.opened.as_ref()?;
        let (limits, state) = (&opened.limits, &self.state);
        let steps = u32::try_from(state.turns.len()).unwrap_or(u32::MAX);
        let elapsed = u64::try_from(self.now.wall.saturating_sub(opened.at)).unwrap_or(0);
        if steps >= limits.max_steps {
            return Some((
                Reason::LimitSteps,
                format!(
                    "{steps} turns were taken; the limit is {}",
                    limits.max_steps
                ),
            ));
        }
        if state.streak.failures >= limits.max_consecutive_failures {
            return Some((
                Reason::RepeatedToolFailures,
                format!("{} failures in a row", state.streak.failures),
            ));
        }
        if state.active_ms >= limits.max_active_ms {
            let text = format!(
                "{} ms of active time; the limit is {} ms",
                state.active_ms, limits.max_active_ms
            );
            return Some((Reason::LimitActiveTime, text));
        }
        if elapsed >= limits.max_elapsed_ms {
            return Some((
                Reason::LimitElapsedTime,
                format!(
                    "{elapsed} ms have passed; the limit is {} ms",
                    limits.max_elapsed_ms
                ),
            ));
        }
        if state.streak.repeats >= limits.max_repeats && steps > 0 {
            let text = format!(
                "the same call gave the same observation {} times in a row",
                state.streak.repeats
            );
            return Some((Reason::LoopDetected, text));
        }
        None
    }

    fn view(&self) -> Option<AgentView> {
        let opened = self.state.opened.as_ref()?;
        let (limits, state) = (&opened.limits, &self.state);
        let steps = u32::try_from(state.turns.len()).unwrap_or(u32::MAX);
        let elapsed = u64::try_from(self.now.wall.saturating_sub(opened.at)).unwrap_or(0);
        Some(AgentView {
            run: state.run.clone(),
            agent: opened.agent.clone(),
            turn: self.next_turn(),
            goal: opened.goal.clone(),
            input: opened.input.clone(),
            turns: state.turns.clone(),
            tools: opened
                .toolset
                .iter()
                .map(|tool| tool.name.clone())
                .collect(),
            left: Left {
                steps: limits.max_steps.saturating_sub(steps),
                failures: limits
                    .max_consecutive_failures
                    .saturating_sub(state.streak.failures),
                active_ms: limits.max_active_ms.saturating_sub(state.active_ms),
                elapsed_ms: limits.max_elapsed_ms.saturating_sub(elapsed),
            },
        })
    }

    /// The decision is recorded verbatim before anything is made of it; then it is carried out in the same commit where that is possible.
    fn decided(&mut self, decision: Kept) -> Result<(), String> {
        let turn = self.next_turn();
        self.draft(Event::Decided { turn, decision })?;
        let proposal = self.state.turns.last().map(|turn| turn.proposal.clone());
        match proposal {
            Some(Proposal::Complete(result)) => {
                self.begin_ending(Reason::GoalCompleted, None, Some(Payload::Json(result)))?;
                self.end()
            }
            Some(Proposal::Fail(message)) => {
                self.begin_ending(Reason::GoalFailed, Some(message), None)?;
                self.end()
            }
            Some(Proposal::Unusable(error)) => {
                self.draft(Event::Invalid {
                    step: StepId { turn, index: 0 },
                    error,
                })?;
                // The turn is over as soon as it began: look at the limits, then ask again.
                self.turn_boundary()
            }
            Some(Proposal::Calls(_)) => {
                self.dispatch_ready()?;
                if self.pending.is_none() && !self.draft_is_forced() && self.state.turn_is_over() {
                    return self.turn_boundary();
                }
                Ok(())
            }
            None => Err("a decision makes a turn".into()),
        }
    }
}
