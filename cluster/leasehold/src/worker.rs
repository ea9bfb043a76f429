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
    Account, DEFAULT_DOMAIN, LogbookMark, NatsStore, Options, Role, Session, SessionOptions,
    StartError, Target,
};
use leasehold_protocol::{DefaultPolicy, Seq, WIRE_VERSION, WorkerId};
use leasehold_store::{AppendError, Logbook as _};

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
    /// The domain of its tools, whose NATS account its credentials belong to (see `leasehold accounts`): it reads by asking nodes.
    /// Without it, the worker is in the nodes' account
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
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

impl WorkerArgs {
    fn domain(&self) -> &str {
        self.domain.as_deref().unwrap_or(DEFAULT_DOMAIN)
    }

    /// The servers, as whoever this worker is there.
    fn target(&self, target: &Target) -> Target {
        let account = match self.domain {
            Some(_) => Account::Domain(self.name.clone()),
            None => Account::Nodes,
        };
        Target {
            account,
            ..target.clone()
        }
    }
}

/// Runs until told to stop.
pub(crate) async fn run(target: &Target, args: WorkerArgs) -> Result<Exit, Failure> {
    let tools = Arc::new(dev::registry(&args.tools, &args.set)?);
    let executed = tools.len() - tools.elsewhere().count();
    if executed == 0 {
        return Err(Failure::usage(format!(
            "{}: every tool of this file is served elsewhere, so there is nothing for this worker to do; give it a file with tools that it is to execute",
            args.tools.display()
        )));
    }
    let mut signals = Signals::new()?;
    let target = &args.target(target);
    let session = dev::fresh_session()?;
    let clock = Arc::new(SystemClock);
    let store = tokio::select! {
        store = open(target, &args) => store?,
        name = signals.next() => {
            say::aside(&format!("{name}: stopped before it had begun"));
            return Ok(Exit::Done);
        }
    };
    let (logbook, moved_from, mark) = open_logbook(&store, &args).await?;
    let alive = Session::start(SessionOptions {
        target: target.clone(),
        role: Role::Worker {
            domain: args.domain().to_owned(),
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
        logbook: logbook.clone(),
        moved_from,
        slots: args.slots.into(),
    });
    options.authority = alive.authority();
    if !args.stall.is_empty() {
        options.points = Arc::new(Stalls::new(args.stall.clone()));
    }
    if let Some(sabotage) = args.sabotage {
        options.worker_weakening = sabotage.of_workers();
    }
    let authority = options.authority.clone();
    let runtime = Runtime::start(options).await.map_err(Failure::broken)?;
    let ready = format!(
        "ready: worker {}, {} tools, cluster {}, pid {}",
        say::plain(args.name.as_str()),
        executed,
        store.cluster(),
        std::process::id()
    );
    // Whoever started it may not listen any more; it serves all the same.
    let _ = say::line(&ready);
    tokio::select! {
        why = keep_marking(&store, &args, &logbook, mark) => {
            authority.lose(&why);
            runtime.abort().await;
            Err(Failure::broken(why))
        }
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
            let exit = drain(&runtime, &mut signals, "the next start").await;
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
        let options = Options {
            domain: args.domain().to_owned(),
            ..Options::new(target.clone(), args.name.to_string(), Arc::new(SystemClock))
        };
        match NatsStore::open(options).await {
            Err(error @ (StartError::NoCluster | StartError::NoNode)) => {
                if !has_said {
                    say::aside(&match error {
                        StartError::NoCluster => {
                            "there is no cluster yet; waiting for the first node".to_owned()
                        }
                        error => format!("waiting: {error}"),
                    });
                    has_said = true;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            opened => return opened.map_err(refused),
        }
    }
}

/// Opens the logbook and marks it with the cluster. One that the cluster does not believe is moved aside, and a new one takes its place.
async fn open_logbook(
    store: &NatsStore,
    args: &WorkerArgs,
) -> Result<(Arc<SledLogbook>, Option<String>, (Seq, LogbookMark)), Failure> {
    let options = || LogbookOptions {
        worker: args.name.clone(),
        now: SystemClock.now().wall,
    };
    let mut opened = SledLogbook::open(&args.logbook, options())?;
    dev::tell_of_logbook(&opened);
    loop {
        let (revision, stood) = store
            .logbook_mark(&args.name)
            .await
            .map_err(Failure::broken)?;
        let logbook = &opened.logbook;
        let doubt =
            stood.and_then(|mark| mark.disbelieves(logbook.id(), logbook.boots(), logbook.head()));
        if let Some(why) = doubt {
            say::aside(&format!(
                "the logbook in {} is not to be believed: {why}; it is moved aside, and what it alone knew counts as unknown",
                args.logbook.display()
            ));
            opened = opened.logbook.condemn(&args.logbook, options())?;
            continue;
        }
        let mark = mark_of(logbook);
        match store.put_logbook_mark(&args.name, revision, &mark).await {
            Ok(revision) => {
                let logbook = Arc::new(opened.logbook);
                return Ok((logbook, opened.moved_from, (revision, mark)));
            }
            // Somebody of the same name has just started as well: what it wrote is looked at.
            Err(AppendError::Refused { .. } | AppendError::Unknown(_)) => {}
            Err(error) => return Err(Failure::broken(error)),
        }
    }
}

fn mark_of(logbook: &SledLogbook) -> LogbookMark {
    LogbookMark {
        v: WIRE_VERSION,
        id: logbook.id().clone(),
        boot: logbook.boots().last().cloned().unwrap_or_default(),
        head: logbook.head(),
    }
}

/// Keeps the mark's head near the logbook's. Returns, with the reason, once another process has marked a logbook of this worker's name.
async fn keep_marking(
    store: &NatsStore,
    args: &WorkerArgs,
    logbook: &SledLogbook,
    (mut revision, mut mark): (Seq, LogbookMark),
) -> String {
    loop {
        tokio::time::sleep(Duration::from_secs(args.session_ttl)).await;
        let fresh = mark_of(logbook);
        if fresh == mark {
            continue;
        }
        match store.put_logbook_mark(&args.name, revision, &fresh).await {
            Ok(written) => (revision, mark) = (written, fresh),
            Err(AppendError::Refused { .. } | AppendError::Unknown(_)) => {
                match store.logbook_mark(&args.name).await {
                    // Our own, unheard.
                    Ok((stands, Some(its))) if its.boot == mark.boot => {
                        (revision, mark) = (stands, its)
                    }
                    Ok(_) => {
                        return format!(
                            "another process runs as worker {}: two workers of one name share nothing but trouble; stop one, or give it another name and logbook",
                            args.name
                        );
                    }
                    Err(error) => tracing::warn!(%error, "the logbook's mark was not refreshed"),
                }
            }
            Err(error) => tracing::warn!(%error, "the logbook's mark was not refreshed"),
        }
    }
}
