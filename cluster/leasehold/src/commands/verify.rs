//! `leasehold verify`: hash chain, fold and every invariant of every journal, from the stored bytes.

use leasehold_protocol::{RunId, RunRecord, Violation, invariant};
use serde::Serialize;

use super::Context;
use crate::failure::{Exit, Failure};
use crate::known_tools::KnownTools;
use crate::material::Material;
use crate::say;
use crate::source::Source;
use crate::table::{cell, table, text};
use crate::view::{RunView, code};

/// Arguments of `leasehold verify`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct VerifyArgs {
    /// One run; without it, all of them
    #[arg(value_name = "RUN")]
    run: Option<RunId>,
}

#[derive(Serialize)]
struct Checked {
    run: RunId,
    status: String,
    commits: usize,
    attempts: usize,
    /// Stored commits that count for nothing; a lost race leaves them, and they change nothing.
    void: usize,
    tail: String,
    violations: Vec<Violation>,
}

#[derive(Serialize)]
struct Summary {
    runs: Vec<Checked>,
    violations: usize,
}

pub(crate) async fn run(context: Context<'_>, args: VerifyArgs) -> Result<Exit, Failure> {
    let mut source = Source::open(context.place).await?;
    let tools = KnownTools::of(context.place).await?;
    if tools.is_empty() && context.place.target().is_ok() {
        return Err(Failure::new(
            Exit::NoRuntime,
            "no node answers, so nobody knows the tools' classes, and a call that only reads cannot be told from one that has to be claimed; start a node: leasehold node --nats URL --tools FILE",
        ));
    }
    let runs = match args.run {
        Some(run) => vec![run],
        None => {
            let all = source.runs().await?;
            all.into_iter().map(|summary| summary.run).collect()
        }
    };
    let mut checked = Vec::new();
    for run in runs {
        let material = source.material(context.place, &run).await?;
        checked.push(check(&material, &tools));
    }
    let summary = Summary {
        violations: checked.iter().map(|run| run.violations.len()).sum(),
        runs: checked,
    };
    let exit = match summary.violations {
        0 => Exit::Done,
        _ => Exit::Broken,
    };
    if context.json {
        say::json(&summary)?;
    } else {
        tell(&summary)?;
    }
    Ok(exit)
}

fn check(material: &Material, tools: &KnownTools) -> Checked {
    let chains = material.by_chain();
    let record = RunRecord {
        run: &material.run,
        commits: &material.commits,
        chains: &chains,
        effects: None,
    };
    let view = RunView::of(&material.run, &material.state());
    Checked {
        run: material.run.clone(),
        status: code(&view.summary.status),
        commits: material.commits.len(),
        attempts: chains.len(),
        void: view.void.len(),
        tail: view.tail.to_string(),
        violations: invariant::check(&record, &|name| tools.class(name)),
    }
}

fn tell(summary: &Summary) -> Result<(), Failure> {
    let mut shown = table(&["RUN", "STATUS", "COMMITS", "ATTEMPTS", "VOID", "VERDICT"]);
    for run in &summary.runs {
        let verdict = match run.violations.len() {
            0 => "ok".to_owned(),
            broken => format!("{broken} broken"),
        };
        shown.add_row([
            cell(run.run.as_str()),
            run.status.clone(),
            run.commits.to_string(),
            run.attempts.to_string(),
            run.void.to_string(),
            verdict,
        ]);
    }
    say::line(&text(&shown))?;
    for violation in summary.runs.iter().flat_map(|run| &run.violations) {
        say::line(&format!(
            "{} ({}): run {}: {}",
            violation.invariant,
            violation.invariant.statement(),
            say::plain(violation.run.as_str()),
            say::plain(&violation.text)
        ))?;
    }
    say::line(&format!(
        "{} runs, {} commits, {} violations",
        summary.runs.len(),
        summary.runs.iter().map(|run| run.commits).sum::<usize>(),
        summary.violations
    ))
}
