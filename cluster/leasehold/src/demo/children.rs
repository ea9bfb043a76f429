//! The two processes of the demo: the payments service and the runtime, each this same binary with another subcommand.
//!
//! They are started, killed with SIGKILL and started again; what they say on standard output is the only thing that the demo learns from
//! them directly. Their standard error goes to log files in the data folder. Whatever ends the demo ends them too.

use std::ffi::OsStr;
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

use super::plan::{Fault, SLOTS};
use crate::payments::ColumnMap;

/// How long a child may take to say that it is ready: opening a store that was killed takes well under a second.
const READY: Duration = Duration::from_secs(30);
/// How long a child may take to end after SIGTERM: longer than the slowest call of the example.
const ORDERLY: Duration = Duration::from_secs(20);
/// How long the payments service may take to arm a fault: one durable insert.
const ARMED: Duration = Duration::from_secs(5);
/// Longest answer that is read of it, in bytes.
const MAX_ANSWER: u64 = 64 * 1024;

/// What a child's name is for the commands that start it.
const PAYMENTS: &str = "payments";
const DEV: &str = "dev";
/// How the lines begin that tell the demo something.
const LISTENING_LINE: &str = "payments listening";
const READY_LINE: &str = "ready";
const REACHED_LINE: &str = "reached";

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
struct Process {
    name: &'static str,
    child: Child,
    /// Lines of standard output that were looked for, in the order in which they came.
    said: watch::Receiver<Vec<String>>,
}

impl Process {
    /// Starts this binary with a subcommand. Lines of its output that begin with one of `wanted` are kept.
    fn start(
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
    async fn says(&mut self, start: &str, bound: Duration) -> anyhow::Result<()> {
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
    async fn kill(&mut self) -> anyhow::Result<()> {
        self.child
            .kill()
            .await
            .with_context(|| format!("killing {}", self.name))
    }

    /// SIGTERM; after a bound SIGKILL. Whether it ended well.
    async fn stop(&mut self) -> anyhow::Result<bool> {
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
        Ok(self
            .process
            .child
            .try_wait()
            .context("looking after the payments service")?
            .is_some())
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

/// What a life of the runtime is started with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stall {
    pub(super) point: &'static str,
    pub(super) nth: usize,
}

/// The runtime on the demo's data folder.
pub(super) struct Dev {
    folder: Folder,
    payments: SocketAddr,
    sabotage: Option<String>,
    record: Option<PathBuf>,
    process: Process,
    tasks: TaskTracker,
}

impl Dev {
    pub(super) async fn start(
        folder: &Folder,
        payments: SocketAddr,
        sabotage: Option<String>,
        record: Option<PathBuf>,
        stall: Option<Stall>,
        tasks: &TaskTracker,
    ) -> anyhow::Result<Self> {
        let process = Self::process(
            folder,
            payments,
            sabotage.as_deref(),
            record.as_deref(),
            stall,
            tasks,
        )
        .await?;
        Ok(Self {
            folder: folder.clone(),
            payments,
            sabotage,
            record,
            process,
            tasks: tasks.clone(),
        })
    }

    async fn process(
        folder: &Folder,
        payments: SocketAddr,
        sabotage: Option<&str>,
        record: Option<&Path>,
        stall: Option<Stall>,
        tasks: &TaskTracker,
    ) -> anyhow::Result<Process> {
        let arguments = |command: &mut Command| {
            command
                .arg("--data")
                .arg(folder.store())
                .arg("--tools")
                .arg(folder.tools())
                .arg("--policy")
                .arg(folder.policy());
            command.args([
                "--set",
                &format!("PAYMENTS={payments}"),
                "--slots",
                &SLOTS.to_string(),
            ]);
            if let Some(Stall { point, nth }) = stall {
                command.args(["--stall", &format!("{point}:{nth}")]);
            }
            if let Some(sabotage) = sabotage {
                command.args(["--sabotage", sabotage]);
            }
            if let Some(record) = record {
                command.arg("--record").arg(record);
            }
        };
        let mut process =
            Process::start(DEV, folder, &[READY_LINE, REACHED_LINE], arguments, tasks)?;
        process.says(READY_LINE, READY).await?;
        Ok(process)
    }

    /// SIGKILL.
    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill().await
    }

    /// The next life.
    pub(super) async fn restart(&mut self, stall: Option<Stall>) -> anyhow::Result<()> {
        let (sabotage, record) = (self.sabotage.as_deref(), self.record.as_deref());
        self.process = Self::process(
            &self.folder,
            self.payments,
            sabotage,
            record,
            stall,
            &self.tasks,
        )
        .await?;
        Ok(())
    }

    /// Whether it stands still where it was told to.
    pub(super) fn stalled(&self) -> bool {
        self.process
            .said
            .borrow()
            .iter()
            .any(|line| line.starts_with(REACHED_LINE))
    }

    /// Whether it has ended by itself.
    pub(super) fn ended(&mut self) -> anyhow::Result<bool> {
        Ok(self
            .process
            .child
            .try_wait()
            .context("looking after the runtime")?
            .is_some())
    }

    /// SIGTERM. Whether it ended in good order.
    pub(super) async fn stop(&mut self) -> anyhow::Result<bool> {
        self.process.stop().await
    }
}

/// Runs this binary with other arguments to its end; its standard output goes to a file. Whether it succeeded.
pub(super) async fn run_to_file(arguments: &[&OsStr], output: &Path) -> anyhow::Result<bool> {
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
                arguments.first().copied().unwrap_or_default().display()
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
