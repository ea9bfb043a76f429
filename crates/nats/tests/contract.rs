//! The part of `docs/protocol.md` that a worker on NATS is written from: every block marked `nats` is what really lies on a server, or is
//! really sent to it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "test code"
)]

mod common;

use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::{Client, HeaderMap, Message, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt as _;
use leasehold_nats::{
    Account, LogbookMark, NatsStore, Options, Role, Session, SessionOptions, Target,
};
use leasehold_protocol::{
    CallEnvelope, ChainKey, InspectAnswer, JournalSubject, LogbookId, Seq, SessionId, WIRE_VERSION,
    WorkerId, Writer,
};
use leasehold_store::{
    Blobs as _, CallQueue as _, Inspections as _, JournalAppend, Register, Registers as _,
    RunLog as _, SystemClock,
};
use serde_json::Value;
use std::sync::Arc;

const DOCUMENT: &str = include_str!("../../../docs/protocol.md");
const CALL: &str = include_str!("../../protocol/tests/golden/call.json");
const CLAIM: &str = include_str!("../../protocol/tests/golden/claim.json");
const OUTCOME: &str = include_str!("../../protocol/tests/golden/outcome.json");
/// As the document says.
const SHARDS: u16 = 8;
/// Longer than anything takes that does happen.
const LONG: Duration = Duration::from_secs(20);

/// The lines of the document's block `nats <name>`.
fn block(name: &str) -> Vec<&'static str> {
    let mut lines = DOCUMENT.lines();
    let is_it = |line: &&str| {
        let info = line
            .strip_prefix("```")
            .and_then(|i| i.split_once(" nats "));
        info.is_some_and(|(_, found)| found == name)
    };
    lines
        .by_ref()
        .find(is_it)
        .unwrap_or_else(|| panic!("no block `nats {name}` in the document"));
    lines.take_while(|line| *line != "```").collect()
}

fn line(name: &str) -> &'static str {
    let lines = block(name);
    assert_eq!(lines.len(), 1, "{name}");
    lines[0]
}

/// Headers as the document shows them, without those that the server or the client adds.
fn shown(headers: &HeaderMap) -> Vec<String> {
    let mut lines: Vec<String> = headers
        .iter()
        .map(|(name, values)| format!("{name}: {}", values[0].as_str()))
        .collect();
    lines.sort();
    lines
}

fn sorted(mut lines: Vec<&'static str>) -> Vec<&'static str> {
    lines.sort_unstable();
    lines
}

struct World {
    servers: common::Servers,
    store: NatsStore,
    client: Client,
    chain: ChainKey,
}

async fn world() -> World {
    let servers = common::servers(1).await;
    let options = Options {
        ack_wait: leasehold_nats::ACK_WAIT,
        ..servers.options(SHARDS)
    };
    let store = NatsStore::open(options).await.unwrap();
    let client = async_nats::connect(servers.servers.urls().unwrap())
        .await
        .unwrap();
    let call = CallEnvelope::decode(CALL.trim_end().as_bytes()).unwrap();
    let chain = ChainKey {
        run: call.run,
        tool: call.tool,
        step: call.step,
        attempt: call.attempt,
        origin: call.origin,
    };
    World {
        servers,
        store,
        client,
        chain,
    }
}

impl World {
    async fn dispatch(&self) {
        let write = JournalAppend {
            run: self.chain.run.clone(),
            subject: JournalSubject::Call(self.chain.clone()),
            expected: Seq::NONE,
            body: Bytes::from_static(b"commit"),
            call: Some(Bytes::from_static(CALL.trim_end().as_bytes())),
        };
        assert_eq!(self.store.append(write).await.unwrap().seq, Seq(1));
    }

    fn worker(&self) -> WorkerId {
        WorkerId::new("payments.1").unwrap()
    }

    async fn stored(&self, stream: &str, seq: u64) -> (String, HeaderMap, Bytes) {
        let jetstream = async_nats::jetstream::new(self.client.clone());
        let stream = jetstream.get_stream(stream).await.unwrap();
        let message = stream.get_raw_message(seq).await.unwrap();
        (
            message.subject.to_string(),
            message.headers,
            message.payload,
        )
    }

    /// What is sent to the server from here on.
    async fn listen(&self, subject: &str) -> Subscriber {
        let subscriber = self.client.subscribe(subject.to_owned()).await.unwrap();
        // The server takes one connection's words in their order: after its answer it knows of the subscription.
        let info = self.client.request("$JS.API.INFO", Bytes::new());
        info.await.unwrap();
        subscriber
    }
}

async fn heard(listener: &mut Subscriber) -> Message {
    tokio::time::timeout(LONG, listener.next())
        .await
        .expect("nothing was sent")
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn contract_subjects_headers_and_bodies_of_an_attempt() {
    let world = world().await;
    world.dispatch().await;
    let writer = Writer::Worker(world.worker());
    let (claim, outcome) = (CLAIM.trim_end(), OUTCOME.trim_end());
    for (register, expected, body) in [
        (Register::Claim, Seq(1), claim),
        (Register::Outcome, Seq(2), outcome),
    ] {
        let body = Bytes::from_static(body.as_bytes());
        let written = world
            .store
            .write_register(&world.chain, register, &writer, expected, body);
        written.await.unwrap();
    }
    let note = world
        .store
        .write_note(&world.chain, &writer, Bytes::from_static(b"{}"), false);
    note.await.unwrap();

    let mut subjects = Vec::new();
    let headers = [
        block("call.header"),
        block("claim.headers"),
        block("outcome.headers"),
        block("note.headers"),
    ];
    for (seq, wanted) in (1..).zip(headers) {
        let (subject, headers, payload) = world.stored("LH_2", seq).await;
        subjects.push(subject);
        let mut found = shown(&headers);
        if seq == 1 {
            // What a node expects of its journal is nothing to a worker.
            found.retain(|header| header.starts_with("Lh-"));
        }
        assert_eq!(found, sorted(wanted));
        match seq {
            2 => assert_eq!(payload, claim),
            3 => assert_eq!(payload, outcome),
            _ => {}
        }
    }
    assert_eq!(subjects, block("subjects"));
}

#[tokio::test(flavor = "multi_thread")]
async fn contract_the_pools_consumer_and_what_it_is_asked() {
    let world = world().await;
    world.dispatch().await;
    let mut pulls = world.listen("$JS.API.CONSUMER.MSG.NEXT.LH_2.>").await;
    let tools = ["refund_order".to_owned()];
    let delivery = world.store.next_call(&tools).await.unwrap();
    assert_eq!(delivery.call, CALL.trim_end());

    let pull = heard(&mut pulls).await;
    assert_eq!(pull.subject.as_str(), line("pull.subject"));
    assert_eq!(pull.payload, line("pull.body"));

    let name = line("consumer.name");
    let question = format!("$JS.API.CONSUMER.INFO.LH_2.{name}");
    let answer = world.client.request(question, Bytes::new()).await.unwrap();
    let info: Value = serde_json::from_slice(&answer.payload).unwrap();
    let config: Value = serde_json::from_str(line("consumer.config")).unwrap();
    for (field, value) in config.as_object().unwrap() {
        assert_eq!(&info["config"][field], value, "{field}: {info}");
    }
    // What a worker makes by the document is the same consumer, whoever was first.
    let create = format!("$JS.API.CONSUMER.CREATE.LH_2.{name}");
    let body = serde_json::json!({"stream_name": "LH_2", "config": config}).to_string();
    let answer = world.client.request(create, body.into()).await.unwrap();
    let made: Value = serde_json::from_slice(&answer.payload).unwrap();
    assert_eq!(made["error"], Value::Null, "{made}");
    assert_eq!(made["num_ack_pending"], 1, "its state is kept: {made}");
    assert_eq!(made["config"], info["config"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn contract_the_shard_count_stands_in_the_streams_metadata() {
    let world = world().await;
    let jetstream = async_nats::jetstream::new(world.client.clone());
    let stream = jetstream.get_stream("LH_0").await.unwrap();
    let metadata = &stream.cached_info().config.metadata;
    assert_eq!(metadata["leasehold.shards"], SHARDS.to_string());
    assert_eq!(
        metadata["leasehold.cluster"],
        world.store.cluster().to_string()
    );
    for name in ["leasehold.shards", "leasehold.cluster"] {
        assert!(DOCUMENT.contains(&format!("`{name}`")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn contract_chain_and_notes_are_read_from_the_first_message_on() {
    let world = world().await;
    world.dispatch().await;
    let mut reads = world.listen("$JS.API.DIRECT.GET.>").await;
    let chain = world.store.read_chain(&world.chain).await.unwrap();
    assert_eq!(chain.len(), 1);
    let read = heard(&mut reads).await;
    assert_eq!(read.subject.as_str(), line("read.subject"));
    assert_eq!(read.payload, line("read.body"));
    world.store.read_notes(&world.chain).await.unwrap();
    let read: Value = serde_json::from_slice(&heard(&mut reads).await.payload).unwrap();
    assert_eq!(read["next_by_subj"], line("note.filter"));
}

#[tokio::test(flavor = "multi_thread")]
async fn contract_blobs() {
    let world = world().await;
    let value = Bytes::from_static(b"a large value");
    world.store.put_blob(value.clone()).await.unwrap();
    let (subject, headers, payload) = world.stored("LHA", 1).await;
    assert_eq!(subject, line("blob.subject"));
    assert_eq!(shown(&headers), sorted(block("blob.headers")));
    assert_eq!(payload, value);
}

#[tokio::test(flavor = "multi_thread")]
async fn contract_questions_of_a_worker_in_a_domains_account() {
    let world = world().await;
    world.store.answer_workers();
    world.dispatch().await;
    let blob = Bytes::from_static(b"a large value");
    let blob = world.store.put_blob(blob).await.unwrap();
    let mut asked = world.listen("lh.ask.>").await;
    let target = Target {
        account: Account::Domain(world.worker()),
        ..world.servers.target()
    };
    let options = Options::new(target, "asker", Arc::new(SystemClock));
    let asker = NatsStore::open(options).await.unwrap();
    asker.read_chain(&world.chain).await.unwrap();
    asker.read_notes(&world.chain).await.unwrap();
    asker.logbook_mark(&world.worker()).await.unwrap();
    asker.get_blob(&blob).await.unwrap().unwrap();
    asker.next_call(&["refund_order".to_owned()]).await.unwrap();
    let wanted = block("ask.subjects");
    let (pool, others) = wanted.split_last().unwrap();
    for subject in others {
        let question = heard(&mut asked).await;
        assert_eq!(question.subject.as_str(), *subject);
        assert!(question.payload.is_empty());
    }
    for _ in 0..SHARDS {
        let question = heard(&mut asked).await;
        if question.subject.as_str() == *pool {
            assert_eq!(&question.payload[..], br#"["refund_order"]"#);
            return;
        }
    }
    panic!("the pool was not asked for");
}

#[tokio::test(flavor = "multi_thread")]
async fn contract_a_workers_liveness_record() {
    let world = world().await;
    let session = Session::start(SessionOptions {
        target: world.servers.target(),
        role: Role::Worker {
            domain: "default".to_owned(),
            worker: world.worker(),
        },
        session: SessionId::new("i-3").unwrap(),
        ttl: Duration::from_secs(30),
        clock_bound: Duration::ZERO,
        clock: Arc::new(SystemClock),
    });
    let session = session.await.unwrap();
    let (subject, headers, payload) = world.stored("LHS", 1).await;
    assert_eq!(subject, line("live.subject"));
    assert_eq!(shown(&headers), sorted(block("live.headers")));
    let own = format!("\"pid\":{},", std::process::id());
    let text = String::from_utf8(payload.to_vec()).unwrap();
    assert_eq!(text.replace(&own, "\"pid\":4711,"), line("live.body"));

    session.end();
    let (_, headers, payload) = world.stored("LHS", 2).await;
    assert!(payload.is_empty());
    for header in ["KV-Operation: DEL", "Nats-TTL: 604800s"] {
        assert!(shown(&headers).contains(&header.to_owned()), "{header}");
        assert!(DOCUMENT.contains(&format!("`{header}`")), "{header}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn contract_the_mark_of_a_workers_logbook() {
    let world = world().await;
    let mark = LogbookMark {
        v: WIRE_VERSION,
        id: LogbookId::new("lb-1").unwrap(),
        boot: "b-7".to_owned(),
        head: Seq(42),
    };
    let worker = world.worker();
    let written = world.store.put_logbook_mark(&worker, Seq::NONE, &mark);
    written.await.unwrap();
    let (subject, headers, payload) = world.stored("LHS", 1).await;
    assert_eq!(subject, line("mark.subject"));
    assert_eq!(
        shown(&headers),
        ["Nats-Expected-Last-Subject-Sequence: 0".to_owned()]
    );
    assert_eq!(payload, line("mark.body"));
}

#[tokio::test(flavor = "multi_thread")]
async fn contract_inspections() {
    let world = world().await;
    let [running, settled] = block("inspect.answers")[..] else {
        panic!("two answers")
    };
    // The document's worker answers the store's question.
    let mut questions = world.listen(line("inspect.subject")).await;
    for (answer, expected) in [
        (running, InspectAnswer::Running),
        (settled, InspectAnswer::Settled),
    ] {
        let answering = async {
            let question = heard(&mut questions).await;
            assert_eq!(question.payload, line("inspect.question"));
            let reply = question.reply.unwrap();
            world.client.publish(reply, answer.into()).await.unwrap();
            world.client.flush().await.unwrap();
        };
        let worker = world.worker();
        let (found, ()) = tokio::join!(world.store.inspect(&world.chain, &worker), answering);
        assert_eq!(found, expected);
    }
    drop(questions);

    // The store's worker answers the document's question.
    let mut asked = world.store.inspections(&world.worker());
    let asking = async {
        // The store listens a moment after it was told to.
        loop {
            let question = Bytes::from_static(line("inspect.question").as_bytes());
            let asked = world.client.request(line("inspect.subject"), question);
            match asked.await {
                Ok(answer) => return answer,
                Err(error) => assert_eq!(error.kind(), RequestErrorKind::NoResponders),
            }
        }
    };
    let answering = async {
        let inspection = asked.recv().await.unwrap();
        assert_eq!(inspection.chain, world.chain);
        inspection.answer.send(InspectAnswer::Running).unwrap();
    };
    let both = async { tokio::join!(asking, answering) };
    let (answer, ()) = tokio::time::timeout(LONG, both)
        .await
        .expect("no answer came");
    assert_eq!(answer.payload, running);
}
