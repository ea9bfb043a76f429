//! Calls on their way to workers while workers are slow and servers come and go.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::{ACK_WAIT, Servers};
use leasehold_json::{AcceptedJson, Digest};
use leasehold_nats::NatsStore;
use leasehold_protocol::{
    AttemptEffect, AttemptInput, AttemptMachine, Body, CallEnvelope, ChainKey, JournalSubject,
    LogbookAnswer, Now, Outcome, OutcomeBody, Payload, RunId, Seq, SessionId, ToolReturn,
    WIRE_VERSION, WorkerIdentity, WorkerWeakening, WriteAnswer, Writer,
};
use leasehold_store::{
    AppendError, CallQueue as _, Delivery, JournalAppend, Register, Registers as _, RunLog as _,
};
use leasehold_tools::SideEffect;

/// Longer than any of this takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a call must not come before it counts as not coming.
const QUIET: Duration = Duration::from_millis(500);

fn chain(run: &str) -> ChainKey {
    ChainKey {
        run: RunId::new(run).unwrap(),
        tool: "t".to_owned(),
        step: "1-0".parse().unwrap(),
        attempt: "1".parse().unwrap(),
        origin: SessionId::new("origin").unwrap(),
    }
}

fn envelope(chain: &ChainKey) -> CallEnvelope {
    CallEnvelope {
        v: WIRE_VERSION,
        run: chain.run.clone(),
        step: chain.step,
        attempt: chain.attempt,
        epoch: AcceptedJson::check(b"1").unwrap().parse().unwrap(),
        origin: chain.origin.clone(),
        tool: chain.tool.clone(),
        spec: Digest::of(b"spec"),
        idempotency_key: Digest::of(chain.run.as_str().as_bytes()),
        timeout_ms: 60_000,
        arguments: AcceptedJson::empty_object(),
    }
}

async fn dispatch(store: &NatsStore, chain: &ChainKey) -> Seq {
    let call = JournalAppend {
        run: chain.run.clone(),
        subject: JournalSubject::Call(chain.clone()),
        expected: Seq::NONE,
        body: Bytes::from_static(b"dispatching"),
        call: Some(envelope(chain).encode().into()),
    };
    loop {
        match store.append(call.clone()).await {
            Ok(appended) => return appended.seq,
            // The server is not back yet, or nobody knows: then the journal says.
            Err(AppendError::Busy(_) | AppendError::Unknown(_)) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(AppendError::Refused { .. }) => {
                let stored = store.read_journal(&chain.run, Seq::NONE).await.unwrap();
                return stored.first().unwrap().seq;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// The next call; asked for again, as a worker does, while the store does not answer.
async fn next(store: &NatsStore) -> Delivery {
    let tools = ["t".to_owned()];
    let next = async {
        loop {
            match store.next_call(&tools).await {
                Ok(delivery) => return delivery,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, next).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k21_a_call_that_lay_in_a_buffer_beyond_its_time_goes_to_another_worker_only() {
    let servers = common::servers(1).await;
    let (slow, quick) = (servers.store(1).await, servers.store(1).await);
    let tools = ["t".to_owned()];
    // Somebody waits at the slow worker, so that it pulls, and goes away: what comes lies in its memory.
    let waited = tokio::time::timeout(QUIET, slow.next_call(&tools)).await;
    assert!(waited.is_err(), "{waited:?}");
    let chain = chain("buffered");
    let seq = dispatch(&slow, &chain).await;
    // Its time is over, the server hands it to the other one.
    let again = next(&quick).await;
    assert_eq!(
        (again.seq, &again.chain, again.redelivered),
        (seq, &chain, true)
    );
    let late = tokio::time::timeout(QUIET, slow.next_call(&tools)).await;
    assert!(late.is_err(), "handed out twice: {late:?}");
    quick.ack_call(&again.chain, again.seq).await.unwrap();
    tokio::time::sleep(ACK_WAIT).await;
    let late = tokio::time::timeout(QUIET, slow.next_call(&tools)).await;
    assert!(late.is_err(), "{late:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k62_an_idle_worker_is_handed_its_call_after_each_of_five_restarts_of_the_server() {
    let servers = common::servers(1).await;
    let (node, worker) = (servers.store(1).await, servers.store(1).await);
    for round in 0..5 {
        let chain = chain(&format!("round {round}"));
        let waiting = async {
            loop {
                let delivery = next(&worker).await;
                worker
                    .ack_call(&delivery.chain, delivery.seq)
                    .await
                    .unwrap();
                // A server that was killed may have forgotten what was acknowledged just before.
                if delivery.chain == chain {
                    return delivery.seq;
                }
            }
        };
        let restarting = async {
            // So long that the worker's pull is open.
            tokio::time::sleep(QUIET).await;
            servers.servers.kill(1).await.unwrap();
            servers.servers.restart(1).await.unwrap();
            dispatch(&node, &chain).await
        };
        let (delivered, dispatched) = tokio::join!(waiting, restarting);
        assert_eq!(delivered, dispatched, "round {round}");
    }
}

/// One life of a worker whose logbook was lost with its disk: nothing but the registers can keep it from executing.
struct Forgetful<'a> {
    store: &'a NatsStore,
    incarnation: &'static str,
    effects: usize,
}

impl Forgetful<'_> {
    /// Takes the next call, and does what a worker's machine wants for it.
    async fn serve(&mut self) {
        let delivery = next(self.store).await;
        let (chain, envelope) = (
            delivery.chain.clone(),
            CallEnvelope::decode(&delivery.call).unwrap(),
        );
        let me = WorkerIdentity {
            worker: "w".parse().unwrap(),
            incarnation: self.incarnation.parse().unwrap(),
            logbook: self.incarnation.parse().unwrap(),
            moved_from: None,
            weakening: WorkerWeakening::None,
        };
        let claim = format!("{} {}", self.incarnation, chain.run)
            .parse()
            .unwrap();
        let now = Now { wall: 0, boot: 0 };
        let (mut machine, effects) = AttemptMachine::deliver(
            me,
            SideEffect::RemoteMutation,
            chain.clone(),
            delivery.seq,
            envelope,
            delivery.redelivered,
            claim,
            now,
        );
        let mut effects = std::collections::VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            if let Some(input) = self.answer(&chain, effect).await {
                effects.extend(machine.step(now, true, input));
            }
        }
        assert!(machine.is_over());
    }

    async fn answer(&mut self, chain: &ChainKey, effect: AttemptEffect) -> Option<AttemptInput> {
        Some(match effect {
            AttemptEffect::ReadChain => AttemptInput::ChainRead {
                messages: self.store.read_chain(chain).await.unwrap(),
            },
            AttemptEffect::WriteClaim { expected, body } => {
                AttemptInput::ClaimTried(self.write(chain, Register::Claim, expected, &body).await)
            }
            AttemptEffect::WriteOutcome { expected, body } => {
                let written = self.write(chain, Register::Outcome, expected, &body).await;
                AttemptInput::OutcomeTried(written)
            }
            AttemptEffect::CreateRecord { .. } => {
                AttemptInput::LogbookTried(LogbookAnswer::Written)
            }
            AttemptEffect::ReadRecord => AttemptInput::LogbookRead(Ok(None)),
            AttemptEffect::LogOutcome { .. } => AttemptInput::OutcomeLogged(Ok(())),
            AttemptEffect::WriteNote { .. } => AttemptInput::NoteTried,
            AttemptEffect::Execute(_) => {
                self.effects += 1;
                let result = Payload::Json(AcceptedJson::empty_object());
                AttemptInput::Returned(ToolReturn::Done(result))
            }
            AttemptEffect::AckCall { seq } => {
                self.store.ack_call(chain, seq).await.unwrap();
                return None;
            }
            AttemptEffect::CancelTool | AttemptEffect::Published | AttemptEffect::Over => {
                return None;
            }
        })
    }

    async fn write(
        &self,
        chain: &ChainKey,
        register: Register,
        expected: Seq,
        body: &Body,
    ) -> WriteAnswer {
        let writer = Writer::Worker("w".parse().unwrap());
        let body = Bytes::copy_from_slice(body.as_bytes());
        let written = self
            .store
            .write_register(chain, register, &writer, expected, body)
            .await;
        match written {
            Ok(seq) => WriteAnswer::Stored(seq),
            Err(AppendError::Refused { .. }) => WriteAnswer::Refused,
            Err(_) => WriteAnswer::Unknown,
        }
    }
}

/// Deletes every consumer of the calls' streams, with all that it knows of what was acknowledged.
async fn forget_consumers(servers: &Servers, shards: u16) -> usize {
    use futures_util::TryStreamExt as _;
    let nats = async_nats::connect(servers.servers.urls().unwrap())
        .await
        .unwrap();
    let nats = async_nats::jetstream::new(nats);
    let mut deleted = 0;
    for shard in 0..shards {
        let stream = nats.get_stream(format!("LH_{shard}")).await.unwrap();
        let names: Vec<String> = stream.consumer_names().try_collect().await.unwrap();
        for name in names {
            stream.delete_consumer(&name).await.unwrap();
            deleted += 1;
        }
    }
    deleted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k23_a_consumer_that_begins_anew_after_a_hundred_finished_calls_brings_no_new_effect() {
    const CALLS: usize = 100;
    const SHARDS: u16 = 2;
    let servers = common::servers(1).await;
    let store = servers.store(SHARDS).await;
    let mut first = Forgetful {
        store: &store,
        incarnation: "first",
        effects: 0,
    };
    let chains: Vec<ChainKey> = (0..CALLS).map(|n| chain(&format!("run {n}"))).collect();
    for chain in &chains {
        dispatch(&store, chain).await;
        first.serve().await;
    }
    assert_eq!(first.effects, CALLS);
    let tools = ["t".to_owned()];
    let more = tokio::time::timeout(QUIET, store.next_call(&tools)).await;
    assert!(more.is_err(), "{more:?}");
    assert_eq!(
        forget_consumers(&servers, SHARDS).await,
        usize::from(SHARDS)
    );
    // Every call there ever was comes again, as if for the first time.
    let mut later = Forgetful {
        store: &store,
        incarnation: "later",
        effects: 0,
    };
    for _ in 0..CALLS {
        later.serve().await;
    }
    assert_eq!(later.effects, 0);
    for chain in &chains {
        let messages = store.read_chain(chain).await.unwrap();
        assert_eq!(messages.len(), 3, "call, claim, outcome: {messages:?}");
        let outcome = Outcome::decode(messages[2].body.as_bytes()).unwrap();
        assert!(matches!(outcome.fact, OutcomeBody::Done { .. }));
    }
}
