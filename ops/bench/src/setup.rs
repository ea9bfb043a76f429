//! A runtime as `leasehold dev` makes it, with two tools of which only the class differs, and an agent that takes so many steps.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use leasehold_actors::{Clock as _, Ids as _, RandomIds, Runtime, RuntimeOptions, SystemClock};
use leasehold_agents::{AgentError, Agents, FnAgent};
use leasehold_embedded::{EmbeddedStore, LogbookOptions, OpenOptions, SledLogbook};
use leasehold_json::AcceptedJson;
use leasehold_protocol::{
    AgentView, ClientId, Limits, RulePolicy, RunId, Submission, WIRE_VERSION, WorkerId,
};
use leasehold_tools::{Origin, Registered, Registry, SideEffect, ToolSpec};
use leasehold_workers::{HttpClient, HttpTool};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use crate::stats::now;

/// Lets both tools run without a question.
const POLICY: &str = "name = \"bench\"\nversion = \"1\"\n\n[[rule]]\ntool = \"remote_mutation\"\nverdict = \"allow\"\n";
const SCHEMA: &str = r#"{"type":"object","properties":{"n":{"type":"integer"},"text":{"type":"string"}},"required":["n","text"],"additionalProperties":false}"#;
/// Far beyond what an echo takes on a busy machine: a timeout would be measured as a step.
const TIMEOUT: Duration = Duration::from_secs(60);
/// As many calls as runs are driven, at the widest.
const SLOTS: usize = 256;
const AGENT: &str = "counts";

/// The two kinds of step that are measured. The tool's name is its class.
pub(crate) const CLASSES: [SideEffect; 2] = [SideEffect::ReadOnly, SideEffect::RemoteMutation];

/// What the agent has seen: a step lasts from its decision until the agent is asked again.
#[derive(Default)]
struct Seen {
    decided: HashMap<RunId, Instant>,
    /// Step by its number in its run, with how long it took.
    steps: Vec<(u32, Duration)>,
}

/// A runtime on a folder.
pub(crate) struct Bench {
    pub(crate) runtime: Arc<Runtime>,
    seen: Arc<Mutex<Seen>>,
    /// Runs that the agent has decided to complete.
    pub(crate) completing: UnboundedReceiver<RunId>,
}

impl Bench {
    pub(crate) async fn start(folder: &Path, url: &str) -> anyhow::Result<Self> {
        let session = RandomIds.session()?;
        let at = SystemClock.now().wall;
        let options = OpenOptions {
            session: session.clone(),
            now: at,
        };
        let store = EmbeddedStore::open(folder, options)?;
        let worker = WorkerId::new("local")?;
        let logbook = SledLogbook::open(
            store.logbook_folder(&worker),
            LogbookOptions { worker, now: at },
        )?;
        let seen = Arc::<Mutex<Seen>>::default();
        let (tell, completing) = unbounded_channel();
        let mut agents = Agents::new();
        agents.register(agent(seen.clone(), tell))?;
        let cluster = store.cluster().clone();
        let mut options = RuntimeOptions::new(
            Arc::new(store),
            Arc::new(logbook.logbook),
            Arc::new(tools(url)?),
            Arc::new(RulePolicy::parse(POLICY)?),
            agents,
            cluster,
            session,
        )?;
        if let Some(worker) = &mut options.worker {
            worker.slots = SLOTS;
        }
        Ok(Self {
            runtime: Arc::new(Runtime::start(options).await?),
            seen,
            completing,
        })
    }

    /// All steps since the last time.
    pub(crate) fn take_steps(&self) -> Vec<(u32, Duration)> {
        std::mem::take(&mut lock(&self.seen).steps)
    }
}

/// Submits a run of so many steps of this class.
pub(crate) async fn submit(
    runtime: Arc<Runtime>,
    name: String,
    class: SideEffect,
    steps: u32,
) -> anyhow::Result<RunId> {
    let run = RunId::new(name)?;
    let input = format!(r#"{{"steps":{steps},"tool":"{class}"}}"#);
    let submission = Submission {
        v: WIRE_VERSION,
        run: run.clone(),
        client: ClientId::new("bench")?,
        agent: AGENT.to_owned(),
        goal: "take steps".to_owned(),
        input: Some(AcceptedJson::check_str(&input)?),
        tools: vec![class.to_string()],
        limits: Limits {
            max_steps: steps + 1,
            ..Limits::default()
        },
    };
    runtime.submit(&submission).await?;
    Ok(run)
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    // Nothing panics while it holds it.
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tools(url: &str) -> anyhow::Result<Registry> {
    let client = HttpClient::new();
    let mut tools = Vec::new();
    for class in CLASSES {
        let spec = ToolSpec::new(
            class.as_str(),
            "Answers with its arguments.",
            SCHEMA,
            class,
            TIMEOUT,
        );
        let tool = HttpTool::new(&client, url)?;
        tools.push(Registered::new(spec, Origin::Http, Arc::new(tool)));
    }
    Registry::assemble(tools).map_err(|errors| anyhow!("{errors:?}"))
}

/// Calls its tool as often as the run's input says, each time with another number, then completes.
fn agent(
    seen: Arc<Mutex<Seen>>,
    completing: UnboundedSender<RunId>,
) -> FnAgent<impl Fn(&AgentView) -> Result<Vec<u8>, AgentError>> {
    FnAgent::new(AGENT, move |view| {
        let asked = now();
        let (steps, tool) = plan(view).map_err(|error| AgentError::Input(format!("{error:#}")))?;
        let mut seen = lock(&seen);
        if let Some(decided) = seen.decided.remove(&view.run) {
            let step = view.turn.saturating_sub(1);
            seen.steps
                .push((step, asked.saturating_duration_since(decided)));
        }
        if view.turn > steps {
            // Nobody listens any more: the measurement is over.
            let _ = completing.send(view.run.clone());
            return Ok(br#"{"kind":"complete","result":{}}"#.to_vec());
        }
        seen.decided.insert(view.run.clone(), now());
        let turn = view.turn;
        Ok(format!(
            r#"{{"kind":"tool_calls","calls":[{{"id":"{turn}","tool":"{tool}","arguments":{{"n":{turn},"text":"what a small call carries"}}}}]}}"#
        )
        .into_bytes())
    })
}

fn plan(view: &AgentView) -> anyhow::Result<(u32, String)> {
    let input = view.input.as_ref().context("no input")?;
    let steps = input.member("steps").context("no steps")?.parse()?;
    let tool = input.member("tool").context("no tool")?.parse()?;
    Ok((steps, tool))
}
