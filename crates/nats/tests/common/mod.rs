//! What the tests of this folder share: a fresh nats-server, or three, and stores opened on it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    reason = "test code; not every test uses everything"
)]

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_local::{NatsOptions, NatsServers, ServerBinary, SyncInterval};
use leasehold_nats::{NatsStore, Options, Role, Session, SessionOptions, Target, Wish};
use leasehold_protocol::{NodeId, SessionId};
use leasehold_store::conformance::Rig;
use leasehold_store::{SharedBackend, SystemClock};
use tokio::sync::OnceCell;

/// Long enough for a busy machine, short enough for a test.
pub(crate) const TTL: Duration = Duration::from_secs(2);
/// How long a delivered message is its receiver's.
pub(crate) const ACK_WAIT: Duration = Duration::from_secs(2);

/// How often a server that starts is tried, every 25 ms: half a minute, for a machine that is busy with other tests.
const SOON: usize = 1_200;

/// Servers with a configuration of the test's own.
pub(crate) struct Server {
    children: Vec<std::process::Child>,
    /// All of them.
    pub(crate) url: String,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs one with this configuration; `STORE` in it is a folder of its own.
pub(crate) async fn server(config: &str) -> Server {
    let config = format!("listen: $LEASEHOLD_NATS_LISTEN\n{config}\n");
    configured(1, &[("nats.conf", &config)], &[]).await
}

/// Runs so many with these files, of which they read the first, and these values beside their own addresses and folders.
pub(crate) async fn configured(
    count: usize,
    files: &[(&str, &str)],
    values: &[(String, String)],
) -> Server {
    let binary = ServerBinary::find().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string();
    for (name, text) in files {
        let text = text.replace("STORE/", &format!("{place}/"));
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let free: Vec<_> = (0..2 * count)
        .map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let ports: Vec<u16> = free
        .iter()
        .map(|free| free.local_addr().unwrap().port())
        .collect();
    drop(free);
    let (clients, routes) = ports.split_at(count);
    let all: Vec<String> = routes
        .iter()
        .map(|port| format!("\"nats://127.0.0.1:{port}\""))
        .collect();
    let mut children = Vec::new();
    for (n, (client, route)) in clients.iter().zip(routes).enumerate() {
        let own = [
            ("NAME", format!("nats-{n}")),
            ("LISTEN", format!("\"127.0.0.1:{client}\"")),
            ("MONITOR", "\"127.0.0.1:-1\"".to_owned()),
            ("STORE", format!("\"{place}/js-{n}\"")),
            ("MAX_FILE", "1GB".to_owned()),
            ("CLUSTER", "test".to_owned()),
            ("CLUSTER_LISTEN", format!("\"127.0.0.1:{route}\"")),
            ("ROUTES", format!("[{}]", all.join(", "))),
        ];
        let own = own.map(|(name, value)| (format!("LEASEHOLD_NATS_{name}"), value));
        let child = std::process::Command::new(binary.path())
            .arg("-c")
            .arg(folder.path().join(files.first().unwrap().0))
            .envs(own)
            .envs(values.iter().cloned())
            .stderr(std::process::Stdio::null())
            .spawn();
        children.push(child.unwrap());
    }
    for port in clients {
        for _ in 0..SOON {
            let connected = tokio::net::TcpStream::connect(("127.0.0.1", *port)).await;
            if connected.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }
    let urls: Vec<String> = clients
        .iter()
        .map(|port| format!("nats://127.0.0.1:{port}"))
        .collect();
    Server {
        children,
        url: urls.join(","),
        _folder: folder,
    }
}

/// Real servers with data of their own, gone with the value.
pub(crate) struct Servers {
    pub(crate) servers: NatsServers,
    _folder: tempfile::TempDir,
}

pub(crate) async fn servers(count: usize) -> Servers {
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    let options = NatsOptions {
        // Nothing here kills a machine, only processes.
        sync: SyncInterval::Lazy,
        ..NatsOptions::new(count, folder.path())
    };
    Servers {
        servers: NatsServers::start(options).await.unwrap(),
        _folder: folder,
    }
}

impl Servers {
    pub(crate) fn target(&self) -> Target {
        Target::at(self.servers.urls().unwrap())
    }

    pub(crate) fn options(&self, shards: u16) -> Options {
        Options {
            make: Some(Wish {
                shards: Some(shards),
                replicas: None,
            }),
            longest_ttl: TTL,
            ack_wait: ACK_WAIT,
            ..Options::new(self.target(), "test", Arc::new(SystemClock))
        }
    }

    pub(crate) async fn store(&self, shards: u16) -> NatsStore {
        NatsStore::open(self.options(shards)).await.unwrap()
    }

    pub(crate) async fn session(&self, session: &SessionId, ttl: Duration) -> Session {
        let options = SessionOptions {
            target: self.target(),
            role: Role::Node(NodeId::new("node").unwrap()),
            session: session.clone(),
            ttl,
            clock_bound: Duration::from_secs(60),
            clock: Arc::new(SystemClock),
        };
        Session::start(options).await.unwrap()
    }
}

/// The suite's rig: servers that start with the first opening.
pub(crate) struct Cluster {
    count: usize,
    servers: OnceCell<Servers>,
    opened: Mutex<(u32, Option<Session>)>,
}

impl Cluster {
    pub(crate) fn of(count: usize) -> Self {
        Self {
            count,
            servers: OnceCell::new(),
            opened: Mutex::new((0, None)),
        }
    }
}

#[async_trait]
impl Rig for Cluster {
    async fn open(&self) -> SharedBackend {
        let servers = self.servers.get_or_init(|| servers(self.count)).await;
        self.opened.lock().unwrap().0 += 1;
        let options = Options {
            session: Some(self.session()),
            // The suite asks for the order of messages over runs, which a shard keeps.
            ..servers.options(1)
        };
        let store = NatsStore::open(options).await.unwrap();
        let session = servers.session(&self.session(), TTL).await;
        // The earlier one ends here, as with its process.
        self.opened.lock().unwrap().1 = Some(session);
        Arc::new(store)
    }

    fn session(&self) -> SessionId {
        SessionId::new(format!("session {}", self.opened.lock().unwrap().0)).unwrap()
    }
}
