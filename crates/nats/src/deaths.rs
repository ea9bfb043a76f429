//! When a session counts as dead: never by silence of a watch, only by what the leader says.
//!
//! A mark in its place (its time has run out, or it ended in good order) is death at once. Otherwise the leader has to show the same
//! revision, or the same absence, twice, a time to live and a slack apart on this machine's boot clock: a living session renews at a third.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::kv::Operation;
use futures_util::StreamExt as _;
use leasehold_json::AcceptedJson;
use leasehold_protocol::{RunId, Seq, SessionId};
use leasehold_store::StoreError;
use tokio::sync::mpsc;

use crate::leases::is_mark;
use crate::session::{Record, session_key};
use crate::store::NatsStore;
use crate::streams::SESSIONS;

/// What is granted beyond the time to live before the same revision twice is death: an expiry takes the server up to a third of a second,
/// an election five to six.
const SLACK: Duration = Duration::from_secs(7);
/// Pause before a watch that ended is begun again.
const REWATCH: Duration = Duration::from_millis(500);
/// Ends of sessions that are looked into together.
const TOGETHER: usize = 1024;
/// Sessions that are remembered; the oldest knowledge is only a delay.
const KEPT: usize = 10_000;

/// What was seen of sessions that were not renewed yet.
#[derive(Default)]
pub(crate) struct Deaths(Mutex<HashMap<SessionId, (Seq, u64)>>);

impl Deaths {
    /// When, on the boot clock, this revision was seen first.
    fn first_seen(&self, session: &SessionId, revision: Seq, boot: u64) -> u64 {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= KEPT {
            seen.clear();
        }
        let entry = seen.entry(session.clone()).or_insert((revision, boot));
        if entry.0 != revision {
            *entry = (revision, boot);
        }
        entry.1
    }

    fn forget(&self, session: &SessionId) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(session);
    }
}

impl NatsStore {
    /// Whether the session counts as alive.
    pub(crate) async fn judge(&self, session: &SessionId) -> Result<bool, StoreError> {
        let last = self.wire().last(SESSIONS, &session_key(session)).await?;
        let (revision, ttl) = match &last {
            Some(stored) if is_mark(stored) => {
                self.inner.deaths.forget(session);
                return Ok(false);
            }
            Some(stored) => {
                let json = AcceptedJson::check(&stored.payload).ok();
                let record = json.and_then(|json| json.parse::<Record>().ok());
                (
                    stored.seq,
                    record.map_or(self.inner.longest_ttl, |record| record.ttl()),
                )
            }
            None => (Seq::NONE, self.inner.longest_ttl),
        };
        let boot = self.inner.clock.now().boot;
        let first = self.inner.deaths.first_seen(session, revision, boot);
        let bound = u64::try_from((ttl + SLACK).as_millis()).unwrap_or(u64::MAX);
        Ok(boot.saturating_sub(first) < bound)
    }

    /// Sends the runs that somebody wakes; each wake goes to one of the nodes.
    pub(crate) fn listen_for_wakes(&self, woken: mpsc::UnboundedSender<RunId>) {
        let client = self.wire().client.clone();
        self.spawn(async move {
            let wakes = client.queue_subscribe("lh.wake.*", "nodes".to_owned());
            let Ok(mut wakes) = wakes.await else { return };
            loop {
                let wake = tokio::select! {
                    // Nobody takes runs here any more: the next wake is for another node.
                    () = woken.closed() => return,
                    wake = wakes.next() => wake,
                };
                let Some(wake) = wake else { return };
                let token = wake.subject.as_str().rsplit('.').next().unwrap_or_default();
                let run = leasehold_tools::from_subject_token(token).ok();
                if let Some(run) = run.and_then(|run| RunId::new(run).ok())
                    && woken.send(run).is_err()
                {
                    return;
                }
            }
        });
    }

    /// Sends the runs of sessions whose end the bucket announces from now on.
    pub(crate) fn watch_deaths(&self, sender: mpsc::UnboundedSender<RunId>) {
        let inner = std::sync::Arc::downgrade(&self.inner);
        self.spawn(async move {
            loop {
                let Some(inner) = inner.upgrade() else { return };
                let store = NatsStore { inner };
                if let Err(error) = store.follow_deaths(&sender).await {
                    tracing::debug!(%error, "the watch of sessions ended; watching again");
                }
                drop(store);
                if sender.is_closed() {
                    return;
                }
                tokio::time::sleep(REWATCH).await;
            }
        });
    }

    async fn follow_deaths(
        &self,
        orphaned: &mpsc::UnboundedSender<RunId>,
    ) -> Result<(), StoreError> {
        let failed = |error: &dyn std::fmt::Display| StoreError::Unavailable(error.to_string());
        let bucket = SESSIONS.trim_start_matches("KV_");
        let bucket = self
            .wire()
            .jetstream
            .get_key_value(bucket)
            .await
            .map_err(|error| failed(&error))?;
        // What died before is in the last value of its key, and comes first, all at once: the leases are read once for all of them.
        let entries = bucket.watch_with_history(">").await;
        let mut entries = entries
            .map_err(|error| failed(&error))?
            .ready_chunks(TOGETHER);
        while let Some(chunk) = entries.next().await {
            let mut dead = HashSet::new();
            for entry in chunk {
                let entry = entry.map_err(|error| failed(&error))?;
                if entry.operation != Operation::Put {
                    let session = leasehold_tools::from_subject_token(&entry.key).ok();
                    dead.extend(session.and_then(|session| SessionId::new(session).ok()));
                }
            }
            if dead.is_empty() {
                continue;
            }
            for run in self.held_by(&dead).await? {
                if orphaned.send(run).is_err() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
