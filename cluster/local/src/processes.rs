//! Nodes and workers as child processes of the `leasehold` binary, and every process of a folder under its name, servers too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::children::{Children, Status, still_there};
use crate::error::{LocalError, doing};
use crate::log;
use crate::record::{Folder, Kind, Launch};
use crate::servers;

/// How long a node or worker may take to end after SIGTERM: it hands its runs over and finishes the calls in flight.
const DRAINED: Duration = Duration::from_secs(60);

/// How often a log is looked into for a line that is waited for.
const LOOK: Duration = Duration::from_millis(10);

/// What a node or a worker is started from.
#[derive(Debug, Clone)]
pub struct Program {
    /// The file of the `leasehold` binary.
    pub binary: PathBuf,
    /// Where it finds NATS: one URL, or several with commas between.
    pub nats: String,
}

/// A node to start: `leasehold node --nats .. --name .. --tools .. [--policy ..]`.
#[derive(Debug, Clone, Default)]
pub struct NodeOptions {
    /// Its name, one of its folder.
    pub name: String,
    /// The tools file.
    pub tools: PathBuf,
    /// The policy file.
    pub policy: Option<PathBuf>,
    /// Further arguments, as they are.
    pub arguments: Vec<String>,
    /// Further variables. They are written down in `local.json`: name a file that holds a secret, not the secret.
    pub environment: BTreeMap<String, String>,
}

/// A worker to start: `leasehold worker --nats .. --name .. --tools .. --logbook ..`.
#[derive(Debug, Clone, Default)]
pub struct WorkerOptions {
    /// Its name, one of its folder.
    pub name: String,
    /// The tools file.
    pub tools: PathBuf,
    /// The folder of its logbook; otherwise the folder of its name, beside the others'.
    pub data: Option<PathBuf>,
    /// Further arguments, as they are.
    pub arguments: Vec<String>,
    /// As of [`NodeOptions`].
    pub environment: BTreeMap<String, String>,
}

/// Every kind of process that a folder may have.
const ALL: &[Kind] = &[Kind::Node, Kind::Worker, Kind::NatsServer];

/// The processes of one folder.
///
/// What a handle made with [`new`](Self::new) starts is killed when the handle is dropped, also in a panic, and when its process is killed,
/// unless it was [left running](Self::leave_running). A handle made with [`open`](Self::open) owns nothing, also not what it starts.
#[derive(Debug)]
pub struct Processes {
    children: Children,
}

impl Processes {
    /// In this folder, which is made if it is not there, as the owner of what will be started.
    ///
    /// # Errors
    /// [`LocalError::Folder`].
    pub fn new(folder: impl AsRef<Path>) -> Result<Self, LocalError> {
        let children = Children::own(Folder::make(folder.as_ref())?, ALL);
        Ok(Self { children })
    }

    /// In this folder, which is there, as a visitor.
    ///
    /// # Errors
    /// [`LocalError::Folder`].
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, LocalError> {
        let children = Children::visit(Folder::existing(folder.as_ref())?, ALL);
        Ok(Self { children })
    }

    /// Starts a node; whether it is ready its log says, see [`says`](Self::says).
    ///
    /// # Errors
    /// [`LocalError::Name`], [`LocalError::NameTaken`], [`LocalError::Running`], [`LocalError::Io`].
    pub fn start_node(&self, program: &Program, node: NodeOptions) -> Result<(), LocalError> {
        let mut arguments = common("node", program, &node.name, &node.tools)?;
        if let Some(policy) = &node.policy {
            arguments.extend(["--policy".to_owned(), absolute(policy)?]);
        }
        arguments.extend(node.arguments);
        self.start(Kind::Node, program, node.name, arguments, node.environment)
    }

    /// Starts a worker; whether it is ready its log says, see [`says`](Self::says).
    ///
    /// # Errors
    /// As of [`start_node`](Self::start_node).
    pub fn start_worker(&self, program: &Program, worker: WorkerOptions) -> Result<(), LocalError> {
        let data = match &worker.data {
            Some(data) => absolute(data)?,
            None => absolute(&self.folder().join(&worker.name))?,
        };
        let mut arguments = common("worker", program, &worker.name, &worker.tools)?;
        arguments.extend(["--logbook".to_owned(), data]);
        arguments.extend(worker.arguments);
        self.start(
            Kind::Worker,
            program,
            worker.name,
            arguments,
            worker.environment,
        )
    }

    fn start(
        &self,
        kind: Kind,
        program: &Program,
        name: String,
        arguments: Vec<String>,
        environment: BTreeMap<String, String>,
    ) -> Result<(), LocalError> {
        let launch = Launch {
            kind,
            program: PathBuf::from(absolute(&program.binary)?),
            arguments,
            environment,
            directory: std::env::current_dir().map_err(doing("finding the working directory"))?,
            log: self.folder().join(format!("{name}.log")),
            ports: BTreeMap::new(),
            name,
        };
        self.children.start(launch)?;
        Ok(())
    }

    /// Starts it again as it was started before: same arguments, same data, same ports. Of a server, waits until it serves clients.
    ///
    /// # Errors
    /// [`LocalError::Unknown`], [`LocalError::Running`], [`LocalError::PortTaken`], and of a server as
    /// [`NatsServers::restart`](crate::NatsServers::restart).
    pub async fn restart(&self, name: &str) -> Result<(), LocalError> {
        let entry = self.children.restart(name)?;
        match entry.launch.kind {
            Kind::NatsServer => servers::serves(&entry).await,
            Kind::Node | Kind::Worker => Ok(()),
        }
    }

    /// Waits until it has written, in its present life, a line that holds this text; the line.
    ///
    /// # Errors
    /// [`LocalError::Ended`]: it ended first; [`LocalError::NotReady`]: not within `bound`; [`LocalError::Unknown`].
    pub async fn says(
        &self,
        name: &str,
        text: &str,
        bound: Duration,
    ) -> Result<String, LocalError> {
        let entry = self.children.entry(name)?;
        let end = Instant::now() + bound;
        loop {
            // Looked at first: what it writes before it ends is then in the log.
            let alive = still_there(&entry);
            let line = log::line_with(&entry.launch.log, entry.log_from, text);
            if let Some(line) = line.map_err(doing(format!("reading the log of {name}")))? {
                return Ok(line);
            }
            alive?;
            if Instant::now() >= end {
                return Err(LocalError::NotReady {
                    name: name.to_owned(),
                    seconds: bound.as_secs(),
                    why: format!("it has not said `{text}`"),
                    log: entry.launch.log,
                });
            }
            sleep(LOOK).await;
        }
    }

    /// SIGKILL; returns when it is gone. Nothing happens to one that is gone.
    ///
    /// # Errors
    /// [`LocalError::Unknown`], [`LocalError::Io`].
    pub async fn kill(&self, name: &str) -> Result<(), LocalError> {
        self.children.kill(name).await
    }

    /// SIGTERM, and SIGKILL if that does not do within `patience`; returns when it is gone. Whether it went by itself.
    ///
    /// # Errors
    /// [`LocalError::Unknown`], [`LocalError::Io`].
    pub async fn stop(&self, name: &str, patience: Duration) -> Result<bool, LocalError> {
        self.children.stop(name, patience).await
    }

    /// SIGSTOP: it keeps everything and does nothing. Returns when it has stopped.
    ///
    /// # Errors
    /// [`LocalError::Unknown`], [`LocalError::Dead`].
    pub async fn pause(&self, name: &str) -> Result<(), LocalError> {
        self.children.pause(name).await
    }

    /// SIGCONT; returns when it goes on.
    ///
    /// # Errors
    /// [`LocalError::Unknown`], [`LocalError::Dead`].
    pub async fn resume(&self, name: &str) -> Result<(), LocalError> {
        self.children.resume(name).await
    }

    /// What every process of the folder is doing, servers too, in the order in which they were first started.
    ///
    /// # Errors
    /// [`LocalError::Record`].
    pub fn status(&self) -> Result<Vec<Status>, LocalError> {
        Ok(self.children.entries()?.iter().map(Status::from).collect())
    }

    /// The folder, as an absolute path.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.children.folder()
    }

    /// Stops every process of the folder: nodes and workers, which drain, and then the servers. Whether all went by themselves.
    ///
    /// # Errors
    /// [`LocalError::Record`], [`LocalError::Io`].
    pub async fn down(self) -> Result<bool, LocalError> {
        let drained = self
            .children
            .stop_all(&[Kind::Node, Kind::Worker], DRAINED)
            .await?;
        let stopped = self
            .children
            .stop_all(&[Kind::NatsServer], servers::ORDERLY)
            .await?;
        Ok(drained && stopped)
    }

    /// Gives up what was started: it goes on without this process, until somebody [opens](Self::open) the folder and takes it down.
    pub fn leave_running(mut self) {
        self.children.let_go();
    }
}

/// The arguments that a node and a worker have in common.
fn common(
    command: &str,
    program: &Program,
    name: &str,
    tools: &Path,
) -> Result<Vec<String>, LocalError> {
    let tools = absolute(tools)?;
    let arguments = [
        command,
        "--nats",
        &program.nats,
        "--name",
        name,
        "--tools",
        &tools,
    ];
    Ok(arguments.map(str::to_owned).to_vec())
}

/// A path that means the same to whoever starts the process again from elsewhere, as text.
fn absolute(path: &Path) -> Result<String, LocalError> {
    let path = std::path::absolute(path).map_err(doing(format!("finding {}", path.display())))?;
    path.into_os_string()
        .into_string()
        .map_err(|path| LocalError::Folder {
            folder: path.into(),
            reason: "its path is not UTF-8".to_owned(),
        })
}
