//! Connecting: where the servers are, who we are to them, and whether they can serve.
//!
//! Names and files are those of the `nats` command: `NATS_URL`, credentials files, nkey seeds, user and password, tokens, TLS files and
//! context files. The first connection says what is wrong; from then on the client reconnects for as long as the network is away.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event};
use leasehold_protocol::WorkerId;
use serde::Deserialize;
use tokio::sync::watch;

/// Oldest server: message schedules came with it.
const OLDEST: (u64, u64) = (2, 12);
/// How long the first connection may take. A server that is starting answers within seconds.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// Longest pause between two tries to reconnect: an outage of the servers ends for everybody within seconds of their return.
const LONGEST_RECONNECT: Duration = Duration::from_secs(2);
/// How often the server is asked whether it is there: a half-open connection is found within twice that.
const PING: Duration = Duration::from_secs(5);
/// How long an answer of the server's interface is waited for. An election takes five to six seconds.
pub(crate) const API_WAIT: Duration = Duration::from_secs(8);

/// Why a process cannot work on a cluster.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Nobody listens there, or the name is not known.
    #[error(
        "no NATS server answers at {url} ({why}); check --nats or NATS_URL, and that the server runs"
    )]
    Unreachable {
        /// The servers.
        url: String,
        /// The client's words.
        why: String,
    },
    /// The server does not know us.
    #[error(
        "the NATS server at {url} refuses these credentials ({why}); check --creds, --user or the context"
    )]
    Refused {
        /// The servers.
        url: String,
        /// The client's words.
        why: String,
    },
    /// A file that says how to connect is of no use.
    #[error("{path}: {why}")]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The server knows us and does not let us.
    #[error("this user lacks a permission: it may not {what}; {advice}")]
    NotPermitted {
        /// What it was about to do, with the subject.
        what: String,
        /// What to grant, or what to do instead.
        advice: &'static str,
    },
    /// The server is too old.
    #[error("the NATS server {server} is {found}; at least {}.{} is needed (message schedules)", OLDEST.0, OLDEST.1)]
    TooOld {
        /// Which server.
        server: String,
        /// Its version.
        found: String,
    },
    /// JetStream is off.
    #[error(
        "JetStream is not enabled on this server or for this account; start nats-server with a `jetstream` section, or enable it for the account"
    )]
    NoJetStream,
    /// No cluster, and this process may not make one.
    #[error(
        "there is no Leasehold cluster on this NATS server; start a node there: leasehold node --nats URL --tools FILE"
    )]
    NoCluster,
    /// Nobody is there to ask.
    #[error(
        "no node answers; start one: leasehold node --nats URL --tools FILE (or this account does not import what `leasehold accounts` gives it)"
    )]
    NoNode,
    /// A stream has one of our names and is not ours.
    #[error(
        "stream {stream} was not made by this project (its metadata name no cluster); remove or rename it, or use another NATS account"
    )]
    Foreign {
        /// Which.
        stream: String,
    },
    /// A stream belongs to another cluster.
    #[error(
        "stream {stream} belongs to cluster {found}, the others to {expected}: two clusters share this account; give each its own account, or restore the right stream"
    )]
    Mixed {
        /// Which.
        stream: String,
        /// Whose it is.
        found: String,
        /// Whose it should be.
        expected: String,
    },
    /// A stream is configured otherwise.
    #[error(
        "stream {stream} is configured otherwise: {difference}; change it with `nats stream edit {stream}`"
    )]
    Configured {
        /// Which.
        stream: String,
        /// What is different.
        difference: String,
    },
    /// A stream of a complete cluster is gone.
    #[error(
        "stream {stream} is missing although the cluster was complete: it was deleted or lost; restore it from a backup (nothing is made in its place, because that would be a history without its past)"
    )]
    Missing {
        /// Which.
        stream: String,
    },
    /// This machine's clock and the servers' are too far apart.
    #[error("this machine's clock is {} s {} the NATS servers'; bounds between machines are promised to hold within {bound} s: set the clock (NTP), or raise --clock-bound everywhere if that is what your machines keep", .off.unsigned_abs(), if *.off > 0 { "ahead of" } else { "behind" })]
    Clock {
        /// How far, seconds; positive: this machine is ahead.
        off: i64,
        /// How far it may be, seconds.
        bound: u64,
    },
    /// The wish for a new cluster makes no sense.
    #[error("{0}")]
    Shape(String),
    /// The servers refused, or did not answer.
    #[error("{what}: {why}")]
    Api {
        /// What was wanted.
        what: String,
        /// The server's words.
        why: String,
    },
}

impl StartError {
    pub(crate) fn api(what: impl Into<String>, why: impl std::fmt::Display) -> Self {
        StartError::Api {
            what: what.into(),
            why: why.to_string(),
        }
    }
}

/// Which account the credentials belong to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Account {
    /// The nodes', which holds the streams.
    #[default]
    Nodes,
    /// The one of a domain, as this worker of it. It reaches no stream to read: nodes are asked. Answers come to subjects that only this
    /// worker may subscribe to.
    Domain(WorkerId),
}

/// Where a worker in its domain's account gets its answers.
pub(crate) fn inbox_prefix(worker: &WorkerId) -> String {
    format!("_INBOX.{}", worker.token())
}

/// How to reach the servers, and as whom.
#[derive(Debug, Clone, Default)]
pub struct Target {
    /// One URL, or several with commas between them.
    pub url: String,
    /// A credentials file.
    pub creds: Option<PathBuf>,
    /// An nkey seed file.
    pub nkey: Option<PathBuf>,
    /// A user, or a token if there is no password.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<String>,
    /// Root certificates.
    pub tls_ca: Option<PathBuf>,
    /// The client's certificate.
    pub tls_cert: Option<PathBuf>,
    /// The client's key.
    pub tls_key: Option<PathBuf>,
    /// Whose account that is.
    pub account: Account,
}

/// A context file of the `nats` command; what else stands in it is not ours.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContextFile {
    url: String,
    creds: String,
    nkey: String,
    user: String,
    password: String,
    token: String,
    ca: String,
    cert: String,
    key: String,
}

impl Target {
    /// Servers without credentials.
    pub fn at(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ..Self::default()
        }
    }

    /// Reads a context file of the `nats` command: a path, or a name in its configuration folder.
    pub fn context(name_or_path: &Path) -> Result<Self, StartError> {
        let path = if name_or_path.extension().is_some() || name_or_path.components().count() > 1 {
            name_or_path.to_owned()
        } else {
            context_folder().join(name_or_path).with_extension("json")
        };
        let fault = |why: String| StartError::File {
            path: path.clone(),
            why,
        };
        let bytes = std::fs::read(&path)
            .map_err(|error| fault(format!("the context cannot be read: {error}")))?;
        let json = leasehold_json::AcceptedJson::check(&bytes)
            .map_err(|refusal| fault(format!("the context is no usable JSON: {refusal}")))?;
        let file: ContextFile = json
            .parse()
            .map_err(|error| fault(format!("the context is not understood: {error}")))?;
        let path = |text: String| (!text.is_empty()).then(|| PathBuf::from(text));
        let text = |text: String| (!text.is_empty()).then_some(text);
        Ok(Self {
            url: file.url,
            creds: path(file.creds),
            nkey: path(file.nkey),
            user: text(file.token).or(text(file.user)),
            password: text(file.password),
            tls_ca: path(file.ca),
            tls_cert: path(file.cert),
            tls_key: path(file.key),
            account: Account::default(),
        })
    }

    fn options(&self) -> Result<ConnectOptions, StartError> {
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).map_err(|error| StartError::File {
                path: path.clone(),
                why: error.to_string(),
            })
        };
        let mut options = ConnectOptions::new();
        if let Some(path) = &self.creds {
            options = options
                .credentials(&read(path)?)
                .map_err(|error| StartError::File {
                    path: path.clone(),
                    why: format!("no credentials: {error}"),
                })?;
        }
        if let Some(path) = &self.nkey {
            options = options.nkey(read(path)?.trim().to_owned());
        }
        options = match (self.user.clone(), self.password.clone()) {
            (Some(user), Some(password)) => options.user_and_password(user, password),
            (Some(token), None) => options.token(token),
            (None, _) => options,
        };
        // The client reads these itself, and does not say which one it could not.
        for path in [&self.tls_ca, &self.tls_cert, &self.tls_key] {
            path.as_ref().map(read).transpose()?;
        }
        if let Some(path) = &self.tls_ca {
            options = options.add_root_certificates(path.clone());
        }
        if let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) {
            options = options.add_client_certificate(cert.clone(), key.clone());
        }
        if let Account::Domain(worker) = &self.account {
            options = options.custom_inbox_prefix(inbox_prefix(worker));
        }
        Ok(options)
    }

    /// Connects; `name` is what the server's lists show.
    pub(crate) async fn connect(&self, name: &str) -> Result<Connection, StartError> {
        let servers: Vec<&str> = self.url.split(',').map(str::trim).collect();
        let (tell, denied) = watch::channel(None);
        let options = self
            .options()?
            .event_callback(move |event| {
                match event {
                    Event::ServerError(error) => {
                        let why = error.to_string();
                        match Denied::read(&why) {
                            Some(Denied { what, advice }) => {
                                tracing::error!("this user may not {what}; {advice}");
                                tell.send_replace(Some(Denied { what, advice }));
                            }
                            None => tracing::warn!(why, "the NATS server refuses something"),
                        }
                    }
                    event => tracing::info!(%event, "the connection to NATS"),
                }
                std::future::ready(())
            })
            .name(name)
            .connection_timeout(CONNECT_WAIT)
            .ping_interval(PING)
            .request_timeout(Some(API_WAIT))
            .max_reconnects(None)
            .reconnect_delay_callback(|tries| {
                Duration::from_millis(20)
                    .saturating_mul(1 << tries.min(10))
                    .min(LONGEST_RECONNECT)
            });
        let client = options.connect(servers.as_slice()).await.map_err(|error| {
            let (url, why) = (self.url.clone(), error.to_string());
            match error.kind() {
                ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                    StartError::Refused { url, why }
                }
                _ => StartError::Unreachable { url, why },
            }
        })?;
        let info = client.server_info();
        if !is_young_enough(&info.version) {
            return Err(StartError::TooOld {
                server: info.server_name,
                found: info.version,
            });
        }
        if !info.jetstream {
            return Err(StartError::NoJetStream);
        }
        Ok(Connection {
            client,
            denied,
            asks: self.account != Account::Nodes,
        })
    }
}

/// What the server did not permit, and what helps.
#[derive(Debug, Clone, Default)]
struct Denied {
    what: String,
    advice: &'static str,
}

impl Denied {
    /// Reads the server's words: `Permissions Violation for Publish to "subject"`, or for `Subscription to`.
    fn read(words: &str) -> Option<Self> {
        let lower = words.to_lowercase();
        let at = lower.find("permissions violation")?;
        let verb = if lower.contains("subscription") {
            "subscribe to"
        } else {
            "publish to"
        };
        let subject = words.get(at..)?.split('"').nth(1);
        let subject = subject.unwrap_or("a subject that the server did not name");
        let is_nodes_way = subject.starts_with("_INBOX.")
            || subject.starts_with("$JS.API.") && !subject.contains(".MSG.NEXT.");
        let advice = if is_nodes_way {
            "only the nodes' account reaches streams, and answers anywhere: give a node its user, and start a worker that is in its domain's account with --domain"
        } else {
            "grant it, and import it into this user's account: `leasehold accounts` writes the permissions of every worker, with its name and its tools"
        };
        Some(Self {
            what: format!("{verb} {subject}"),
            advice,
        })
    }
}

/// A connection, and what the servers did not permit on it. They say so beside the requests that they leave unanswered.
pub(crate) struct Connection {
    pub(crate) client: Client,
    denied: watch::Receiver<Option<Denied>>,
    /// No stream can be read over it: nodes are asked.
    pub(crate) asks: bool,
}

impl Connection {
    /// Does what a start needs, for as long as nothing of it is forbidden.
    pub(crate) async fn permitted<T>(
        &self,
        start: impl Future<Output = Result<T, StartError>>,
    ) -> Result<T, StartError> {
        let mut denied = self.denied.clone();
        tokio::select! {
            started = start => started,
            Ok(denied) = denied.wait_for(Option::is_some) => {
                let Denied { what, advice } = denied.clone().unwrap_or_default();
                Err(StartError::NotPermitted { what, advice })
            }
        }
    }
}

fn context_folder() -> PathBuf {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(home)
        .unwrap_or_default()
        .join("nats/context")
}

fn is_young_enough(version: &str) -> bool {
    let mut parts = version
        .split('.')
        .map(|part| part.parse::<u64>().unwrap_or(0));
    let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    found >= OLDEST
}

/// Whether a message can leave now. One that is given to a client without a connection would leave later, at a moment nobody chose.
pub(crate) fn is_connected(client: &Client) -> bool {
    client.connection_state() == State::Connected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_message_schedules_is_too_old() {
        for (version, is_enough) in [
            ("2.11.9", false),
            ("2.12.0", true),
            ("2.15.1", true),
            ("3.0.0-dev", true),
            ("", false),
        ] {
            assert_eq!(is_young_enough(version), is_enough, "{version}");
        }
    }

    #[test]
    fn what_the_server_does_not_permit_is_named_with_what_to_grant() {
        let words = r#"nats: Permissions Violation for Publish to "lh.ws.a.w.live""#;
        let denied = Denied::read(words).unwrap();
        assert_eq!(denied.what, "publish to lh.ws.a.w.live");
        assert!(denied.advice.contains("leasehold accounts"));
        let words = r#"permissions violation for subscription to "_INBOX.x""#;
        assert_eq!(Denied::read(words).unwrap().what, "subscribe to _INBOX.x");
        let words = r#"Permissions Violation for Publish to "$JS.API.STREAM.INFO.LH_0""#;
        assert!(Denied::read(words).unwrap().advice.contains("--domain"));
        assert!(Denied::read("maximum connections exceeded").is_none());
    }

    #[test]
    fn a_context_file_of_the_nats_command_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prod.json");
        std::fs::write(
            &path,
            r#"{"description":"x","url":"nats://a:4222,nats://b:4222","creds":"/c","token":"","user":"u","password":"p"}"#,
        )
        .unwrap();
        let target = Target::context(&path).unwrap();
        assert_eq!(target.url, "nats://a:4222,nats://b:4222");
        assert_eq!(target.creds, Some(PathBuf::from("/c")));
        assert_eq!(
            (target.user.as_deref(), target.password.as_deref()),
            (Some("u"), Some("p"))
        );
        std::fs::write(&path, "{").unwrap();
        assert!(matches!(
            Target::context(&path),
            Err(StartError::File { .. })
        ));
    }
}
