//! The one thread that writes: group commit, conditions in order, answers after the sync.
//!
//! Everything queued (up to [`MAX_GROUP`]) is evaluated against the store plus what earlier operations of the group have staged, committed
//! as one batch with one sync, and only then answered: also refusals, because what they saw was not durable yet. After a failed commit the
//! group's answers are "unknown" and the writer refuses everything from then on: what the device holds is known again only after a
//! restart.
//!
//! Lazy operations (acknowledgements: losing them is harmless) ride in the next group and never cause a sync of their own, up to
//! [`MAX_CARRIED`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use bytes::Bytes;
use leasehold_protocol::Seq;
use leasehold_store::StoreError;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::engine::{Changes, Engine, guarded, panic_text};
use crate::keys;
use crate::record::{Content, Kind, Record};

/// Most operations in one group: beyond some hundred the sync is a small part of the cost, and latency grows.
const MAX_GROUP: usize = 512;

/// Operations that may wait in the queue; further writers wait for room.
const QUEUE: usize = 4096;

/// Lazy operations that may wait for a group; with more the writer commits them on their own.
const MAX_CARRIED: usize = 1024;

type Answer = Box<dyn FnOnce(Result<(), String>) + Send>;
type Write = Box<dyn FnOnce(&mut Group<'_>) -> Answer + Send>;
type Lazy = Box<dyn FnOnce(&mut Group<'_>) + Send>;

enum Operation {
    Write(Write),
    Lazy(Lazy),
}

/// A write was not acknowledged. Nobody knows whether it is stored.
#[derive(Debug, Clone)]
pub(crate) struct Unacknowledged(pub(crate) String);

/// What readers need to know of the writer.
#[derive(Debug, Default)]
pub(crate) struct Health {
    durable: AtomicU64,
    broken: OnceLock<String>,
    broke: Notify,
}

impl Health {
    /// The last durable position; readers do not look beyond.
    pub(crate) fn durable(&self) -> Seq {
        Seq(self.durable.load(Ordering::Acquire))
    }
    /// Refuses once a commit has failed: what would be read may not be durable.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.broken.get() {
            Some(reason) => Err(StoreError::Refuses(reason.clone())),
            None => Ok(()),
        }
    }
    /// Ends when a commit has failed: what waits for messages has to learn that none will come.
    pub(crate) async fn broken(&self) {
        let broke = self.broke.notified();
        if self.broken.get().is_none() {
            broke.await;
        }
    }
}

/// Handle of the writer thread. Dropping it commits what is queued and waits for the thread.
pub(crate) struct Writer {
    queue: Option<mpsc::Sender<Operation>>,
    health: Arc<Health>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread. `last` is the last position given out.
    pub(crate) fn start(name: &str, engine: Engine, last: Seq) -> std::io::Result<Self> {
        let (queue, operations) = mpsc::channel(QUEUE);
        let health = Arc::new(Health {
            durable: AtomicU64::new(last.0),
            ..Health::default()
        });
        let state = Thread {
            engine,
            last,
            health: Arc::clone(&health),
            carried: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || state.run(operations))?;
        Ok(Self {
            queue: Some(queue),
            health,
            thread: Some(thread),
        })
    }

    /// What readers need to know.
    pub(crate) fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Runs the operation on the writer thread; returns its answer once everything it saw and staged is durable.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut Group<'_>) -> T + Send + 'static,
    ) -> Result<T, Unacknowledged> {
        let (tell, told) = oneshot::channel();
        let operation = Operation::Write(Box::new(move |group| {
            let answer = operation(group);
            // A caller that went away learns nothing; its operation stands.
            Box::new(move |durable| drop(tell.send(durable.map(|()| answer))))
        }));
        let stopped = || {
            Unacknowledged(
                self.health
                    .broken
                    .get()
                    .cloned()
                    .unwrap_or_else(|| "the store's writer has stopped".to_owned()),
            )
        };
        self.queue
            .as_ref()
            .ok_or_else(stopped)?
            .send(operation)
            .await
            .map_err(|_| stopped())?;
        told.await.map_err(|_| stopped())?.map_err(Unacknowledged)
    }

    /// Queues an operation whose loss is harmless; returns once it is queued.
    pub(crate) async fn lazily(&self, operation: impl FnOnce(&mut Group<'_>) + Send + 'static) {
        if let Some(queue) = &self.queue {
            // A stopped writer loses it, which is harmless.
            let _ = queue.send(Operation::Lazy(Box::new(operation))).await;
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // Its panics are caught inside.
            let _ = thread.join();
        }
    }
}

struct Thread {
    engine: Engine,
    last: Seq,
    health: Arc<Health>,
    carried: Vec<Lazy>,
}

impl Thread {
    fn run(mut self, mut operations: mpsc::Receiver<Operation>) {
        let mut group = Vec::with_capacity(MAX_GROUP);
        while let Some(first) = operations.blocking_recv() {
            self.sort(first, &mut group);
            while group.len() < MAX_GROUP && self.carried.len() < MAX_CARRIED {
                match operations.try_recv() {
                    Ok(next) => self.sort(next, &mut group),
                    Err(_) => break,
                }
            }
            if !group.is_empty() || self.carried.len() >= MAX_CARRIED {
                self.commit(&mut group);
            }
        }
        self.commit(&mut group);
    }

    /// Keeps the order of what was queued: a lazy operation ahead of a write of the same group runs ahead of it.
    fn sort(&mut self, operation: Operation, group: &mut Vec<Operation>) {
        match operation {
            Operation::Lazy(lazy) if group.is_empty() => self.carried.push(lazy),
            other => group.push(other),
        }
    }

    fn commit(&mut self, operations: &mut Vec<Operation>) {
        let mut answers = Vec::with_capacity(operations.len());
        let result = match self.health.broken.get() {
            Some(reason) => Err(reason.clone()),
            None => {
                let attempt = catch_unwind(AssertUnwindSafe(|| {
                    self.evaluate_and_commit(operations, &mut answers)
                }));
                attempt.unwrap_or_else(|panic| Err(panic_text(&*panic)))
            }
        };
        if let Err(reason) = &result {
            if self.health.broken.set(reason.clone()).is_ok() {
                tracing::error!(%reason, "a write failed; the store refuses everything until it is opened again");
            }
            self.health.broke.notify_waiters();
            self.carried.clear();
        }
        // Operations that were not evaluated drop their channel and are answered as stopped: unknown, which is safe.
        operations.clear();
        for answer in answers {
            answer(result.clone());
        }
    }

    fn evaluate_and_commit(
        &mut self,
        operations: &mut Vec<Operation>,
        answers: &mut Vec<Answer>,
    ) -> Result<(), String> {
        let mut group = Group {
            db: self.engine.db(),
            staged: Changes::new(),
            last: self.last,
            after: Vec::new(),
        };
        for lazy in self.carried.drain(..) {
            lazy(&mut group);
        }
        for operation in operations.drain(..) {
            match operation {
                Operation::Write(write) => answers.push(write(&mut group)),
                Operation::Lazy(lazy) => lazy(&mut group),
            }
        }
        let Group {
            mut staged,
            last,
            after,
            ..
        } = group;
        if !staged.is_empty() {
            staged.insert(keys::POSITION.to_vec(), Some(position(last)));
            self.engine.commit(&staged, last)?;
            self.last = last;
            self.health.durable.store(last.0, Ordering::Release);
        }
        for then in after {
            then();
        }
        Ok(())
    }
}

/// The record of the last position given out.
pub(crate) fn position(last: Seq) -> Vec<u8> {
    Record::new(Kind::Meta, last).encode(keys::POSITION)
}

/// What an operation sees and stages: the store plus everything staged before it in the same group.
pub(crate) struct Group<'a> {
    db: &'a sled::Db,
    staged: Changes,
    last: Seq,
    after: Vec<Box<dyn FnOnce() + Send>>,
}

impl Group<'_> {
    /// The next position, for one [`append`](Self::append). Only once the operation has nothing left to refuse: positions have no gaps.
    pub(crate) fn next_seq(&mut self) -> Seq {
        self.last = Seq(self.last.0.saturating_add(1));
        self.last
    }

    /// Stages the record that its position was taken for, and enters it into the order of the store.
    pub(crate) fn append(&mut self, key: Vec<u8>, record: &Record) {
        let content = Content::Inline(Bytes::copy_from_slice(&key));
        let entry = Record::new(Kind::Index, record.seq).content(content);
        self.put(keys::at(vec![keys::ORDER], record.seq), &entry);
        self.put(key, record);
    }

    /// Stages a record beside it.
    pub(crate) fn put(&mut self, key: Vec<u8>, record: &Record) {
        let bytes = record.encode(&key);
        self.staged.insert(key, Some(bytes));
    }

    /// Stages a removal.
    pub(crate) fn remove(&mut self, key: Vec<u8>) {
        self.staged.insert(key, None);
    }

    /// Runs once everything staged so far is durable, before anybody is answered. Must not block.
    pub(crate) fn after(&mut self, then: impl FnOnce() + Send + 'static) {
        self.after.push(Box::new(then));
    }

    /// The record under a key.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Record>, StoreError> {
        let bytes = match self.staged.get(key) {
            Some(staged) => staged.as_deref().map(Vec::from),
            None => guarded(|| self.db.get(key))
                .map_err(unavailable)?
                .map(|value| value.to_vec()),
        };
        bytes.map(|bytes| Record::decode(key, &bytes)).transpose()
    }

    /// The last record whose key begins with the prefix. For kinds that are never removed.
    pub(crate) fn last_under(&self, prefix: &[u8]) -> Result<Option<Record>, StoreError> {
        let behind = keys::behind(prefix);
        let staged = self
            .staged
            .range(prefix.to_vec()..behind.clone())
            .next_back();
        if let Some((key, Some(bytes))) = staged {
            // Positions rise: what is staged lies behind everything stored.
            return Record::decode(key, bytes).map(Some);
        }
        match guarded(|| self.db.get_lt(&behind)).map_err(unavailable)? {
            Some((key, bytes)) if key.starts_with(prefix) => Record::decode(&key, &bytes).map(Some),
            _ => Ok(None),
        }
    }

    /// How many records begin with the prefix. For kinds that are never removed and are few.
    pub(crate) fn count_under(&self, prefix: &[u8]) -> Result<usize, StoreError> {
        let range = prefix.to_vec()..keys::behind(prefix);
        let staged = self.staged.range(range.clone()).count();
        let mut stored = 0_usize;
        for entry in self.db.range(range) {
            guarded(|| entry).map_err(unavailable)?;
            stored = stored.saturating_add(1);
        }
        Ok(stored.saturating_add(staged))
    }
}

/// A failed read as the store's error.
pub(crate) fn unavailable(failure: crate::engine::Failure) -> StoreError {
    match failure {
        crate::engine::Failure::Sled(sled::Error::Corruption { .. }) => StoreError::Damaged {
            what: "a page of the store".to_owned(),
            detail: failure.to_string(),
        },
        other => StoreError::Unavailable(other.to_string()),
    }
}
