//! The shipped accounts, on a real server: a worker in its domain's account does all that a worker does, and what nobody may do does not
//! happen, by whatever way.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "test code"
)]

#[path = "../common/mod.rs"]
mod common;
mod raw;
mod rows;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use bytes::Bytes;
use common::{Server, configured};
use futures_util::{StreamExt as _, TryStreamExt as _};
use leasehold_json::Digest;
use leasehold_nats::{
    Account, LogbookMark, NatsStore, Options, Role, Session, SessionOptions, StartError, Target,
    Wish,
};
use leasehold_protocol::{
    ChainKey, InspectAnswer, JournalSubject, LogbookId, RunId, Seq, SessionId, WIRE_VERSION,
    WorkerId, Writer,
};
use leasehold_store::{
    Blobs as _, CallQueue as _, Inspections as _, JournalAppend, Leases as _, Register,
    Registers as _, RunLog as _, SystemClock,
};
use raw::{Got, Raw};
use rows::rows;

const ONE: &str = include_str!("../../../../cluster/nats/one.conf");
const THREE: &str = include_str!("../../../../cluster/nats/three.conf");
const ACCOUNTS: &str = include_str!("../../../../cluster/nats/accounts.conf");
/// The consumer of the shipped plan's payments domain, and the one of its mail domain.
const POOL: &str = "pool_payments_75670ef8d72a3dd4";
const MAIL_POOL: &str = "pool_mail_5e435eea763ad601";
/// Longer than anything takes that does happen.
const LONG: Duration = Duration::from_secs(20);

/// One server, as shipped, with the line about accounts that its file has as a comment.
async fn shipped() -> Server {
    shipped_with(1, ACCOUNTS).await
}

async fn shipped_with(count: usize, accounts: &str) -> Server {
    let users = ["NODE", "PAY_1", "PAY_2", "MAIL_1", "DESK", "ANA"];
    let values = users.map(|user| {
        let variable = format!("LEASEHOLD_NATS_PASSWORD_{user}");
        (variable, password(user))
    });
    let file = if count == 1 { ONE } else { THREE };
    let shipped = file.replace("# include accounts.conf", "include accounts.conf");
    assert_ne!(shipped, file);
    let files = [("nats.conf", &*shipped), ("accounts.conf", accounts)];
    configured(count, &files, &values).await
}

fn password(user: &str) -> String {
    format!("secret-{}", user.to_lowercase().replace('_', "-"))
}

fn target(server: &Server, user: &str, account: Account) -> Target {
    Target {
        user: Some(user.to_owned()),
        password: Some(password(user)),
        account,
        ..Target::at(server.url.clone())
    }
}

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

async fn node(server: &Server) -> NatsStore {
    let options = Options {
        make: Some(Wish {
            shards: Some(1),
            replicas: None,
        }),
        ..Options::new(
            target(server, "node", Account::Nodes),
            "node",
            Arc::new(SystemClock),
        )
    };
    let store = NatsStore::open(options).await.unwrap();
    store.answer_workers();
    store
}

fn in_domain(server: &Server, domain: &str, name: &str) -> Options {
    let account = Account::Domain(worker(name));
    Options {
        domain: domain.to_owned(),
        ..Options::new(target(server, name, account), name, Arc::new(SystemClock))
    }
}

fn chain(run: &str, tool: &str) -> ChainKey {
    ChainKey {
        run: RunId::new(run).unwrap(),
        tool: tool.to_owned(),
        step: "1-0".parse().unwrap(),
        attempt: "1".parse().unwrap(),
        origin: SessionId::new("s-1").unwrap(),
    }
}

/// Commits a call as a run's only commit.
async fn dispatch(node: &NatsStore, chain: &ChainKey, envelope: &str) -> Seq {
    let write = JournalAppend {
        run: chain.run.clone(),
        subject: JournalSubject::Call(chain.clone()),
        expected: Seq::NONE,
        body: Bytes::from_static(b"what the agent thought"),
        call: Some(Bytes::copy_from_slice(envelope.as_bytes())),
    };
    node.append(write).await.unwrap().seq
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_in_its_domains_account_does_all_that_a_worker_does() {
    does_all(shipped().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_in_its_domains_account_does_all_on_three_servers() {
    does_all(shipped_with(3, ACCOUNTS).await).await;
}

async fn does_all(server: Server) {
    let node = node(&server).await;
    let chain = chain("r", "charge_card");
    let mut hints = node.hints(&chain.origin);
    let store = NatsStore::open(in_domain(&server, "payments", "pay-1")).await;
    let store = store.unwrap();
    assert_eq!(store.cluster(), node.cluster());
    assert_eq!(store.shards(), 1);
    let me = worker("pay-1");
    let session = Session::start(SessionOptions {
        target: target(&server, "pay-1", Account::Domain(me.clone())),
        role: Role::Worker {
            domain: "payments".to_owned(),
            worker: me.clone(),
        },
        session: SessionId::new("i-1").unwrap(),
        ttl: Duration::from_secs(2),
        clock_bound: Duration::from_secs(60),
        clock: Arc::new(SystemClock),
    });
    let session = session.await.unwrap();
    let mark = LogbookMark {
        v: WIRE_VERSION,
        id: LogbookId::new("lb").unwrap(),
        boot: "b".to_owned(),
        head: Seq(1),
    };
    let stood = store.logbook_mark(&me).await.unwrap();
    assert_eq!(stood, (Seq::NONE, None));
    let revision = store.put_logbook_mark(&me, Seq::NONE, &mark).await.unwrap();
    assert_eq!(
        store.logbook_mark(&me).await.unwrap(),
        (revision, Some(mark))
    );

    // Longer than a header holds: it lies in a blob.
    let long = format!("{{\"x\":\"{}\"}}", "y".repeat(1_300_000));
    let call = dispatch(&node, &chain, &long).await;
    let tools = ["refund_order", "charge_card"].map(str::to_owned);
    let delivery = tokio::time::timeout(LONG, store.next_call(&tools)).await;
    let delivery = delivery.unwrap().unwrap();
    assert_eq!((&delivery.chain, delivery.seq), (&chain, call));
    assert_eq!(delivery.call.len(), long.len());

    let own = Writer::Worker(me.clone());
    let body = Bytes::from_static(b"claim");
    let claim = store.write_register(&chain, Register::Claim, &own, call, body.clone());
    let claim = claim.await.unwrap();
    // Another worker of the domain is told that it came too late.
    let other = NatsStore::open(in_domain(&server, "payments", "pay-2")).await;
    let other = other.unwrap();
    let late = Writer::Worker(worker("pay-2"));
    let late = other.write_register(&chain, Register::Claim, &late, call, body.clone());
    late.await.unwrap_err();
    store
        .write_note(&chain, &own, Bytes::from_static(b"note"), false)
        .await
        .unwrap();
    let blob = store.put_blob(Bytes::from("z".repeat(700_000))).await;
    let blob = blob.unwrap();
    let found = store.get_blob(&blob).await.unwrap().unwrap();
    assert_eq!(found.len(), 700_000);
    assert_eq!(store.get_blob(&Digest::of(b"none")).await.unwrap(), None);
    let outcome = store.write_register(&chain, Register::Outcome, &own, claim, body);
    outcome.await.unwrap();
    store.ack_call(&chain, call).await.unwrap();
    store.wake(&chain.run).await;

    // What it reads is what a node reads, word for word.
    for reader in [&store, &other] {
        let read = reader.read_chain(&chain).await.unwrap();
        assert_eq!(read, node.read_chain(&chain).await.unwrap());
        assert_eq!(read.len(), 3);
        let notes = reader.read_notes(&chain).await.unwrap();
        assert_eq!(notes, node.read_notes(&chain).await.unwrap());
        assert_eq!(notes.len(), 1);
    }
    for _ in 0..3 {
        let hint = tokio::time::timeout(LONG, hints.recv()).await;
        assert_eq!(hint.unwrap().unwrap().chain, chain);
    }

    // A node reaches it by its name alone. Nobody listens before the subscription is made.
    let mut asked = store.inspections(&me);
    let answering = tokio::spawn(async move {
        let question = asked.recv().await.unwrap();
        question.answer.send(InspectAnswer::Running).unwrap();
        question.chain
    });
    let mut answer = InspectAnswer::NoAnswer;
    for _ in 0..100 {
        answer = node.inspect(&chain, &me).await;
        if answer != InspectAnswer::NoAnswer {
            break;
        }
    }
    assert_eq!(answer, InspectAnswer::Running);
    assert_eq!(answering.await.unwrap(), chain);

    // The acknowledgement arrived: the consumer has nothing left.
    let raw = Raw::connect(&server, "node").await;
    let jetstream = jetstream::new(raw.client.clone());
    let mut consumer: jetstream::consumer::PullConsumer = jetstream
        .get_consumer_from_stream(POOL, "LH_0")
        .await
        .unwrap();
    for _ in 0..200 {
        if consumer.info().await.unwrap().num_ack_pending == 0 {
            break;
        }
    }
    assert_eq!(consumer.info().await.unwrap().num_ack_pending, 0);
    session.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_node_a_worker_in_a_domain_says_that_none_answers() {
    let server = shipped().await;
    match NatsStore::open(in_domain(&server, "payments", "pay-1")).await {
        Err(error @ StartError::NoNode) => {
            assert!(error.to_string().contains("leasehold node"), "{error}");
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("a cluster out of nothing"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_without_a_permission_says_which_subject_and_what_to_grant() {
    let granted = "\"lh.ask.cluster.pay-1\"";
    let server = shipped_with(
        1,
        &ACCOUNTS.replacen(granted, "\"lh.ask.cluster.other\"", 1),
    )
    .await;
    let node = node(&server).await;
    let refusal = async |options: Options| match NatsStore::open(options).await {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error.to_string(),
    };
    let error = refusal(in_domain(&server, "payments", "pay-1")).await;
    assert!(error.contains("publish to lh.ask.cluster.pay-1"), "{error}");
    assert!(error.contains("leasehold accounts"), "{error}");
    // A worker's user that is used as if it were in the nodes' account.
    let as_node = Options {
        target: target(&server, "pay-2", Account::Nodes),
        ..in_domain(&server, "payments", "pay-2")
    };
    let error = refusal(as_node).await;
    assert!(error.contains("--domain"), "{error}");
    drop(node);
}

/// How many messages each subject of each stream holds.
async fn everything(nats: &jetstream::Context) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    let mut names = nats.stream_names();
    while let Some(name) = names.next().await {
        let name = name.unwrap();
        let stream = nats.get_stream(&name).await.unwrap();
        all.insert(name, 1);
        let subjects = stream.info_with_subjects(">").await.unwrap();
        let subjects: Vec<(String, usize)> = subjects.try_collect().await.unwrap();
        all.extend(subjects);
    }
    all.retain(|subject, _| subject != FENCE);
    all
}

/// A subject of the journals' stream that nobody is after.
const FENCE: &str = "lh.0.run.fence.j.note";
/// A journal subject that everybody is after.
const NOTE: &str = "lh.0.run.r.j.note";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_operation_that_is_allowed_happens_and_none_that_is_forbidden() {
    let server = shipped().await;
    let node = node(&server).await;
    dispatch(&node, &chain("r", "charge_card"), "{}").await;
    dispatch(&node, &chain("r2", "charge_card"), "{}").await;
    dispatch(&node, &chain("r3", "send_mail"), "{}").await;
    let root = Raw::connect(&server, "node").await;
    let nats = jetstream::new(root.client.clone());
    let mut users = BTreeMap::new();
    for user in ["pay-1", "pay-2", "mail-1", "desk", "ana"] {
        users.insert(user, Raw::connect(&server, user).await);
    }

    // A delivery to pay-1, whose acknowledgement the table tries.
    let pay = &users["pay-1"].client;
    let made = pay.request(
        format!("lh.ask.pool.0.{POOL}"),
        r#"["charge_card","refund_order"]"#.into(),
    );
    made.await.unwrap();
    let inbox = pay.new_inbox();
    let mut delivered = pay.subscribe(inbox.clone()).await.unwrap();
    let next = format!("$JS.API.CONSUMER.MSG.NEXT.LH_0.{POOL}");
    pay.publish_with_reply(next, inbox, r#"{"batch":1,"expires":5000000000}"#.into())
        .await
        .unwrap();
    let delivered = tokio::time::timeout(LONG, delivered.next()).await;
    let delivered = delivered.unwrap().unwrap();
    assert!(delivered.headers.unwrap().get("Lh-Call").is_some());
    assert!(
        delivered.payload.is_empty(),
        "calls come without their commit"
    );
    let ack = delivered.reply.unwrap().to_string();
    // Nor does a node hand the commit out.
    let chain = "lh.ask.chain.r.charge_5Fcard.1-0.1.s-1";
    let call = pay.request(chain, Bytes::new()).await.unwrap();
    assert!(call.headers.unwrap().get("Lh-Call").is_some());
    assert!(call.payload.is_empty(), "chains come without their commit");

    let mut wrong = Vec::new();
    for row in rows(&ack) {
        let before = everything(&nats).await;
        let got = users
            .get_mut(row.user)
            .unwrap()
            .try_it(&row.operation)
            .await;
        // Whatever the server sends into a stream because of it is stored before this.
        root.client.flush().await.unwrap();
        nats.publish(FENCE, Bytes::new())
            .await
            .unwrap()
            .await
            .unwrap();
        let after = everything(&nats).await;
        let mut expected = before;
        for subject in row.adds {
            *expected.entry((*subject).to_owned()).or_default() += 1;
        }
        if got != row.got || after != expected {
            let changed: Vec<_> = after
                .iter()
                .filter(|(subject, count)| expected.get(*subject) != Some(count))
                .collect();
            wrong.push(format!(
                "{} ({}): {got:?}, changed {changed:?}",
                row.name, row.user
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The control: what the table shows not to happen does happen to the same user in the nodes' account.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_one_account_a_worker_has_the_servers_answers_stored_in_a_journal() {
    let one = r#"accounts { RUNTIME { jetstream: enabled, users: [
        { user: node, password: $LEASEHOLD_NATS_PASSWORD_NODE }
        { user: pay-1, password: $LEASEHOLD_NATS_PASSWORD_PAY_1, permissions {
            publish { allow: ["lh.*.run.*.w.claim.charge_5Fcard.*.*.*.pay-1", "lh.ask.chain.*.charge_5Fcard.*.*.*"] }
            subscribe { allow: ["_INBOX.pay-1.>"] }
        } }
    ] } }"#;
    let server = shipped_with(1, one).await;
    let node = node(&server).await;
    dispatch(&node, &chain("r", "charge_card"), "{}").await;
    let root = Raw::connect(&server, "node").await;
    let nats = jetstream::new(root.client.clone());
    let mut pay = Raw::connect(&server, "pay-1").await;
    let before = everything(&nats).await;
    let deputies = rows("none").into_iter().filter(|row| {
        [
            "a claim's answer into a journal",
            "a node's answer into a journal",
        ]
        .contains(&row.name)
    });
    for row in deputies {
        assert_eq!(pay.try_it(&row.operation).await, Got::Sent, "{}", row.name);
    }
    // The claim's acknowledgement, and of the node's answer the claim and the end: the call, under its own stored expectation, is refused.
    let mut found = 0;
    for _ in 0..200 {
        found = everything(&nats).await.get(NOTE).copied().unwrap_or(0);
        if found >= 3 {
            break;
        }
    }
    assert_eq!((before.get(NOTE), found), (None, 3));
}
