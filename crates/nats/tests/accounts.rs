//! The shipped accounts, on a real server: a worker in its domain's account does all that a worker does, and what nobody may do does not
//! happen, by whatever way.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "test code"
)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, HeaderMap, Message, StatusCode, jetstream};
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
use tokio::sync::mpsc;

const ONE: &str = include_str!("../../../cluster/nats/one.conf");
const ACCOUNTS: &str = include_str!("../../../cluster/nats/accounts.conf");
/// The consumer of the shipped plan's payments domain, and the one of its mail domain.
const POOL: &str = "pool_payments_75670ef8d72a3dd4";
const MAIL_POOL: &str = "pool_mail_5e435eea763ad601";
/// Longer than anything takes that does happen.
const LONG: Duration = Duration::from_secs(20);

/// One server, as shipped, with the line about accounts that its file has as a comment.
async fn shipped() -> Server {
    shipped_with(ACCOUNTS).await
}

async fn shipped_with(accounts: &str) -> Server {
    let users = ["NODE", "PAY_1", "PAY_2", "MAIL_1", "DESK", "ANA"];
    let passwords = users
        .iter()
        .map(|user| (format!("PASSWORD_{user}"), password(user)));
    let values = [
        ("NAME".to_owned(), "one".to_owned()),
        ("MONITOR".to_owned(), "\"127.0.0.1:-1\"".to_owned()),
        ("MAX_FILE".to_owned(), "1GB".to_owned()),
    ];
    let values: Vec<(String, String)> = passwords
        .chain(values)
        .map(|(name, value)| (format!("LEASEHOLD_NATS_{name}"), value))
        .collect();
    let one = ONE.replace("# include accounts.conf", "include accounts.conf");
    assert_ne!(one, ONE);
    configured(&[("one.conf", &one), ("accounts.conf", accounts)], &values).await
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
    let server = shipped().await;
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
    let server = shipped_with(&ACCOUNTS.replacen(granted, "\"lh.ask.cluster.other\"", 1)).await;
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
    assert!(error.contains("$JS.API.STREAM.INFO.LH_0"), "{error}");
    assert!(error.contains("--domain"), "{error}");
    drop(node);
}

/// A client that knows no rules, and what the server said against it.
struct Raw {
    user: String,
    client: Client,
    denied: mpsc::UnboundedReceiver<String>,
}

/// What came of an operation.
#[derive(Debug, PartialEq, Eq)]
enum Got {
    /// The server did not let the message pass, or nobody listens where it went.
    Refused,
    /// It was answered, and no error.
    Answered,
    /// It was answered with an error.
    Error,
    /// Nobody was asked for an answer.
    Sent,
}

impl Raw {
    async fn connect(server: &Server, user: &str) -> Self {
        let (tell, denied) = mpsc::unbounded_channel();
        let client = ConnectOptions::new()
            .user_and_password(user.to_owned(), password(user))
            .custom_inbox_prefix(format!("_INBOX.{user}"))
            .event_callback(move |event| {
                if let Event::ServerError(error) = event {
                    let _ = tell.send(error.to_string());
                }
                std::future::ready(())
            })
            .connect(&server.url)
            .await
            .unwrap();
        let user = user.to_owned();
        Self {
            user,
            client,
            denied,
        }
    }

    async fn try_it(&mut self, operation: &Operation) -> Got {
        while self.denied.try_recv().is_ok() {}
        let Operation::Publish {
            subject,
            reply,
            headers,
            body,
        } = operation
        else {
            let Operation::Subscribe(subject) = operation else {
                unreachable!()
            };
            let _subscribed = self.client.subscribe(subject.clone()).await.unwrap();
            self.client.flush().await.unwrap();
            return match tokio::time::timeout(LONG, self.denied.recv()).await {
                Ok(_) => Got::Refused,
                Err(_) => Got::Sent,
            };
        };
        let mut with = HeaderMap::new();
        for (name, value) in headers {
            with.insert(*name, *value);
        }
        let (client, body) = (&self.client, Bytes::copy_from_slice(body.as_bytes()));
        let inbox = client.new_inbox();
        let mut answers = client.subscribe(inbox.clone()).await.unwrap();
        let to = reply.clone().unwrap_or(inbox);
        client
            .publish_with_reply_and_headers(subject.clone(), to, with, body)
            .await
            .unwrap();
        client.flush().await.unwrap();
        if reply.is_some() {
            return Got::Sent;
        }
        tokio::select! {
            _ = self.denied.recv() => Got::Refused,
            answer = answers.next() => got(&answer.unwrap()),
            () = tokio::time::sleep(LONG) => panic!("{}: neither refused nor answered: {operation:?}", self.user),
        }
    }
}

fn got(answer: &Message) -> Got {
    let has = |name: &str| {
        let headers = answer.headers.as_ref();
        headers.is_some_and(|headers| headers.get(name).is_some())
    };
    match answer.status {
        Some(StatusCode::NO_RESPONDERS) => Got::Refused,
        Some(status) if status.as_u16() >= 400 => Got::Error,
        _ if has("Lh-Failed") => Got::Error,
        _ if String::from_utf8_lossy(&answer.payload).contains("\"error\"") => Got::Error,
        _ => Got::Answered,
    }
}

#[derive(Debug)]
enum Operation {
    Publish {
        subject: String,
        reply: Option<String>,
        headers: Vec<(&'static str, &'static str)>,
        body: String,
    },
    Subscribe(String),
}

/// One line of the table: who tries what, what comes of it, and the subjects that hold a message more afterwards.
struct Row {
    name: &'static str,
    user: &'static str,
    operation: Operation,
    got: Got,
    adds: &'static [&'static str],
}

fn publish(subject: &str, body: &str) -> Operation {
    Operation::Publish {
        subject: subject.to_owned(),
        reply: None,
        headers: Vec::new(),
        body: body.to_owned(),
    }
}

impl Operation {
    fn header(mut self, name: &'static str, value: &'static str) -> Self {
        if let Operation::Publish { headers, .. } = &mut self {
            headers.push((name, value));
        }
        self
    }
    /// The server's answer is to go there.
    fn answered_at(mut self, subject: &str) -> Self {
        if let Operation::Publish { reply, .. } = &mut self {
            *reply = Some(subject.to_owned());
        }
        self
    }
}

fn subscribe(subject: &str) -> Operation {
    Operation::Subscribe(subject.to_owned())
}

fn allowed(
    name: &'static str,
    user: &'static str,
    operation: Operation,
    adds: &'static [&'static str],
) -> Row {
    Row {
        name,
        user,
        operation,
        got: Got::Answered,
        adds,
    }
}

fn refused(name: &'static str, user: &'static str, operation: Operation) -> Row {
    Row {
        got: Got::Refused,
        ..allowed(name, user, operation, &[])
    }
}

/// It reaches somebody, who says no.
fn answered_no(name: &'static str, user: &'static str, operation: Operation) -> Row {
    Row {
        got: Got::Error,
        ..allowed(name, user, operation, &[])
    }
}

/// The server's answer is named a subject to go to: it does not go there.
fn deputy(
    name: &'static str,
    user: &'static str,
    operation: Operation,
    adds: &'static [&'static str],
) -> Row {
    Row {
        got: Got::Sent,
        ..allowed(name, user, operation, adds)
    }
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

fn rows(ack: &str) -> Vec<Row> {
    let call = "charge_5Fcard.1-0.1.s-1";
    let register = |what: &str, writer: &str| format!("lh.0.run.r.w.{what}.{call}.{writer}");
    let claim = register("claim", "pay-1");
    let pull = format!("$JS.API.CONSUMER.MSG.NEXT.LH_0.{POOL}");
    let now = r#"{"batch":1,"no_wait":true}"#;
    let chain = "lh.ask.chain.r.charge_5Fcard.1-0.1.s-1";
    vec![
        // A worker: what it may.
        allowed(
            "a worker has its pool made",
            "pay-1",
            publish(
                &format!("lh.ask.pool.0.{POOL}"),
                r#"["refund_order","charge_card"]"#,
            ),
            &[],
        ),
        allowed(
            "a worker claims under its own name",
            "pay-1",
            publish(&claim, "c").header("Nats-Expected-Last-Subject-Sequence", "0"),
            &["lh.0.run.r.w.claim.charge_5Fcard.1-0.1.s-1.pay-1"],
        ),
        allowed(
            "a worker writes its outcome",
            "pay-1",
            publish(&register("outcome", "pay-1"), "o"),
            &["lh.0.run.r.w.outcome.charge_5Fcard.1-0.1.s-1.pay-1"],
        ),
        allowed(
            "a worker writes a note",
            "pay-1",
            publish(&register("evidence", "pay-1.0"), "n"),
            &["lh.0.run.r.w.evidence.charge_5Fcard.1-0.1.s-1.pay-1.0"],
        ),
        allowed(
            "a worker is alive",
            "pay-1",
            publish("lh.ws.payments.pay-1.live", "l").header("Nats-TTL", "3600s"),
            &["lh.ws.payments.pay-1.live"],
        ),
        allowed(
            "a worker marks its logbook",
            "pay-1",
            publish("lh.ws.payments.pay-1.logbook", "m"),
            &["lh.ws.payments.pay-1.logbook"],
        ),
        allowed(
            "a worker stores a piece of a blob",
            "pay-1",
            publish("lh.a.aa.0", "b"),
            &["lh.a.aa.0"],
        ),
        allowed(
            "a worker reads a chain of its tools",
            "pay-1",
            publish(chain, ""),
            &[],
        ),
        allowed(
            "a worker reads notes of its tools",
            "pay-1",
            publish("lh.ask.notes.r.charge_5Fcard.1-0.1.s-1", ""),
            &[],
        ),
        allowed(
            "a worker reads its own record",
            "pay-1",
            publish("lh.ask.last.lh.ws.payments.pay-1.live", ""),
            &[],
        ),
        allowed(
            "a worker asks what the cluster is",
            "pay-1",
            publish("lh.ask.cluster.pay-1", ""),
            &[],
        ),
        // A worker: what it may not.
        refused("a worker writes a journal", "pay-1", publish(NOTE, "x")),
        refused(
            "a worker dispatches a call",
            "pay-1",
            publish("lh.0.run.r.j.call.charge_5Fcard.9-0.1.s-1._", "x"),
        ),
        refused(
            "a worker claims under another's name",
            "pay-1",
            publish(&register("claim", "pay-2"), "x"),
        ),
        refused(
            "a worker revokes as an owner does",
            "pay-1",
            publish(&register("claim", "_rt"), "x"),
        ),
        refused(
            "a worker seals as an owner does",
            "pay-1",
            publish(&register("outcome", "_rt"), "x"),
        ),
        refused(
            "a worker writes another's outcome",
            "pay-1",
            publish(&register("outcome", "pay-2"), "x"),
        ),
        refused(
            "a worker writes a note under another's name",
            "pay-1",
            publish(&register("evidence", "pay-2.0"), "x"),
        ),
        refused(
            "a worker claims another domain's call",
            "pay-1",
            publish("lh.0.run.r.w.claim.send_5Fmail.1-1.1.s-1.pay-1", "x"),
        ),
        refused(
            "a worker pulls another domain's calls",
            "pay-1",
            publish(&format!("$JS.API.CONSUMER.MSG.NEXT.LH_0.{MAIL_POOL}"), now),
        ),
        refused(
            "a worker pulls from a consumer of the nodes",
            "pay-1",
            publish("$JS.API.CONSUMER.MSG.NEXT.LHI_0.nodes", now),
        ),
        refused(
            "a worker has another domain's pool made",
            "pay-1",
            publish(&format!("lh.ask.pool.0.{MAIL_POOL}"), r#"["send_mail"]"#),
        ),
        answered_no(
            "a worker has a consumer of other tools made under its pool's name",
            "pay-1",
            publish(&format!("lh.ask.pool.0.{POOL}"), r#"["send_mail"]"#),
        ),
        refused(
            "a worker makes a consumer",
            "pay-1",
            publish(
                "$JS.API.CONSUMER.CREATE.LH_0.own",
                r#"{"stream_name":"LH_0","config":{"durable_name":"own"}}"#,
            ),
        ),
        refused(
            "a worker removes a consumer",
            "pay-1",
            publish(&format!("$JS.API.CONSUMER.DELETE.LH_0.{POOL}"), ""),
        ),
        refused(
            "a worker acknowledges what was not delivered to it",
            "pay-2",
            publish(ack, "+ACK"),
        ),
        refused(
            "a worker reads by a filter of its own",
            "pay-1",
            publish(
                "$JS.API.DIRECT.GET.LH_0",
                r#"{"batch":10,"next_by_subj":">","seq":1}"#,
            ),
        ),
        refused(
            "a worker reads by subject",
            "pay-1",
            publish("$JS.API.DIRECT.GET.LH_0.lh.0.run.r.j.open", ""),
        ),
        refused(
            "a worker reads from the leader",
            "pay-1",
            publish("$JS.API.STREAM.MSG.GET.LH_0", r#"{"seq":1}"#),
        ),
        refused(
            "a worker looks at a stream",
            "pay-1",
            publish("$JS.API.STREAM.INFO.LH_0", r#"{"subjects_filter":">"}"#),
        ),
        refused(
            "a worker lists streams",
            "pay-1",
            publish("$JS.API.STREAM.NAMES", ""),
        ),
        refused(
            "a worker reads another domain's chain, arguments and all",
            "pay-1",
            publish("lh.ask.chain.r.send_5Fmail.1-1.1.s-1", ""),
        ),
        refused(
            "a worker reads another domain's notes",
            "pay-1",
            publish("lh.ask.notes.r.send_5Fmail.1-1.1.s-1", ""),
        ),
        answered_no(
            "a worker reads the chains of all runs at once",
            "pay-1",
            publish("lh.ask.chain.*.charge_5Fcard.1-0.1.s-1", ""),
        ),
        answered_no(
            "a worker reads every blob at once",
            "pay-1",
            publish("lh.ask.piece.*.0", ""),
        ),
        refused(
            "a worker reads another's record",
            "pay-1",
            publish("lh.ask.last.lh.ws.payments.pay-2.live", ""),
        ),
        refused(
            "a worker reads a lease",
            "pay-1",
            publish("$JS.API.DIRECT.GET.KV_LH_LEASES.$KV.LH_LEASES.r", ""),
        ),
        refused(
            "a worker writes a lease",
            "pay-1",
            publish("$KV.LH_LEASES.r", "x"),
        ),
        refused(
            "a worker writes a node's session",
            "pay-1",
            publish("$KV.LH_SESSIONS.s-1", "x"),
        ),
        refused(
            "a worker is alive as another",
            "pay-1",
            publish("lh.ws.payments.pay-2.live", "x"),
        ),
        refused(
            "a worker marks another domain's logbook",
            "pay-1",
            publish("lh.ws.mail.mail-1.logbook", "x"),
        ),
        refused(
            "a worker submits a run",
            "pay-1",
            publish("lh.0.in.r2.pay-1", "x"),
        ),
        refused(
            "a worker decides",
            "pay-1",
            publish("lh.0.d.r.1-0_2E1.pay-1", "x"),
        ),
        refused("a worker cancels", "pay-1", publish("lh.0.c.r.pay-1", "x")),
        refused("a worker sets a timer", "pay-1", publish("lh.0.ts.r", "x")),
        refused(
            "a worker purges a stream",
            "pay-1",
            publish("$JS.API.STREAM.PURGE.LH_0", ""),
        ),
        refused(
            "a worker deletes a stream",
            "pay-1",
            publish("$JS.API.STREAM.DELETE.LH_0", ""),
        ),
        refused(
            "a worker changes a stream",
            "pay-1",
            publish("$JS.API.STREAM.UPDATE.LH_0", "{}"),
        ),
        refused(
            "a worker deletes a message",
            "pay-1",
            publish("$JS.API.STREAM.MSG.DELETE.LH_0", r#"{"seq":1}"#),
        ),
        refused(
            "a worker answers in a node's place",
            "pay-1",
            publish("lh.ask.chain.r.charge_5Fcard.1-0.1.s-1.x", "x"),
        ),
        refused(
            "a worker asks a worker",
            "pay-1",
            publish("lh.worker.payments.pay-2.inspect", "x"),
        ),
        refused(
            "a worker forges a hint",
            "pay-1",
            publish("lh.0.stored.r.w.claim.charge_5Fcard.1-0.1.s-1.pay-1", "x"),
        ),
        refused(
            "a worker hands a node mail",
            "pay-1",
            publish("lh.node.s-1.mail", "x"),
        ),
        refused(
            "a worker writes into another's answers",
            "pay-1",
            publish("_INBOX.pay-2.x", "x"),
        ),
        refused("a worker listens to everything", "pay-1", subscribe(">")),
        refused(
            "a worker listens to all answers",
            "pay-1",
            subscribe("_INBOX.>"),
        ),
        refused(
            "a worker listens to another's answers",
            "pay-1",
            subscribe("_INBOX.pay-2.>"),
        ),
        refused(
            "a worker is asked in another's place",
            "pay-1",
            subscribe("lh.worker.payments.pay-2.inspect"),
        ),
        refused(
            "a worker listens to what is stored",
            "pay-1",
            subscribe("lh.*.stored.>"),
        ),
        refused(
            "a worker hears the domain's questions",
            "pay-1",
            subscribe("lh.ask.>"),
        ),
        // Headers that make the server do more than store.
        answered_no(
            "a claim that goes away by itself",
            "pay-1",
            publish(&claim, "x").header("Nats-TTL", "1s"),
        ),
        answered_no(
            "a claim that removes the shard's records",
            "pay-1",
            publish(&claim, "x").header("Nats-Rollup", "all"),
        ),
        answered_no(
            "a claim that schedules a journal's record",
            "pay-1",
            publish(&claim, "x")
                .header("Nats-Schedule", "@at 2020-01-01T00:00:00Z")
                .header("Nats-Schedule-Target", NOTE),
        ),
        answered_no(
            "a record that removes those of all workers",
            "pay-1",
            publish("lh.ws.payments.pay-1.live", "x").header("Nats-Rollup", "all"),
        ),
        answered_no(
            "a blob that removes all blobs",
            "pay-1",
            publish("lh.a.bb.0", "x").header("Nats-Rollup", "all"),
        ),
        answered_no("a blob over another", "pay-1", publish("lh.a.aa.0", "x")),
        // The server's answer, sent where the worker may not write.
        deputy(
            "a claim's answer into a journal",
            "pay-1",
            publish(&register("claim", "pay-1"), "again").answered_at(NOTE),
            &["lh.0.run.r.w.claim.charge_5Fcard.1-0.1.s-1.pay-1"],
        ),
        deputy(
            "an outcome's answer into another's register",
            "pay-1",
            publish(&register("outcome", "pay-1"), "again")
                .answered_at("lh.0.run.r.w.outcome.charge_5Fcard.1-0.1.s-1.pay-2"),
            &["lh.0.run.r.w.outcome.charge_5Fcard.1-0.1.s-1.pay-1"],
        ),
        deputy(
            "a pull's answer into a journal",
            "pay-1",
            publish(&pull, now).answered_at(NOTE),
            &[],
        ),
        deputy(
            "an acknowledgement's answer into a journal",
            "pay-1",
            publish(ack, "+ACK").answered_at(NOTE),
            &[],
        ),
        deputy(
            "an acknowledgement's next delivery into a journal",
            "pay-1",
            publish(ack, r#"+NXT {"batch":1,"no_wait":true}"#).answered_at(NOTE),
            &[],
        ),
        deputy(
            "a node's answer into a journal",
            "pay-1",
            publish(chain, "").answered_at(NOTE),
            &[],
        ),
        deputy(
            "a node's answer into a lease",
            "pay-1",
            publish(chain, "").answered_at("$KV.LH_LEASES.r"),
            &[],
        ),
        deputy(
            "a node's answer into another's claim",
            "pay-1",
            publish(chain, "").answered_at("lh.0.run.r.w.claim.charge_5Fcard.1-0.1.s-1.pay-2"),
            &[],
        ),
        deputy(
            "a record's answer into another's record",
            "pay-1",
            publish("lh.ws.payments.pay-1.live", "x").answered_at("lh.ws.payments.pay-2.live"),
            &[],
        ),
        // Another domain.
        allowed(
            "a worker of the other domain claims its own call",
            "mail-1",
            publish("lh.0.run.r.w.claim.send_5Fmail.1-1.1.s-1.mail-1", "c"),
            &["lh.0.run.r.w.claim.send_5Fmail.1-1.1.s-1.mail-1"],
        ),
        refused(
            "a worker of the other domain claims a payment",
            "mail-1",
            publish(&register("claim", "mail-1"), "x"),
        ),
        refused(
            "a worker of the other domain reads a payment",
            "mail-1",
            publish(chain, ""),
        ),
        // Clients.
        allowed(
            "a client submits",
            "desk",
            publish("lh.0.in.r2.desk", "s"),
            &["lh.0.in.r2.desk"],
        ),
        answered_no(
            "a client submits over its own submission",
            "desk",
            publish("lh.0.in.r2.desk", "other"),
        ),
        refused(
            "a client submits as another",
            "desk",
            publish("lh.0.in.r3.other", "x"),
        ),
        refused(
            "a client decides",
            "desk",
            publish("lh.0.d.r.1-0_2E1.desk", "x"),
        ),
        refused(
            "a client decides as an operator",
            "desk",
            publish("lh.0.d.r.1-0_2E1.ana", "x"),
        ),
        refused("a client cancels", "desk", publish("lh.0.c.r.desk", "x")),
        refused("a client writes a journal", "desk", publish(NOTE, "x")),
        refused(
            "a client reads a submission",
            "desk",
            publish("$JS.API.DIRECT.GET.LHI_0.lh.0.in.r2.desk", ""),
        ),
        refused(
            "a client claims a call",
            "desk",
            publish(&register("claim", "desk"), "x"),
        ),
        refused("a client asks a node", "desk", publish(chain, "")),
        refused(
            "a client deletes a stream",
            "desk",
            publish("$JS.API.STREAM.DELETE.LHI_0", ""),
        ),
        refused("a client listens to everything", "desk", subscribe(">")),
        answered_no(
            "a submission that removes all others",
            "desk",
            publish("lh.0.in.r4.desk", "x").header("Nats-Rollup", "all"),
        ),
        deputy(
            "a submission's answer into a journal",
            "desk",
            publish("lh.0.in.r5.desk", "s").answered_at(NOTE),
            &["lh.0.in.r5.desk"],
        ),
        // Operators.
        allowed(
            "an operator decides",
            "ana",
            publish("lh.0.d.r.1-0_2E1.ana", "d"),
            &["lh.0.d.r.1-0_2E1.ana"],
        ),
        allowed(
            "an operator cancels",
            "ana",
            publish("lh.0.c.r.ana", "c"),
            &["lh.0.c.r.ana"],
        ),
        answered_no(
            "an operator decides once more",
            "ana",
            publish("lh.0.d.r.1-0_2E1.ana", "other"),
        ),
        refused(
            "an operator decides as another",
            "ana",
            publish("lh.0.d.r.1-0_2E1.ben", "x"),
        ),
        refused(
            "an operator cancels as another",
            "ana",
            publish("lh.0.c.r.ben", "x"),
        ),
        refused("an operator submits", "ana", publish("lh.0.in.r6.ana", "x")),
        refused("an operator writes a journal", "ana", publish(NOTE, "x")),
        refused(
            "an operator writes an outcome",
            "ana",
            publish(&register("outcome", "_rt"), "x"),
        ),
        refused("an operator pulls calls", "ana", publish(&pull, now)),
        refused(
            "an operator reads a stream",
            "ana",
            publish("$JS.API.STREAM.MSG.GET.LH_0", r#"{"seq":1}"#),
        ),
        refused(
            "an operator purges the inbox",
            "ana",
            publish("$JS.API.STREAM.PURGE.LHI_0", ""),
        ),
        refused("an operator listens to everything", "ana", subscribe(">")),
        deputy(
            "a decision's answer into a journal",
            "ana",
            publish("lh.0.d.r.1-0_2E2.ana", "d").answered_at(NOTE),
            &["lh.0.d.r.1-0_2E2.ana"],
        ),
    ]
}

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
    let server = shipped_with(one).await;
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
    // The claim's acknowledgement, the chain (a call and a claim) and its end.
    let mut found = 0;
    for _ in 0..200 {
        found = everything(&nats).await.get(NOTE).copied().unwrap_or(0);
        if found >= 4 {
            break;
        }
    }
    assert_eq!((before.get(NOTE), found), (None, 4));
}
