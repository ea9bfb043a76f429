//! `leasehold dev`: the whole runtime on one data folder, until it is told to stop.
//!
//! Everything that can be wrong (tools, policy, folder) is said before anything runs. Then one line, `ready: ...`, goes to standard output;
//! from there on every command of this program works on the folder. SIGTERM or SIGINT stops it in good order within a bound, a second one
//! at once; whatever was in hand then is settled by the next start, as after a crash.

mod recording;
mod sabotage;
mod stall;

pub(crate) use recording::Line;
pub(crate) use recording::Recording;
pub(crate) use sabotage::{Sabotage, run_weakening};
pub(crate) use stall::{Stall, Stalls};

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold_actors::{Clock as _, Ids as _, RandomIds, Runtime, RuntimeOptions, SystemClock};
use leasehold_agents::{Agents, ScriptAgent};
use leasehold_embedded::{EmbeddedStore, LogbookOptions, OpenOptions, OpenedLogbook, SledLogbook};
use leasehold_protocol::{DefaultPolicy, Policy, RulePolicy, SessionId, WorkerId};
use leasehold_tools::Registry;

use crate::failure::{Exit, Failure};
use crate::known_tools::KnownTools;
use crate::say;
use crate::socket::backing::Backing;
use crate::socket::server::{Desk, Server};
use crate::socket::wire::Hello;
use crate::stop::{DRAIN_BOUND, Signals, drain};
use crate::variables::Variable;

/// Arguments of `leasehold dev`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DevArgs {
    /// The tools, as a TOML file (see `leasehold tools check`)
    #[arg(long, value_name = "FILE")]
    tools: PathBuf,
    /// Rules that say which calls may be made; without it the class of the tool decides
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// A value for ${NAME} in the tools file; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<Variable>,
    /// Calls that run side by side
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    slots: u16,
    /// Append every input of every run's machine to this file, as JSON lines
    #[arg(long, value_name = "FILE", hide = true)]
    record: Option<PathBuf>,
    /// Print `reached POINT` the N-th time POINT is reached, and stand still there
    #[arg(long, value_name = "POINT[:N]", hide = true)]
    stall: Vec<Stall>,
    /// Leave out a part of the protocol, to see the checks notice
    #[arg(long, value_name = "WHAT", hide = true)]
    sabotage: Option<Sabotage>,
}

/// Runs until told to stop.
pub(crate) async fn run(folder: &Path, args: DevArgs) -> Result<Exit, Failure> {
    let tools = Arc::new(registry(&args.tools, &args.set)?);
    let elsewhere: Vec<String> = tools.elsewhere().map(say::plain).collect();
    if !elsewhere.is_empty() {
        say::aside(&format!(
            "no worker elsewhere reaches a data folder: calls of {} wait until their run is cancelled (see them with `runs --waiting-for TOOL`); \
             serve them on a cluster, or give them [tool.command] or [tool.http] here",
            elsewhere.join(", ")
        ));
    }
    let policy = policy(args.policy.as_deref())?;
    let session = fresh_session()?;
    let opened = open(folder, &session)?;
    KnownTools::add(folder, &tools)?;

    let agents = agents()?;
    let hello = Hello {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        cluster: opened.store.cluster().to_string(),
        session: session.to_string(),
        policy: policy.identity(),
        agents: agents.names().map(str::to_owned).collect(),
        tools: tools.iter().map(|tool| tool.spec().clone()).collect(),
    };
    let mut options = RuntimeOptions::new(
        Arc::new(opened.store.clone()),
        opened.logbook.clone(),
        tools.clone(),
        policy,
        agents,
        opened.store.cluster().clone(),
        session.clone(),
    )
    .map_err(Failure::broken)?;
    if let Some(worker) = &mut options.worker {
        worker.slots = args.slots.into();
        worker.moved_from = opened.moved_from;
    }
    if !args.stall.is_empty() {
        options.points = Arc::new(Stalls::new(args.stall));
    }
    if let Some(path) = &args.record {
        options.recorder = Arc::new(Recording::append(path, &session, &tools)?);
    }
    if let Some(sabotage) = args.sabotage {
        options.run_weakening = sabotage.of_runs();
        options.worker_weakening = sabotage.of_workers();
    }

    // Before the runtime: a signal that comes early is not lost.
    let mut signals = Signals::new()?;
    let runtime = Runtime::start(options).await.map_err(Failure::broken)?;
    let desk = Arc::new(Desk {
        runtime,
        hello,
        backing: Backing::Folder {
            store: opened.store,
            logbook: opened.logbook,
        },
        tasks: Default::default(),
    });
    let server = Server::start(folder, desk.clone()).map_err(|error| {
        let text = format!(
            "{} cannot be listened on: {error}",
            crate::socket::path(folder).display()
        );
        Failure::new(Exit::FolderRefused, text)
    })?;
    let hello = &desk.hello;
    let ready = format!(
        "ready: data {}, {} tools, policy {}, cluster {}, pid {}",
        say::plain(&folder.display().to_string()),
        hello.tools.len(),
        say::plain(&hello.policy),
        hello.cluster,
        hello.pid
    );
    // Whoever started it may not listen any more; it serves all the same.
    let _ = say::line(&ready);
    serve(&desk, server, &mut signals).await
}

async fn serve(desk: &Arc<Desk>, server: Server, signals: &mut Signals) -> Result<Exit, Failure> {
    let runtime = &desk.runtime;
    tokio::select! {
        why = runtime.failed() => {
            server.stop().await;
            runtime.abort().await;
            Err(Failure::broken(format!("{why}; nothing that was acknowledged is lost: start it again")))
        }
        name = signals.next() => {
            say::aside(&format!(
                "{name}: stopping; calls in flight have {} s to finish (once more: stop at once)",
                DRAIN_BOUND.as_secs()
            ));
            let exit = drain(runtime, signals, "the next start").await;
            server.stop().await;
            Ok(exit)
        }
    }
}

/// Reads a tools file and assembles it, or says everything that is wrong.
pub(crate) fn registry(path: &Path, set: &[Variable]) -> Result<Registry, Failure> {
    let value = |name: &str| Variable::value(set, name);
    let file = leasehold_workers::load(path, &value).map_err(Failure::usage)?;
    Registry::assemble(file.into_registered()).map_err(|errors| {
        let lines: Vec<String> = errors
            .iter()
            .map(|error| format!("{}: {error}", path.display()))
            .collect();
        Failure::usage(lines.join("\n"))
    })
}

pub(crate) fn policy(path: Option<&Path>) -> Result<Arc<dyn Policy>, Failure> {
    let Some(path) = path else {
        return Ok(Arc::new(DefaultPolicy));
    };
    let refused = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let text = fs::read_to_string(path)
        .map_err(|error| refused(format!("the policy file cannot be read: {error}")))?;
    let policy = RulePolicy::parse(&text).map_err(|errors| refused(errors.to_string()))?;
    Ok(Arc::new(policy))
}

pub(crate) fn agents() -> Result<Agents, Failure> {
    let mut agents = Agents::new();
    agents.register(ScriptAgent).map_err(Failure::broken)?;
    #[cfg(feature = "demo")]
    agents
        .register(crate::demo::RefundClerk)
        .map_err(Failure::broken)?;
    Ok(agents)
}

struct Folder {
    store: EmbeddedStore,
    logbook: Arc<SledLogbook>,
    moved_from: Option<String>,
}

pub(crate) fn fresh_session() -> Result<SessionId, Failure> {
    RandomIds.session().map_err(Failure::broken)
}

/// This process's worker has one name in all its lives: its logbook is found by it.
fn worker() -> Result<WorkerId, Failure> {
    WorkerId::new("local").map_err(Failure::broken)
}

fn open(folder: &Path, session: &SessionId) -> Result<Folder, Failure> {
    let now = SystemClock.now().wall;
    let options = OpenOptions {
        session: session.clone(),
        now,
    };
    let store = EmbeddedStore::open(folder, options)?;
    // Journals hold what tools were told and answered: they are their owner's alone, as is the socket.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).map_err(|error| {
        let text = format!(
            "{} cannot be made private to its owner: {error}",
            folder.display()
        );
        Failure::new(Exit::FolderRefused, text)
    })?;
    let worker = worker()?;
    let place = store.logbook_folder(&worker);
    let opened = SledLogbook::open(place, LogbookOptions { worker, now })?;
    tell_of_logbook(&opened);
    Ok(Folder {
        store,
        logbook: Arc::new(opened.logbook),
        moved_from: opened.moved_from,
    })
}

/// Says what a worker's operator has to know of a logbook that was not simply opened.
pub(crate) fn tell_of_logbook(opened: &OpenedLogbook) {
    if let Some((place, why)) = &opened.quarantined {
        say::aside(&format!(
            "the worker's logbook could not be believed ({why}); it was moved to {} and what it knew counts as unknown",
            place.display()
        ));
    }
    if let Some(machine) = &opened.moved_from {
        say::aside(&format!(
            "the worker's logbook was made on another machine ({machine}); if a process still runs there, stop it. Of a call that an earlier life had begun, this one says only what its tool returned: whether anything else happened is asked of an operator"
        ));
    }
}
