//! `leasehold worker`: executes calls of a cluster on NATS until it is told to stop.
//!
//! A worker has a name, which is the same in all its lives, and a folder with its logbook: what an earlier life left open is settled from
//! there at once. While its session lapses it claims nothing; calls in hand go on, and what came of them is still written.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold_actors::{Clock as _, Runtime, RuntimeOptions, SystemClock, WorkerOptions};
use leasehold_agents::Agents;
use leasehold_embedded::{LogbookOptions, SledLogbook};
use leasehold_nats::{
    DEFAULT_DOMAIN, NatsStore, Options, Role, Session, SessionOptions, StartError, Target,
};
use leasehold_protocol::{DefaultPolicy, WorkerId};

use crate::dev::{self, Sabotage, Stall, Stalls};
use crate::failure::{Exit, Failure};
use crate::say;
use crate::stop::{DRAIN_BOUND, Signals, drain};
use crate::variables::Variable;

/// Pause before a cluster is looked for again that no node has made yet.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Arguments of `leasehold worker`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct WorkerArgs {
    /// This worker's name: no other worker may have it, and it keeps it in all its lives
    #[arg(long, value_name = "NAME")]
    name: WorkerId,
    /// The tools that this worker executes, as a TOML file (see `leasehold tools check`)
    #[arg(long, value_name = "FILE")]
    tools: PathBuf,
    /// The folder of the worker's logbook, on a disk that survives the process
    #[arg(long, value_name = "DIR")]
    logbook: PathBuf,
    /// A value for ${NAME} in the tools file; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<Variable>,
    /// Calls that run side by side
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    slots: u16,
    /// How long this worker counts as alive without a renewal; 15 s is the floor in production
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    session_ttl: u64,
    /// How far this machine's clock may be from the NATS servers'
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    clock_bound: u64,
    /// Print `reached POINT` the N-th time POINT is reached, and stand still there
    #[arg(long, value_name = "POINT[:N]", hide = true)]
    stall: Vec<Stall>,
    /// Leave out a part of the protocol, to see the checks notice
    #[arg(long, value_name = "WHAT", hide = true)]
    sabotage: Option<Sabotage>,
}

/// Runs until told to stop.
pub(crate) async fn run(target: &Target, args: WorkerArgs) -> Result<Exit, Failure> {
    let tools = Arc::new(dev::registry(&args.tools, &args.set)?);
    let mut signals = Signals::new()?;
    let logbook = open_logbook(&args)?;
    let session = dev::fresh_session()?;
    let clock = Arc::new(SystemClock);
    let store = tokio::select! {
        store = open(target, &args) => store?,
        name = signals.next() => {
            say::aside(&format!("{name}: stopped before it had begun"));
            return Ok(Exit::Done);
        }
    };
    let alive = Session::start(SessionOptions {
        target: target.clone(),
        role: Role::Worker {
            domain: DEFAULT_DOMAIN.to_owned(),
            worker: args.name.clone(),
        },
        session: session.clone(),
        ttl: Duration::from_secs(args.session_ttl),
        clock_bound: Duration::from_secs(args.clock_bound),
        clock,
    });
    let alive = alive.await.map_err(refused)?;
    let mut options = RuntimeOptions::reader(
        Arc::new(store.clone()),
        tools.clone(),
        Arc::new(DefaultPolicy),
        Agents::new(),
        store.cluster().clone(),
        session,
    );
    options.worker = Some(WorkerOptions {
        worker: args.name.clone(),
        logbook,
        slots: args.slots.into(),
    });
    options.authority = alive.authority();
    if !args.stall.is_empty() {
        options.points = Arc::new(Stalls::new(args.stall.clone()));
    }
    if let Some(sabotage) = args.sabotage {
        options.worker_weakening = sabotage.of_workers();
    }
    let runtime = Runtime::start(options).await.map_err(Failure::broken)?;
    let ready = format!(
        "ready: worker {}, {} tools, cluster {}, pid {}",
        say::plain(args.name.as_str()),
        tools.len(),
        store.cluster(),
        std::process::id()
    );
    // Whoever started it may not listen any more; it serves all the same.
    let _ = say::line(&ready);
    tokio::select! {
        why = alive.over() => {
            runtime.abort().await;
            Err(Failure::broken(format!("{why}; start it again: the next life settles what was in hand")))
        }
        why = runtime.failed() => {
            runtime.abort().await;
            Err(Failure::broken(format!("{why}; nothing that was acknowledged is lost: start it again")))
        }
        name = signals.next() => {
            say::aside(&format!(
                "{name}: stopping; calls in flight have {} s to finish (once more: stop at once)",
                DRAIN_BOUND.as_secs()
            ));
            let exit = drain(&runtime, &mut signals).await;
            alive.end();
            Ok(exit)
        }
    }
}

fn refused(error: StartError) -> Failure {
    Failure::new(Exit::NoRuntime, error.to_string())
}

/// Opens the cluster; waits for one that no node has made yet, because workers and nodes are started in any order.
async fn open(target: &Target, args: &WorkerArgs) -> Result<NatsStore, Failure> {
    let mut has_said = false;
    loop {
        let options = Options::new(target.clone(), args.name.to_string(), Arc::new(SystemClock));
        match NatsStore::open(options).await {
            Err(StartError::NoCluster) => {
                if !has_said {
                    say::aside("there is no cluster yet; waiting for the first node");
                    has_said = true;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            opened => return opened.map_err(refused),
        }
    }
}

fn open_logbook(args: &WorkerArgs) -> Result<Arc<SledLogbook>, Failure> {
    let options = LogbookOptions {
        worker: args.name.clone(),
        now: SystemClock.now().wall,
    };
    let opened = SledLogbook::open(&args.logbook, options)?;
    dev::tell_of_logbook(&opened);
    Ok(Arc::new(opened.logbook))
}
