//! What operators and readers ask of a runtime: decide, cancel, look, wait.

use std::time::Duration;

use bytes::Bytes;
use leasehold_protocol::{
    CancelRequest, Commit, DecideRequest, Event, FoldError, InboxAnswer, JournalSubject, RunId,
    RunState, Seq, StoredCommit,
};
use leasehold_store::{InboxKind, RunHead, StoreError, SubmitError};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use crate::runtime::Runtime;
use crate::shared::Progress;

/// How long an operator's command waits to see what became of it. A node folds within milliseconds; beyond this something else is wrong,
/// and the message stays in the inbox all the same.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// What became of an operator's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It has force: a commit of the run took it in.
    Taken,
    /// It changed nothing, and this is why.
    Answered(InboxAnswer),
    /// The run had ended before it was read.
    RunEnded,
    /// It is stored and not read yet: it will be.
    Waiting,
}

/// Why an operator's message was not taken.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// Nobody submitted such a run.
    #[error("there is no run {0}")]
    UnknownRun(RunId),
    /// The same operator has said something else before: the first word counts.
    #[error(
        "the operator has already answered with something else (inbox position {0}); the first answer counts"
    )]
    SaidOtherwise(Seq),
    /// It can never be stored.
    #[error("not stored: {0}")]
    Never(String),
    /// Stored or not, nobody knows.
    #[error("nobody knows whether it was stored: {0}; send exactly the same again")]
    Unknown(String),
    /// The run could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Why a run cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The store could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its journal cannot be folded.
    #[error("the journal of run {run} cannot be read: {error}")]
    Journal {
        /// The run.
        run: RunId,
        /// Why.
        error: Box<FoldError>,
    },
    /// The run's actor failed too often.
    #[error("run {run} is left alone until the process is started again: {why}")]
    Quarantined {
        /// The run.
        run: RunId,
        /// Why.
        why: String,
    },
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The run has ended.
    Ended,
    /// The run has ended, or only an operator or time can move it.
    Parked,
}

impl Runtime {
    /// Stores an operator's decision and waits, within a bound, for what becomes of it. An exact repeat means the first one.
    pub async fn decide(
        &self,
        run: &RunId,
        request: &DecideRequest,
    ) -> Result<Answer, CommandError> {
        let kind = InboxKind::Decide(request.approval.clone(), request.by.clone());
        self.send(run, kind, request.encode()).await
    }

    /// Stores an operator's wish that the run ends, and waits, within a bound, until it is taken in.
    pub async fn cancel(
        &self,
        run: &RunId,
        request: &CancelRequest,
    ) -> Result<Answer, CommandError> {
        self.send(run, InboxKind::Cancel(request.by.clone()), request.encode())
            .await
    }

    async fn send(
        &self,
        run: &RunId,
        kind: InboxKind,
        body: Vec<u8>,
    ) -> Result<Answer, CommandError> {
        let known = self
            .shared
            .store
            .submission(run)
            .await
            .map_err(ReadError::Store)?;
        if known.is_none() {
            return Err(CommandError::UnknownRun(run.clone()));
        }
        let mut events = self.watch();
        let inbox = match self.shared.store.put(run, kind, Bytes::from(body)).await {
            Ok(inbox) => inbox,
            Err(SubmitError::Exists { seq, .. }) => return Err(CommandError::SaidOtherwise(seq)),
            Err(SubmitError::Never(error)) => return Err(CommandError::Never(error)),
            Err(SubmitError::Unknown(error)) => return Err(CommandError::Unknown(error)),
        };
        match timeout(ANSWER_WAIT, self.answer(run, inbox, &mut events)).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Ok(Answer::Waiting),
        }
    }

    async fn answer(
        &self,
        run: &RunId,
        inbox: Seq,
        events: &mut Receiver<Progress>,
    ) -> Result<Answer, ReadError> {
        loop {
            let commits = self.shared.store.read_journal(run, Seq::NONE).await?;
            if let Some(answer) = commits.iter().find_map(|commit| answer_in(commit, inbox)) {
                return Ok(answer);
            }
            if commits
                .last()
                .is_some_and(|commit| commit.subject == JournalSubject::End)
            {
                return Ok(Answer::RunEnded);
            }
            if !next(events, run, |_| true).await? {
                return Ok(Answer::Waiting);
            }
        }
    }

    /// What is true of a run; absent if nobody submitted it. A run whose submission no node has taken in yet has no commits.
    pub async fn state(&self, run: &RunId) -> Result<Option<RunState>, ReadError> {
        let commits = self.shared.store.read_journal(run, Seq::NONE).await?;
        if commits.is_empty() && self.shared.store.submission(run).await?.is_none() {
            return Ok(None);
        }
        let folded = RunState::fold(run.clone(), &commits);
        folded.map(Some).map_err(|error| ReadError::Journal {
            run: run.clone(),
            error: Box::new(error),
        })
    }

    /// The run's commits, in order.
    pub async fn journal(&self, run: &RunId) -> Result<Vec<StoredCommit>, ReadError> {
        Ok(self.shared.store.read_journal(run, Seq::NONE).await?)
    }

    /// Up to `limit` runs after `after`, in order of id.
    pub async fn runs(
        &self,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunHead>, ReadError> {
        Ok(self.shared.store.runs(after, limit).await?)
    }

    /// Waits until the run has ended, or parked. Returns its state then; absent if nobody submitted it.
    pub async fn wait(&self, run: &RunId, until: Until) -> Result<Option<RunState>, ReadError> {
        let mut events = self.watch();
        loop {
            let Some(state) = self.state(run).await? else {
                return Ok(None);
            };
            if state.ended.is_some() || (until == Until::Parked && state.parked) {
                return Ok(Some(state));
            }
            if let Some(why) = self.status().await.quarantined.remove(run) {
                return Err(ReadError::Quarantined {
                    run: run.clone(),
                    why,
                });
            }
            // A machine that parks or ends its run is done, and its actor leaves.
            if !next(&mut events, run, |event| {
                matches!(event, Progress::Left { .. })
            })
            .await?
            {
                return Ok(Some(state));
            }
        }
    }
}

/// Waits for the next event of the run that `wanted` names. Whether there will be more.
async fn next(
    events: &mut Receiver<Progress>,
    run: &RunId,
    wanted: impl Fn(&Progress) -> bool,
) -> Result<bool, ReadError> {
    loop {
        match events.recv().await {
            Ok(Progress::Quarantined { run: left, why }) if left == *run => {
                return Err(ReadError::Quarantined { run: left, why });
            }
            Ok(event) if event.run() == run && wanted(&event) => return Ok(true),
            Ok(_) => {}
            // Whatever was missed stands in the journal.
            Err(RecvError::Lagged(_)) => return Ok(true),
            Err(RecvError::Closed) => return Ok(false),
        }
    }
}

fn answer_in(stored: &StoredCommit, wanted: Seq) -> Option<Answer> {
    // What cannot be read is shown by the fold; here it answers nothing.
    let commit = Commit::decode(stored.body.as_bytes()).ok()?;
    commit.events.into_iter().find_map(|event| match event {
        Event::ApprovalDecided { inbox, .. } | Event::CancelRequested { inbox, .. }
            if inbox == wanted =>
        {
            Some(Answer::Taken)
        }
        Event::Answered { inbox, answer } if inbox == wanted => Some(Answer::Answered(answer)),
        _ => None,
    })
}
