//! `leasehold dump`: everything stored, as lines of JSON, for checkers that share no code with the runtime.

use std::io::{BufWriter, Write as _};
use std::path::PathBuf;

use leasehold_embedded::{dump_folder, dump_logbook};

use super::Context;
use crate::failure::{Exit, Failure};
use crate::socket::client::{Client, ClientError};
use crate::source::reading_options;

/// Arguments of `leasehold dump`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DumpArgs {
    /// Also the logbook of a worker that does not run, which lies in this folder; may be repeated
    #[arg(long, value_name = "DIR")]
    logbook: Vec<PathBuf>,
}

pub(crate) async fn run(context: Context<'_>, args: DumpArgs) -> Result<Exit, Failure> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    match Client::connect(context.place).await {
        Ok(client) => {
            let line =
                |text: &str| writeln!(out, "{text}").map_err(|error| Failure::output(&error));
            client.dump(line).await?;
        }
        Err(ClientError::NoRuntime { .. }) if context.place.folder().is_ok() => {
            dump_folder(context.place.folder()?, reading_options()?, &mut out)?;
        }
        Err(error) => return Err(error.into()),
    }
    for folder in &args.logbook {
        dump_logbook(folder, &mut out)?;
    }
    out.flush().map_err(|error| Failure::output(&error))?;
    Ok(Exit::Done)
}
