//! Real nats-servers as child processes: one, or three that form a cluster, with the shipped configuration.
//!
//! Server `n`, counted from 1, is called `nats-<n>` and has the folder of that name: its configuration `server.conf`, its `log`, its data
//! `jetstream`. It listens on loopback only, and keeps its ports and its folder for all its lives.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::binary::ServerBinary;
use crate::children::{Children, Status, still_there};
use crate::config::{self, CLIENT, MONITOR, Ports, SyncInterval};
use crate::error::{LocalError, doing};
use crate::http;
use crate::ports;
use crate::process::State;
use crate::record::{Entry, Folder, Kind, Launch};

/// How long servers may take until they are ready. Three that elect need two to five seconds, on a machine under load more; one that
/// was killed with much data reads it again first.
const READY: Duration = Duration::from_secs(60);

/// How often a server is asked whether it is ready.
const ASK: Duration = Duration::from_millis(25);

/// How long a server may take to end after SIGTERM: it closes its files and hands its leaderships over.
pub(crate) const ORDERLY: Duration = Duration::from_secs(15);

/// How often other ports are tried when somebody was quicker to take one that had been free.
const PORT_TRIES: u32 = 5;

/// How a server says that a port is taken.
const ADDRESS_IN_USE: &str = "address already in use";

/// Default of [`NatsOptions::max_store`].
const MAX_STORE: u64 = 8 * 1024 * 1024 * 1024;

/// What servers to start.
#[derive(Debug, Clone)]
pub struct NatsOptions {
    /// 1 or 3.
    pub count: usize,
    /// Where everything lies; made if it is not there. Data of an earlier cluster of the same size is taken up again.
    pub folder: PathBuf,
    /// When they write to the disk.
    pub sync: SyncInterval,
    /// The server to run; otherwise [`ServerBinary::find`].
    pub binary: Option<ServerBinary>,
    /// The ports for clients, as many as servers; otherwise those of last time if they are free, so that a URL that was handed out stays
    /// true, and free ones if not.
    pub client_ports: Option<Vec<u16>>,
    /// Servers tell clients of each other, as in production. Without it a client knows the URLs that it was given and no others: what a
    /// test needs that puts a proxy between them.
    pub advertise: bool,
    /// How much one server may store, in bytes; beyond it, writes are refused. Nothing is reserved.
    pub max_store: u64,
}

impl NatsOptions {
    /// So many servers in this folder, everything else as in production.
    #[must_use]
    pub fn new(count: usize, folder: impl Into<PathBuf>) -> Self {
        Self {
            count,
            folder: folder.into(),
            sync: SyncInterval::Always,
            binary: None,
            client_ports: None,
            advertise: true,
            max_store: MAX_STORE,
        }
    }
}

/// Running nats-servers.
///
/// Who started them owns them: they are killed when this is dropped, also in a panic, and when the owner is killed. After
/// [`leave_running`](Self::leave_running), or when found with [`open`](Self::open), they are not. The folder must live longer.
#[derive(Debug)]
pub struct NatsServers {
    children: Children,
    count: usize,
}

impl NatsServers {
    /// Starts them and waits until JetStream is ready and, of three, a leader is elected.
    ///
    /// # Errors
    /// Whatever [`LocalError`] tells; nothing is left running then.
    pub async fn start(options: NatsOptions) -> Result<Self, LocalError> {
        let NatsOptions { count, sync, .. } = options;
        let text = config::text(count, sync, options.advertise).ok_or(LocalError::Count(count))?;
        if options
            .client_ports
            .as_ref()
            .is_some_and(|ports| ports.len() != count)
        {
            return Err(LocalError::Count(count));
        }
        let folder = Folder::make(&options.folder)?;
        let children = Children::own(folder, &[Kind::NatsServer]);
        children.all_dead()?;
        check_size(&children, count)?;
        let binary = match &options.binary {
            Some(binary) => binary.clone(),
            None => ServerBinary::find().await?,
        };
        let servers = Self { children, count };
        let earlier = servers.earlier_ports()?;
        let mut tries = 1;
        loop {
            let wanted = match tries {
                1 => options.client_ports.as_ref().or(earlier.as_ref()),
                _ => None,
            };
            let started = servers
                .launch(&binary, &text, options.max_store, wanted)
                .await;
            match started {
                Ok(()) => return Ok(servers),
                Err(error)
                    if tries < PORT_TRIES && options.client_ports.is_none() && is_port(&error) =>
                {
                    tries += 1;
                    for entry in servers.children.entries()? {
                        servers.children.kill(&entry.launch.name).await?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Those that were started in this folder, by whomever, running or not. This handle owns none, also not what it starts again.
    ///
    /// # Errors
    /// [`LocalError::Unknown`]: there are none; [`LocalError::Folder`] and [`LocalError::Record`].
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, LocalError> {
        let folder = Folder::existing(folder.as_ref())?;
        let children = Children::visit(folder, &[Kind::NatsServer]);
        let count = children.entries()?.len();
        if count == 0 {
            children.entry(&name(1))?;
        }
        Ok(Self { children, count })
    }

    /// How many there are, running or not.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Where a client reaches server `n`: `nats://127.0.0.1:<port>`.
    ///
    /// # Errors
    /// [`LocalError::Unknown`]: there is no such server.
    pub fn url(&self, n: usize) -> Result<String, LocalError> {
        let entry = self.children.entry(&name(n))?;
        Ok(format!("nats://127.0.0.1:{}", port(&entry, CLIENT)?))
    }

    /// All of them, with commas between, as a client takes them.
    ///
    /// # Errors
    /// [`LocalError::Record`].
    pub fn urls(&self) -> Result<String, LocalError> {
        let urls: Result<Vec<_>, _> = (1..=self.count).map(|n| self.url(n)).collect();
        Ok(urls?.join(","))
    }

    /// SIGKILL; returns when the server is gone and its ports are free.
    ///
    /// # Errors
    /// [`LocalError::Unknown`], [`LocalError::Io`].
    pub async fn kill(&self, n: usize) -> Result<(), LocalError> {
        self.children.kill(&name(n)).await
    }

    /// SIGTERM, and SIGKILL if that does not do in time; returns when the server is gone. Whether it went by itself.
    ///
    /// # Errors
    /// [`LocalError::Unknown`], [`LocalError::Io`].
    pub async fn stop(&self, n: usize) -> Result<bool, LocalError> {
        self.children.stop(&name(n), ORDERLY).await
    }

    /// Starts server `n`, which has ended, on the same ports and the same data, and waits until it serves clients. Whether the cluster
    /// has a leader is another question: [`ready`](Self::ready).
    ///
    /// # Errors
    /// [`LocalError::Running`], [`LocalError::PortTaken`], [`LocalError::Ended`], [`LocalError::NotReady`].
    pub async fn restart(&self, n: usize) -> Result<(), LocalError> {
        serves(&self.children.restart(&name(n))?).await
    }

    /// SIGSTOP: the server keeps its connections and answers nobody. Returns when it has stopped.
    ///
    /// # Errors
    /// [`LocalError::Unknown`], [`LocalError::Dead`].
    pub async fn pause(&self, n: usize) -> Result<(), LocalError> {
        self.children.pause(&name(n)).await
    }

    /// SIGCONT; returns when the server goes on.
    ///
    /// # Errors
    /// [`LocalError::Unknown`], [`LocalError::Dead`].
    pub async fn resume(&self, n: usize) -> Result<(), LocalError> {
        self.children.resume(&name(n)).await
    }

    /// Waits until every server that runs says of itself that it is well: JetStream is ready, it has a leader, and its streams and
    /// consumers have caught up. It is what each of them believes: just after a kill or a restart a stream may be without a leader all the
    /// same, and a request in that time is lost, so ask again.
    ///
    /// # Errors
    /// [`LocalError::NotReady`] with what a server answered last; [`LocalError::Ended`]; [`LocalError::Dead`]: none runs.
    pub async fn ready(&self) -> Result<(), LocalError> {
        let mut entries = self.children.entries()?;
        entries.retain(|entry| entry.state() == State::Running);
        if entries.is_empty() {
            return Err(LocalError::Dead(name(1)));
        }
        all_healthy(&entries).await
    }

    /// The server that says of itself that it leads the cluster (the meta group, which places streams). A single server does.
    ///
    /// # Errors
    /// [`LocalError::Record`].
    pub async fn meta_leader(&self) -> Result<Option<usize>, LocalError> {
        self.who("/jsz", |answer, own| {
            let leader = answer.pointer("/meta_cluster/leader")?;
            Some(leader.parse::<String>().ok()? == own)
        })
        .await
    }

    /// The server that says of itself that it leads this stream.
    ///
    /// # Errors
    /// [`LocalError::Record`].
    pub async fn stream_leader(&self, stream: &str) -> Result<Option<usize>, LocalError> {
        self.who("/jsz?streams=true", |answer, own| {
            let accounts = answer.pointer("/account_details")?.elements();
            let streams = accounts
                .iter()
                .filter_map(|account| account.member("stream_detail"));
            let mut streams = streams.flat_map(|streams| streams.elements());
            let is = |text: Option<leasehold_json::AcceptedJson>, wanted: &str| {
                text.and_then(|text| text.parse::<String>().ok()).as_deref() == Some(wanted)
            };
            let found = streams.find(|found| is(found.member("name"), stream))?;
            Some(is(found.pointer("/cluster/leader"), own))
        })
        .await
    }

    /// What each of them is doing.
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

    /// Stops all of them; their data stays. Whether all went by themselves.
    ///
    /// # Errors
    /// [`LocalError::Io`].
    pub async fn down(self) -> Result<bool, LocalError> {
        self.children.stop_all(&[Kind::NatsServer], ORDERLY).await
    }

    /// Gives them up: they go on without this process, until somebody [opens](Self::open) the folder and takes them down.
    pub fn leave_running(mut self) {
        self.children.let_go();
    }

    /// The ports of the folder's servers in their last life, if each of them is free now.
    fn earlier_ports(&self) -> Result<Option<Vec<u16>>, LocalError> {
        let entries = self.children.entries()?;
        let ports: Vec<u16> = entries
            .iter()
            .filter_map(|entry| entry.launch.ports.get(CLIENT).copied())
            .filter(|port| ports::is_free(*port))
            .collect();
        Ok((ports.len() == self.count).then_some(ports))
    }

    async fn launch(
        &self,
        binary: &ServerBinary,
        text: &str,
        max_store: u64,
        clients: Option<&Vec<u16>>,
    ) -> Result<(), LocalError> {
        let ports = choose_ports(self.count, clients)?;
        let routes: Vec<u16> = ports.iter().filter_map(|ports| ports.cluster).collect();
        let mut entries = Vec::with_capacity(self.count);
        for (n, ports) in (1..).zip(ports) {
            let name = name(n);
            let directory = self.children.folder().join(&name);
            let file = directory.join("server.conf");
            fs::create_dir_all(&directory)
                .and_then(|()| fs::write(&file, text))
                .map_err(doing(format!("writing {}", file.display())))?;
            let store = directory.join("jetstream");
            let launch = Launch {
                kind: Kind::NatsServer,
                program: binary.path().to_owned(),
                arguments: vec!["--config".to_owned(), file.to_string_lossy().into_owned()],
                environment: config::values(&name, ports, &store, max_store, &routes),
                log: directory.join("log"),
                ports: ports.named(),
                directory,
                name,
            };
            entries.push(self.children.start(launch)?);
        }
        all_healthy(&entries).await
    }

    /// The first server that says yes. One that does not answer in time says nothing; a single server needs not be asked about a leader.
    async fn who(
        &self,
        path: &str,
        says: impl Fn(&leasehold_json::AcceptedJson, &str) -> Option<bool>,
    ) -> Result<Option<usize>, LocalError> {
        for (n, entry) in (1..).zip(self.children.entries()?) {
            if entry.state() != State::Running {
                continue;
            }
            if self.count == 1 {
                return Ok(Some(n));
            }
            let answer = http::get(port(&entry, MONITOR)?, path).await.ok();
            let answer = answer.and_then(|answer| answer.json());
            if answer.and_then(|answer| says(&answer, &entry.launch.name)) == Some(true) {
                return Ok(Some(n));
            }
        }
        Ok(None)
    }
}

fn name(n: usize) -> String {
    format!("nats-{n}")
}

fn port(entry: &Entry, purpose: &str) -> Result<u16, LocalError> {
    let port = entry.launch.ports.get(purpose).copied();
    port.ok_or_else(|| LocalError::Record {
        path: entry.launch.log.clone(),
        reason: format!("{} has no {purpose} port", entry.launch.name),
    })
}

/// The data of a single server is no part of a cluster's, nor the other way round.
fn check_size(children: &Children, wanted: usize) -> Result<(), LocalError> {
    let was = children.entries()?.len();
    if was == 0 || was == wanted {
        return Ok(());
    }
    Err(LocalError::OtherCount {
        folder: children.folder().to_owned(),
        was,
        wanted,
    })
}

fn choose_ports(count: usize, clients: Option<&Vec<u16>>) -> Result<Vec<Ports>, LocalError> {
    let free = ports::free(3 * count)?;
    let chosen = free.chunks_exact(3).enumerate().map(|(at, free)| Ports {
        client: clients
            .and_then(|ports| ports.get(at))
            .copied()
            .unwrap_or(free[0]),
        monitor: free[1],
        cluster: (count > 1).then_some(free[2]),
    });
    Ok(chosen.collect())
}

/// Whether somebody else has a port, seen by us before or by the server after its start.
fn is_port(error: &LocalError) -> bool {
    match error {
        LocalError::PortTaken { .. } => true,
        LocalError::Ended { last, .. } => last.contains(ADDRESS_IN_USE),
        _ => false,
    }
}

/// Waits until a server serves clients, in a cluster with a leader or without.
pub(crate) async fn serves(server: &Entry) -> Result<(), LocalError> {
    until_healthy(server, "/healthz?js-enabled-only=true").await
}

async fn all_healthy(entries: &[Entry]) -> Result<(), LocalError> {
    for entry in entries {
        until_healthy(entry, "/healthz").await?;
    }
    Ok(())
}

async fn until_healthy(entry: &Entry, path: &str) -> Result<(), LocalError> {
    let monitor = port(entry, MONITOR)?;
    let end = Instant::now() + READY;
    loop {
        let why = match http::get(monitor, path).await {
            Ok(answer) if answer.ok => return Ok(()),
            Ok(answer) => answer.text(),
            Err(error) => error.to_string(),
        };
        still_there(entry)?;
        if Instant::now() >= end {
            return Err(LocalError::NotReady {
                name: entry.launch.name.clone(),
                seconds: READY.as_secs(),
                why,
                log: entry.launch.log.clone(),
            });
        }
        sleep(ASK).await;
    }
}
