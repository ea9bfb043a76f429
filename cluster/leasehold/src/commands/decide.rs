//! `leasehold approve`, `reject`, `resolve`: an operator answers a question.
//!
//! The answer names the hash of everything that was shown, so it can never be taken for an answer to something else. On a terminal the
//! question is shown and confirmed; a script names the hash itself, which it has from `show --json` or `runs --json`.

use std::io::{BufRead as _, IsTerminal as _};

use leasehold_json::{AcceptedJson, Digest};
use leasehold_protocol::{
    ApprovalId, DecideRequest, Decision, InboxAnswer, Question, RunId, WIRE_VERSION,
};
use serde::Serialize;

use super::{By, Context, show};
use crate::failure::{Exit, Failure};
use crate::known_tools::KnownTools;
use crate::say;
use crate::socket::client::Client;
use crate::socket::wire::Answered;
use crate::view::{QuestionView, RunView, code};

/// Which question is answered, by whom, and how that is confirmed.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DecideArgs {
    /// The run
    #[arg(value_name = "RUN")]
    run: RunId,
    /// The question; may be left out if only one is open
    #[arg(value_name = "APPROVAL")]
    approval: Option<ApprovalId>,
    #[command(flatten)]
    by: By,
    /// Do not ask; needs --hash
    #[arg(long, requires = "hash")]
    yes: bool,
    /// The hash of the question that is answered; any other question is refused
    #[arg(long, value_name = "HEX")]
    hash: Option<Digest>,
}

/// Arguments of `leasehold resolve`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ResolveArgs {
    #[command(flatten)]
    decide: DecideArgs,
    #[command(flatten)]
    choice: Choice,
}

#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = false)]
struct Choice {
    /// One more attempt, although the earlier one may have acted
    #[arg(long)]
    run_again: bool,
    /// One more attempt, on the proof that the earlier one did not act
    #[arg(long = "continue")]
    go_on: bool,
    /// It happened; this is the result that the agent is told
    #[arg(long, value_name = "RESULT_JSON")]
    done: Option<String>,
    /// No further attempt; the run ends
    #[arg(long)]
    reject: bool,
}

impl ResolveArgs {
    /// The decision and the question it answers.
    pub(crate) fn parts(self) -> Result<(DecideArgs, Decision), Failure> {
        let choice = self.choice;
        let decision = match (choice.done, choice.run_again, choice.go_on) {
            (Some(text), ..) => Decision::RecordDone {
                result: AcceptedJson::check_str(&text).map_err(|error| {
                    Failure::usage(format!("--done: the result is no usable JSON: {error}"))
                })?,
            },
            (None, true, _) => Decision::RunAgain,
            (None, false, true) => Decision::Continue,
            (None, false, false) => Decision::Reject,
        };
        Ok((self.decide, decision))
    }
}

#[derive(Serialize)]
struct Said<'a> {
    run: &'a RunId,
    approval: &'a ApprovalId,
    hash: &'a Digest,
    decision: &'a Decision,
    #[serde(flatten)]
    answer: &'a Answered,
}

pub(crate) async fn run(
    context: Context<'_>,
    args: DecideArgs,
    decision: Decision,
) -> Result<Exit, Failure> {
    let mut client = Client::connect(context.place).await?;
    let view = client.run(&args.run).await?;
    let view = view.ok_or_else(|| Failure::usage(format!("there is no run {}", args.run)))?;
    let question = pick(&view, &args)?;
    if let Some(hash) = args.hash
        && hash != question.hash
    {
        let text = format!(
            "question {} of run {} has hash {}, not {hash}: it is not the question that was looked at; look again with `leasehold show`",
            question.approval, args.run, question.hash
        );
        return Err(Failure::usage(text));
    }
    if !offers(&question.question, &decision) {
        let text = format!(
            "question {} does not offer {}; it is answered by:\n  {}",
            question.approval,
            choice(&decision),
            question.commands(&context.program()).join("\n  ")
        );
        return Err(Failure::usage(text));
    }
    if !args.yes && !confirm(context, question, &decision).await? {
        return Err(Failure::usage("nothing was decided"));
    }
    let request = DecideRequest {
        v: WIRE_VERSION,
        approval: question.approval.clone(),
        hash: question.hash,
        decision,
        by: args.by.by,
        note: args.by.note,
    };
    let answer = client.decide(&args.run, &request).await?;
    if context.json {
        say::json(&Said {
            run: &args.run,
            approval: &request.approval,
            hash: &request.hash,
            decision: &request.decision,
            answer: &answer,
        })?;
    }
    conclude(context, &request, &answer)
}

fn conclude(
    context: Context<'_>,
    request: &DecideRequest,
    answer: &Answered,
) -> Result<Exit, Failure> {
    let (approval, said) = (&request.approval, choice(&request.decision));
    let text = match answer {
        Answered::Taken
        | Answered::Unused {
            why: InboxAnswer::Repeated,
        } => {
            format!(
                "question {approval}: {said}, recorded for {}",
                say::plain(request.by.as_str())
            )
        }
        Answered::Stored => {
            format!("question {approval}: {said} is stored and not read yet; it will be")
        }
        Answered::RunEnded => {
            return Err(Failure::usage(format!(
                "question {approval}: the run had ended before"
            )));
        }
        Answered::Unused { why } => {
            let why = match why {
                InboxAnswer::AlreadyDecided => "another decision came first".to_owned(),
                InboxAnswer::NoLongerAsked => "it is no longer asked".to_owned(),
                InboxAnswer::HashDiffers => "its hash is another one".to_owned(),
                other => format!("{other:?}"),
            };
            return Err(Failure::usage(format!(
                "question {approval}: {said} changed nothing: {why}; see `leasehold show`"
            )));
        }
    };
    if !context.json {
        say::line(&text)?;
    }
    Ok(Exit::Done)
}

/// The question that is meant: the one named, the one with the hash given, or the only open one.
fn pick<'a>(view: &'a RunView, args: &DecideArgs) -> Result<&'a QuestionView, Failure> {
    let run = &view.summary.run;
    let all = &view.questions;
    if let Some(approval) = &args.approval {
        let named = all.iter().find(|question| question.approval == *approval);
        let named = named.ok_or_else(|| {
            Failure::usage(format!(
                "run {run} has no question {approval}; see `leasehold show`"
            ))
        })?;
        // A script that repeats itself is answered like the first time.
        if named.is_open() || args.hash.is_some() {
            return Ok(named);
        }
        return Err(Failure::usage(format!(
            "question {approval} of run {run} is not open any more: {}",
            named.state
        )));
    }
    if let Some(hash) = &args.hash
        && let Some(meant) = all.iter().find(|question| question.hash == *hash)
    {
        return Ok(meant);
    }
    let mut open = all.iter().filter(|question| question.is_open());
    match (open.next(), open.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(Failure::usage(format!(
            "run {run} waits for no answer: it is {}",
            code(&view.summary.status)
        ))),
        (Some(_), Some(_)) => {
            let open = all.iter().filter(|question| question.is_open());
            let names: Vec<String> = open.map(|question| question.approval.to_string()).collect();
            Err(Failure::usage(format!(
                "run {run} waits for several answers, say which: {}",
                names.join(", ")
            )))
        }
    }
}

async fn confirm(
    context: Context<'_>,
    question: &QuestionView,
    decision: &Decision,
) -> Result<bool, Failure> {
    if context.json || !std::io::stdin().is_terminal() {
        let text = format!(
            "there is no terminal to ask on; look at the question with `leasehold show`, then add: --yes --hash {}",
            question.hash
        );
        return Err(Failure::usage(text));
    }
    show::tell_question(question, &KnownTools::of(context.place).await?)?;
    say::line(&format!("\n{}? Type yes to confirm:", choice(decision)))?;
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Failure::usage(format!("the answer cannot be read: {error}")))?;
    Ok(answer.trim() == "yes")
}

fn choice(decision: &Decision) -> &'static str {
    match decision {
        Decision::Approve => "approve",
        Decision::Reject => "reject",
        Decision::RunAgain => "run again",
        Decision::Continue => "continue",
        Decision::RecordDone { .. } => "record as done",
    }
}

/// Said before anything is stored: an answer is write-once, and one that is not offered would use it up.
fn offers(question: &Question, decision: &Decision) -> bool {
    match decision {
        Decision::Reject => true,
        Decision::Approve => is_permission(question),
        Decision::RunAgain => matches!(question, Question::InterruptedSideEffect { .. }),
        Decision::Continue => matches!(question, Question::Exhausted { .. }),
        Decision::RecordDone { .. } => !is_permission(question),
    }
}

/// Whether it is answered by approve and reject.
fn is_permission(question: &Question) -> bool {
    matches!(
        question,
        Question::Approve { .. } | Question::Quarantined { .. }
    )
}
