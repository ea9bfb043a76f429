//! The people around the runtime, played by two tasks that reach it over its socket only and outlive every kill of it.
//!
//! The client submits the runs in the order in which they arrive. The operator approves what the policy asks about, cancels what customers
//! take back, and decides about calls of which nobody can say what became of them, as a careful person would: with a look into the payments
//! database, and no second try before the first one can no longer act.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_actors::{Clock as _, SystemClock};
use leasehold_protocol::{
    CancelRequest, DecideRequest, Decision, OperatorId, Question, RunId, Submission, WIRE_VERSION,
};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use super::board::{Board, RECONNECT};
use super::books::Books;
use crate::place::Place;
use crate::socket::client::{Client, ClientError};
use crate::socket::wire::RefusalCode;
use crate::view::QuestionView;

/// How long after a question was asked a call may still act, in milliseconds: the longest timeout in the tools file, and half a second.
/// The question comes after the claim from which the timeout counts.
const STILL_ACTS_MS: i64 = 2_500;
/// How often the operator looks for something to do when nothing is heard.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long one request may take. The runtime answers an operator within 10 s, and nobody who is dead answers.
const ANSWER_WAIT: Duration = Duration::from_secs(15);

/// A connection that comes back.
struct Line {
    place: Arc<Place>,
    client: Option<Client>,
}

impl Line {
    fn new(place: Arc<Place>) -> Self {
        Self {
            place,
            client: None,
        }
    }

    /// Asks once; `None`: nobody has answered, and the same may be asked again.
    async fn ask<T>(
        &mut self,
        request: impl AsyncFnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> Option<Result<T, ClientError>> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(&self.place).await.ok()?,
        };
        match timeout(ANSWER_WAIT, request(&mut client)).await {
            Ok(answer @ (Ok(_) | Err(ClientError::Refused(_)))) => {
                self.client = Some(client);
                Some(answer)
            }
            Ok(Err(_)) | Err(_) => None,
        }
    }
}

/// What went wrong beside the job, in sentences.
#[derive(Debug, Clone, Default)]
pub(super) struct Troubles(Arc<Mutex<Vec<String>>>);

impl Troubles {
    pub(super) fn add(&self, trouble: String) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(trouble);
    }

    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Submits what arrives, in order, each until it is taken.
pub(super) async fn client(
    place: Arc<Place>,
    mut arrivals: UnboundedReceiver<Submission>,
    board: Board,
    troubles: Troubles,
) {
    let mut line = Line::new(place);
    while let Some(submission) = arrivals.recv().await {
        loop {
            match line
                .ask(async |client| client.submit(&submission).await)
                .await
            {
                Some(Ok(receipt)) => {
                    board.entered(&receipt.run);
                    break;
                }
                Some(Err(ClientError::Refused(refusal))) if !may_pass(refusal.code) => {
                    troubles.add(format!("run {} was not taken: {refusal}", submission.run));
                    break;
                }
                // The same submission again means the same run.
                _ => tokio::time::sleep(RECONNECT).await,
            }
        }
    }
}

/// Whether the same request may be answered otherwise later.
fn may_pass(code: RefusalCode) -> bool {
    matches!(
        code,
        RefusalCode::Unknown | RefusalCode::Store | RefusalCode::UnknownRun
    )
}

/// What customers take back and nobody has told the runtime yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Withdrawals(Arc<Mutex<BTreeSet<RunId>>>);

impl Withdrawals {
    pub(super) fn add(&self, run: RunId) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(run);
    }

    fn all(&self) -> Vec<RunId> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .cloned()
            .collect()
    }

    fn done(&self, run: &RunId) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(run);
    }
}

/// The operator.
pub(super) struct Operator {
    line: Line,
    books: PathBuf,
    board: Board,
    withdrawals: Withdrawals,
    troubles: Troubles,
    me: OperatorId,
}

impl Operator {
    pub(super) fn new(
        place: Arc<Place>,
        books: PathBuf,
        board: Board,
        withdrawals: Withdrawals,
        troubles: Troubles,
        me: OperatorId,
    ) -> Self {
        Self {
            line: Line::new(place),
            books,
            board,
            withdrawals,
            troubles,
            me,
        }
    }

    /// Works for ever.
    pub(super) async fn work(mut self) {
        let mut changes = self.board.changes();
        loop {
            let cancelled = self.cancel_all().await;
            let decided = self.decide_all().await;
            let pause = if cancelled && decided {
                LOOK_AGAIN
            } else {
                RECONNECT
            };
            let _ = timeout(pause, changes.changed()).await;
        }
    }

    /// Tells the runtime what was withdrawn. Whether it listened.
    async fn cancel_all(&mut self) -> bool {
        for run in self.withdrawals.all() {
            let note = Some("the customer took the request back".to_owned());
            let request = CancelRequest {
                v: WIRE_VERSION,
                by: self.me.clone(),
                note,
            };
            match self
                .line
                .ask(async |client| client.cancel(&run, &request).await)
                .await
            {
                Some(Ok(_)) => self.withdrawals.done(&run),
                Some(Err(ClientError::Refused(refusal))) if may_pass(refusal.code) => {}
                Some(Err(error)) => {
                    self.troubles
                        .add(format!("run {run} could not be cancelled: {error}"));
                    self.withdrawals.done(&run);
                }
                None => return false,
            }
        }
        true
    }

    /// Answers what can be answered now. Whether the runtime listened.
    async fn decide_all(&mut self) -> bool {
        for run in self.board.look(|seen| seen.asking()) {
            let view = match self.line.ask(async |client| client.run(&run).await).await {
                Some(Ok(Some(view))) => view,
                Some(_) => continue,
                None => return false,
            };
            for question in view.questions.iter().filter(|question| question.is_open()) {
                match self.decision(question).await {
                    Ok(Some(decision)) => {
                        if !self.decide(question, decision).await {
                            return false;
                        }
                    }
                    Ok(None) => {}
                    // The service is being killed just now, perhaps: the books can be read in a moment.
                    Err(error) => tracing::debug!(%error, "the books could not be read"),
                }
            }
        }
        true
    }

    async fn decide(&mut self, question: &QuestionView, decision: Decision) -> bool {
        let request = DecideRequest {
            v: WIRE_VERSION,
            approval: question.approval.clone(),
            hash: question.hash,
            decision,
            by: self.me.clone(),
            note: None,
        };
        match self
            .line
            .ask(async |client| client.decide(&question.run, &request).await)
            .await
        {
            None => return false,
            Some(Ok(_)) => {}
            // Told before, and the answer was lost with the runtime: the first word counts.
            Some(Err(ClientError::Refused(refusal)))
                if may_pass(refusal.code) || refusal.code == RefusalCode::SaidOtherwise => {}
            Some(Err(error)) => {
                self.troubles.add(format!(
                    "question {} of run {} could not be answered: {error}",
                    question.approval, question.run
                ));
            }
        }
        true
    }

    /// What to answer; `None`: not yet.
    async fn decision(&self, question: &QuestionView) -> anyhow::Result<Option<Decision>> {
        match question.question {
            Question::Approve { .. } | Question::Quarantined { .. } => Ok(Some(Decision::Approve)),
            Question::Exhausted { .. } => Ok(Some(Decision::Continue)),
            Question::InterruptedSideEffect { .. } => {
                let (books, question) = (self.books.clone(), question.clone());
                tokio::task::spawn_blocking(move || look_it_up(&books, &question)).await?
            }
        }
    }
}

/// Whether the call has had its effect, by the service's own books.
fn look_it_up(books: &Path, question: &QuestionView) -> anyhow::Result<Option<Decision>> {
    let books = Books::open(books)?;
    let run = question.run.as_str();
    let Some(step) = question.step.map(|step| step.to_string()) else {
        return Ok(None);
    };
    // The clock first: whatever is not in the books afterwards was not there at that moment.
    let now = SystemClock.now().wall;
    let deadline = books.deadline(run, &step)?.unwrap_or(i64::MIN);
    if let Some(result) = books.effect(&question.tool, run, &step)? {
        return Ok(Some(Decision::RecordDone { result }));
    }
    let may_still_act = now
        < question
            .asked_at
            .saturating_add(STILL_ACTS_MS)
            .max(deadline);
    Ok((!may_still_act).then_some(Decision::RunAgain))
}

#[cfg(test)]
mod tests;
