//! `leasehold local`: a whole cluster on this machine, and whatever can happen to its processes.
//!
//! `up` starts real nats-servers, nodes and workers, waits until each has said that it is ready, and leaves them running; nothing is left
//! of an `up` that fails or is interrupted. Every other command finds them through the folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_local::{
    Kind, LocalError, NatsOptions, NatsServers, NodeOptions, Processes, Program, State, Status,
    WorkerOptions,
};
use serde::Serialize;

use crate::dev;
use crate::failure::{Exit, Failure};
use crate::say;
use crate::table::{table, text};
use crate::variables::Variable;
use crate::view::{code, shell_word};

/// The folder of a local cluster, where nothing else is said.
const FOLDER: &str = "./leasehold-local";

/// How long a node or a worker may take until it says that it is ready. It takes a second or two; a node that begins on three busy
/// servers waits for elections, and a worker for the first node.
const READY: Duration = Duration::from_secs(120);

/// How a node and a worker begin the line that says so.
const SAYS_READY: &str = "ready: ";

/// Longest list of processes in one sentence, in names.
const NAMED: usize = 8;

/// What is done with a cluster on this machine.
#[derive(Debug, Clone, clap::Subcommand)]
pub(crate) enum LocalCommand {
    /// Start NATS servers, nodes and workers, and leave them running
    Up(UpArgs),
    /// Show every process: what it does, its ports, its log
    Status(FolderArgs),
    /// Kill a process (SIGKILL)
    Kill(NameArgs),
    /// Suspend a process (SIGSTOP): it keeps everything and does nothing
    Pause(NameArgs),
    /// Let a suspended process go on (SIGCONT)
    Resume(NameArgs),
    /// Start a process again that has ended, with the same arguments and data
    Start(NameArgs),
    /// Stop everything; the data stays
    Down(FolderArgs),
}

/// Arguments of `leasehold local up`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct UpArgs {
    /// How many nodes
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=32))]
    nodes: u16,
    /// How many workers
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(0..=64))]
    workers: u16,
    // Everywhere else this flag is the servers' URL, a text; it has one type under one name.
    /// How many NATS servers
    #[arg(long, value_name = "N", default_value = "1", value_parser = ["1", "3"])]
    nats: String,
    /// The tools, as a TOML file (see `leasehold tools check`)
    #[arg(long, value_name = "FILE")]
    tools: PathBuf,
    /// Rules that say which calls may be made; without it the class of the tool decides
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// A value for ${NAME} in the tools file; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<Variable>,
    /// How long a node or worker counts as alive without a renewal; shorter than in production, so that there is something to see
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    session_ttl: u64,
    /// Port of the first NATS server; the others have the next ones [default: those of last time, else free ones]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..=65_533))]
    port: Option<u16>,
    #[command(flatten)]
    folder: FolderArgs,
}

/// Which cluster.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct FolderArgs {
    /// Where everything of the cluster lies: data, logs, and which processes it has
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    folder: PathBuf,
}

/// Which process of which cluster.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct NameArgs {
    /// The process, as `leasehold local status` names it, for example node-1
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    folder: FolderArgs,
}

pub(crate) async fn run(json: bool, command: LocalCommand) -> Result<Exit, Failure> {
    match command {
        LocalCommand::Up(args) => up(json, args).await,
        LocalCommand::Status(args) => status(json, &args),
        LocalCommand::Down(args) => down(json, &args).await,
        LocalCommand::Kill(args) => turn(json, &args, Turn::Kill).await,
        LocalCommand::Pause(args) => turn(json, &args, Turn::Pause).await,
        LocalCommand::Resume(args) => turn(json, &args, Turn::Resume).await,
        LocalCommand::Start(args) => turn(json, &args, Turn::Start).await,
    }
}

impl FolderArgs {
    /// How this command is called about the same folder.
    fn command(&self, what: &str) -> String {
        if self.folder == Path::new(FOLDER) {
            return format!("leasehold local {what}");
        }
        let folder = shell_word(&self.folder.display().to_string());
        format!("leasehold local {what} --folder {folder}")
    }

    /// The processes of the cluster that was once started here.
    fn processes(&self) -> Result<Processes, Failure> {
        let none = |why: String| {
            let folder = self.folder.display();
            let up = self.command("up --tools FILE");
            Failure::usage(format!(
                "there is no local cluster in {folder} ({why}); name its folder with --folder, or start one: {up}"
            ))
        };
        if !self.folder.exists() {
            return Err(none("there is no such folder".to_owned()));
        }
        let processes = Processes::open(&self.folder).map_err(|error| self.failed(&error))?;
        let all = processes.status().map_err(|error| self.failed(&error))?;
        if all.is_empty() {
            return Err(none("nothing was ever started there".to_owned()));
        }
        Ok(processes)
    }

    /// What went wrong, and what to type.
    fn failed(&self, error: &LocalError) -> Failure {
        let usage = |what: String| Failure::usage(format!("{error}; {what}"));
        match error {
            LocalError::Dead(name) => usage(format!(
                "start it: {}",
                self.command(&format!("start {name}"))
            )),
            LocalError::Running { name, .. } => usage(format!(
                "for example: {}",
                self.command(&format!("kill {name}"))
            )),
            LocalError::PortTaken { .. } => usage(format!(
                "end the process that has it (`ss -ltnp` shows it), or take other ports: {}",
                self.command("up --port PORT ..")
            )),
            LocalError::OtherCount { .. }
            | LocalError::NoServer { .. }
            | LocalError::NotAServer { .. }
            | LocalError::TooOld { .. }
            | LocalError::Folder { .. }
            | LocalError::Unknown { .. }
            | LocalError::Name(_)
            | LocalError::NameTaken(_) => Failure::usage(error),
            _ => Failure::broken(error),
        }
    }
}

async fn up(json: bool, args: UpArgs) -> Result<Exit, Failure> {
    // Whatever is wrong with the files is said before anything runs, and once.
    let tools = dev::registry(&args.tools, &args.set)?;
    dev::policy(args.policy.as_deref())?;
    refuse_running(&args.folder)?;
    let failed = |error: LocalError| args.folder.failed(&error);

    let count = if args.nats == "3" { 3 } else { 1 };
    say::aside(&format!("starting {}", counted(count, "NATS server")));
    let mut options = NatsOptions::new(count, &args.folder.folder);
    options.client_ports = args.port.map(|first| (first..).take(count).collect());
    let servers = NatsServers::start(options).await.map_err(failed)?;
    let urls = servers.urls().map_err(failed)?;
    say::aside(&format!("ready: {urls}"));

    let processes = Processes::new(&args.folder.folder).map_err(failed)?;
    let names = start(&processes, &args, &urls)?;
    for name in &names {
        let ready = processes.says(name, SAYS_READY, READY).await;
        say::aside(&ready.map_err(failed)?);
    }
    processes.leave_running();
    servers.leave_running();

    if json {
        status(json, &args.folder)?;
        return Ok(Exit::Done);
    }
    let folder = args.folder.processes()?.folder().display().to_string();
    let without: Vec<String> = served_elsewhere(&tools);
    let mut lines = vec![
        format!(
            "running: {}, {}, {}",
            counted(count, "NATS server"),
            counted(args.nodes.into(), "node"),
            counted(args.workers.into(), "worker")
        ),
        String::new(),
        format!("  export NATS_URL={}", shell_word(&urls)),
        "  leasehold runs".to_owned(),
        format!("  {}", args.folder.command("status")),
        format!("  {}", args.folder.command("kill node-1")),
        format!("  {}", args.folder.command("down")),
        String::new(),
        format!("logs: {folder}/node-1.log and so on, {folder}/nats-1/log"),
    ];
    if !without.is_empty() {
        lines.push(format!(
            "no worker here serves {}: their calls wait until one elsewhere does",
            without.join(", ")
        ));
    }
    say::line(&lines.join("\n"))?;
    Ok(Exit::Done)
}

fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Tools of the cluster that its own workers do not execute.
fn served_elsewhere(tools: &leasehold_tools::Registry) -> Vec<String> {
    tools.elsewhere().map(say::plain).collect()
}

/// A folder whose cluster runs is no place for another one.
fn refuse_running(args: &FolderArgs) -> Result<(), Failure> {
    if !args.folder.exists() {
        return Ok(());
    }
    let failed = |error: LocalError| args.failed(&error);
    let all = Processes::open(&args.folder).and_then(|processes| processes.status());
    let alive: Vec<String> = all
        .map_err(failed)?
        .into_iter()
        .filter(|process| process.state != State::Dead)
        .map(|process| process.name)
        .collect();
    if alive.is_empty() {
        return Ok(());
    }
    let more = if alive.len() > NAMED { ", .." } else { "" };
    let named = alive.iter().take(NAMED).cloned().collect::<Vec<_>>();
    Err(Failure::usage(format!(
        "the cluster in {} runs already ({}{more}); stop it: {}; or name another folder with --folder",
        args.folder.display(),
        named.join(", "),
        args.command("down"),
    )))
}

/// Starts nodes and workers, all at once; their names.
fn start(processes: &Processes, args: &UpArgs, urls: &str) -> Result<Vec<String>, Failure> {
    let failed = |error: LocalError| args.folder.failed(&error);
    let binary = std::env::current_exe()
        .map_err(|error| Failure::broken(format!("this program's own file: {error}")))?;
    let program = Program {
        binary,
        nats: urls.to_owned(),
    };
    let mut common = vec!["--session-ttl".to_owned(), args.session_ttl.to_string()];
    for variable in &args.set {
        common.extend(["--set".to_owned(), variable.to_string()]);
    }
    let mut names = Vec::new();
    for n in 1..=args.nodes {
        let node = NodeOptions {
            name: format!("node-{n}"),
            tools: args.tools.clone(),
            policy: args.policy.clone(),
            arguments: common.clone(),
            ..NodeOptions::default()
        };
        names.push(node.name.clone());
        processes.start_node(&program, node).map_err(failed)?;
    }
    for n in 1..=args.workers {
        let worker = WorkerOptions {
            name: format!("worker-{n}"),
            tools: args.tools.clone(),
            arguments: common.clone(),
            ..WorkerOptions::default()
        };
        names.push(worker.name.clone());
        processes.start_worker(&program, worker).map_err(failed)?;
    }
    Ok(names)
}

#[derive(Serialize)]
struct Report {
    folder: PathBuf,
    /// What NATS_URL has to be.
    nats: String,
    processes: Vec<Status>,
}

fn status(json: bool, args: &FolderArgs) -> Result<Exit, Failure> {
    let failed = |error: LocalError| args.failed(&error);
    let processes = args.processes()?;
    let all = processes.status().map_err(failed)?;
    let servers = NatsServers::open(&args.folder).map_err(failed)?;
    let nats = servers.urls().map_err(failed)?;
    if json {
        say::json(&Report {
            folder: processes.folder().to_owned(),
            nats,
            processes: all,
        })?;
        return Ok(Exit::Done);
    }
    let mut shown = table(&["NAME", "KIND", "STATE", "PID", "PORTS", "LOG"]);
    for process in all {
        let ports = process.ports.iter();
        let ports: Vec<String> = ports.map(|(what, port)| format!("{what}:{port}")).collect();
        let pid = match process.state {
            State::Dead => "-".to_owned(),
            State::Running | State::Paused => process.pid.to_string(),
        };
        shown.add_row([
            process.name,
            code(&process.kind),
            code(&process.state),
            pid,
            ports.join(" "),
            process.log.display().to_string(),
        ]);
    }
    say::line(&text(&shown))?;
    say::line(&format!("\nNATS_URL={}", shell_word(&nats)))?;
    Ok(Exit::Done)
}

async fn down(json: bool, args: &FolderArgs) -> Result<Exit, Failure> {
    let failed = |error: LocalError| args.failed(&error);
    let processes = args.processes()?;
    let all = processes.status().map_err(failed)?;
    let alive = all.iter().filter(|process| process.state != State::Dead);
    let alive = alive.count();
    if !json && alive > 0 {
        say::aside(&format!(
            "stopping {alive} processes: nodes and workers finish what they have in hand, then the NATS servers"
        ));
    }
    let orderly = processes.down().await.map_err(failed)?;
    if json {
        say::json(&serde_json::json!({"stopped": alive, "orderly": orderly}))?;
        return Ok(Exit::Done);
    }
    let folder = args.folder.display();
    say::line(&match (alive, orderly) {
        (0, _) => format!("nothing runs in {folder}"),
        (_, true) => format!("{alive} processes stopped; the data stays in {folder}"),
        (_, false) => format!(
            "{alive} processes stopped, some of them killed because they took too long; the data stays in {folder}"
        ),
    })?;
    Ok(Exit::Done)
}

/// What is done to one process.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Kill,
    Pause,
    Resume,
    Start,
}

async fn turn(json: bool, args: &NameArgs, turn: Turn) -> Result<Exit, Failure> {
    let failed = |error: LocalError| args.folder.failed(&error);
    let (processes, name) = (args.folder.processes()?, args.name.as_str());
    let before = one(&processes, name).map_err(failed)?;
    let done = match (turn, before.state) {
        (Turn::Kill, State::Dead) => Ok("had ended before"),
        (Turn::Kill, _) => processes.kill(name).await.map(|()| "killed"),
        (Turn::Pause, _) => processes.pause(name).await.map(|()| "paused"),
        (Turn::Resume, _) => processes.resume(name).await.map(|()| "goes on"),
        (Turn::Start, _) => start_again(&processes, &before).await.map(|()| "ready"),
    };
    let done = done.map_err(failed)?;
    let now = one(&processes, name).map_err(failed)?;
    if json {
        say::json(&now)?;
    } else {
        say::line(&format!("{name} (process {}): {done}", now.pid))?;
    }
    Ok(Exit::Done)
}

fn one(processes: &Processes, name: &str) -> Result<Status, LocalError> {
    let all = processes.status()?;
    let known: Vec<&str> = all.iter().map(|process| process.name.as_str()).collect();
    let unknown = LocalError::Unknown {
        name: say::short(name),
        known: known.join(", "),
    };
    let mut all = all.iter();
    let found = all.find(|process| process.name == name);
    found.cloned().ok_or(unknown)
}

async fn start_again(processes: &Processes, before: &Status) -> Result<(), LocalError> {
    processes.restart(&before.name).await?;
    match before.kind {
        Kind::NatsServer => Ok(()),
        Kind::Node | Kind::Worker => {
            let ready = processes.says(&before.name, SAYS_READY, READY).await?;
            say::aside(&ready);
            Ok(())
        }
    }
}
