//! The verdict for programs, as JSON, and for people: a table on the terminal, and one page of HTML that needs nothing but itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use minijinja::{AutoEscape, Environment, Value, context};
use serde::Serialize;

use crate::exercise::{Done, Plan};
use crate::faults::{Fault, Injected, Means};
use crate::tools::Tool;
use crate::verdict::{Armed, Counts, Outcome, Runs, Verdict};

const PAGE: &str = include_str!("files/report.html");
/// Stories of runs on the page, at most: those that something is wrong with first, then those of orphans.
const STORIES: usize = 40;

/// Names what was built; `cargo xtask chaos` sets it.
const COMMIT: &str = "LEASEHOLD_COMMIT";
/// Characters of evidence on the terminal: the report has all of it.
const EVIDENCE: usize = 90;

/// `report.json`.
#[derive(Serialize)]
struct Line<'a> {
    outcome: Outcome,
    seed: u64,
    servers: usize,
    commit: String,
    seconds: f64,
    runs: Runs,
    effects: &'a BTreeMap<&'static str, Counts>,
    takeovers: u64,
    orphans: usize,
    resolved: leasehold_checker::Resolved,
    faults: &'a [Armed],
    requests: BTreeMap<String, usize>,
    violations: &'a [leasehold_checker::Violation],
    complaints: &'a [String],
    gaps: &'a [String],
}

/// A mark on the page's chart.
#[derive(Serialize)]
struct Mark {
    lane: String,
    /// Milliseconds since the beginning.
    from: i64,
    to: i64,
    kind: String,
    text: String,
}

/// A run's story.
#[derive(Serialize)]
struct Story {
    run: String,
    why: String,
    lines: Vec<String>,
}

/// Writes `report.json` and `report.html`; where they are.
pub(crate) fn write(
    plan: &Plan,
    done: &Done,
    verdict: &Verdict,
) -> anyhow::Result<(PathBuf, PathBuf)> {
    let line = serde_json::to_string_pretty(&line(plan, done, verdict))?;
    let json = plan.folder.path("report.json");
    fs::write(&json, line).with_context(|| format!("writing {}", json.display()))?;
    let page = page(plan, done, verdict)?;
    let html = plan.folder.path("report.html");
    fs::write(&html, page).with_context(|| format!("writing {}", html.display()))?;
    Ok((json, html))
}

/// One line of JSON, for `--json`.
pub(crate) fn one_line(plan: &Plan, done: &Done, verdict: &Verdict) -> anyhow::Result<String> {
    Ok(serde_json::to_string(&line(plan, done, verdict))?)
}

fn line<'a>(plan: &Plan, done: &Done, verdict: &'a Verdict) -> Line<'a> {
    let seconds = done.drained.saturating_sub(done.began);
    let requests = done.requests.iter();
    Line {
        outcome: verdict.outcome,
        seed: plan.schedule.seed,
        servers: plan.servers,
        commit: std::env::var(COMMIT).unwrap_or_else(|_| "an unknown commit".to_owned()),
        seconds: f64::from(i32::try_from(seconds).unwrap_or(i32::MAX)) / 1000.0,
        runs: verdict.runs,
        effects: &verdict.by_tool,
        takeovers: verdict.checked.takeovers,
        orphans: verdict.checked.orphans,
        resolved: verdict.checked.resolved,
        faults: &verdict.armed,
        requests: requests
            .map(|((op, kind), count)| (format!("{op} {kind}"), *count))
            .collect(),
        violations: verdict.violations(),
        complaints: &verdict.complaints,
        gaps: &verdict.gaps,
    }
}

/// The tables for a terminal.
pub(crate) fn tables(verdict: &Verdict) -> String {
    let runs = verdict.runs;
    let mut of_runs = table(&[
        "RUNS",
        "completed",
        "failed",
        "cancelled",
        "waiting",
        "running",
    ]);
    of_runs.add_row(
        [
            runs.submitted,
            runs.completed,
            runs.failed,
            runs.cancelled,
            runs.waiting,
            runs.running,
        ]
        .map(|count| count.to_string()),
    );
    let mut of_effects = table(&[
        "EFFECTS",
        "class",
        "expected",
        "told",
        "recovered",
        "lost",
        "seen",
        "duplicated",
        "excused",
        "unexpected",
        "unknown",
    ]);
    for (tool, counts) in &verdict.by_tool {
        let class = Tool::named(tool).map_or("", |tool| tool.class);
        let mut row = vec![(*tool).to_owned(), class.to_owned()];
        row.extend(
            [
                counts.expected,
                counts.told,
                counts.recovered,
                counts.lost,
                counts.seen,
                counts.duplicated,
                counts.excused,
                counts.unexpected,
                counts.unknown,
            ]
            .map(|count| count.to_string()),
        );
        of_effects.add_row(row);
    }
    let mut of_faults = table(&["FAULT", "fired", "missed", "evidence"]);
    for armed in &verdict.armed {
        of_faults.add_row([
            format!("{} {}", armed.fault, armed.title),
            armed.fired.to_string(),
            armed.missed.to_string(),
            shortened(&armed.evidence),
        ]);
    }
    let resolved = verdict.checked.resolved;
    format!(
        "{of_runs}\n\n{of_effects}\n\n{} takeovers, {} orphans: {} adopted, {} tombstones, {} revoked, {} probed done, {} probed not done, {} by an operator, {} superseded, {} unknown\n\n{of_faults}",
        verdict.checked.takeovers,
        verdict.checked.orphans,
        resolved.adopted_outcome,
        resolved.tombstone,
        resolved.revoked,
        resolved.probe_done,
        resolved.probe_not_done,
        resolved.operator,
        resolved.superseded,
        resolved.unknown
    )
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(EVIDENCE) {
        Some((end, _)) => format!("{}..", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(head.to_vec());
    table
}

/// What a run, a tool or a person says is text on the page, never markup.
fn environment() -> Result<Environment<'static>, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_template("report", PAGE)?;
    Ok(environment)
}

fn page(plan: &Plan, done: &Done, verdict: &Verdict) -> anyhow::Result<String> {
    let environment = environment()?;
    let template = environment.get_template("report")?;
    let marks = marks(done, verdict);
    let mut lanes: Vec<&str> = Vec::new();
    for mark in &marks {
        if !lanes.contains(&mark.lane.as_str()) {
            lanes.push(&mark.lane);
        }
    }
    let last = marks.iter().map(|mark| mark.to).max().unwrap_or(0);
    let not: Vec<Value> = Fault::all()
        .filter_map(|fault| match fault.means() {
            Means::Not(why) => {
                Some(context! { fault => fault, title => fault.title(), why => why })
            }
            _ => None,
        })
        .collect();
    let page = template.render(context! {
        report => line(plan, done, verdict),
        schedule => plan.schedule.to_string(),
        lanes => lanes,
        marks => marks,
        span => last.max(1),
        healed => done.healed.saturating_sub(done.began),
        drained => done.drained.saturating_sub(done.began),
        injected => done.injected,
        began => done.began,
        ends => done.ends,
        not_done => not,
        stories => stories(plan, verdict)?,
    });
    page.context("rendering the page")
}

/// Everything with a time: faults by whom they hit, then owners of runs, orphans, and effects by tool.
fn marks(done: &Done, verdict: &Verdict) -> Vec<Mark> {
    let since = |at: i64| at.saturating_sub(done.began);
    let fault = |one: &Injected| Mark {
        lane: one.whom.clone(),
        from: since(one.at),
        to: since(one.until.unwrap_or(one.at)),
        kind: if one.fired { "fault" } else { "missed" }.to_owned(),
        text: format!("{} {}: {}", one.fault, one.what, one.evidence),
    };
    let mut marks: Vec<Mark> = done.injected.iter().map(fault).collect();
    marks.sort_by(|one, other| one.lane.cmp(&other.lane).then(one.from.cmp(&other.from)));
    let moment = |at: i64, lane: String, kind: &str, text: String| Mark {
        lane,
        from: since(at),
        to: since(at),
        kind: kind.to_owned(),
        text,
    };
    let mut owned = Vec::new();
    let mut found = Vec::new();
    for one in &verdict.moments {
        match one.kind.as_str() {
            "run.owned" if one.epoch > 1 => owned.push(moment(
                one.at,
                format!("taken by {}", one.what),
                "owned",
                format!("{} taken by {} in epoch {}", one.run, one.what, one.epoch),
            )),
            "attempt.finding" => found.push(moment(
                one.at,
                "orphans resolved".to_owned(),
                "finding",
                format!("{} step {}: {}", one.run, one.step, one.what),
            )),
            "run.ended" => found.push(moment(
                one.at,
                "runs ended".to_owned(),
                &one.what,
                format!("{} {}", one.run, one.what),
            )),
            _ => {}
        }
    }
    owned.sort_by(|one, other| one.lane.cmp(&other.lane));
    found.sort_by(|one, other| one.lane.cmp(&other.lane));
    let effects = verdict.ledger.iter().filter(|line| line.kind == "effect");
    let mut effects: Vec<Mark> = effects
        .map(|line| {
            let text = format!(
                "{} step {} attempt {}: {}",
                line.run, line.step, line.attempt, line.tool
            );
            moment(line.at, format!("effect: {}", line.tool), "effect", text)
        })
        .collect();
    effects.sort_by(|one, other| one.lane.cmp(&other.lane));
    marks.extend(owned);
    marks.extend(found);
    marks.extend(effects);
    marks
}

/// The stories of runs that something is wrong with, and of orphans of each kind.
fn stories(plan: &Plan, verdict: &Verdict) -> anyhow::Result<Vec<Story>> {
    let mut why: Vec<(String, String)> = Vec::new();
    for broken in verdict.violations() {
        why.push((
            broken.run.clone(),
            format!("{}: {}", broken.invariant, broken.text),
        ));
    }
    let mut ways = BTreeSet::new();
    for orphan in &verdict.checked.orphaned {
        let text = format!(
            "step {} attempt {}: {}",
            orphan.step,
            orphan.attempt,
            orphan.resolved.replace('_', " ")
        );
        // The first of each kind comes first.
        let at = if ways.insert(orphan.resolved) {
            why.len().min(ways.len() - 1)
        } else {
            why.len()
        };
        let at = at.max(verdict.violations().len().min(why.len()));
        why.insert(at, (orphan.run.clone(), text));
    }
    let mut told = BTreeSet::new();
    let mut stories = Vec::new();
    for (run, why) in why {
        if run.is_empty() || stories.len() == STORIES || !told.insert(run.clone()) {
            continue;
        }
        let lines = leasehold_checker::timeline(&plan.folder.dump(), &run)?;
        stories.push(Story { run, why, lines });
    }
    Ok(stories)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_nothing_but_itself_and_escapes_what_others_say() {
        for outside in ["http://", "https://", "src=", "<link", "@import", "<script"] {
            assert!(!PAGE.contains(outside), "{outside}");
        }
        let page = environment().unwrap();
        let page = page.get_template("report").unwrap().render(context! {
            report => context! { outcome => "held", runs => context! {}, effects => context! {}, resolved => context! {}, requests => context! {},
                complaints => ["<b>"], gaps => Vec::<String>::new(), faults => Vec::<String>::new() },
            lanes => ["node-1"], span => 10_000, healed => 5_000, began => 0, ends => context! {},
            marks => [Mark { lane: "node-1".to_owned(), from: 0, to: 2_000, kind: "fault".to_owned(), text: "F2 \"stop\"".to_owned() }],
            injected => Vec::<Injected>::new(), not_done => Vec::<Value>::new(), stories => Vec::<Story>::new(),
        });
        let page = page.unwrap();
        assert!(page.contains("&lt;b&gt;") && !page.contains("<b>"));
        assert!(
            page.contains("width=\"200.0\""),
            "a fault of 2 s in 10 s is a fifth of the chart"
        );
    }
}
