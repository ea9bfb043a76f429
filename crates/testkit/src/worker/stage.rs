//! One case's world: a nats-server, the store as a node sees it, and the worker's present life.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use leasehold_json::Digest;
use leasehold_local::{NatsOptions, NatsServers, SyncInterval};
use leasehold_nats::{NatsStore, Options, Shard, Target, Wish};
use leasehold_protocol::{
    Chain, ChainKey, ClaimBody, ClaimId, InspectAnswer, JournalSubject, Note, NoteKind, Outcome,
    OutcomeBody, RunId, Sealed, Seq, SessionId, WIRE_VERSION, WorkerId, Writer,
};
use leasehold_store::{
    CallQueue as _, Delivery, Inspections as _, JournalAppend, Register, Registers as _,
    RunLog as _, SystemClock,
};
use leasehold_tools::SideEffect;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::{sleep, timeout};

use super::disk::Disk;
use super::{Life, Moment, Rig, TOOL};

/// Longer than anything takes that does happen, on a machine under load.
const LONG: Duration = Duration::from_secs(40);
/// A worker settles what an earlier life left when it starts, and not when the call comes again: that takes half a minute.
const AT_ONCE: Duration = Duration::from_secs(20);
/// How often a register is looked at. The server's word of it comes at most once, so looking is the way.
const LOOK: Duration = Duration::from_millis(20);
/// How long a delivered call is its receiver's once the suite has pulled: short, so that what nobody acknowledges comes again soon.
pub(super) const ACK_WAIT: Duration = Duration::from_secs(1);
/// How long nothing must come before it counts as not coming: twice the time after which it would.
pub(super) const QUIET: Duration = Duration::from_millis(2500);
/// Milliseconds that a call may take where the deadline is not what is tested.
pub(super) const AMPLE: u64 = 60_000;
/// More than one, so that a worker has to find a run's shard.
const SHARDS: u16 = 2;
/// The worker's name: one that is not its own subject token.
const NAME: &str = "press.1";

/// See the module.
pub struct Stage<'r> {
    rig: &'r dyn Rig,
    nats: String,
    disk: Disk,
    runs: AtomicU32,
    // Dropped in this order: the worker first, the folder last.
    life: Option<(Child, Lines<BufReader<ChildStdout>>, Option<Moment>)>,
    store: NatsStore,
    _servers: NatsServers,
    folder: tempfile::TempDir,
}

/// A dispatched call.
#[derive(Debug, Clone)]
pub(super) struct Dispatched {
    pub(super) chain: ChainKey,
    pub(super) seq: Seq,
    pub(super) text: String,
}

impl<'r> Stage<'r> {
    /// A fresh server and no worker yet.
    pub async fn new(rig: &'r dyn Rig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (servers, nats, store) = cluster(&folder.path().join("nats")).await;
        Self {
            rig,
            nats,
            disk: Disk::new(folder.path()),
            runs: AtomicU32::new(0),
            life: None,
            store,
            _servers: servers,
            folder,
        }
    }

    /// The servers lose everything: an empty cluster stands in their place, and the same calls are dispatched as at first.
    pub(super) async fn lose_cluster(&mut self) {
        let folder = self.folder.path().join("nats, later");
        (self._servers, self.nats, self.store) = cluster(&folder).await;
        self.runs = AtomicU32::new(0);
    }

    /// Starts the worker: its next life, on the disk that it had.
    pub(super) fn start(&mut self) {
        self.begin(None, None);
    }

    /// Starts a life that stands still at this moment.
    pub(super) fn start_stalling(&mut self, at: Moment) {
        self.begin(Some(at), None);
    }

    /// Starts a life whose tool goes on for so long after its effect.
    pub(super) fn start_slow(&mut self, lasts: Duration) {
        self.begin(None, Some(lasts));
    }

    /// What the worker keeps its own store on.
    pub(super) fn disk(&mut self) -> &mut Disk {
        &mut self.disk
    }

    pub(super) fn tools_outlive_their_deadline(&self) -> bool {
        self.rig.outlives_its_deadline()
    }

    fn begin(&mut self, stall: Option<Moment>, slow: Option<Duration>) {
        assert!(self.life.is_none(), "the worker runs already");
        let life = Life {
            nats: self.nats.clone(),
            name: NAME.to_owned(),
            data: self.disk.data(),
            effects: self.effects(),
            stall,
            slow,
        };
        let mut command = match self.rig.command(&life) {
            Ok(command) => command,
            Err(missing) => panic!("the worker cannot be started: {missing}"),
        };
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        self.life = Some((child, lines, stall));
    }

    /// Returns once the worker answers questions: it runs, and has connected.
    pub(super) async fn ready(&self) {
        let chain = self.chain("never-dispatched");
        within("the worker's first answer", async {
            while self.inspect(&chain).await == InspectAnswer::NoAnswer {
                sleep(LOOK).await;
            }
        })
        .await;
    }

    /// Returns once the worker stands still.
    pub(super) async fn reached(&mut self) {
        let (_, lines, at) = self.life.as_mut().unwrap();
        let expected = self.rig.reached(at.unwrap());
        within(&format!("the worker's line {expected:?}"), async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line == expected {
                    return;
                }
            }
            panic!("the worker ended before it said {expected:?}");
        })
        .await;
    }

    fn effects(&self) -> PathBuf {
        self.folder.path().join("effects")
    }

    /// Returns once the call's effect has happened.
    pub(super) async fn happened(&self, call: &Dispatched) {
        within(&format!("the effect of {}", call.chain), async {
            while self.published(call) == 0 {
                sleep(LOOK).await;
            }
        })
        .await;
    }

    /// SIGKILL; returns when it is gone.
    pub(super) async fn kill(&mut self) {
        let (mut child, ..) = self.life.take().unwrap();
        child.kill().await.unwrap();
    }

    /// SIGTERM.
    pub(super) fn tell_to_stop(&self) {
        let (child, ..) = self.life.as_ref().unwrap();
        let pid = i32::try_from(child.id().unwrap()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Returns once a worker that was told to stop has ended, in good order.
    pub(super) async fn ended(&mut self) {
        // Its standard output stays open: what it still says must not fail.
        let (mut child, _lines, _) = self.life.take().unwrap();
        let status = within("the worker's end", child.wait()).await.unwrap();
        assert!(status.success(), "told to stop, it ended with {status}");
    }

    pub(super) fn chain(&self, run: &str) -> ChainKey {
        ChainKey {
            run: RunId::new(run).unwrap(),
            tool: TOOL.to_owned(),
            step: "1-0".parse().unwrap(),
            attempt: "1".parse().unwrap(),
            origin: origin(),
        }
    }

    /// Dispatches a call of a run of its own, with a text of its own.
    pub(super) async fn dispatch(&self) -> Dispatched {
        self.dispatch_within(AMPLE).await
    }

    /// Dispatches a call somewhere, in whichever shard.
    pub(super) async fn dispatch_anywhere(&self) -> Dispatched {
        let (chain, text) = self.fresh(|_| true);
        let envelope = envelope(&chain, &json!({ "text": text }).to_string(), AMPLE);
        self.dispatch_as(chain, envelope, &text).await
    }

    fn fresh(&self, is_wanted: impl Fn(Shard) -> bool) -> (ChainKey, String) {
        loop {
            let number = self.runs.fetch_add(1, Ordering::Relaxed);
            let chain = self.chain(&format!("run-{number}"));
            if is_wanted(Shard::of(&chain.run, SHARDS)) {
                return (chain, format!("text {number}"));
            }
        }
    }

    /// A call with so many milliseconds from claim to deadline. All of these lie in one shard: calls come in their order, and a pull for
    /// one of them takes no other along.
    pub(super) async fn dispatch_within(&self, timeout_ms: u64) -> Dispatched {
        let (chain, text) = self.fresh(|shard| shard == Shard::of(&first_run(), SHARDS));
        let envelope = envelope(&chain, &json!({ "text": text }).to_string(), timeout_ms);
        self.dispatch_as(chain, envelope, &text).await
    }

    /// Any envelope on any chain. The text is what its effect would publish.
    pub(super) async fn dispatch_as(
        &self,
        chain: ChainKey,
        envelope: serde_json::Value,
        text: &str,
    ) -> Dispatched {
        let write = JournalAppend {
            run: chain.run.clone(),
            subject: JournalSubject::Call(chain.clone()),
            expected: Seq::NONE,
            // Workers are sent headers only; what a node writes here is nothing to them.
            body: Bytes::from_static(b"the commit, which no worker sees"),
            call: Some(Bytes::from(envelope.to_string())),
        };
        let seq = self.store.append(write).await.unwrap().seq;
        Dispatched {
            chain,
            seq,
            text: text.to_owned(),
        }
    }

    /// Pulls a call from the worker's own queue, as another worker of its pool would.
    pub(super) async fn pull(&self) -> Delivery {
        let tools = [TOOL.to_owned()];
        within("a delivery", self.store.next_call(&tools))
            .await
            .unwrap()
    }

    /// Nothing comes from the worker's queue for a while.
    pub(super) async fn nothing_to_pull(&self) {
        let tools = [TOOL.to_owned()];
        if let Ok(delivery) = timeout(QUIET, self.store.next_call(&tools)).await {
            panic!("a call came again: {:?}", delivery.unwrap().chain);
        }
    }

    pub(super) async fn give_back(&self, delivery: &Delivery) {
        self.store
            .nak_call(&delivery.chain, delivery.seq)
            .await
            .unwrap();
    }

    /// Claims as another worker.
    pub(super) async fn claim_as_rival(&self, chain: &ChainKey, expected: Seq) -> Seq {
        let claim = ClaimBody::Claim {
            v: WIRE_VERSION,
            claim: rival_claim(),
            worker: rival(),
            incarnation: "i-rival".parse().unwrap(),
            logbook: "lb-rival".parse().unwrap(),
        };
        self.write(
            chain,
            Register::Claim,
            Writer::Worker(rival()),
            expected,
            claim.encode(),
        )
        .await
    }

    pub(super) async fn revoke(&self, chain: &ChainKey, expected: Seq) -> Seq {
        let revoke = ClaimBody::Revoke {
            v: WIRE_VERSION,
            by: origin(),
            why: leasehold_protocol::RevokeReason::Ending,
        };
        self.write(
            chain,
            Register::Claim,
            Writer::Runtime,
            expected,
            revoke.encode(),
        )
        .await
    }

    /// Writes an outcome as another worker, for its claim.
    pub(super) async fn outcome_as_rival(&self, chain: &ChainKey, expected: Seq) -> Seq {
        let fact = OutcomeBody::NotStarted {
            why: "a rival's".to_owned(),
        };
        let body = Outcome::new(Some(rival_claim()), fact).encode();
        self.write(
            chain,
            Register::Outcome,
            Writer::Worker(rival()),
            expected,
            body,
        )
        .await
    }

    /// Seals the claimed attempt: an operator permits another one.
    pub(super) async fn seal(&self, chain: &ChainKey) {
        let read = self.read(chain).await;
        let fact = OutcomeBody::Sealed {
            finding: Sealed::RunAgain {
                operator: "ana".parse().unwrap(),
            },
            by: origin(),
        };
        let body = Outcome::new(claim_of(&read), fact).encode();
        self.write(chain, Register::Outcome, Writer::Runtime, read.last, body)
            .await;
    }

    async fn write(
        &self,
        chain: &ChainKey,
        register: Register,
        writer: Writer,
        expected: Seq,
        body: Vec<u8>,
    ) -> Seq {
        let body = Bytes::from(body);
        let written = self
            .store
            .write_register(chain, register, &writer, expected, body);
        written.await.unwrap()
    }

    pub(super) async fn read(&self, chain: &ChainKey) -> Chain {
        let messages = self.store.read_chain(chain).await.unwrap();
        Chain::read(SideEffect::RemoteMutation, &messages)
    }

    /// The outcome that counts, once there is one; nothing in the chain may be void but what the suite wrote.
    pub(super) async fn outcome(&self, chain: &ChainKey) -> OutcomeBody {
        within(&format!("an outcome of {chain}"), async {
            loop {
                if let Some((_, outcome)) = self.read(chain).await.outcome {
                    return outcome.fact;
                }
                sleep(LOOK).await;
            }
        })
        .await
    }

    /// The worker says by itself what it finds: before a redelivery could make it.
    pub(super) async fn at_once<T>(&self, what: &str, future: impl Future<Output = T>) -> T {
        match timeout(AT_ONCE, future).await {
            Ok(value) => value,
            Err(_) => panic!("{what} did not come within {AT_ONCE:?} of the worker's start"),
        }
    }

    /// The outcome is that it happened.
    pub(super) async fn done(&self, call: &Dispatched) {
        let outcome = self.outcome(&call.chain).await;
        assert!(matches!(outcome, OutcomeBody::Done { .. }), "{outcome:?}");
        assert_eq!(self.published(call), 1);
    }

    /// The notes that count.
    pub(super) async fn notes(&self, chain: &ChainKey) -> Vec<Note> {
        let messages = self.store.read_notes(chain).await.unwrap();
        self.read(chain).await.notes(&messages)
    }

    /// The notes that count, once there is one.
    pub(super) async fn noted(&self, chain: &ChainKey) -> Vec<NoteKind> {
        within(&format!("a note on {chain}"), async {
            loop {
                let notes = self.notes(chain).await;
                if !notes.is_empty() {
                    return notes.into_iter().map(|note| note.evidence).collect();
                }
                sleep(LOOK).await;
            }
        })
        .await
    }

    pub(super) async fn inspect(&self, chain: &ChainKey) -> InspectAnswer {
        let worker = WorkerId::new(NAME).unwrap();
        self.store.inspect(chain, &worker).await
    }

    /// The worker has settled what it is asked about; everything it knows is written.
    pub(super) async fn settled(&self, chain: &ChainKey) {
        within("the worker's word that it is settled", async {
            while self.inspect(chain).await != InspectAnswer::Settled {
                sleep(LOOK).await;
            }
        })
        .await;
    }

    /// How often the call's text was published. No text was published that nobody asked for, and none twice.
    pub(super) fn published(&self, call: &Dispatched) -> usize {
        let texts = self.rig.published(&self.effects());
        let distinct: BTreeSet<&String> = texts.iter().collect();
        assert_eq!(distinct.len(), texts.len(), "published twice: {texts:?}");
        texts.iter().filter(|text| **text == call.text).count()
    }

    /// A later call is executed: the worker is well, and has got past everything before.
    pub(super) async fn goes_on(&self) {
        let call = self.dispatch().await;
        self.done(&call).await;
    }

    /// The worker claimed the attempt.
    pub(super) async fn claimed_by_worker(&self, chain: &ChainKey) -> bool {
        let claim = self.read(chain).await.claim;
        matches!(claim, Some((_, ClaimBody::Claim { worker, .. })) if worker.as_str() == NAME)
    }
}

async fn cluster(folder: &Path) -> (NatsServers, String, NatsStore) {
    let options = NatsOptions {
        // Nothing here kills a server.
        sync: SyncInterval::Lazy,
        ..NatsOptions::new(1, folder)
    };
    let servers = NatsServers::start(options).await.unwrap();
    let nats = servers.urls().unwrap();
    let options = Options {
        make: Some(Wish {
            shards: Some(SHARDS),
            replicas: Some(1),
        }),
        ack_wait: ACK_WAIT,
        ..Options::new(Target::at(nats.clone()), "suite", Arc::new(SystemClock))
    };
    let store = NatsStore::open(options).await.unwrap();
    // As every node does, for workers that read nothing themselves.
    store.answer_workers();
    (servers, nats, store)
}

/// The envelope as any node may write it. Its members come in another order than the document's table: readers accept any.
pub(super) fn envelope(chain: &ChainKey, arguments: &str, timeout_ms: u64) -> serde_json::Value {
    json!({
        "v": WIRE_VERSION,
        "run": chain.run,
        "step": chain.step,
        "attempt": chain.attempt,
        "epoch": 1,
        "origin": chain.origin,
        "tool": chain.tool,
        "spec": Digest::of(b"a specification"),
        "idempotency_key": Digest::of(chain.to_string().as_bytes()),
        "timeout_ms": timeout_ms,
        "arguments": arguments,
    })
}

fn claim_of(chain: &Chain) -> Option<ClaimId> {
    match &chain.claim {
        Some((_, ClaimBody::Claim { claim, .. })) => Some(claim.clone()),
        _ => None,
    }
}

fn first_run() -> RunId {
    RunId::new("run-0").unwrap()
}

fn origin() -> SessionId {
    SessionId::new("node.session").unwrap()
}

fn rival() -> WorkerId {
    WorkerId::new("rival").unwrap()
}

fn rival_claim() -> ClaimId {
    ClaimId::new("00000000000000000000000000000001").unwrap()
}

/// The result of what must happen.
async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match timeout(LONG, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come within {LONG:?}"),
    }
}
