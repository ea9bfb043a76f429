//! `leasehold runs`: all runs, one line each.

use leasehold_protocol::Status;

use super::Context;
use crate::failure::{Exit, Failure};
use crate::say;
use crate::source::Source;
use crate::table::{cell, table, text};
use crate::view::{OpenStep, RunSummary, code};
use crate::waiting::waiting;

/// Arguments of `leasehold runs`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RunsArgs {
    /// Only runs of this status; may be repeated
    #[arg(long, value_name = "STATUS")]
    status: Vec<StatusName>,
    /// Only runs with a call of this tool that is not settled, and whether it waits for a worker or one has it
    #[arg(long, value_name = "TOOL")]
    waiting_for: Option<String>,
}

/// A status, as it stands in records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum StatusName {
    Running,
    Waiting,
    Completed,
    Failed,
    Cancelled,
}

impl From<StatusName> for Status {
    fn from(name: StatusName) -> Self {
        match name {
            StatusName::Running => Status::Running,
            StatusName::Waiting => Status::Waiting,
            StatusName::Completed => Status::Completed,
            StatusName::Failed => Status::Failed,
            StatusName::Cancelled => Status::Cancelled,
        }
    }
}

pub(crate) async fn run(context: Context<'_>, args: RunsArgs) -> Result<Exit, Failure> {
    let mut source = Source::open(context.place).await?;
    let mut runs = match &args.waiting_for {
        Some(tool) => source.waiting_for(context.place, tool).await?,
        None => source.runs().await?,
    };
    let wanted: Vec<Status> = args.status.iter().copied().map(Status::from).collect();
    runs.retain(|run| wanted.is_empty() || wanted.contains(&run.status));
    if context.json {
        say::json(&runs)?;
        return Ok(Exit::Done);
    }
    let mut shown = table(&[
        "RUN",
        "STATUS",
        "REASON",
        "TURNS",
        "TAKEOVERS",
        "LAST",
        "OPEN",
        "GOAL",
    ]);
    for run in &runs {
        shown.add_row(row(run));
    }
    say::line(&text(&shown))?;
    if let Some(tool) = &args.waiting_for {
        let calls: usize = runs.iter().map(|run| run.open.len()).sum();
        let waiting: usize = runs.iter().map(waiting).sum();
        say::aside(&format!(
            "{waiting} of {calls} open calls of {} wait for a worker",
            say::short(tool)
        ));
    }
    Ok(Exit::Done)
}

fn row(run: &RunSummary) -> [String; 8] {
    let open: Vec<String> = run.open.iter().map(open_step).collect();
    [
        say::plain(run.run.as_str()),
        code(&run.status),
        match (&run.problem, &run.waiting_on) {
            (Some(problem), _) => cell(format!("! {problem}")),
            (None, Some(on)) => cell(&on.kind),
            (None, None) => run.reason.as_ref().map(code).unwrap_or_default(),
        },
        run.turns.to_string(),
        run.takeovers.to_string(),
        say::utc(run.last_at),
        cell(open.join(" ")),
        cell(&run.goal),
    ]
}

fn open_step(step: &OpenStep) -> String {
    match &step.stands {
        Some(stands) => format!("{}:{}", step.tool, stands.word()),
        None => format!("{}:{}", step.tool, step.phase),
    }
}
