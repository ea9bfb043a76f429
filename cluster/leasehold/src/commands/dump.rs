//! `leasehold dump`: everything stored, as lines of JSON, for checkers that share no code with the runtime.

use std::io::{BufWriter, Write as _};

use leasehold_embedded::dump_folder;

use super::Context;
use crate::failure::{Exit, Failure};
use crate::socket::client::{Client, ClientError};
use crate::source::reading_options;

pub(crate) async fn run(context: Context<'_>) -> Result<Exit, Failure> {
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
    out.flush().map_err(|error| Failure::output(&error))?;
    Ok(Exit::Done)
}
