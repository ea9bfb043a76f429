//! The system under test: NATS servers, nodes and workers, each a process of its own, with a proxy between each of them and whomever it
//! talks to; and the ledger, which is the world outside.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use leasehold_local::{
    Fleet, Kind, NatsOptions, NatsServers, NodeOptions, Program, Recipe, WorkerOptions,
};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::faults::{Shape, Toward, Who};
use crate::ledger::LISTENING;
use crate::nats::Nats;
use crate::proxy::Link;
use crate::tools::{POLICY_FILE, TOOLS_FILE};

/// Nodes and workers: enough that one can be killed and another one paused.
const NODES: usize = 3;
const WORKERS: usize = 4;
/// Calls that a worker executes side by side: few, so that some wait in the queue.
const SLOTS: usize = 4;
/// How long a process counts as alive without a renewal. Far below what production uses, so that a chaos run of minutes sees many deaths.
pub(crate) const SESSION_TTL: Duration = Duration::from_secs(3);
/// How long a process may take until it is ready.
const READY: Duration = Duration::from_secs(60);

/// Where everything of one exercise lies.
#[derive(Debug, Clone)]
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
    pub(crate) fn ledger(&self) -> PathBuf {
        self.path("ledger.jsonl")
    }
    pub(crate) fn dump(&self) -> PathBuf {
        self.path("dump.jsonl")
    }
    pub(crate) fn history(&self) -> PathBuf {
        self.path("history.jsonl")
    }
    /// Everything of the cluster.
    fn cluster(&self) -> PathBuf {
        self.path("cluster")
    }
    fn recording(&self, node: &str) -> PathBuf {
        self.path(&format!("inputs-{node}.jsonl"))
    }
}

/// See the module.
pub(crate) struct System {
    pub(crate) folder: Folder,
    /// The `leasehold` program.
    pub(crate) program: PathBuf,
    /// A rule of the protocol that nodes and workers leave out.
    sabotage: Option<String>,
    pub(crate) servers: Arc<NatsServers>,
    pub(crate) fleet: Fleet,
    pub(crate) nats: Nats,
    links: BTreeMap<(Who, Toward), Link>,
    _ledger: Child,
}

impl System {
    pub(crate) fn shape(servers: usize) -> Shape {
        Shape {
            nodes: NODES,
            workers: WORKERS,
            servers,
            ttl: SESSION_TTL,
        }
    }

    /// Starts everything, and returns when it serves.
    pub(crate) async fn start(
        folder: Folder,
        program: &Path,
        servers: usize,
        sabotage: Option<&str>,
        tasks: &TaskTracker,
    ) -> anyhow::Result<Self> {
        for (name, text) in [("tools.toml", TOOLS_FILE), ("policy.toml", POLICY_FILE)] {
            let path = folder.path(name);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        let (ledger, ledger_at) = start_ledger(&folder).await?;
        let options = NatsOptions {
            advertise: false,
            ..NatsOptions::new(servers, folder.cluster())
        };
        let servers = Arc::new(NatsServers::start(options).await?);
        let upstreams = addresses(&servers)?;
        let nats = Nats::connect(&servers.urls()?).await?;
        let mut system = Self {
            fleet: Fleet::new(folder.cluster())?,
            folder,
            program: program.to_owned(),
            sabotage: sabotage.map(str::to_owned),
            servers,
            nats,
            links: BTreeMap::new(),
            _ledger: ledger,
        };
        for n in 1..=NODES {
            let (who, link) = (Who::Node(n), Link::to(&upstreams, tasks).await?);
            let recipe = system.node(n, ledger_at);
            system.fleet.add(system.through(&link), recipe, None)?;
            system.links.insert((who, Toward::Nats), link);
        }
        for n in 1..=WORKERS {
            let (who, link) = (Who::Worker(n), Link::to(&upstreams, tasks).await?);
            let tool = Link::to(&[ledger_at], tasks).await?;
            let tool_at = tool.addresses().first().copied().unwrap_or(ledger_at);
            let recipe = system.worker(n, tool_at);
            system.fleet.add(system.through(&link), recipe, None)?;
            system.links.insert((who, Toward::Nats), link);
            system.links.insert((who, Toward::Tool), tool);
        }
        system.fleet.ready(READY).await?;
        Ok(system)
    }

    /// The network of a process.
    pub(crate) fn link(&self, who: Who, toward: Toward) -> Option<&Link> {
        self.links.get(&(who, toward))
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    /// Folders of the workers' logbooks.
    pub(crate) fn logbooks(&self) -> Vec<PathBuf> {
        let folder = self.fleet.processes().folder();
        let members = self.fleet.members().iter();
        let workers = members.filter(|member| member.kind() == Kind::Worker);
        workers.map(|worker| folder.join(worker.name())).collect()
    }

    /// Puts what the nodes have recorded of their inputs into one file.
    pub(crate) fn gather(&self) -> anyhow::Result<PathBuf> {
        let all = self.folder.path("inputs.jsonl");
        let what = || format!("writing {}", all.display());
        let mut file = File::create(&all).with_context(what)?;
        for n in 1..=NODES {
            let recorded = self.folder.recording(&Who::Node(n).to_string());
            let mut recorded =
                File::open(&recorded).with_context(|| format!("reading {}", recorded.display()))?;
            std::io::copy(&mut recorded, &mut file).with_context(what)?;
        }
        Ok(all)
    }

    fn through(&self, link: &Link) -> Program {
        let urls: Vec<String> = link
            .addresses()
            .iter()
            .map(|address| format!("nats://{address}"))
            .collect();
        Program {
            binary: self.program.clone(),
            nats: urls.join(","),
        }
    }

    fn common(&self, ledger: SocketAddr) -> Vec<String> {
        let mut arguments = vec![
            "--session-ttl".to_owned(),
            SESSION_TTL.as_secs().to_string(),
            "--set".to_owned(),
            format!("LEDGER={ledger}"),
        ];
        if let Some(sabotage) = &self.sabotage {
            arguments.extend(["--sabotage".to_owned(), sabotage.clone()]);
        }
        arguments
    }

    fn node(&self, n: usize, ledger: SocketAddr) -> Recipe {
        let name = Who::Node(n).to_string();
        let recording = self.folder.recording(&name).to_string_lossy().into_owned();
        let mut arguments = self.common(ledger);
        // One machine has one clock.
        arguments.extend(["--clock-bound", "0", "--record", &recording].map(str::to_owned));
        Recipe::Node(NodeOptions {
            name,
            tools: self.folder.path("tools.toml"),
            policy: Some(self.folder.path("policy.toml")),
            arguments,
            ..NodeOptions::default()
        })
    }

    fn worker(&self, n: usize, ledger: SocketAddr) -> Recipe {
        let mut arguments = self.common(ledger);
        arguments.extend(["--slots".to_owned(), SLOTS.to_string()]);
        Recipe::Worker(WorkerOptions {
            name: Who::Worker(n).to_string(),
            tools: self.folder.path("tools.toml"),
            arguments,
            ..WorkerOptions::default()
        })
    }
}

/// Where clients reach each of the servers, in order.
fn addresses(servers: &NatsServers) -> anyhow::Result<Vec<SocketAddr>> {
    let url = |n| -> anyhow::Result<SocketAddr> {
        let url = servers.url(n)?;
        let address = url.trim_start_matches("nats://").parse();
        address.with_context(|| format!("{url} is no address"))
    };
    (1..=servers.count()).map(url).collect()
}

/// Starts the ledger, which ends with its handle, and returns where it listens.
async fn start_ledger(folder: &Folder) -> anyhow::Result<(Child, SocketAddr)> {
    let log = File::create(folder.path("ledger.log")).context("creating the ledger's log")?;
    let mut child =
        Command::new(std::env::current_exe().context("finding this program's own file")?)
            .arg("ledger")
            .arg("--file")
            .arg(folder.ledger())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("starting the ledger")?;
    let out = child.stdout.take().context("the ledger has no output")?;
    let mut lines = BufReader::new(out).lines();
    let said = timeout(READY, lines.next_line())
        .await
        .context("the ledger said nothing in time")??;
    let Some(address) = said
        .as_deref()
        .and_then(|line| line.strip_prefix(LISTENING))
    else {
        bail!("the ledger did not start; ledger.log says why");
    };
    let address = address.parse().context("the ledger's address")?;
    Ok((child, address))
}
