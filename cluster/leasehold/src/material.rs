//! Everything stored about one run, as stored: what `show`, `verify` and the lists are computed from, whether it comes over the socket or
//! straight from the data folder.

use std::collections::BTreeMap;

use leasehold_protocol::{
    ChainKey, ChainMessage, FoldError, JournalSubject, NoteMessage, RunId, RunState, Seq,
    StoredCommit,
};
use leasehold_store::{Backend, StoreError};
use serde::{Deserialize, Serialize};

/// Runs that are read from the store's list at a time.
const PAGE: usize = 256;

/// See the module.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Material {
    pub(crate) run: RunId,
    /// The journal, in order of position.
    pub(crate) commits: Vec<StoredCommit>,
    /// Its attempts, in order of dispatch.
    pub(crate) chains: Vec<ChainMaterial>,
}

/// What stands beside the journal about one attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ChainMaterial {
    pub(crate) chain: ChainKey,
    /// Call, claims and outcomes, in order of position.
    pub(crate) messages: Vec<ChainMessage>,
    pub(crate) notes: Vec<NoteMessage>,
}

impl Material {
    /// Everything about the run; absent if nobody submitted it.
    pub(crate) async fn read(store: &dyn Backend, run: &RunId) -> Result<Option<Self>, StoreError> {
        let Some(mut material) = Self::journal(store, run).await? else {
            return Ok(None);
        };
        let calls = material
            .commits
            .iter()
            .filter_map(|commit| match &commit.subject {
                JournalSubject::Call(chain) => Some(chain.clone()),
                _ => None,
            });
        for chain in calls.collect::<Vec<_>>() {
            let messages = store.read_chain(&chain).await?;
            let notes = store.read_notes(&chain).await?;
            material.chains.push(ChainMaterial {
                chain,
                messages,
                notes,
            });
        }
        Ok(Some(material))
    }

    /// The journal alone: enough for lists and questions.
    pub(crate) async fn journal(
        store: &dyn Backend,
        run: &RunId,
    ) -> Result<Option<Self>, StoreError> {
        let commits = store.read_journal(run, Seq::NONE).await?;
        if commits.is_empty() && store.submission(run).await?.is_none() {
            return Ok(None);
        }
        Ok(Some(Self {
            run: run.clone(),
            commits,
            chains: Vec::new(),
        }))
    }

    /// What is true of the run.
    pub(crate) fn state(&self) -> Result<RunState, FoldError> {
        RunState::fold(self.run.clone(), &self.commits)
    }

    /// The chains in the form that the invariants are checked on.
    pub(crate) fn by_chain(&self) -> BTreeMap<ChainKey, Vec<ChainMessage>> {
        let pairs = self.chains.iter();
        pairs
            .map(|chain| (chain.chain.clone(), chain.messages.clone()))
            .collect()
    }
}

/// Every run that has a journal, in order of id.
pub(crate) async fn all_runs(store: &dyn Backend) -> Result<Vec<RunId>, StoreError> {
    let mut runs: Vec<RunId> = Vec::new();
    loop {
        let page = store.runs(runs.last(), PAGE).await?;
        let full = page.len() == PAGE;
        runs.extend(page.into_iter().map(|head| head.run));
        if !full {
            return Ok(runs);
        }
    }
}
