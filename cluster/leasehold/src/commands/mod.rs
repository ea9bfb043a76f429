//! One command per file.

pub(crate) mod accounts;
pub(crate) mod cancel;
pub(crate) mod completions;
pub(crate) mod decide;
pub(crate) mod dump;
pub(crate) mod local;
pub(crate) mod man;
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

use leasehold_protocol::OperatorId;

use crate::place::Place;

/// How a command was asked to speak, and about which place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) place: &'a Place,
    pub(crate) json: bool,
}

impl Context<'_> {
    /// How this program is called to reach the same place, for texts that say what to type.
    fn program(&self) -> String {
        self.place.program()
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
