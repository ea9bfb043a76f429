//! `leasehold run`: submits a run, and with `--wait` stays until it has ended or needs a person.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use leasehold_actors::{Ids as _, RandomIds};
use serde::Serialize;

use super::Context;
use super::run_file::{self, Format};
use super::wait;
use crate::failure::{Exit, Failure};
use crate::say;
use crate::socket::client::Client;
use crate::socket::wire::Receipt;
use crate::view::RunView;

/// Largest run file in bytes: a submission's bound, with room for white space. What is larger is refused by the runtime anyway.
const MAX_FILE: u64 = 1024 * 1024;

/// Arguments of `leasehold run`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RunArgs {
    /// The run, as a JSON or TOML file; `-` reads standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Stay until the run has ended or waits for an operator, and show what happens
    #[arg(long)]
    wait: bool,
}

#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    receipt: &'a Receipt,
    /// With `--wait`: what is true of the run at the end of the wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<RunView>,
}

pub(crate) async fn run(context: Context<'_>, args: RunArgs) -> Result<Exit, Failure> {
    let (name, bytes) = read(&args.file)?;
    let submission = run_file::read(&bytes, format(&args.file, &bytes), || RandomIds.unique())
        .map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    let mut client = Client::connect(context.place).await?;
    let receipt = client.submit(&submission).await?;
    if !context.json {
        let known = if receipt.repeated {
            " (submitted before with the same content: the same run)"
        } else {
            ""
        };
        say::line(&format!("run {}{known}", say::plain(receipt.run.as_str())))?;
    }
    let state = match args.wait {
        true => Some(wait::until_parked_or_ended(context, client, &receipt.run).await?),
        false => None,
    };
    let exit = state
        .as_ref()
        .map_or(Exit::Done, |state| state.summary.status.into());
    if context.json {
        say::json(&Answer {
            receipt: &receipt,
            state,
        })?;
    }
    Ok(exit)
}

fn read(path: &Path) -> Result<(String, Vec<u8>), Failure> {
    let from_stdin = path.as_os_str() == "-";
    let name = if from_stdin {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    };
    let cannot = |error| Failure::usage(format!("{name} cannot be read: {error}"));
    let mut bytes = Vec::new();
    let read = if from_stdin {
        std::io::stdin().take(MAX_FILE + 1).read_to_end(&mut bytes)
    } else {
        fs::File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes))
    };
    read.map_err(cannot)?;
    if bytes.len() as u64 > MAX_FILE {
        let text = format!(
            "{name} has more than {MAX_FILE} bytes; put large material where a tool can read it"
        );
        return Err(Failure::usage(text));
    }
    Ok((name, bytes))
}

/// By the file's name; where that says nothing, by its first character: a TOML file cannot begin with a brace.
fn format(path: &Path, bytes: &[u8]) -> Format {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => Format::Json,
        Some("toml") => Format::Toml,
        _ => match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'{') | None => Format::Json,
            Some(_) => Format::Toml,
        },
    }
}
