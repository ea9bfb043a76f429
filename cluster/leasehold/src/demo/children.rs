//! Children of the demo: the payments service, and what every child has in common. Each is this same binary with another subcommand.
//!
//! They are started, killed with SIGKILL and started again; what they say on standard output is the only thing that the demo learns from
//! them directly. Their standard error goes to log files in the data folder. Whatever ends the demo ends them too.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::plan::Fault;
use crate::payments::ColumnMap;

/// How long a child may take to say that it is ready: opening a store that was killed takes well under a second.
pub(super) const READY: Duration = Duration::from_secs(30);
/// How long a child may take to end after SIGTERM: longer than the slowest call of the example.
const ORDERLY: Duration = Duration::from_secs(20);
/// How long the payments service may take to arm a fault: one durable insert.
const ARMED: Duration = Duration::from_secs(5);
/// Longest answer that is read of it, in bytes.
const MAX_ANSWER: u64 = 64 * 1024;

/// What the payments service is called as a subcommand.
const PAYMENTS: &str = "payments";
/// How its line begins that tells the demo something.
const LISTENING_LINE: &str = "payments listening";

/// Where everything of one demo lies.
#[derive(Debug, Clone)]
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    /// The runtime's data folder.
    pub(super) fn store(&self) -> PathBuf {
        self.0.join("runtime")
    }
    pub(super) fn books(&self) -> PathBuf {
        self.0.join("payments.db")
    }
    pub(super) fn orders(&self) -> PathBuf {
        self.0.join("orders.csv")
    }
    pub(super) fn tools(&self) -> PathBuf {
        self.0.join("tools.toml")
    }
    pub(super) fn policy(&self) -> PathBuf {
        self.0.join("policy.toml")
    }
    /// Everything of the cluster.
    pub(super) fn cluster(&self) -> PathBuf {
        self.0.join("cluster")
    }
    /// Where a node of the cluster records the inputs of its machines.
    pub(super) fn recording(&self, node: &str) -> PathBuf {
        self.0.join(format!("inputs-{node}.jsonl"))
    }
    pub(super) fn dump(&self) -> PathBuf {
        self.0.join("dump.jsonl")
    }
    fn log(&self, child: &str) -> io::Result<File> {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.0.join(format!("{child}.log")))
    }
}

/// A running child and what it has said.
pub(super) struct Process {
    name: &'static str,
    child: Child,
    /// Lines of standard output that were looked for, in the order in which they came.
    pub(super) said: watch::Receiver<Vec<String>>,
}

impl Process {
    /// Starts this binary with a subcommand. Lines of its output that begin with one of `wanted` are kept.
    pub(super) fn start(
        name: &'static str,
        folder: &Folder,
        wanted: &'static [&'static str],
        arguments: impl FnOnce(&mut Command),
        tasks: &TaskTracker,
    ) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this program's own file")?;
        let mut command = Command::new(program);
        command
            .arg(name)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(folder.log(name)?)
            .kill_on_drop(true);
        arguments(&mut command);
        let mut child = command
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        let (say, said) = watch::channel(Vec::new());
        if let Some(out) = child.stdout.take() {
            tasks.spawn(async move {
                let mut lines = BufReader::new(out).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    if wanted.iter().any(|start| line.starts_with(start)) {
                        say.send_modify(|said| said.push(line));
                    }
                }
            });
        }
        Ok(Self { name, child, said })
    }

    /// Waits until it has said a line that begins so.
    pub(super) async fn says(&mut self, start: &str, bound: Duration) -> anyhow::Result<()> {
        let heard = self
            .said
            .wait_for(|said| said.iter().any(|line| line.starts_with(start)));
        match timeout(bound, heard).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => bail!("{} ended before it was ready; its log says why", self.name),
            Err(_) => bail!(
                "{} was not ready within {} s; its log says why",
                self.name,
                bound.as_secs()
            ),
        }
    }

    /// SIGKILL, and waits until the process is gone.
    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        self.child
            .kill()
            .await
            .with_context(|| format!("killing {}", self.name))
    }

    /// Whether it has ended by itself.
    pub(super) fn ended(&mut self) -> anyhow::Result<bool> {
        let status = self.child.try_wait();
        let status = status.with_context(|| format!("looking after {}", self.name))?;
        Ok(status.is_some())
    }

    /// SIGTERM; after a bound SIGKILL. Whether it ended well.
    pub(super) async fn stop(&mut self) -> anyhow::Result<bool> {
        let pid = self
            .child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)
                .with_context(|| format!("stopping {}", self.name))?;
        }
        match timeout(ORDERLY, self.child.wait()).await {
            Ok(status) => Ok(status?.success()),
            Err(_) => {
                self.kill().await?;
                Ok(false)
            }
        }
    }
}

/// The payments service on a port of its own, which it keeps across its lives.
pub(super) struct Payments {
    folder: Folder,
    orders: PathBuf,
    map: ColumnMap,
    address: SocketAddr,
    process: Process,
    tasks: TaskTracker,
}

impl Payments {
    pub(super) async fn start(
        folder: &Folder,
        orders: &Path,
        map: &ColumnMap,
        tasks: &TaskTracker,
    ) -> anyhow::Result<Self> {
        let address = free_port().await?;
        let process = Self::process(folder, orders, map, address, tasks).await?;
        Ok(Self {
            folder: folder.clone(),
            orders: orders.to_owned(),
            map: map.clone(),
            address,
            process,
            tasks: tasks.clone(),
        })
    }

    async fn process(
        folder: &Folder,
        orders: &Path,
        map: &ColumnMap,
        address: SocketAddr,
        tasks: &TaskTracker,
    ) -> anyhow::Result<Process> {
        let arguments = |command: &mut Command| {
            command
                .arg("--db")
                .arg(folder.books())
                .arg("--orders")
                .arg(orders);
            command.args(["--map", &map.to_string(), "--listen", &address.to_string()]);
        };
        let mut process = Process::start(PAYMENTS, folder, &[LISTENING_LINE], arguments, tasks)?;
        process.says(LISTENING_LINE, READY).await?;
        Ok(process)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// SIGKILL.
    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill().await
    }

    /// Starts it again after it died.
    pub(super) async fn restart(&mut self) -> anyhow::Result<()> {
        self.process = Self::process(
            &self.folder,
            &self.orders,
            &self.map,
            self.address,
            &self.tasks,
        )
        .await?;
        Ok(())
    }

    /// Whether it has died by itself.
    pub(super) fn ended(&mut self) -> anyhow::Result<bool> {
        self.process.ended()
    }

    /// Arms a fault. Durable once this returns.
    pub(super) async fn arm(&self, fault: &Fault) -> anyhow::Result<()> {
        let body = serde_json::to_string(fault)?;
        let what = || format!("arming the fault {} of {}", fault.fault, fault.tool);
        let answer = timeout(ARMED, post(self.address, "/faults", &body))
            .await
            .with_context(what)?
            .with_context(what)?;
        if !answer.starts_with("HTTP/1.1 200") {
            bail!("{} was refused: {answer}", what());
        }
        Ok(())
    }
}

/// Runs this binary with other arguments to its end; its standard output goes to a file. Whether it succeeded.
pub(super) async fn run_to_file(arguments: &[OsString], output: &Path) -> anyhow::Result<bool> {
    let program = std::env::current_exe().context("finding this program's own file")?;
    let file = File::create(output).with_context(|| format!("creating {}", output.display()))?;
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(file)
        .kill_on_drop(true)
        .status()
        .await;
    Ok(status
        .with_context(|| {
            format!(
                "running {}",
                arguments
                    .first()
                    .map_or_else(Default::default, |name| name.to_string_lossy())
            )
        })?
        .success())
}

/// A request to a service that answers in one piece; the whole answer, head included.
async fn post(address: SocketAddr, path: &str, body: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut answer).await?;
    Ok(answer)
}

/// A port that was free a moment ago. Chosen before the service starts, so that it can come back on the same one.
async fn free_port() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .context("finding a free port")?;
    listener.local_addr().context("finding a free port")
}
