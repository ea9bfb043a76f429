//! `leasehold status`: who serves the folder, and which calls wait for a worker.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Context;
use crate::failure::{Exit, Failure};
use crate::say;
use crate::socket::client::Client;
use crate::socket::wire::Hello;

#[derive(Serialize)]
struct Status {
    #[serde(flatten)]
    hello: Hello,
    /// How many calls wait or run, per tool.
    waiting_calls: BTreeMap<String, usize>,
}

pub(crate) async fn run(context: Context<'_>) -> Result<Exit, Failure> {
    let mut client = Client::connect(context.place).await?;
    let status = Status {
        hello: client.hello().await?,
        waiting_calls: client.waiting().await?,
    };
    if context.json {
        say::json(&status)?;
        return Ok(Exit::Done);
    }
    let hello = &status.hello;
    let tools: Vec<&str> = hello.tools.iter().map(|spec| spec.name.as_str()).collect();
    for (name, value) in [
        ("version", hello.version.clone()),
        ("pid", hello.pid.to_string()),
        ("cluster", hello.cluster.clone()),
        ("session", hello.session.clone()),
        ("policy", hello.policy.clone()),
        ("agents", hello.agents.join(", ")),
        ("tools", tools.join(", ")),
    ] {
        say::line(&format!("{:<9}{}", format!("{name}:"), say::plain(&value)))?;
    }
    for (tool, count) in &status.waiting_calls {
        say::line(&format!(
            "{count} calls of {} wait or run",
            say::plain(tool)
        ))?;
    }
    Ok(Exit::Done)
}
