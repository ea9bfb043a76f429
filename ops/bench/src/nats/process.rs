//! A node or a worker as a process of its own, made as `leasehold node` and `leasehold worker` make theirs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use leasehold_actors::{Ids as _, RandomIds, Runtime, SystemClock};
use leasehold_nats::{DEFAULT_DOMAIN, NatsStore, Options, Role, Session, SessionOptions, Target};
use leasehold_protocol::{NodeId, WorkerId};

use crate::children::until_alone;
use crate::events::{Tell, tell_standard_output};
use crate::setup::{self, Declared};

/// What the process says when it is ready.
pub(super) const READY: &str = "ready";

/// Arguments of the process.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ProcessArgs {
    /// The servers
    #[arg(long)]
    pub(super) nats: String,
    /// Its name
    #[arg(long)]
    pub(super) name: String,
    /// Where the tool answers
    #[arg(long)]
    pub(super) url: String,
    /// A tool that is declared: NAME:CLASS
    #[arg(long = "tool")]
    pub(super) tools: Vec<Declared>,
    /// Its session's time to live, seconds
    #[arg(long)]
    pub(super) ttl: u64,
    /// A worker with its logbook there; otherwise a node
    #[arg(long)]
    pub(super) logbook: Option<PathBuf>,
    /// Calls that the worker executes side by side
    #[arg(long)]
    pub(super) slots: Option<usize>,
    /// Threads; 0: as usual
    #[arg(long, default_value_t = 0)]
    pub(crate) threads: usize,
}

impl ProcessArgs {
    /// The command line that is read as these.
    pub(super) fn words(&self) -> Vec<String> {
        let mut words = vec!["process".to_owned()];
        let mut say = |option: &str, value: String| {
            words.extend([format!("--{option}"), value]);
        };
        say("nats", self.nats.clone());
        say("name", self.name.clone());
        say("url", self.url.clone());
        say("ttl", self.ttl.to_string());
        say("threads", self.threads.to_string());
        for tool in &self.tools {
            say("tool", tool.to_string());
        }
        if let Some(folder) = &self.logbook {
            say("logbook", folder.to_string_lossy().into_owned());
        }
        if let Some(slots) = self.slots {
            say("slots", slots.to_string());
        }
        words
    }
}

/// Serves until it is alone.
pub(crate) async fn serve(args: &ProcessArgs) -> anyhow::Result<()> {
    let (id, clock) = (RandomIds.session()?, Arc::new(SystemClock));
    let (target, ttl) = (Target::at(&args.nats), Duration::from_secs(args.ttl));
    let role = match &args.logbook {
        None => Role::Node(NodeId::new(&args.name)?),
        Some(_) => Role::Worker {
            domain: DEFAULT_DOMAIN.to_owned(),
            worker: WorkerId::new(&args.name)?,
        },
    };
    let options = Options {
        session: matches!(role, Role::Node(_)).then(|| id.clone()),
        longest_ttl: ttl,
        ..Options::new(target.clone(), &args.name, clock.clone())
    };
    let store = NatsStore::open(options).await?;
    let session = Session::start(SessionOptions {
        target,
        role: role.clone(),
        session: id.clone(),
        ttl,
        clock_bound: Duration::from_secs(60),
        clock,
    });
    let session = session.await?;
    let tell: Tell = match &role {
        Role::Node(_) => tell_standard_output()?,
        Role::Worker { .. } => Arc::new(drop),
    };
    let cluster = store.cluster().clone();
    let store = Arc::new(store);
    let mut options = setup::options(store, cluster, id, &args.tools, &args.url, tell)?;
    options.authority = session.authority();
    match (role, &args.logbook) {
        (Role::Node(node), _) => options.node = Some(node),
        (_, Some(folder)) => {
            options.worker = Some(setup::worker(folder, &args.name, args.slots)?);
        }
        _ => bail!("a worker has a logbook"),
    }
    let runtime = Runtime::start(options).await?;
    println!("{READY}");
    tokio::select! {
        () = until_alone() => {}
        why = session.over() => bail!("the session of {} is over: {why}", args.name),
        why = runtime.failed() => bail!("{} has failed: {why}", args.name),
    }
    runtime.abort().await;
    session.end();
    Ok(())
}
