//! `leasehold questions`: everything that waits for an operator, with the hash that an answer names.

use super::Context;
use crate::failure::{Exit, Failure};
use crate::say;
use crate::socket::client::Client;
use crate::table::{cell, table, text};
use crate::timeline::of_question;

pub(crate) async fn run(context: Context<'_>) -> Result<Exit, Failure> {
    let questions = Client::connect(context.place).await?.questions().await?;
    if context.json {
        say::json(&questions)?;
        return Ok(Exit::Done);
    }
    let mut shown = table(&["RUN", "QUESTION", "TOOL", "ASKS", "SINCE", "HASH"]);
    for question in &questions {
        shown.add_row([
            say::plain(question.run.as_str()),
            question.approval.to_string(),
            cell(&question.tool),
            cell(of_question(&question.question)),
            say::utc(question.asked_at),
            question.hash.to_string(),
        ]);
    }
    say::line(&text(&shown))?;
    Ok(Exit::Done)
}
