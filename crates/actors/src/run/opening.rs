//! The way into a run (lease, then journal) and out of it.

use std::sync::Arc;

use leasehold_protocol::{Body, RunId, Seq, SessionId, StopReason, StoredCommit};
use leasehold_store::{AppendError, LeaseRecord, StoreError};
use tokio::sync::Semaphore;

use super::RunMsg;
use crate::points::Point;
use crate::shared::{Backoff, Shared};

/// What an owner starts from.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The lease's revision; absent if the run has ended and none was taken.
    pub(super) lease: Option<Seq>,
    pub(super) commits: Vec<StoredCommit>,
    pub(super) submission: Option<(Seq, Body)>,
}

/// Takes the lease and reads the journal. `openings` bounds how many runs are opened side by side.
pub(super) async fn open(
    shared: Arc<Shared>,
    run: RunId,
    openings: Arc<Semaphore>,
    by_timer: bool,
) -> RunMsg {
    let Ok(_place) = openings.acquire().await else {
        return RunMsg::NotOurs(None, "the runtime stops".to_owned());
    };
    match try_open(&shared, &run, by_timer).await {
        Ok(message) => message,
        Err(error) => RunMsg::Broken(format!("the run could not be opened: {error}")),
    }
}

async fn try_open(shared: &Shared, run: &RunId, by_timer: bool) -> Result<RunMsg, StoreError> {
    if by_timer {
        // Before the machine can set another one.
        shared
            .ask("clear a timer", || shared.store.clear_timer(run))
            .await?;
    }
    let lease = match take_lease(shared, run).await? {
        Ok(revision) => revision,
        Err((holder, why)) => return Ok(RunMsg::NotOurs(holder, why)),
    };
    shared.reach(Point::R1, run, None).await;
    let commits = shared
        .ask("read a journal", || {
            shared.store.read_journal(run, Seq::NONE)
        })
        .await?;
    let submission = if commits.is_empty() {
        shared
            .ask("read a submission", || shared.store.submission(run))
            .await?
    } else {
        None
    };
    shared.reach(Point::R3, run, None).await;
    let submission = submission.map(|message| (message.seq, Body::from(&message.body[..])));
    Ok(RunMsg::Opened(Box::new(Opened {
        lease: Some(lease),
        commits,
        submission,
    })))
}

/// The lease's revision, or who holds it and why it was not taken.
async fn take_lease(
    shared: &Shared,
    run: &RunId,
) -> Result<Result<Seq, (Option<SessionId>, String)>, StoreError> {
    let mut backoff = Backoff::default();
    loop {
        let lease = shared
            .ask("read a lease", || shared.store.lease(run))
            .await?;
        if let Some(holder) = lease.record
            && holder.session != shared.session
            && shared
                .ask("look for a session", || {
                    shared.store.session_alive(&holder.session)
                })
                .await?
        {
            let why = format!("session {} holds the lease", holder.session);
            return Ok(Err((Some(holder.session), why)));
        }
        // The epoch is only shown; what fences is the journal.
        let record = LeaseRecord {
            session: shared.session.clone(),
            epoch: 0,
        };
        match shared
            .store
            .put_lease(run, lease.revision, Some(record))
            .await
        {
            Ok(revision) => return Ok(Ok(revision)),
            Err(AppendError::Never(error)) => return Ok(Err((None, error))),
            Err(error) => {
                tracing::debug!(%run, %error, "the lease was not taken; reading it again");
                backoff.wait(shared).await;
            }
        }
    }
}

/// Lets go of a run. Losing any of this is harmless: a lease of a dead session is taken over, a timer that finds nothing to do does
/// nothing.
pub(super) async fn release(
    shared: Arc<Shared>,
    run: RunId,
    lease: Option<Seq>,
    reason: StopReason,
    may_have_timer: bool,
) {
    let point = match reason {
        StopReason::Ended => Some(Point::R14),
        StopReason::Parked => Some(Point::R13),
        _ => None,
    };
    if let Some(point) = point {
        shared.reach(point, &run, None).await;
    }
    if !shared.authority.check() {
        return;
    }
    if reason == StopReason::Ended
        && may_have_timer
        && let Err(error) = shared.store.clear_timer(&run).await
    {
        tracing::debug!(%run, %error, "the timer of an ended run stays; it will find nothing to do");
    }
    if let Some(revision) = lease
        && let Err(error) = shared.store.put_lease(&run, revision, None).await
    {
        tracing::debug!(%run, %error, "the lease stays; it is as good as free");
    }
    if reason == StopReason::Released {
        // It has work to do, and nobody who does it.
        shared.store.wake(&run).await;
    }
}
