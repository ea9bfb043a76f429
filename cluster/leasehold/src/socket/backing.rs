//! What stands behind a desk: the process that runs on the data folder, or a cluster that others run on.

use std::io::Write;
use std::sync::Arc;

use leasehold_actors::{Progress, Runtime, RuntimeOptions};
use leasehold_agents::{AgentError, Agents, FnAgent};
use leasehold_embedded::{EmbeddedStore, SledLogbook};
use leasehold_json::AcceptedJson;
use leasehold_nats::{NatsStore, Options, StartError, Target};
use leasehold_protocol::{DefaultPolicy, JournalSubject, RunId};
use leasehold_store::{StoreError, SystemClock};
use leasehold_tools::Registry;
use tokio::runtime::Handle;

use super::server::Desk;
use super::wire::{Hello, Refusal, RefusalCode, Request};

/// See the module.
#[derive(Clone)]
pub(crate) enum Backing {
    Folder {
        store: EmbeddedStore,
        logbook: Arc<SledLogbook>,
    },
    Cluster(NatsStore),
}

impl Backing {
    /// What has to be so before a request is answered.
    pub(super) async fn attend(&self, desk: &Desk, request: &Request) -> Result<(), Refusal> {
        let Backing::Cluster(store) = self else {
            return Ok(());
        };
        match request {
            Request::Submit { .. } if desk.hello.agents.is_empty() => Err(Refusal::new(
                RefusalCode::Store,
                format!(
                    "no node of cluster {} answers, so nobody can say whether the run is right; nothing was written; start a node: leasehold node --nats URL --tools FILE",
                    desk.hello.cluster
                ),
            )),
            Request::Decide { run, .. } | Request::Cancel { run, .. } => {
                follow(store, desk, Some(run)).await
            }
            Request::Watch { run } => follow(store, desk, run.as_ref()).await,
            _ => Ok(()),
        }
    }

    /// Writes everything stored, as lines. Blocks.
    pub(super) fn dump(
        &self,
        handle: &Handle,
        out: &mut (impl Write + Send),
    ) -> Result<(), String> {
        match self {
            Backing::Folder { store, logbook } => {
                store.dump(out).map_err(|error| error.to_string())?;
                logbook.dump(out).map_err(|error| error.to_string())
            }
            Backing::Cluster(store) => handle
                .block_on(store.dump(out))
                .map_err(|error| error.to_string()),
        }
    }
}

/// Tells the desk what is stored from now on.
async fn follow(store: &NatsStore, desk: &Desk, run: Option<&RunId>) -> Result<(), Refusal> {
    let followed = store.follow(run).await;
    let mut commits =
        followed.map_err(|error: StoreError| Refusal::new(RefusalCode::Store, error))?;
    let teller = desk.runtime.teller();
    desk.tasks.spawn(async move {
        while let Some((run, commit)) = commits.recv().await {
            let is_over = commit.subject == JournalSubject::End;
            teller.tell(Progress::Committed {
                run: run.clone(),
                commit,
            });
            if is_over {
                teller.tell(Progress::Left {
                    run,
                    reason: leasehold_protocol::StopReason::Ended,
                });
            }
        }
    });
    Ok(())
}

/// Opens a cluster to submit, decide, cancel and read; drives and executes nothing.
pub(super) async fn open(target: &Target) -> Result<Desk, StartError> {
    let options = Options::new(target.clone(), "leasehold command", Arc::new(SystemClock));
    let store = NatsStore::open(options).await?;
    let hello = hello(&store).await?;
    let mut agents = Agents::new();
    for name in &hello.agents {
        let elsewhere = FnAgent::new(name.clone(), |_| {
            Err(AgentError::Failed("agents decide on nodes".to_owned()))
        });
        // A node that names one twice knows it once.
        let _ = agents.register(elsewhere);
    }
    let broken = |why: String| StartError::Api {
        what: "the node's own account of itself".to_owned(),
        why,
    };
    let tools = Registry::specs_only(hello.tools.clone()).map_err(|errors| {
        broken(
            errors
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; "),
        )
    })?;
    let session = crate::dev::fresh_session().map_err(|error| broken(error.to_string()))?;
    let options = RuntimeOptions::reader(
        Arc::new(store.clone()),
        Arc::new(tools),
        Arc::new(DefaultPolicy),
        agents,
        store.cluster().clone(),
        session,
    );
    let runtime = Runtime::start(options)
        .await
        .map_err(|error| broken(error.to_string()))?;
    Ok(Desk {
        runtime,
        hello,
        backing: Backing::Cluster(store),
        tasks: Default::default(),
    })
}

/// What a node says of itself; where none is there, what can be said without one.
async fn hello(store: &NatsStore) -> Result<Hello, StartError> {
    let broken = |why: String| StartError::Api {
        what: "asking the nodes who they are".to_owned(),
        why,
    };
    let words = store
        .introduction()
        .await
        .map_err(|error| broken(error.to_string()))?;
    let Some(words) = words else {
        return Ok(Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: 0,
            cluster: store.cluster().to_string(),
            session: String::new(),
            policy: "no node answers".to_owned(),
            agents: Vec::new(),
            tools: Vec::new(),
        });
    };
    let json = AcceptedJson::check(&words).map_err(|error| broken(error.to_string()))?;
    json.parse().map_err(|error| broken(error.to_string()))
}
