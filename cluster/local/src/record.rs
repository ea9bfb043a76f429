//! `local.json`: which processes belong to a folder, and all that is needed to start one of them again.
//!
//! It is what lets a second command find, kill, pause and start what a first one started. Every change is made under a lock and appears
//! whole; a reader without the lock sees some whole state. Starting a process is such a change, so one name is never started twice.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use leasehold_json::AcceptedJson;
use serde::{Deserialize, Serialize};

use crate::error::{LocalError, doing};
use crate::process::{Identity, State};

/// The file's name in the folder.
const FILE: &str = "local.json";
/// Whoever changes the file holds this one's lock. It is a file of its own because the other one is replaced at each change.
const LOCK: &str = "local.lock";
/// The format that this binary writes, and the only one that it reads.
const FORMAT: u32 = 1;

/// What a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A nats-server.
    NatsServer,
    /// A process that drives runs.
    Node,
    /// A process that executes tools.
    Worker,
}

/// How a process is started, the first time and every other time.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Launch {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// Added to the environment of whoever starts it.
    pub(crate) environment: BTreeMap<String, String>,
    /// The folder it works in.
    pub(crate) directory: PathBuf,
    /// Where its standard output and standard error are added to.
    pub(crate) log: PathBuf,
    /// The ports of loopback that it listens on, by what they are for.
    pub(crate) ports: BTreeMap<String, u16>,
}

/// A process that was started once, at least.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) launch: Launch,
    /// Its last life.
    pub(crate) process: Identity,
    /// Where in its log that life begins, in bytes.
    pub(crate) log_from: u64,
}

impl Entry {
    pub(crate) fn state(&self) -> State {
        self.process.state()
    }
}

/// All processes of a folder, in the order in which their names were first used.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contents {
    v: u32,
    pub(crate) processes: Vec<Entry>,
}

impl Contents {
    pub(crate) fn get(&self, name: &str) -> Option<&Entry> {
        self.processes
            .iter()
            .find(|entry| entry.launch.name == name)
    }

    /// Adds it, or takes the place of the one that has its name.
    pub(crate) fn put(&mut self, new: Entry) {
        let same = |entry: &&mut Entry| entry.launch.name == new.launch.name;
        match self.processes.iter_mut().find(same) {
            Some(old) => *old = new,
            None => self.processes.push(new),
        }
    }
}

/// A folder that holds a local cluster. The path is absolute.
#[derive(Debug, Clone)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// This folder, made if it is not there.
    pub(crate) fn make(path: &Path) -> Result<Self, LocalError> {
        fs::create_dir_all(path).map_err(|error| refused(path, &error))?;
        Self::existing(path)
    }

    /// This folder, which is there.
    pub(crate) fn existing(path: &Path) -> Result<Self, LocalError> {
        let path = path.canonicalize().map_err(|error| refused(path, &error))?;
        // It becomes part of arguments, variables and JSON, which are text.
        if path.to_str().is_none() {
            return Err(refused(&path, &"its path is not UTF-8"));
        }
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// What is there now; nothing if nothing was ever started.
    pub(crate) fn read(&self) -> Result<Contents, LocalError> {
        let path = self.0.join(FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Contents {
                    v: FORMAT,
                    processes: Vec::new(),
                });
            }
            Err(error) => return Err(unreadable(path, &error)),
        };
        let json = AcceptedJson::check(&bytes).map_err(|error| unreadable(path.clone(), &error))?;
        let contents: Contents = json
            .parse()
            .map_err(|error| unreadable(path.clone(), &error))?;
        if contents.v != FORMAT {
            let reason = format!("it has format {}, this program reads {FORMAT}", contents.v);
            return Err(unreadable(path, &reason));
        }
        Ok(contents)
    }

    /// Changes it while nobody else does. Nothing is written when `change` fails.
    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut Contents) -> Result<T, LocalError>,
    ) -> Result<T, LocalError> {
        let failed =
            |error: io::Error| doing(format!("writing {}", self.0.join(FILE).display()))(error);
        let lock = File::create(self.0.join(LOCK)).map_err(failed)?;
        lock.lock().map_err(failed)?;
        let mut contents = self.read()?;
        let out = change(&mut contents)?;
        let text = serde_json::to_vec_pretty(&contents).map_err(|error| failed(error.into()))?;
        let fresh = self.0.join(format!("{FILE}.new"));
        fs::write(&fresh, text).map_err(failed)?;
        fs::rename(&fresh, self.0.join(FILE)).map_err(failed)?;
        Ok(out)
    }
}

fn refused(folder: &Path, reason: &dyn ToString) -> LocalError {
    LocalError::Folder {
        folder: folder.to_owned(),
        reason: reason.to_string(),
    }
}

fn unreadable(path: PathBuf, reason: &dyn ToString) -> LocalError {
    LocalError::Record {
        path,
        reason: reason.to_string(),
    }
}
