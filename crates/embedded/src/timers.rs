//! Durable timers, one per run. All are in memory too: only parked runs have one.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use leasehold_protocol::RunId;
use leasehold_store::{StoreError, TimerEntry, Timers};

use crate::EmbeddedStore;
use crate::keys::{self, TIMER};
use crate::record::{Kind, Record};
use crate::store::Reads;

/// The timers that are set.
#[derive(Debug, Default)]
pub(crate) struct Pending(Mutex<Set>);

#[derive(Debug, Default)]
struct Set {
    of: HashMap<RunId, i64>,
    order: BTreeSet<(i64, RunId)>,
}

impl Set {
    fn set(&mut self, run: RunId, at: i64) {
        self.clear(&run);
        self.of.insert(run.clone(), at);
        self.order.insert((at, run));
    }

    fn clear(&mut self, run: &RunId) {
        if let Some(at) = self.of.remove(run) {
            self.order.remove(&(at, run.clone()));
        }
    }
}

impl Pending {
    /// What earlier processes left.
    pub(crate) fn load(reads: &Reads) -> Result<Self, StoreError> {
        let mut set = Set::default();
        for (key, record) in reads.scan_all(&[TIMER])? {
            let run = keys::decode_run(&key).map_err(|damage| damage.of(&key))?;
            set.set(run, record.number.cast_signed());
        }
        Ok(Self(Mutex::new(set)))
    }

    fn lock(&self) -> MutexGuard<'_, Set> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Timers for EmbeddedStore {
    async fn set_timer(&self, run: &RunId, at: i64) -> Result<(), StoreError> {
        let (key, run, timers) = (
            keys::run(TIMER, run),
            run.clone(),
            Arc::clone(self.timers()),
        );
        let set = self.writer().write(move |group| {
            let seq = group.next_seq();
            group.append(
                key,
                &Record::new(Kind::Timer, seq).number(at.cast_unsigned()),
            );
            group.after(move || timers.lock().set(run, at));
        });
        Ok(set.await?)
    }

    async fn clear_timer(&self, run: &RunId) -> Result<(), StoreError> {
        self.timers().lock().clear(run);
        let (key, run, timers) = (
            keys::run(TIMER, run),
            run.clone(),
            Arc::clone(self.timers()),
        );
        let clear = move |group: &mut crate::writer::Group<'_>| {
            group.remove(key);
            // Again, behind a timer that was still on its way when this was called.
            group.after(move || timers.lock().clear(&run));
        };
        self.writer().lazily(clear).await;
        Ok(())
    }

    async fn due_timers(&self, now: i64) -> Result<Vec<TimerEntry>, StoreError> {
        self.reads().check()?;
        let set = self.timers().lock();
        Ok(set
            .order
            .iter()
            .take_while(|(at, _)| *at <= now)
            .map(|(at, run)| TimerEntry {
                run: run.clone(),
                at: *at,
            })
            .collect())
    }
}
