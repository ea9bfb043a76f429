//! The scripted agent: the run's input says what it decides.
//!
//! Input: `{"script": [decision, ...]}`. Turn n answers element n, byte for byte as written, whatever it is; after the last element the
//! run completes with the content of its last observation. So a script can also play an agent that answers nonsense.

use async_trait::async_trait;
use leasehold_json::{AcceptedJson, Kind};
use leasehold_protocol::{AgentView, Payload};

use crate::{Agent, AgentError};

/// The name of [`ScriptAgent`].
pub const SCRIPT: &str = "script";

/// Plays the script in the run's input.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScriptAgent;

#[async_trait]
impl Agent for ScriptAgent {
    fn name(&self) -> &str {
        SCRIPT
    }

    async fn decide(&self, view: AgentView) -> Result<Vec<u8>, AgentError> {
        let script = script(&view)?;
        let place = (view.turn as usize).saturating_sub(1);
        match script.get(place) {
            Some(decision) => Ok(decision.as_bytes().to_vec()),
            None => complete(&view),
        }
    }
}

fn script(view: &AgentView) -> Result<Vec<AcceptedJson>, AgentError> {
    let wanted =
        || AgentError::Input(r#"the scripted agent wants {"script": [decision, ...]}"#.to_owned());
    let script = view
        .input
        .as_ref()
        .and_then(|input| input.member("script"))
        .ok_or_else(wanted)?;
    if script.kind() == Kind::Array {
        Ok(script.elements())
    } else {
        Err(wanted())
    }
}

/// The decision that ends a script: complete with what was observed last.
fn complete(view: &AgentView) -> Result<Vec<u8>, AgentError> {
    let result = match last_observation(view) {
        Some(Payload::Json(json)) => json.clone(),
        // The value is in the blob store; what names it is a result too.
        Some(blob @ Payload::Blob { .. }) => AcceptedJson::from_serialize(blob)
            .map_err(|error| AgentError::Failed(error.to_string()))?,
        None => AcceptedJson::empty_object(),
    };
    Ok(format!(
        r#"{{"kind":"complete","result":{result}}}"#,
        result = result.as_str()
    )
    .into_bytes())
}

fn last_observation(view: &AgentView) -> Option<&Payload> {
    let steps = view
        .turns
        .iter()
        .rev()
        .flat_map(|turn| turn.steps.iter().rev());
    steps
        .filter_map(|step| step.observation.as_ref())
        .map(|observation| &observation.content)
        .next()
}
