//! `leasehold cancel`: asks a run to end. What is claimed is waited for; nothing new is begun.

use leasehold_protocol::{CancelRequest, InboxAnswer, RunId, WIRE_VERSION};
use serde::Serialize;

use super::{By, Context};
use crate::failure::{Exit, Failure};
use crate::say;
use crate::socket::client::{Client, ClientError};
use crate::socket::wire::{Answered, RefusalCode};

/// Arguments of `leasehold cancel`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct CancelArgs {
    /// The run
    #[arg(value_name = "RUN")]
    run: RunId,
    #[command(flatten)]
    by: By,
}

#[derive(Serialize)]
struct Said<'a> {
    run: &'a RunId,
    #[serde(flatten)]
    answer: &'a Answered,
}

pub(crate) async fn run(context: Context<'_>, args: CancelArgs) -> Result<Exit, Failure> {
    let request = CancelRequest {
        v: WIRE_VERSION,
        by: args.by.by,
        note: args.by.note,
    };
    let mut client = Client::connect(context.place).await?;
    let answer = match client.cancel(&args.run, &request).await {
        // Whoever has asked before, in other words, has asked.
        Err(ClientError::Refused(refusal)) if refusal.code == RefusalCode::SaidOtherwise => {
            Answered::Unused {
                why: InboxAnswer::AlreadyEnding,
            }
        }
        answer => answer?,
    };
    if context.json {
        say::json(&Said {
            run: &args.run,
            answer: &answer,
        })?;
    } else {
        let text = match &answer {
            Answered::Taken => "is ending: nothing new is begun, what is claimed is waited for",
            Answered::Unused { .. } => "was told to end before",
            Answered::RunEnded => "had ended before",
            Answered::Stored => "will end: the request is stored and not read yet",
        };
        say::line(&format!("run {} {text}", say::plain(args.run.as_str())))?;
    }
    Ok(Exit::Done)
}
