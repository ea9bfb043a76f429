//! Servers, and the processes on them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use leasehold_actors::{Ids as _, RandomIds, Runtime, SystemClock};
use leasehold_local::{NatsOptions, NatsServers};
use leasehold_nats::{NatsStore, Options, Target, Wish};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinSet;

use super::process::{ProcessArgs, READY};
use super::{Config, NatsArgs};
use crate::children::Offspring;
use crate::echo::Echo;
use crate::events::Event;
use crate::load::Pids;
use crate::setup::{self, Bench, Declared};

/// Sessions of processes that nothing happens to: no scheduling of a busy machine ends them.
pub(super) const LONG_TTL: u64 = 30;

/// Servers with a fresh cluster on them.
pub(super) struct Rig {
    pub(super) servers: NatsServers,
    pub(super) config: Config,
    pub(super) store: NatsStore,
    pub(super) target: Target,
    folder: PathBuf,
    tool_url: String,
    threads: usize,
}

/// This process as a client of a node.
pub(super) struct Client {
    pub(super) bench: Bench,
    _reading: JoinSet<()>,
}

impl Rig {
    pub(super) async fn start(
        config: Config,
        folder: &Path,
        args: &NatsArgs,
        echo: &Echo,
    ) -> anyhow::Result<Self> {
        let options = NatsOptions {
            sync: config.sync,
            ..NatsOptions::new(config.servers, folder.join("servers"))
        };
        let servers = NatsServers::start(options).await?;
        let target = Target::at(servers.urls()?);
        let options = Options {
            make: Some(Wish {
                shards: Some(config.shards),
                replicas: Some(config.servers),
            }),
            ..Options::new(target.clone(), "bench", Arc::new(SystemClock))
        };
        let store = NatsStore::open(options).await?;
        servers.ready().await?;
        Ok(Self {
            servers,
            config,
            store,
            target,
            folder: folder.to_owned(),
            tool_url: echo.url.clone(),
            threads: args.threads,
        })
    }

    pub(super) async fn node(
        &self,
        name: &str,
        tools: &[Declared],
        ttl: u64,
    ) -> anyhow::Result<Offspring> {
        self.process(name, tools, ttl, None, None).await
    }

    pub(super) async fn worker(
        &self,
        name: &str,
        tools: &[Declared],
        slots: usize,
    ) -> anyhow::Result<Offspring> {
        let logbook = self.folder.join(name);
        self.process(name, tools, LONG_TTL, Some(logbook), Some(slots))
            .await
    }

    async fn process(
        &self,
        name: &str,
        tools: &[Declared],
        ttl: u64,
        logbook: Option<PathBuf>,
        slots: Option<usize>,
    ) -> anyhow::Result<Offspring> {
        let args = ProcessArgs {
            nats: self.target.url.clone(),
            name: name.to_owned(),
            url: self.tool_url.clone(),
            tools: tools.to_vec(),
            ttl,
            logbook,
            slots,
            threads: self.threads,
        };
        Offspring::start(args.words(), READY).await
    }

    /// A client that hears what the node says.
    pub(super) async fn client(
        &self,
        tools: &[Declared],
        node: &mut Offspring,
    ) -> anyhow::Result<Client> {
        let options = setup::options(
            Arc::new(self.store.clone()),
            self.store.cluster().clone(),
            RandomIds.session()?,
            tools,
            &self.tool_url,
            Arc::new(drop),
        )?;
        let runtime = Arc::new(Runtime::start(options).await?);
        let (tell, events) = unbounded_channel();
        let mut lines = node.lines.take().context("the node is heard already")?;
        let mut reading = JoinSet::new();
        reading.spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(event) = Event::read(&line)
                    && tell.send(event).is_err()
                {
                    return;
                }
            }
        });
        Ok(Client {
            bench: Bench { runtime, events },
            _reading: reading,
        })
    }

    pub(super) fn pids(&self, runtime: &[&Offspring], echo: &Echo) -> anyhow::Result<Pids> {
        let servers = self.servers.status()?;
        let runtime: anyhow::Result<Vec<u32>> = runtime.iter().map(|child| child.pid()).collect();
        Ok(Pids {
            runtime: runtime?,
            tool: vec![echo.pid()?],
            server: servers
                .iter()
                .filter_map(|server| u32::try_from(server.pid).ok())
                .collect(),
        })
    }

    /// Messages that the servers have received from clients since they started.
    pub(super) async fn received(&self) -> anyhow::Result<u64> {
        let mut received = 0;
        for server in self.servers.status()? {
            let port = server.ports.get("monitor").context("no monitoring port")?;
            let mut stream = TcpStream::connect(("127.0.0.1", *port)).await?;
            stream
                .write_all(b"GET /varz HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
                .await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            // Only this number is wanted of a page that the server's own version shapes.
            let number = answer.split_once("\"in_msgs\":").map(|(_, rest)| rest);
            let number = number.and_then(|rest| rest.split([',', '}', '\n']).next());
            let number = number.context("the server's page has no in_msgs")?;
            received += number.trim().parse::<u64>()?;
        }
        Ok(received)
    }

    pub(super) async fn down(self) -> anyhow::Result<()> {
        drop(self.store);
        self.servers.down().await?;
        Ok(())
    }
}
