//! The traits. Bodies are opaque bytes here: a store neither reads nor rewrites them.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_json::Digest;
use leasehold_protocol::{
    ApprovalId, ChainKey, ChainMessage, ClientId, Hint, InspectAnswer, JournalSubject, NoteMessage,
    OperatorId, RunId, Seq, SessionId, StoredCommit, WorkerId, Writer,
};
use tokio::sync::{mpsc, oneshot};

use crate::{AppendError, StoreError, SubmitError};

/// A whole backend. Cheap to share; every part is the same store.
pub trait Backend:
    RunLog + Registers + CallQueue + Inspections + Inbox + Leases + Timers + Blobs + 'static
{
}
impl<T> Backend for T where
    T: RunLog + Registers + CallQueue + Inspections + Inbox + Leases + Timers + Blobs + 'static
{
}

/// One conditional journal write.
#[derive(Debug, Clone)]
pub struct JournalAppend {
    /// The run.
    pub run: RunId,
    /// The subject. A [`JournalSubject::Call`] also enters the call into the call queue and opens its chain, in the same write.
    pub subject: JournalSubject,
    /// The run's last journal position ([`Seq::NONE`]: no journal yet).
    pub expected: Seq,
    /// The commit.
    pub body: Bytes,
    /// The call envelope; present exactly with [`JournalSubject::Call`].
    pub call: Option<Bytes>,
}

/// A journal write was stored, durably.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Its position.
    pub seq: Seq,
}

/// One run as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunHead {
    /// The run.
    pub run: RunId,
    /// Its last journal position.
    pub last: Seq,
    /// That position's subject: `End` means ended.
    pub subject: JournalSubject,
}

/// Journals: one per run, append-only.
#[async_trait]
pub trait RunLog: Send + Sync {
    /// All commits of the run after `after`, in order of position. An unknown run has none.
    async fn read_journal(&self, run: &RunId, after: Seq) -> Result<Vec<StoredCommit>, StoreError>;
    /// Stores the commit if the run's last journal position is the expected one. Durable once it returns `Ok`.
    async fn append(&self, write: JournalAppend) -> Result<Appended, AppendError>;
    /// Up to `limit` runs whose id is greater than `after`, in order of id (of its subject token's bytes).
    async fn runs(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<RunHead>, StoreError>;
    /// The runs whose journal has no `End`: what a sweep scans.
    async fn open_runs(&self) -> Result<Vec<RunHead>, StoreError>;
}

/// Which register of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Register {
    /// Who may execute.
    Claim,
    /// What it did.
    Outcome,
}

/// Registers and notes beside a run's journal.
#[async_trait]
pub trait Registers: Send + Sync {
    /// The chain's messages in order of position: call (its body is the envelope), claims, outcomes. Notes are not among them.
    async fn read_chain(&self, chain: &ChainKey) -> Result<Vec<ChainMessage>, StoreError>;
    /// Stores the body if the chain's last position is `expected`. Durable once it returns `Ok`; then the message is sent to the origin's
    /// hint channels.
    async fn write_register(
        &self,
        chain: &ChainKey,
        register: Register,
        writer: &Writer,
        expected: Seq,
        body: Bytes,
    ) -> Result<Seq, AppendError>;
    /// Stores an evidence note. Refuses ([`AppendError::Never`]) beyond [`leasehold_protocol::MAX_NOTES`] notes of the attempt; the last
    /// place is kept for a writer that passes `last_place`.
    async fn write_note(
        &self,
        chain: &ChainKey,
        writer: &Writer,
        body: Bytes,
        last_place: bool,
    ) -> Result<Seq, AppendError>;
    /// The attempt's notes, in order.
    async fn read_notes(&self, chain: &ChainKey) -> Result<Vec<NoteMessage>, StoreError>;
    /// Every register or note stored from now on for chains of this origin, at most once, possibly never. Unbounded: its reader forwards
    /// to actors at once.
    fn hints(&self, origin: &SessionId) -> mpsc::UnboundedReceiver<Hint>;
}

/// A call handed to a worker.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The call's position; what `ack` and `nak` name.
    pub seq: Seq,
    /// Its chain.
    pub chain: ChainKey,
    /// The envelope's bytes.
    pub call: Bytes,
    /// Whether its chain has to be read before it is claimed: it was, or may have been, handed out before (by this process, or by an earlier
    /// one that stored it), or the store sees, without asking for it, that something stands before the call.
    pub redelivered: bool,
}

/// Calls waiting for workers, by tool.
#[async_trait]
pub trait CallQueue: Send + Sync {
    /// The next call of one of these tools; waits until there is one. Oldest first within a shard. A call that nobody acknowledges is
    /// handed out again: to a new process, and by a store with many workers also to whoever asks once its time for an answer has passed.
    async fn next_call(&self, tools: &[String]) -> Result<Delivery, StoreError>;
    /// How many callers of [`next_call`](Self::next_call) are worth having side by side: as many as let the way to the store be made for
    /// several calls at once.
    fn callers(&self) -> usize {
        1
    }
    /// The call needs no more deliveries. Losing this is harmless.
    async fn ack_call(&self, chain: &ChainKey, seq: Seq) -> Result<(), StoreError>;
    /// Hand the call out again.
    async fn nak_call(&self, chain: &ChainKey, seq: Seq) -> Result<(), StoreError>;
}

/// A question to a worker about one of its attempts.
#[derive(Debug)]
pub struct Inspection {
    /// The attempt.
    pub chain: ChainKey,
    /// Where the answer goes. Dropped: nobody answers.
    pub answer: oneshot::Sender<InspectAnswer>,
}

/// Questions of a run's owner to the worker that claimed. The answer is only read for [`InspectAnswer::Running`]: whatever else is known
/// is written to registers and notes before it is given.
#[async_trait]
pub trait Inspections: Send + Sync {
    /// Asks whoever holds the worker's logbook. Nobody there, or no answer in time, is [`InspectAnswer::NoAnswer`], never an error.
    async fn inspect(&self, chain: &ChainKey, worker: &WorkerId) -> InspectAnswer;
    /// What this worker is asked from now on by other processes. Unbounded: its reader forwards at once.
    fn inspections(&self, worker: &WorkerId) -> mpsc::UnboundedReceiver<Inspection>;
}

/// What an inbox message is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum InboxKind {
    /// A submission; one per run and client.
    Submit(ClientId),
    /// A decision; one per run, approval and operator.
    Decide(ApprovalId, OperatorId),
    /// A cancellation; one per run and operator.
    Cancel(OperatorId),
}

/// A message in the inbox.
#[derive(Debug, Clone)]
pub struct InboxMessage {
    /// Its position.
    pub seq: Seq,
    /// The run it is for.
    pub run: RunId,
    /// What it is.
    pub kind: InboxKind,
    /// Its bytes.
    pub body: Bytes,
}

/// Write-once subjects for clients and operators.
#[async_trait]
pub trait Inbox: Send + Sync {
    /// Stores the message if nothing stands at its subject. The same bytes again: the position of the first. Durable once `Ok`.
    async fn put(&self, run: &RunId, kind: InboxKind, body: Bytes) -> Result<Seq, SubmitError>;
    /// The next message that was not acknowledged, or that another node forwarded; waits until there is one. Not handed out again by
    /// this process until naked, or until its time for an answer has passed.
    async fn next_message(&self) -> Result<InboxMessage, StoreError>;
    /// A commit of the run names the message, or the run has ended: it needs no more deliveries.
    async fn ack_message(&self, run: &RunId, seq: Seq) -> Result<(), StoreError>;
    /// Hand the message out again, not before `delay` has passed.
    async fn nak_message(
        &self,
        run: &RunId,
        seq: Seq,
        delay: std::time::Duration,
    ) -> Result<(), StoreError>;
    /// Hands the message to the node that holds its run, at most once, possibly in vain: a message that no commit names in time is handed
    /// out again. An error: there is no way to that node, put the message back.
    async fn forward(&self, holder: &SessionId, message: &InboxMessage) -> Result<(), StoreError>;
    /// The submission of a run, whoever sent it, acknowledged or not.
    async fn submission(&self, run: &RunId) -> Result<Option<InboxMessage>, StoreError>;
}

/// What a lease record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The holder's life.
    pub session: SessionId,
    /// The epoch it holds under, 0 until it has committed `own`.
    pub epoch: u64,
}

/// A lease record as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Its revision; what the next write expects.
    pub revision: Seq,
    /// What it says; absent: nobody holds it.
    pub record: Option<LeaseRecord>,
}

/// Which node should drive a run.
#[async_trait]
pub trait Leases: Send + Sync {
    /// The run's lease; one that was never written has revision 0 and no record.
    async fn lease(&self, run: &RunId) -> Result<Lease, StoreError>;
    /// Writes the record if the revision is the expected one; returns the new revision.
    async fn put_lease(
        &self,
        run: &RunId,
        expected: Seq,
        record: Option<LeaseRecord>,
    ) -> Result<Seq, AppendError>;
    /// Whether the session that holds a lease is still alive, as far as the store can say. Embedded: only this process's session is.
    async fn session_alive(&self, session: &SessionId) -> Result<bool, StoreError>;
    /// Tells some node that there is news of the run, in case nobody drives it. At most once, possibly never.
    async fn wake(&self, run: &RunId);
    /// Runs that may need an owner: their holder's session has just died, or somebody woke them. At most once, possibly never: a hint that
    /// spares waiting for the sweep.
    fn unowned(&self) -> mpsc::UnboundedReceiver<RunId>;
}

/// A durable timer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimerEntry {
    /// The run to wake.
    pub run: RunId,
    /// When, unix milliseconds.
    pub at: i64,
}

/// Durable timers: one per run. A run that waits for several moments sets the earliest.
#[async_trait]
pub trait Timers: Send + Sync {
    /// Sets or replaces the run's timer. Durable once it returns.
    async fn set_timer(&self, run: &RunId, at: i64) -> Result<(), StoreError>;
    /// Removes it. Losing this is harmless: a timer that finds nothing to do does nothing.
    async fn clear_timer(&self, run: &RunId) -> Result<(), StoreError>;
    /// All timers at or before `now`.
    async fn due_timers(&self, now: i64) -> Result<Vec<TimerEntry>, StoreError>;
}

/// Large values by SHA-256.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Stores the bytes durably and returns their digest. The same bytes twice are stored once.
    async fn put_blob(&self, bytes: Bytes) -> Result<Digest, StoreError>;
    /// The bytes; `None` if no such blob is stored. What is returned was verified against its digest.
    async fn get_blob(&self, digest: &Digest) -> Result<Option<Bytes>, StoreError>;
}

/// A shared backend.
pub type SharedBackend = Arc<dyn Backend>;
