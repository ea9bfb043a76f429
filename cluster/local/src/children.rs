//! The processes of one folder: started, killed, paused, resumed, told about. What they are is the caller's business.
//!
//! An owner takes down what it started when it is dropped, unless it was let go. A visitor starts and kills as well, and owns nothing.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use serde::Serialize;
use tokio::time::{Instant, sleep, timeout};

use crate::error::{LocalError, doing};
use crate::guard::Guard;
use crate::log;
use crate::ports;
use crate::process::{Held, Identity, State};
use crate::record::{Contents, Entry, Folder, Kind, Launch};

/// How long a killed process may take to be gone. The kernel needs milliseconds, unless it waits for a device.
const KILLED: Duration = Duration::from_secs(10);

/// How long a process may take to pause or to go on; it does when it is next scheduled.
const TURNED: Duration = Duration::from_secs(5);

/// What a person's shell says about their usual NATS servers. It must not reach the processes of a local cluster, which has neither
/// credentials nor TLS.
const NOT_INHERITED: [&str; 9] = [
    "NATS_URL",
    "NATS_CONTEXT",
    "NATS_CREDS",
    "NATS_NKEY",
    "NATS_USER",
    "NATS_PASSWORD",
    "NATS_CA",
    "NATS_CERT",
    "NATS_KEY",
];

/// How often the kernel is asked where there is no event to wait for.
const LOOK: Duration = Duration::from_millis(2);

/// A process as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Its name, one of its folder.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The process id of its last life.
    pub pid: i32,
    /// What it does now.
    pub state: State,
    /// Its log: standard output and standard error of all its lives.
    pub log: PathBuf,
    /// The ports of loopback that it listens on, by what they are for.
    pub ports: BTreeMap<String, u16>,
}

impl From<&Entry> for Status {
    fn from(entry: &Entry) -> Self {
        Self {
            name: entry.launch.name.clone(),
            kind: entry.launch.kind,
            pid: entry.process.pid,
            state: entry.state(),
            log: entry.launch.log.clone(),
            ports: entry.launch.ports.clone(),
        }
    }
}

/// The processes of some kinds in one folder.
#[derive(Debug)]
pub(crate) struct Children {
    folder: Folder,
    kinds: &'static [Kind],
    /// What this handle started and has to take down. `None`: it owns nothing.
    owned: Option<Mutex<Owned>>,
}

#[derive(Debug, Default)]
struct Owned {
    started: Vec<(String, Identity)>,
    /// There is none before the first start.
    guard: Option<Guard>,
}

impl Children {
    /// As the owner of what will be started.
    pub(crate) fn own(folder: Folder, kinds: &'static [Kind]) -> Self {
        Self {
            folder,
            kinds,
            owned: Some(Mutex::default()),
        }
    }

    /// As a visitor.
    pub(crate) fn visit(folder: Folder, kinds: &'static [Kind]) -> Self {
        Self {
            folder,
            kinds,
            owned: None,
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Those of its kinds, in the order in which their names were first used.
    pub(crate) fn entries(&self) -> Result<Vec<Entry>, LocalError> {
        let all = self.folder.read()?.processes;
        let ours = |entry: &Entry| self.kinds.contains(&entry.launch.kind);
        Ok(all.into_iter().filter(ours).collect())
    }

    pub(crate) fn entry(&self, name: &str) -> Result<Entry, LocalError> {
        let mut entries = self.entries()?;
        match entries.iter().position(|entry| entry.launch.name == name) {
            Some(at) => Ok(entries.swap_remove(at)),
            None => Err(LocalError::Unknown {
                name: name.to_owned(),
                known: known(&entries),
            }),
        }
    }

    /// None of them is alive.
    ///
    /// # Errors
    /// [`LocalError::Running`] about the first that is.
    pub(crate) fn all_dead(&self) -> Result<(), LocalError> {
        self.entries()?.iter().try_for_each(not_running)
    }

    /// Starts it and records it. Its name may have been used before, by a process that has ended.
    pub(crate) fn start(&self, launch: Launch) -> Result<Entry, LocalError> {
        let entry = self.folder.change(|all| spawn(all, launch))?;
        if let Some(owned) = &self.owned {
            let mut owned = owned.lock().unwrap_or_else(PoisonError::into_inner);
            if owned.started.is_empty() {
                owned.guard = Guard::start();
            }
            owned
                .started
                .push((entry.launch.name.clone(), entry.process));
            if let Some(guard) = &mut owned.guard {
                guard.watch(entry.process);
            }
        }
        Ok(entry)
    }

    /// Starts it again as it was started before.
    pub(crate) fn restart(&self, name: &str) -> Result<Entry, LocalError> {
        self.start(self.entry(name)?.launch)
    }

    /// SIGKILL, and waits until it is gone. Nothing happens to one that is gone.
    pub(crate) async fn kill(&self, name: &str) -> Result<(), LocalError> {
        kill(&self.entry(name)?).await
    }

    /// SIGTERM, also to one that is paused, and waits until it is gone; after `patience` SIGKILL. Whether it went by itself.
    pub(crate) async fn stop(&self, name: &str, patience: Duration) -> Result<bool, LocalError> {
        stop(&[self.entry(name)?], patience).await
    }

    /// [`stop`](Self::stop) of all of these kinds, at once. Whether all went by themselves.
    pub(crate) async fn stop_all(
        &self,
        kinds: &[Kind],
        patience: Duration,
    ) -> Result<bool, LocalError> {
        let mut entries = self.entries()?;
        entries.retain(|entry| kinds.contains(&entry.launch.kind));
        stop(&entries, patience).await
    }

    /// SIGSTOP, and waits until it has stopped.
    pub(crate) async fn pause(&self, name: &str) -> Result<(), LocalError> {
        self.turn(name, Signal::STOP, State::Running).await
    }

    /// SIGCONT, and waits until it goes on. Nothing happens to one that is not paused.
    pub(crate) async fn resume(&self, name: &str) -> Result<(), LocalError> {
        self.turn(name, Signal::CONT, State::Paused).await
    }

    /// Sends the signal that is to end this state, and waits until it has.
    async fn turn(&self, name: &str, by: Signal, from: State) -> Result<(), LocalError> {
        let entry = self.entry(name)?;
        signal(&entry, by)?;
        let turned = timeout(TURNED, async {
            while entry.state() == from {
                sleep(LOOK).await;
            }
        });
        turned
            .await
            .map_err(doing(format!("pausing or resuming {name}")))?;
        match entry.state() {
            State::Dead => Err(LocalError::Dead(entry.launch.name)),
            State::Running | State::Paused => Ok(()),
        }
    }

    /// Lets them go on when this handle is dropped.
    pub(crate) fn let_go(&mut self) {
        self.owned = None;
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        let Some(owned) = self.owned.take() else {
            return;
        };
        let owned = owned.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Also what somebody else started again under such a name. The folder may be gone already, so this is no more than a help.
        let mut recorded = self.entries().unwrap_or_default();
        recorded.retain(|entry| {
            owned
                .started
                .iter()
                .any(|(name, _)| *name == entry.launch.name)
        });
        let recorded = recorded.iter().map(|entry| entry.process);
        let started = owned.started.iter().map(|(_, process)| *process);
        let held: Vec<Held> = started
            .chain(recorded)
            .filter_map(|process| process.hold().ok().flatten())
            .collect();
        for process in &held {
            let _ = process.signal(Signal::KILL);
        }
        for process in &held {
            let _ = process.wait(KILLED);
        }
    }
}

/// A name becomes the name of a file or folder.
fn check_name(name: &str) -> Result<(), LocalError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if (1..=64).contains(&name.len()) && name.bytes().all(fits) {
        return Ok(());
    }
    Err(LocalError::Name(name.to_owned()))
}

/// The error that says that it ended, if it has.
pub(crate) fn still_there(entry: &Entry) -> Result<(), LocalError> {
    if entry.state() != State::Dead {
        return Ok(());
    }
    let log = entry.launch.log.clone();
    let last = log::end(&log, entry.log_from).unwrap_or_else(|error| error.to_string());
    Err(LocalError::Ended {
        name: entry.launch.name.clone(),
        log,
        last,
    })
}

fn known(entries: &[Entry]) -> String {
    let names: Vec<&str> = entries
        .iter()
        .map(|entry| entry.launch.name.as_str())
        .collect();
    if names.is_empty() {
        "nothing".to_owned()
    } else {
        names.join(", ")
    }
}

/// Also collects it, if it was a child of this process.
fn not_running(entry: &Entry) -> Result<(), LocalError> {
    match hold(entry)? {
        None => Ok(()),
        Some(_) => Err(LocalError::Running {
            name: entry.launch.name.clone(),
            pid: entry.process.pid,
        }),
    }
}

fn hold(entry: &Entry) -> Result<Option<Held>, LocalError> {
    let held = entry.process.hold();
    held.map_err(doing(format!("reaching {}", entry.launch.name)))
}

fn signal(entry: &Entry, signal: Signal) -> Result<(), LocalError> {
    match hold(entry)? {
        Some(held) => held
            .signal(signal)
            .map_err(doing(format!("signalling {}", entry.launch.name))),
        None => Ok(()),
    }
}

async fn kill(entry: &Entry) -> Result<(), LocalError> {
    let failed = || doing(format!("killing {}", entry.launch.name));
    let Some(held) = hold(entry)? else {
        return Ok(());
    };
    held.signal(Signal::KILL).map_err(failed())?;
    if held.ended(KILLED).await.map_err(failed())? {
        return Ok(());
    }
    Err(failed()(io::ErrorKind::TimedOut.into()))
}

async fn stop(entries: &[Entry], patience: Duration) -> Result<bool, LocalError> {
    let end = Instant::now() + patience;
    for entry in entries {
        signal(entry, Signal::TERM)?;
        signal(entry, Signal::CONT)?;
    }
    let mut orderly = true;
    for entry in entries {
        if let Some(held) = hold(entry)? {
            let left = end.saturating_duration_since(Instant::now());
            let ended = held.ended(left).await;
            orderly &= ended.map_err(doing(format!("stopping {}", entry.launch.name)))?;
            kill(entry).await?;
        }
    }
    Ok(orderly)
}

/// A process that has ended holds no port, so one that is not free belongs to somebody else.
fn check_ports(launch: &Launch) -> Result<(), LocalError> {
    let mut ports = launch.ports.values().copied();
    match ports.find(|port| !ports::is_free(*port)) {
        Some(port) => Err(LocalError::PortTaken {
            name: launch.name.clone(),
            port,
        }),
        None => Ok(()),
    }
}

fn spawn(all: &mut Contents, launch: Launch) -> Result<Entry, LocalError> {
    check_name(&launch.name)?;
    if let Some(old) = all.get(&launch.name) {
        not_running(old)?;
        if old.launch.kind != launch.kind {
            return Err(LocalError::NameTaken(launch.name));
        }
    }
    check_ports(&launch)?;
    let failed = || {
        doing(format!(
            "starting {} ({})",
            launch.name,
            launch.program.display()
        ))
    };
    let (log, log_from) = log::open(&launch.log).map_err(failed())?;
    let mut command = Command::new(&launch.program);
    for variable in NOT_INHERITED {
        command.env_remove(variable);
    }
    let child = command
        .args(&launch.arguments)
        .envs(&launch.environment)
        .current_dir(&launch.directory)
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(failed())?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .map_err(failed())?;
    // A child that is not waited for keeps its number, so this cannot be another process.
    let gone = || io::Error::other("it was gone at once");
    let process = Identity::of(child.id()).ok_or_else(|| failed()(gone()))?;
    let entry = Entry {
        launch,
        process,
        log_from,
    };
    all.put(entry.clone());
    Ok(entry)
}
