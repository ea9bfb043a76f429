//! What is measured: tools of which only name and class differ, an agent that takes so many steps, and the runtime on an embedded store as
//! `leasehold dev` makes it.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use leasehold_actors::{
    Clock as _, Ids as _, RandomIds, Runtime, RuntimeOptions, SubmitRefusal, SystemClock,
    WorkerOptions,
};
use leasehold_agents::Agents;
use leasehold_embedded::{EmbeddedStore, LogbookOptions, OpenOptions, SledLogbook};
use leasehold_json::AcceptedJson;
use leasehold_protocol::{
    ClientId, ClusterId, Limits, NodeId, RulePolicy, RunId, SessionId, Submission, WIRE_VERSION,
    WorkerId,
};
use leasehold_store::Backend;
use leasehold_tools::{Origin, Registered, Registry, SideEffect, ToolSpec};
use leasehold_workers::{HttpClient, HttpTool};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::echo;
use crate::events::{AGENT, Ends, Event, Tell, agent};

/// A call of it waits for a person.
pub(crate) const HELD: &str = "held";
/// A call of it lasts until the measurement is over.
pub(crate) const SLOW: &str = "slow";

/// How often a submission is sent again of which nobody knows whether it is stored.
const SUBMIT_TRIES: u32 = 20;
const SCHEMA: &str = r#"{"type":"object","properties":{"n":{"type":"integer"},"text":{"type":"string"}},"required":["n","text"],"additionalProperties":false}"#;
/// Far beyond what an echo takes on a busy machine: a timeout would be measured as a step.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longer than any measurement.
const SLOW_TIMEOUT: Duration = Duration::from_secs(3600);
/// As many calls as runs are driven, at the widest.
const SLOTS: usize = 256;

/// The two kinds of step that are measured.
pub(crate) const CLASSES: [SideEffect; 2] = [SideEffect::ReadOnly, SideEffect::RemoteMutation];

/// A tool that is declared: `NAME:CLASS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) name: String,
    pub(crate) class: SideEffect,
}

impl fmt::Display for Declared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.class)
    }
}

impl FromStr for Declared {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (name, class) = text.split_once(':').context("a tool is NAME:CLASS")?;
        Ok(Self {
            name: name.to_owned(),
            class: class.parse().map_err(|error| anyhow!("{error}"))?,
        })
    }
}

/// A tool of each class, called after it.
pub(crate) fn both_classes() -> Vec<Declared> {
    let declared = CLASSES.iter().map(|class| Declared {
        name: class.to_string(),
        class: *class,
    });
    declared.collect()
}

/// What everything is made of, on whatever store: a runtime that neither drives nor executes yet.
pub(crate) fn options(
    store: Arc<dyn Backend>,
    cluster: ClusterId,
    session: SessionId,
    declared: &[Declared],
    url: &str,
    tell: Tell,
) -> anyhow::Result<RuntimeOptions> {
    let mut agents = Agents::new();
    agents.register(agent(tell.clone()))?;
    let mut options = RuntimeOptions::reader(
        store,
        Arc::new(tools(declared, url)?),
        Arc::new(policy(declared)?),
        agents,
        cluster,
        session,
    );
    options.points = Arc::new(Ends(tell));
    Ok(options)
}

/// A worker of this name with its logbook in that folder.
pub(crate) fn worker(
    folder: &Path,
    name: &str,
    slots: Option<usize>,
) -> anyhow::Result<WorkerOptions> {
    let worker = WorkerId::new(name)?;
    let options = LogbookOptions {
        worker: worker.clone(),
        now: SystemClock.now().wall,
    };
    let logbook = SledLogbook::open(folder, options)?;
    Ok(WorkerOptions {
        worker,
        logbook: Arc::new(logbook.logbook),
        moved_from: logbook.moved_from,
        slots: slots.unwrap_or(SLOTS),
    })
}

/// Somewhere to submit runs, and what happens to them.
pub(crate) struct Bench {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) events: UnboundedReceiver<Event>,
}

impl Bench {
    /// Node, worker and client in this process, on an embedded store.
    pub(crate) async fn start(folder: &Path, url: &str) -> anyhow::Result<Self> {
        let session = RandomIds.session()?;
        let open = OpenOptions {
            session: session.clone(),
            now: SystemClock.now().wall,
        };
        let store = EmbeddedStore::open(folder, open)?;
        let logbook = store.logbook_folder(&WorkerId::new("local")?);
        let (tell, events) = unbounded_channel();
        // Nobody listens any more: the measurement is over.
        let tell: Tell = Arc::new(move |event| drop(tell.send(event)));
        let cluster = store.cluster().clone();
        let mut options = options(
            Arc::new(store),
            cluster,
            session,
            &both_classes(),
            url,
            tell,
        )?;
        options.node = Some(NodeId::new("local")?);
        options.worker = Some(worker(&logbook, "local", None)?);
        Ok(Self {
            runtime: Arc::new(Runtime::start(options).await?),
            events,
        })
    }
}

/// Submits a run of so many steps with this tool.
pub(crate) async fn submit(
    runtime: Arc<Runtime>,
    name: String,
    tool: String,
    steps: u32,
) -> anyhow::Result<RunId> {
    let run = RunId::new(name)?;
    let input = format!(r#"{{"steps":{steps},"tool":"{tool}"}}"#);
    let submission = Submission {
        v: WIRE_VERSION,
        run: run.clone(),
        client: ClientId::new("bench")?,
        agent: AGENT.to_owned(),
        goal: "take steps".to_owned(),
        input: Some(AcceptedJson::check_str(&input)?),
        tools: vec![tool],
        limits: Limits {
            max_steps: steps + 1,
            ..Limits::default()
        },
    };
    let mut tries = 0;
    loop {
        match runtime.submit(&submission).await {
            Ok(_) => return Ok(run),
            // A busy server: the same again means the same run.
            Err(SubmitRefusal::Unknown(_) | SubmitRefusal::Store(_)) if tries < SUBMIT_TRIES => {
                tries += 1;
            }
            Err(refusal) => return Err(refusal.into()),
        }
    }
}

fn tools(declared: &[Declared], url: &str) -> anyhow::Result<Registry> {
    let client = HttpClient::new();
    let mut tools = Vec::new();
    for Declared { name, class } in declared {
        let (url, timeout) = if name == SLOW {
            (format!("{url}{}", echo::SLOW_PATH), SLOW_TIMEOUT)
        } else {
            (url.to_owned(), TIMEOUT)
        };
        let spec = ToolSpec::new(
            name.clone(),
            "Answers with its arguments.",
            SCHEMA,
            *class,
            timeout,
        );
        let tool = HttpTool::new(&client, &url)?;
        tools.push(Registered::new(spec, Origin::Http, Arc::new(tool)));
    }
    Registry::assemble(tools).map_err(|errors| anyhow!("{errors:?}"))
}

/// Lets every tool run without a question, except the one that is held.
fn policy(declared: &[Declared]) -> anyhow::Result<RulePolicy> {
    let mut text = "name = \"bench\"\nversion = \"1\"\n".to_owned();
    for tool in declared.iter().filter(|tool| tool.name != HELD) {
        text.push_str(&format!(
            "\n[[rule]]\ntool = \"{}\"\nverdict = \"allow\"\n",
            tool.name
        ));
    }
    Ok(RulePolicy::parse(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declared_tool_is_read_as_it_is_written() {
        for tool in both_classes() {
            assert_eq!(tool.to_string().parse::<Declared>().unwrap(), tool);
        }
        assert!("read_only".parse::<Declared>().is_err());
        assert!("name:harmless".parse::<Declared>().is_err());
    }

    #[test]
    fn every_declared_tool_has_a_rule_but_the_held_one() {
        let mut declared = both_classes();
        assert_eq!(policy(&declared).unwrap().rules(), 2);
        declared.push("held:remote_mutation".parse().unwrap());
        assert_eq!(policy(&declared).unwrap().rules(), 2);
    }
}
