//! Pulling: a call is taken from the queue only when there is room for it.
//!
//! Tools without a concurrency key share one loop: slot first, then pull. Each concurrency key has a loop of its own: a place under the
//! key first, then pull, then a slot; so a key that is full holds no slot and pulls nothing, and at most one of its calls waits in memory.
//! Where the store says that several calls are better waited for at once, the shared loop is there several times.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_protocol::ChainKey;
use leasehold_tools::Registry;
use ractor::ActorRef;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::WorkerMsg;
use super::actor::hand_over;
use crate::shared::{Backoff, WorkerSide};
use crate::tasks::Tasks;

/// At most this part of the slots waits for calls of tools without a key; the others are there for calls of tools with one.
const WAITING_PART: usize = 4;

/// The places that a call takes while it is in hand.
#[derive(Debug)]
pub(crate) struct Places {
    _slot: OwnedSemaphorePermit,
    _key: Option<OwnedSemaphorePermit>,
}

/// Tools that are pulled together.
#[derive(Clone)]
struct Group {
    tools: Vec<String>,
    /// The bound of their key.
    most: Option<usize>,
}

/// First settles what a predecessor left, then pulls for as long as `pulling` lasts.
pub(super) fn start(
    shared: Arc<WorkerSide>,
    worker: ActorRef<WorkerMsg>,
    slots: usize,
    pulling: Tasks,
) {
    let callers = shared.store.callers().min(slots / WAITING_PART).max(1);
    let slots = Arc::new(Semaphore::new(slots.max(1)));
    let loops = pulling.clone();
    pulling.spawn(async move {
        for chain in left_open(&shared).await {
            let _ = worker.cast(WorkerMsg::Resolve(chain));
        }
        for group in groups(&shared.tools) {
            let callers = if group.most.is_none() { callers } else { 1 };
            for _ in 0..callers {
                let group = group.clone();
                loops.spawn(pull(shared.clone(), worker.clone(), slots.clone(), group));
            }
        }
    });
}

/// The attempts of earlier lives that are not settled. A logbook that cannot be read knows nothing, and says so when it is asked.
async fn left_open(shared: &WorkerSide) -> Vec<ChainKey> {
    match shared.logbook.open_attempts().await {
        Ok(open) => open.into_iter().map(|(chain, _)| chain).collect(),
        Err(error) => {
            tracing::error!(%error, "what an earlier life of this worker left open cannot be listed; it is settled when a run's owner asks");
            Vec::new()
        }
    }
}

/// The names of the tools that a worker with these tools pulls together, pool by pool. One that is served elsewhere is in none.
pub fn pools(tools: &Registry) -> Vec<Vec<String>> {
    groups(tools).into_iter().map(|group| group.tools).collect()
}

fn groups(tools: &Registry) -> Vec<Group> {
    let mut free = Group {
        tools: Vec::new(),
        most: None,
    };
    let mut keyed: BTreeMap<&str, Group> = BTreeMap::new();
    for tool in tools.iter() {
        let spec = tool.spec();
        if tools.implementation(&spec.name).is_none() {
            continue;
        }
        match (&spec.concurrency_key, spec.max_concurrency) {
            (key, Some(most)) => {
                // A bound without a key is the tool's own.
                let key = key.as_deref().unwrap_or(&spec.name);
                let most = most as usize;
                let group = keyed.entry(key).or_insert(Group {
                    tools: Vec::new(),
                    most: Some(most),
                });
                group.most = group.most.map(|other| other.min(most));
                group.tools.push(spec.name.clone());
            }
            (_, None) => free.tools.push(spec.name.clone()),
        }
    }
    std::iter::once(free)
        .chain(keyed.into_values())
        .filter(|group| !group.tools.is_empty())
        .collect()
}

async fn pull(
    shared: Arc<WorkerSide>,
    worker: ActorRef<WorkerMsg>,
    slots: Arc<Semaphore>,
    group: Group,
) {
    let key = group.most.map(|most| Arc::new(Semaphore::new(most)));
    let mut backoff = Backoff::default();
    loop {
        let (mut slot, mut place) = (None, None);
        match &key {
            Some(key) => place = key.clone().acquire_owned().await.ok(),
            None => slot = slots.clone().acquire_owned().await.ok(),
        }
        match shared.store.next_call(&group.tools).await {
            Ok(delivery) => {
                backoff = Backoff::default();
                if slot.is_none() {
                    slot = slots.clone().acquire_owned().await.ok();
                }
                // The semaphores are never closed.
                let Some(slot) = slot else { return };
                hand_over(
                    &shared,
                    &worker,
                    delivery,
                    Places {
                        _slot: slot,
                        _key: place,
                    },
                )
                .await;
            }
            Err(error) => {
                tracing::warn!(%error, "no call could be pulled; trying again");
                backoff.wait(&shared).await;
            }
        }
    }
}
