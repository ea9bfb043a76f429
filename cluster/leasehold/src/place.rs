//! Where the runs are: in a data folder, or on a NATS cluster.

use std::fmt;
use std::path::{Path, PathBuf};

use leasehold_nats::Target;

use crate::failure::Failure;
use crate::view::shell_word;

/// The data folder, where nothing else is said.
const DATA_FOLDER: &str = "./leasehold-data";
/// The environment variable that names a data folder.
const DATA_VARIABLE: &str = "LEASEHOLD_DATA";
/// The environment variable that names NATS servers, as for the `nats` command.
const NATS_VARIABLE: &str = "NATS_URL";

/// `--data`, `--nats` and who we are to the servers.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PlaceArgs {
    /// The data folder [env: LEASEHOLD_DATA, else ./leasehold-data]
    #[arg(long, global = true, value_name = "DIR", conflicts_with_all = ["nats", "context"])]
    data: Option<PathBuf>,
    /// NATS servers, with commas between them [env: NATS_URL]
    #[arg(long, global = true, value_name = "URL", help_heading = "NATS")]
    nats: Option<String>,
    /// A context file of the nats command, or a context's name
    #[arg(
        long,
        global = true,
        env = "NATS_CONTEXT",
        value_name = "NAME",
        help_heading = "NATS"
    )]
    context: Option<PathBuf>,
    /// A credentials file
    #[arg(
        long,
        global = true,
        env = "NATS_CREDS",
        value_name = "FILE",
        help_heading = "NATS"
    )]
    creds: Option<PathBuf>,
    /// An nkey seed file
    #[arg(
        long,
        global = true,
        env = "NATS_NKEY",
        value_name = "FILE",
        help_heading = "NATS"
    )]
    nkey: Option<PathBuf>,
    /// A user; a token if there is no password
    #[arg(
        long,
        global = true,
        env = "NATS_USER",
        value_name = "USER",
        help_heading = "NATS"
    )]
    user: Option<String>,
    /// The user's password
    #[arg(
        long,
        global = true,
        env = "NATS_PASSWORD",
        value_name = "TEXT",
        hide_env_values = true,
        help_heading = "NATS"
    )]
    password: Option<String>,
    /// Root certificates
    #[arg(
        long,
        global = true,
        env = "NATS_CA",
        value_name = "FILE",
        help_heading = "NATS"
    )]
    tlsca: Option<PathBuf>,
    /// The client's certificate
    #[arg(
        long,
        global = true,
        env = "NATS_CERT",
        value_name = "FILE",
        help_heading = "NATS",
        requires = "tlskey"
    )]
    tlscert: Option<PathBuf>,
    /// The client's key
    #[arg(
        long,
        global = true,
        env = "NATS_KEY",
        value_name = "FILE",
        help_heading = "NATS",
        requires = "tlscert"
    )]
    tlskey: Option<PathBuf>,
}

/// See the module.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    Folder(PathBuf),
    Cluster(Box<Target>),
}

impl PlaceArgs {
    /// The folder, if one was named on the command line.
    pub(crate) fn named_folder(&self) -> Option<&Path> {
        self.data.as_deref()
    }

    /// What is said on the command line counts before the environment, and a cluster before a folder.
    pub(crate) fn place(&self) -> Result<Place, Failure> {
        if let Some(folder) = &self.data {
            return Ok(Place::Folder(folder.clone()));
        }
        let url = self
            .nats
            .clone()
            .or_else(|| std::env::var(NATS_VARIABLE).ok());
        if url.is_some() || self.context.is_some() {
            return self
                .target(url)
                .map(|target| Place::Cluster(Box::new(target)));
        }
        Ok(Place::Folder(usual_folder()))
    }

    fn target(&self, url: Option<String>) -> Result<Target, Failure> {
        let mut target = match &self.context {
            Some(context) => Target::context(context).map_err(Failure::usage)?,
            None => Target::default(),
        };
        let said = |said: &Option<PathBuf>, usual: Option<PathBuf>| said.clone().or(usual);
        target.url = url.unwrap_or(target.url);
        target.creds = said(&self.creds, target.creds);
        target.nkey = said(&self.nkey, target.nkey);
        target.user = self.user.clone().or(target.user);
        target.password = self.password.clone().or(target.password);
        target.tls_ca = said(&self.tlsca, target.tls_ca);
        target.tls_cert = said(&self.tlscert, target.tls_cert);
        target.tls_key = said(&self.tlskey, target.tls_key);
        Ok(target)
    }
}

fn usual_folder() -> PathBuf {
    std::env::var_os(DATA_VARIABLE).map_or_else(|| PathBuf::from(DATA_FOLDER), PathBuf::from)
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Folder(folder) => folder.display().fmt(f),
            Place::Cluster(target) => f.write_str(&target.url),
        }
    }
}

impl Place {
    /// The folder; an error if it is a cluster.
    pub(crate) fn folder(&self) -> Result<&Path, Failure> {
        match self {
            Place::Folder(folder) => Ok(folder),
            Place::Cluster(_) => Err(Failure::usage(
                "this command works on a data folder, not on a cluster; give --data DIR",
            )),
        }
    }

    /// The cluster; an error if it is a folder.
    pub(crate) fn target(&self) -> Result<&Target, Failure> {
        match self {
            Place::Cluster(target) => Ok(target),
            Place::Folder(_) => Err(Failure::usage(
                "say where the NATS servers are: --nats URL, or NATS_URL, or --context NAME",
            )),
        }
    }

    /// How this program is called to reach the same place, for texts that say what to type.
    pub(crate) fn program(&self) -> String {
        match self {
            Place::Folder(folder) if *folder == usual_folder() => "leasehold".to_owned(),
            Place::Folder(folder) => {
                format!(
                    "leasehold --data {}",
                    shell_word(&folder.display().to_string())
                )
            }
            Place::Cluster(target) => match std::env::var(NATS_VARIABLE) {
                Ok(url) if url == target.url => "leasehold".to_owned(),
                _ => format!("leasehold --nats {}", shell_word(&target.url)),
            },
        }
    }
}
