//! The trait and the registry.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use leasehold_protocol::AgentView;

/// The agent cannot decide: the run ends as failed, with these words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// What the agent was given does not fit it; asking again will not help.
    #[error("the agent cannot use its input: {0}")]
    Input(String),
    /// It tried and failed.
    #[error("the agent failed: {0}")]
    Failed(String),
}

/// Decides the turns of runs.
#[async_trait]
pub trait Agent: Send + Sync + 'static {
    /// The name under which runs ask for it.
    fn name(&self) -> &str;
    /// The next turn: bytes of a decision (`tool_calls`, `complete` or `fail`). The same view may be asked for again after a crash, before
    /// its answer was recorded; nothing may depend on having been asked. May be dropped at any await.
    async fn decide(&self, view: AgentView) -> Result<Vec<u8>, AgentError>;
}

/// Two agents of one name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("two agents are called {0:?}; give one of them another name")]
pub struct DuplicateAgent(pub String);

/// Agents by name.
#[derive(Clone, Default)]
pub struct Agents(BTreeMap<String, Arc<dyn Agent>>);

impl Agents {
    /// No agents.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an agent; its name must be free.
    pub fn register(&mut self, agent: impl Agent) -> Result<(), DuplicateAgent> {
        let name = agent.name().to_owned();
        if self.0.contains_key(&name) {
            return Err(DuplicateAgent(name));
        }
        self.0.insert(name, Arc::new(agent));
        Ok(())
    }

    /// The agent of that name.
    pub fn get(&self, name: &str) -> Option<Arc<dyn Agent>> {
        self.0.get(name).cloned()
    }

    /// All names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl std::fmt::Debug for Agents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ScriptAgent;

    #[test]
    fn two_agents_of_one_name_are_refused() {
        let mut agents = Agents::new();
        agents.register(ScriptAgent).unwrap();
        assert_eq!(
            agents.register(ScriptAgent),
            Err(DuplicateAgent("script".into()))
        );
        assert!(agents.get("script").is_some());
        assert!(agents.get("Script").is_none());
        assert_eq!(agents.names().collect::<Vec<_>>(), ["script"]);
    }
}
