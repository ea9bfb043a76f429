//! Following one run, live: the watch tells what happens, the journal is the truth.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use leasehold_protocol::{RunId, RunState, StoredCommit};

use super::Context;
use crate::failure::{Exit, Failure};
use crate::say;
use crate::socket::client::{Client, Watch};
use crate::socket::wire::Happening;
use crate::timeline;
use crate::view::{QuestionView, RunView, code, questions};

/// How often the spinner turns.
const TURN: Duration = Duration::from_millis(100);

/// Stays until the run has ended or only an operator can move it, and tells what happens on the way.
pub(super) async fn until_parked_or_ended(
    context: Context<'_>,
    mut reader: Client,
    run: &RunId,
) -> Result<RunView, Failure> {
    let mut watch = Client::connect(context.place)
        .await?
        .watch(Some(run))
        .await?;
    let mut teller = Teller::new(context);
    let mut state = RunState::new(run.clone());
    let problem = reader.run(run).await?.and_then(|view| view.summary.problem);
    if let Some(why) = problem {
        return Err(left_alone(run, &why));
    }
    catch_up(&mut reader, &mut state, &mut teller).await?;
    while !is_over(&state) {
        next(&mut watch, &mut reader, &mut state, &mut teller).await?;
    }
    teller.finish(&state)?;
    Ok(RunView::of(run, &Ok(state)))
}

fn is_over(state: &RunState) -> bool {
    state.ended.is_some() || (state.parked && state.waits_for_operator())
}

async fn next(
    watch: &mut Watch,
    reader: &mut Client,
    state: &mut RunState,
    teller: &mut Teller<'_>,
) -> Result<(), Failure> {
    match watch.next().await? {
        Some(Happening::Committed { commit, .. }) => take(state, &commit, teller),
        Some(Happening::Missed { .. }) => catch_up(reader, state, teller).await,
        Some(Happening::Quarantined { run, why }) => Err(left_alone(&run, &why)),
        Some(Happening::Left { .. } | Happening::Subscribed) => Ok(()),
        None => {
            let text = format!(
                "`leasehold dev` has stopped; run {} goes on when it is started again",
                state.run
            );
            Err(Failure::new(Exit::NoRuntime, text))
        }
    }
}

async fn catch_up(
    reader: &mut Client,
    state: &mut RunState,
    teller: &mut Teller<'_>,
) -> Result<(), Failure> {
    let material = reader.material(&state.run).await?;
    for commit in material.iter().flat_map(|material| &material.commits) {
        take(state, commit, teller)?;
    }
    Ok(())
}

/// Commits are told in order; one that was read already comes again.
fn take(
    state: &mut RunState,
    commit: &StoredCommit,
    teller: &mut Teller<'_>,
) -> Result<(), Failure> {
    if commit.seq <= state.last {
        return Ok(());
    }
    state.apply(commit).map_err(Failure::broken)?;
    teller.tell(commit)
}

fn left_alone(run: &RunId, why: &str) -> Failure {
    Failure::broken(format!(
        "run {run} is left alone until `leasehold dev` is started again: {why}"
    ))
}

/// Tells progress: a spinner on a terminal, plain lines elsewhere, nothing where JSON is wanted.
struct Teller<'a> {
    context: Context<'a>,
    bar: Option<ProgressBar>,
}

impl<'a> Teller<'a> {
    fn new(context: Context<'a>) -> Self {
        let on_terminal = std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
        let bar = (!context.json && on_terminal).then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(TURN);
            bar
        });
        Self { context, bar }
    }

    fn tell(&mut self, commit: &StoredCommit) -> Result<(), Failure> {
        if self.context.json {
            return Ok(());
        }
        for entry in timeline::of_commit(commit) {
            match &self.bar {
                Some(bar) => {
                    bar.println(entry.line());
                    bar.set_message(entry.text);
                }
                None => say::line(&entry.line())?,
            }
        }
        Ok(())
    }

    fn finish(self, state: &RunState) -> Result<(), Failure> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if self.context.json {
            return Ok(());
        }
        let reason = state.ending.as_ref().map(|ending| code(&ending.reason));
        let reason = reason.map(|reason| format!(" ({reason})"));
        say::line(&format!(
            "{}{}",
            code(&state.status()),
            reason.unwrap_or_default()
        ))?;
        for question in questions(state)
            .iter()
            .filter(|question| question.is_open())
        {
            say::line(&format!(
                "{}: {}",
                question.approval,
                timeline::of_question(&question.question)
            ))?;
            tell_commands(self.context, question)?;
        }
        Ok(())
    }
}

/// What to type next.
pub(super) fn tell_commands(context: Context<'_>, question: &QuestionView) -> Result<(), Failure> {
    question
        .commands(&context.program())
        .iter()
        .try_for_each(|command| say::line(&format!("  {command}")))
}
