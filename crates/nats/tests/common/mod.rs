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

/// A server with a configuration of the test's own.
pub(crate) struct Server {
    child: std::process::Child,
    pub(crate) url: String,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs one with this configuration; `STORE` in it is a folder of its own.
pub(crate) async fn server(config: &str) -> Server {
    configured(
        &[("nats.conf", &format!("listen: $LISTEN\n{config}\n"))],
        &[],
    )
    .await
}

/// Runs one with these files, of which it reads the first, and these values beside `LISTEN`, its address.
pub(crate) async fn configured(files: &[(&str, &str)], values: &[(String, String)]) -> Server {
    let binary = ServerBinary::find().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let store = folder.path().display().to_string();
    for (name, text) in files {
        std::fs::write(
            folder.path().join(name),
            text.replace("STORE/", &format!("{store}/")),
        )
        .unwrap();
    }
    let listen = format!("\"127.0.0.1:{port}\"");
    let child = std::process::Command::new(binary.path())
        .arg("-c")
        .arg(folder.path().join(files.first().unwrap().0))
        .env("LISTEN", &listen)
        .env("LEASEHOLD_NATS_LISTEN", &listen)
        .env("LEASEHOLD_NATS_STORE", format!("\"{store}/js\""))
        .envs(values.iter().cloned())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..200 {
        if tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .is_ok()
        {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    Server {
        child,
        url: format!("nats://127.0.0.1:{port}"),
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
