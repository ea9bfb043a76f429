//! One command per file.

pub(crate) mod cancel;
pub(crate) mod decide;
pub(crate) mod dump;
pub(crate) mod questions;
pub(crate) mod replay;
pub(crate) mod run;
mod run_file;
pub(crate) mod runs;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod tools;
pub(crate) mod verify;
mod wait;

use std::path::Path;

use leasehold_protocol::OperatorId;

use crate::view::shell_word;

/// The data folder, where nothing else is said.
pub(crate) const DATA_FOLDER: &str = "./leasehold-data";
/// The environment variable that says something else.
pub(crate) const DATA_VARIABLE: &str = "LEASEHOLD_DATA";

/// How a command was asked to speak, and about which folder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) json: bool,
}

impl Context<'_> {
    /// How this program is called to reach the same data folder, for texts that say what to type.
    fn program(&self) -> String {
        let is_usual = match std::env::var_os(DATA_VARIABLE) {
            Some(folder) => self.folder.as_os_str() == folder,
            None => self.folder == Path::new(DATA_FOLDER),
        };
        if is_usual {
            return "leasehold".to_owned();
        }
        let folder = shell_word(&self.folder.display().to_string());
        format!("leasehold --data {folder}")
    }
}

/// Who acts, as `--by` says; by default whoever is logged in.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct By {
    /// Who decides; recorded in the journal
    #[arg(
        long,
        value_name = "NAME",
        env = "USER",
        default_value = "operator",
        hide_env_values = true
    )]
    by: OperatorId,
    /// Why, in your words; recorded in the journal
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}
