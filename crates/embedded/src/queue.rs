//! Calls that wait for workers. In the store an index entry per call that was never acknowledged; in memory who has been handed what.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use leasehold_protocol::{ChainKey, InspectAnswer, Seq, WorkerId};
use leasehold_store::{CallQueue, Delivery, Inspection, Inspections, StoreError};
use tokio::sync::{Notify, mpsc};

use crate::EmbeddedStore;
use crate::content::load;
use crate::keys::{self, CHAIN, WAITING};
use crate::record::Damage;
use crate::runlog::call_chain;
use crate::store::Reads;

/// The calls that were not acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    calls: Mutex<Calls>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Calls {
    all: HashMap<Seq, Waiter>,
    /// Not handed out, by tool.
    ready: HashMap<String, BTreeSet<Seq>>,
}

#[derive(Debug)]
struct Waiter {
    chain: ChainKey,
    /// Handed out before, or perhaps so by an earlier process.
    redelivered: bool,
}

impl Calls {
    fn enter(&mut self, seq: Seq, chain: ChainKey, redelivered: bool) {
        self.ready
            .entry(chain.tool.clone())
            .or_default()
            .insert(seq);
        self.all.insert(seq, Waiter { chain, redelivered });
    }

    fn withdraw(&mut self, tool: &str, seq: Seq) {
        if let Some(ready) = self.ready.get_mut(tool) {
            ready.remove(&seq);
            if ready.is_empty() {
                self.ready.remove(tool);
            }
        }
    }

    /// Hands out the oldest call of these tools.
    fn take(&mut self, tools: &[String]) -> Option<(Seq, ChainKey, bool)> {
        let seq = tools
            .iter()
            .filter_map(|tool| self.ready.get(tool)?.first().copied())
            .min()?;
        let waiter = self.all.get_mut(&seq)?;
        let (chain, redelivered) = (waiter.chain.clone(), waiter.redelivered);
        waiter.redelivered = true;
        self.withdraw(&chain.tool, seq);
        Some((seq, chain, redelivered))
    }
}

impl Waiting {
    /// What earlier processes left.
    pub(crate) fn load(reads: &Reads) -> Result<Self, StoreError> {
        let mut calls = Calls::default();
        for (key, record) in reads.scan_all(&[WAITING])? {
            let chain = call_chain(&record).map_err(|damage| damage.of(&key))?;
            calls.enter(record.seq, chain, true);
        }
        Ok(Self {
            calls: Mutex::new(calls),
            changed: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call has become durable.
    pub(crate) fn enter(&self, seq: Seq, chain: ChainKey) {
        self.lock().enter(seq, chain, false);
        self.changed.notify_waiters();
    }
}

#[async_trait]
impl CallQueue for EmbeddedStore {
    async fn next_call(&self, tools: &[String]) -> Result<Delivery, StoreError> {
        loop {
            // Listening begins before looking, so that nothing falls between.
            let changed = self.waiting().changed.notified();
            self.reads().check()?;
            let taken = self.waiting().lock().take(tools);
            if let Some((seq, chain, redelivered)) = taken {
                // Nothing is awaited from here on: a caller that goes away has not been handed anything.
                let key = keys::at(keys::chain(CHAIN, &chain), seq);
                let record = self
                    .reads()
                    .get(&key)?
                    .ok_or_else(|| Damage::new("the call's envelope is missing").of(&key))?;
                // What stands before the call is known here at no cost: such a chain has to be looked at first.
                let follows = record.number != Seq::NONE.0;
                let call = load(self.blobs(), record.content)?;
                return Ok(Delivery {
                    seq,
                    chain,
                    call,
                    redelivered: redelivered || follows,
                });
            }
            tokio::select! {
                () = changed => {}
                () = self.reads().broken() => {}
            }
        }
    }

    async fn ack_call(&self, _: &ChainKey, seq: Seq) -> Result<(), StoreError> {
        {
            let mut calls = self.waiting().lock();
            let Some(waiter) = calls.all.remove(&seq) else {
                return Ok(());
            };
            calls.withdraw(&waiter.chain.tool, seq);
        }
        self.writer()
            .lazily(move |group| group.remove(keys::at(vec![WAITING], seq)))
            .await;
        Ok(())
    }

    async fn nak_call(&self, _: &ChainKey, seq: Seq) -> Result<(), StoreError> {
        let waiting = Arc::clone(self.waiting());
        {
            let mut calls = waiting.lock();
            let Some(waiter) = calls.all.get(&seq) else {
                return Ok(());
            };
            let tool = waiter.chain.tool.clone();
            calls.ready.entry(tool).or_default().insert(seq);
        }
        waiting.changed.notify_waiters();
        Ok(())
    }
}

/// One process: its own worker is asked without the store, and there is no other.
#[async_trait]
impl Inspections for EmbeddedStore {
    async fn inspect(&self, _: &ChainKey, _: &WorkerId) -> InspectAnswer {
        InspectAnswer::NoAnswer
    }

    fn inspections(&self, _: &WorkerId) -> mpsc::UnboundedReceiver<Inspection> {
        mpsc::unbounded_channel().1
    }
}
