//! What every actor of one runtime shares: the store, the clocks, the registries, and how a store that does not answer is asked again.

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use leasehold_agents::Agents;
use leasehold_json::AcceptedJson;
use leasehold_protocol::{
    ChainKey, ClusterId, MAX_INLINE, NodeId, Payload, Policy, RunConfig, RunId, RunWeakening,
    SessionId, StopReason, StoredCommit, WorkerIdentity,
};
use leasehold_store::{Authority, Backend, Clock, Logbook, StoreError};
use leasehold_tools::Registry;
use tokio::sync::broadcast;

use crate::hook::TakeoverHook;
use crate::ids::Ids;
use crate::points::{Point, Points, reach};
use crate::recorder::Recorder;
use crate::tasks::Tasks;

/// First wait before something is tried again. Writers of the embedded store group within about a millisecond.
const FIRST_WAIT: Duration = Duration::from_millis(2);
/// Longest wait between two tries: an operator who has repaired the store should not wait for the runtime.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// What happens to runs, as it happens. For showing and waiting; the journal is the truth.
#[derive(Debug, Clone)]
pub enum Progress {
    /// A commit is stored.
    Committed {
        /// The run.
        run: RunId,
        /// The commit, as stored.
        commit: StoredCommit,
    },
    /// The run's actor is gone and its lease released.
    Left {
        /// The run.
        run: RunId,
        /// Why.
        reason: StopReason,
    },
    /// The run's actor failed too often, or its journal cannot be read: it is left alone until the process is started again.
    Quarantined {
        /// The run.
        run: RunId,
        /// Why.
        why: String,
    },
}

impl Progress {
    /// The run that it is about.
    pub fn run(&self) -> &RunId {
        match self {
            Progress::Committed { run, .. }
            | Progress::Left { run, .. }
            | Progress::Quarantined { run, .. } => run,
        }
    }
}

/// See the module.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Backend>,
    pub(crate) tools: Arc<Registry>,
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) agents: Agents,
    pub(crate) hook: Option<Arc<dyn TakeoverHook>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn Ids>,
    pub(crate) authority: Arc<dyn Authority>,
    pub(crate) points: Arc<dyn Points>,
    pub(crate) recorder: Arc<dyn Recorder>,
    pub(crate) cluster: ClusterId,
    pub(crate) session: SessionId,
    pub(crate) clock_bound_ms: u64,
    pub(crate) session_ttl_ms: u64,
    pub(crate) weakening: RunWeakening,
    pub(crate) progress: broadcast::Sender<Progress>,
    pub(crate) machines: AtomicU64,
    pub(crate) tasks: Tasks,
}

/// What only a process with a worker has, beside what everybody shares.
pub(crate) struct WorkerSide {
    pub(crate) shared: Arc<Shared>,
    pub(crate) identity: WorkerIdentity,
    pub(crate) logbook: Arc<dyn Logbook>,
}

impl Deref for WorkerSide {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Shared {
    pub(crate) fn run_config(&self, node: NodeId) -> RunConfig {
        RunConfig {
            cluster: self.cluster.clone(),
            node,
            session: self.session.clone(),
            tools: self.tools.clone(),
            clock_bound_ms: self.clock_bound_ms,
            session_ttl_ms: self.session_ttl_ms,
            hook: self.hook.is_some(),
            weakening: self.weakening,
        }
    }

    pub(crate) fn tell(&self, progress: Progress) {
        // Nobody listens: nothing is lost.
        let _ = self.progress.send(progress);
    }

    pub(crate) async fn reach(&self, point: Point, run: &RunId, chain: Option<&ChainKey>) {
        reach(&*self.points, point, run, chain).await;
    }

    /// Asks the store until it answers. Ends early only with an error that another try cannot change; a store that refuses writes ends this
    /// process's authority as well.
    pub(crate) async fn ask<T, F>(
        &self,
        what: &str,
        mut question: impl FnMut() -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut backoff = Backoff::default();
        loop {
            match question().await {
                Ok(answer) => return Ok(answer),
                Err(StoreError::Unavailable(error)) => {
                    tracing::warn!(what, error, "the store does not answer; asking again");
                    backoff.wait(self).await;
                }
                Err(error) => {
                    if let StoreError::Refuses(why) = &error {
                        self.authority.lose(why);
                    }
                    tracing::error!(what, %error, "the store cannot answer");
                    return Err(error);
                }
            }
        }
    }

    /// A value that can stand in a record: itself, or where it lies.
    pub(crate) async fn payload(&self, json: AcceptedJson) -> Result<Payload, StoreError> {
        let size = json.as_bytes().len();
        if size <= MAX_INLINE {
            return Ok(Payload::Json(json));
        }
        let bytes = bytes::Bytes::copy_from_slice(json.as_bytes());
        let sha256 = self
            .ask("store a large value", || self.store.put_blob(bytes.clone()))
            .await?;
        Ok(Payload::Blob {
            sha256,
            size: size as u64,
        })
    }
}

/// Longest text of foreign code (a tool's error, a panic, an agent's, a probe's) that a record holds, in characters. It stands in a register,
/// in a note, in commits and in a question at once; a record has to fit every backend's largest message, or it could never be written.
const MAX_SAID: usize = 8 * 1024;

/// What foreign code said, as far as a record holds it.
pub(crate) fn said(text: String) -> String {
    if text.len() <= MAX_SAID {
        return text;
    }
    leasehold_tools::cut_text(&text, MAX_SAID)
}

/// Waits that double, each cut at random, so that many who failed together do not come back together.
#[derive(Debug, Default)]
pub(crate) struct Backoff(u32);

impl Backoff {
    /// As long as after so many failures.
    pub(crate) fn after(failures: u32) -> Self {
        Self(failures)
    }

    pub(crate) async fn wait(&mut self, shared: &Shared) {
        let longest = FIRST_WAIT
            .saturating_mul(1 << self.0.min(16))
            .min(LONGEST_WAIT);
        self.0 = self.0.saturating_add(1);
        tokio::time::sleep(jittered(longest, shared.ids.bits())).await;
    }
}

/// Between half of it and all of it.
pub(crate) fn jittered(longest: Duration, bits: u64) -> Duration {
    let part = (bits % 1024) as u32;
    longest / 2 + longest / 2048 * part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jittered_wait_is_between_half_and_all() {
        let second = Duration::from_secs(1);
        for bits in [0, 1, 511, 1023, 1024, u64::MAX] {
            let wait = jittered(second, bits);
            assert!(wait >= second / 2 && wait <= second, "{bits}: {wait:?}");
        }
        assert!(jittered(second, 0) < jittered(second, 1023));
    }
}
