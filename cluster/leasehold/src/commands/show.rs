//! `leasehold show`: one run, with its timeline, its evidence and what to type next.

use leasehold_protocol::{Payload, RunId};
use serde::Serialize;

use super::{Context, wait};
use crate::failure::{Exit, Failure};
use crate::known_tools::KnownTools;
use crate::say;
use crate::source::Source;
use crate::timeline::{self, Entry};
use crate::view::{QuestionView, RunView, code};

/// Arguments of `leasehold show`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ShowArgs {
    /// The run
    #[arg(value_name = "RUN")]
    run: RunId,
}

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    view: RunView,
    timeline: Vec<Entry>,
}

pub(crate) async fn run(context: Context<'_>, args: ShowArgs) -> Result<Exit, Failure> {
    let mut source = Source::open(context.place).await?;
    let problem = match &mut source {
        Source::Live(client) => client
            .run(&args.run)
            .await?
            .and_then(|view| view.summary.problem),
        Source::Folder(_) => None,
    };
    let material = source.material(context.place, &args.run).await?;
    let tools = KnownTools::of(context.place).await?;
    let mut view = RunView::of(&args.run, &material.state());
    view.summary.problem = view.summary.problem.or(problem);
    let timeline = timeline::of_run(&material, &|name| tools.class(name));
    if context.json {
        say::json(&Shown { view, timeline })?;
        return Ok(Exit::Done);
    }
    head(&view)?;
    say::line("")?;
    for entry in &timeline {
        say::line(&entry.line())?;
    }
    for question in view.questions.iter().filter(|question| question.is_open()) {
        say::line("")?;
        tell_question(question, &tools)?;
        say::line("to answer:")?;
        wait::tell_commands(context, question)?;
    }
    Ok(Exit::Done)
}

fn head(view: &RunView) -> Result<(), Failure> {
    let run = &view.summary;
    let mut status = code(&run.status);
    if let Some(reason) = &run.reason {
        status = format!("{status} ({})", code(reason));
    }
    if let Some(on) = &run.waiting_on {
        status = format!("{status} ({}, question {})", on.kind, on.approval);
    }
    field("run", run.run.as_str())?;
    field("status", &status)?;
    if let Some(problem) = &run.problem {
        field("problem", problem)?;
    }
    if let Some(detail) = &run.detail {
        field("detail", detail)?;
    }
    field("goal", &run.goal)?;
    field("agent", &run.agent)?;
    field("tools", &view.tools.join(", "))?;
    field("takeovers", &run.takeovers.to_string())?;
    match &view.result {
        Some(Payload::Json(json)) => field("result", json.as_str())?,
        Some(Payload::Blob { sha256, size }) => {
            field("result", &format!("{size} bytes in blob {sha256}"))?;
        }
        None => {}
    }
    for step in &view.in_flight {
        field(
            "in flight",
            &format!(
                "step {} attempt {}: {}",
                step.step,
                step.attempt,
                code(&step.fate)
            ),
        )?;
    }
    for void in &view.void {
        field("void", void)?;
    }
    Ok(())
}

fn field(name: &str, value: &str) -> Result<(), Failure> {
    say::line(&format!("{:<11}{}", format!("{name}:"), say::plain(value)))
}

/// Everything that an answer is bound to.
pub(super) fn tell_question(question: &QuestionView, tools: &KnownTools) -> Result<(), Failure> {
    use leasehold_protocol::Question;
    let spec = tools.get(&question.tool);
    field("question", question.approval.as_str())?;
    field("run", question.run.as_str())?;
    if let Some(step) = question.step {
        field("step", &step.to_string())?;
    }
    match &question.question {
        Question::Approve {
            approval_kind,
            capability,
            presentation,
        } => {
            field("asks", &format!("{capability} ({approval_kind})"))?;
            field("shows", presentation.as_str())?;
        }
        Question::InterruptedSideEffect { attempt, evidence } => {
            field(
                "asks",
                &format!("interrupted_side_effect: attempt {attempt} may have acted"),
            )?;
            for line in evidence {
                field("evidence", line)?;
            }
        }
        Question::Exhausted { attempt, fact } => {
            field(
                "asks",
                &format!("exhausted: attempt {attempt} did not act, go on?"),
            )?;
            field("evidence", fact)?;
        }
        Question::Quarantined { lost } => {
            let asks = "quarantined: owner after owner was lost right after it took the run; approve: try once more, reject: end it";
            field("asks", asks)?;
            for owner in lost {
                let line = format!(
                    "{}  node {}, session {}",
                    say::utc(owner.at),
                    owner.node,
                    owner.session
                );
                field("lost", &line)?;
            }
        }
    }
    if question.step.is_some() {
        field("tool", &question.tool)?;
        let class = spec.map(|spec| spec.side_effect.as_str());
        field(
            "class",
            class.unwrap_or("unknown: nobody registered this tool here"),
        )?;
        let arguments = question.arguments.as_ref().map(|json| json.as_str());
        field("arguments", arguments.unwrap_or_default())?;
    }
    if let Some(at) = question.expires_at {
        field("until", &say::utc(at))?;
    }
    field("hash", &question.hash.to_string())
}
