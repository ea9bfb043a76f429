//! `leasehold node`: drives runs of a cluster on NATS until it is told to stop.
//!
//! A node has a session. When that is over (its renewals were missed: the network was away, the process was suspended) everything that rests
//! on it stops at once, and the process begins a new life under a new session; what it had in hand is settled by whoever takes it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold_actors::{Runtime, RuntimeOptions, SystemClock};
use leasehold_json::AcceptedJson;
use leasehold_nats::{NatsStore, Options, Role, Session, SessionOptions, Target, Wish};
use leasehold_protocol::{NodeId, Policy};
use leasehold_tools::Registry;

use crate::dev::{self, Recording, Sabotage, Stall, Stalls};
use crate::failure::{Exit, Failure};
use crate::say;
use crate::socket::wire::Hello;
use crate::stop::{Signals, drain};
use crate::variables::Variable;

/// Pause before a new life: whatever ended the last one may still be going on.
const NEW_LIFE: Duration = Duration::from_millis(500);

/// Arguments of `leasehold node`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct NodeArgs {
    /// This node's name; shown, never decisive
    #[arg(long, value_name = "NAME", default_value = "node")]
    name: NodeId,
    /// The tools of the cluster, as a TOML file: their specifications and probes; calls are executed by workers
    #[arg(long, value_name = "FILE")]
    tools: PathBuf,
    /// Rules that say which calls may be made; without it the class of the tool decides
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// A value for ${NAME} in the tools file; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<Variable>,
    /// How long this node counts as alive without a renewal; 15 s is the floor in production
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    session_ttl: u64,
    /// How far the clocks of machines may be apart: what a probe's answer waits for beyond a deadline
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    clock_bound: u64,
    /// Shards of a new cluster [default: 8 on one server, 2 on several]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    shards: Option<u16>,
    /// Copies of every record in a new cluster [default: 1 on one server, 3 on several]
    #[arg(long, value_name = "N")]
    replicas: Option<usize>,
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

/// How a life ended.
enum End {
    Stopped(Exit),
    SessionOver(String),
}

/// Runs until told to stop.
pub(crate) async fn run(target: &Target, args: NodeArgs) -> Result<Exit, Failure> {
    let tools = Arc::new(dev::registry(&args.tools, &args.set)?);
    let policy = dev::policy(args.policy.as_deref())?;
    // Before anything else: a signal that comes early is not lost.
    let mut signals = Signals::new()?;
    let node = Node {
        target,
        args: &args,
        tools,
        policy,
    };
    let mut is_first = true;
    let mut said = None;
    loop {
        let life = tokio::select! {
            life = node.live(&mut is_first) => life,
            name = signals.next() => {
                say::aside(&format!("{name}: stopped before it had begun"));
                return Ok(Exit::Done);
            }
        };
        let life = match life {
            Ok(life) => {
                said = None;
                life
            }
            // A cluster that has served once will do so again.
            Err(failure) if !is_first => {
                let why = failure.to_string();
                if said.replace(why.clone()) != Some(why) {
                    say::aside(&format!("no new life yet, trying on: {failure}"));
                }
                tokio::time::sleep(NEW_LIFE).await;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        match life.serve(&mut signals).await? {
            End::Stopped(exit) => return Ok(exit),
            End::SessionOver(why) => {
                say::aside(&format!(
                    "the session is over ({why}); beginning a new one: runs that were driven here are taken by whoever finds them first"
                ));
                tokio::time::sleep(NEW_LIFE).await;
            }
        }
    }
}

struct Node<'a> {
    target: &'a Target,
    args: &'a NodeArgs,
    tools: Arc<Registry>,
    policy: Arc<dyn Policy>,
}

struct Life {
    session: Session,
    runtime: Runtime,
    /// Closed with the life.
    _store: NatsStore,
}

impl Node<'_> {
    /// Begins a life; `is_first` is cleared once one has begun.
    async fn live(&self, is_first: &mut bool) -> Result<Life, Failure> {
        let args = self.args;
        let refused =
            |error: leasehold_nats::StartError| Failure::new(Exit::NoRuntime, error.to_string());
        let clock = Arc::new(SystemClock);
        let (id, ttl) = (dev::fresh_session()?, Duration::from_secs(args.session_ttl));
        let options = Options {
            make: Some(Wish {
                shards: args.shards,
                replicas: args.replicas,
            }),
            session: Some(id.clone()),
            longest_ttl: ttl,
            ..Options::new(self.target.clone(), args.name.to_string(), clock.clone())
        };
        let store = NatsStore::open(options).await.map_err(refused)?;
        let session = Session::start(SessionOptions {
            target: self.target.clone(),
            role: Role::Node(args.name.clone()),
            session: id.clone(),
            ttl,
            clock_bound: Duration::from_secs(args.clock_bound),
            clock,
        });
        let session = session.await.map_err(refused)?;

        let agents = dev::agents()?;
        let hello = Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            cluster: store.cluster().to_string(),
            session: id.to_string(),
            policy: self.policy.identity(),
            agents: agents.names().map(str::to_owned).collect(),
            tools: self.tools.iter().map(|tool| tool.spec().clone()).collect(),
        };
        let mut options = RuntimeOptions::reader(
            Arc::new(store.clone()),
            self.tools.clone(),
            self.policy.clone(),
            agents,
            store.cluster().clone(),
            id.clone(),
        );
        options.node = Some(args.name.clone());
        options.authority = session.authority();
        options.session_ttl = ttl;
        options.clock_bound_ms = args.clock_bound.saturating_mul(1000);
        if !args.stall.is_empty() {
            options.points = Arc::new(Stalls::new(args.stall.clone()));
        }
        if let Some(path) = &args.record {
            options.recorder = Arc::new(Recording::append(path, &id, &self.tools)?);
        }
        if let Some(sabotage) = args.sabotage {
            options.run_weakening = sabotage.of_runs();
        }
        let runtime = Runtime::start(options).await.map_err(Failure::broken)?;
        let words = AcceptedJson::from_serialize(&hello).map_err(Failure::broken)?;
        store
            .introduce(words.as_str().to_owned().into())
            .map_err(Failure::usage)?;
        store.answer_workers();
        *is_first = false;
        let ready = format!(
            "ready: node {}, {} tools, policy {}, cluster {}, session {}, pid {}",
            say::plain(args.name.as_str()),
            hello.tools.len(),
            say::plain(&hello.policy),
            hello.cluster,
            hello.session,
            hello.pid
        );
        // Whoever started it may not listen any more; it serves all the same.
        let _ = say::line(&ready);
        Ok(Life {
            session,
            runtime,
            _store: store,
        })
    }
}

impl Life {
    async fn serve(self, signals: &mut Signals) -> Result<End, Failure> {
        tokio::select! {
            why = self.session.over() => {
                self.runtime.abort().await;
                Ok(End::SessionOver(why))
            }
            why = self.runtime.failed() => {
                self.runtime.abort().await;
                Err(Failure::broken(format!("{why}; nothing that was acknowledged is lost: start it again")))
            }
            name = signals.next() => {
                say::aside(&format!("{name}: handing runs over (once more: stop at once)"));
                let exit = drain(&self.runtime, signals, "whoever takes its runs").await;
                self.session.end();
                Ok(End::Stopped(exit))
            }
        }
    }
}
