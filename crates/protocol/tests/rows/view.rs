//! What can be seen of a [`World`]: its journal folded and unfolded, and what its owners wanted.

use leasehold_protocol::{
    AgentView, Attempt, ChainKey, Commit, Effect, Event, Finding, InFlight, Observation, Reason,
    RunState, Status, Step, StopReason,
};
use leasehold_tools::SideEffect;

use crate::harness::World;

impl World {
    /// What the journal says.
    pub(crate) fn state(&self) -> RunState {
        RunState::fold(self.run.clone(), &self.journal).unwrap()
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.state().ended.is_some()
    }

    /// How the run ended.
    pub(crate) fn ended(&self) -> Option<(Status, Reason)> {
        self.commits()
            .last()?
            .events
            .iter()
            .find_map(|event| match event {
                Event::Ended { status, reason, .. } => Some((*status, *reason)),
                _ => None,
            })
    }

    pub(crate) fn in_flight(&self) -> Vec<InFlight> {
        self.state().ended.expect("an ended run")
    }

    pub(crate) fn commits(&self) -> Vec<Commit> {
        let bodies = self.journal.iter().map(|stored| stored.body.as_bytes());
        bodies.map(|body| Commit::decode(body).unwrap()).collect()
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.commits().into_iter().flat_map(|c| c.events).collect()
    }

    pub(crate) fn step(&self, id: &str) -> Step {
        let state = self.state();
        state.step(id.parse().unwrap()).expect("a step").clone()
    }

    pub(crate) fn observation(&self, id: &str) -> Observation {
        self.step(id).observation.expect("an observation")
    }

    /// The findings of a step's attempts, in order.
    pub(crate) fn findings(&self, id: &str) -> Vec<Option<Finding>> {
        let attempts = self.step(id).attempts;
        attempts
            .iter()
            .map(|attempt| attempt.finding.map(|(finding, _)| finding))
            .collect()
    }

    /// How often a step had its effect.
    pub(crate) fn acted(&self, id: &str) -> u32 {
        let step = id.parse().unwrap();
        let of_step = self.effects.iter().filter(|((of, _), _)| *of == step);
        of_step.map(|(_, count)| count).sum()
    }

    /// The chain of an attempt.
    pub(crate) fn key(&self, step: &str, attempt: u32) -> ChainKey {
        let attempt: Attempt = attempt.to_string().parse().unwrap();
        let step = step.parse().unwrap();
        self.chains
            .keys()
            .find(|key| key.step == step && key.attempt == attempt)
            .expect("a chain")
            .clone()
    }

    /// The questions that wait for an answer.
    pub(crate) fn open(&self) -> Vec<String> {
        let state = self.state();
        state
            .open_questions()
            .map(|(id, _)| id.to_string())
            .collect()
    }

    pub(crate) fn stops(&self) -> Vec<StopReason> {
        let stop = |effect: &Effect| match effect {
            Effect::Stop(reason) => Some(reason.clone()),
            _ => None,
        };
        self.seen.iter().filter_map(stop).collect()
    }

    pub(crate) fn views(&self) -> Vec<AgentView> {
        let view = |effect: &Effect| match effect {
            Effect::AskAgent(view) => Some(view.clone()),
            _ => None,
        };
        self.seen.iter().filter_map(view).collect()
    }

    pub(crate) fn class(&self, tool: &str) -> SideEffect {
        self.tools
            .get(tool)
            .map_or(SideEffect::Destructive, |tool| tool.spec().side_effect)
    }

    pub(crate) fn inspected(&self) -> usize {
        let asked = |effect: &&Effect| matches!(effect, Effect::Inspect { .. });
        self.seen.iter().filter(asked).count()
    }
}
