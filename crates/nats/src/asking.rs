//! Reads of workers whose account reaches no stream: they ask, and a node reads for them.
//!
//! A batched read names its filter in its body, where no account can bound it, and a read by subject shows the last message, where a chain
//! needs the first. So the question stands in the subject, which accounts do bound, and a node answers with all messages that the same read
//! gives itself: in order, each with its stored headers and its position, then one that says how many there were. Calls come without their
//! body: what the agent thought is no worker's business. An answer that is not complete is none, and none decides nothing.
//!
//! | question | answered with |
//! |---|---|
//! | `lh.ask.cluster.<worker>` | what the cluster is, as JSON |
//! | `lh.ask.pool.<s>.<consumer>` | nothing, once the consumer of the tools in the body (a JSON array) is there; its name is their hash |
//! | `lh.ask.chain.<run>.<tool>.<step>.<attempt>.<origin>` | call, claims and outcomes of the attempt |
//! | `lh.ask.notes.<run>.<tool>.<step>.<attempt>.<origin>` | its notes |
//! | `lh.ask.last.lh.ws.<domain>.<worker>.<what>` | a worker's record, if there is one |
//! | `lh.ask.piece.<sha256>.<n>` | a piece of a blob, if it is there |

use std::time::Duration;

use async_nats::header::HeaderMap;
use bytes::Bytes;
use futures_util::StreamExt as _;
use leasehold_json::{AcceptedJson, Digest};
use leasehold_protocol::{ChainKey, ClusterId, Seq, WorkerId};
use leasehold_store::StoreError;
use serde::{Deserialize, Serialize};

use crate::blobs::piece;
use crate::connect::is_connected;
use crate::error::unread;
use crate::feed::Provision as _;
use crate::names::{self, Shard};
use crate::queue::Pool;
use crate::store::NatsStore;
use crate::streams::{BLOBS, Cluster, LIVENESS, MAX_SHARDS};
use crate::wire::{POSITION, SUBJECT, Stored, Wire, direct};

/// Questions that one node answers side by side: what a domain can ask of it at once.
const SIDE_BY_SIDE: usize = 32;
/// How long the next message of an answer is waited for. A node that reads on three servers waits for two of them.
const WAIT: Duration = Duration::from_secs(4);
/// The last message of an answer: how many came before it.
const ANSWERED: &str = "Lh-Answered";
/// Or why there is no answer.
const FAILED: &str = "Lh-Failed";
/// When the message was stored, unix milliseconds.
const AT: &str = "Lh-At";

/// What a worker asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    Cluster(WorkerId),
    Pool(Shard, String),
    Chain(ChainKey),
    Notes(ChainKey),
    Last(String),
    Piece(Digest, usize),
}

impl Question {
    pub(crate) fn subject(&self) -> String {
        match self {
            Question::Cluster(worker) => format!("lh.ask.cluster.{}", worker.token()),
            Question::Pool(shard, consumer) => format!("lh.ask.pool.{shard}.{consumer}"),
            Question::Chain(chain) => format!("lh.ask.chain.{}", names::attempt_of(chain)),
            Question::Notes(chain) => format!("lh.ask.notes.{}", names::attempt_of(chain)),
            Question::Last(subject) => format!("lh.ask.last.{subject}"),
            Question::Piece(digest, n) => format!("lh.ask.piece.{digest}.{n}"),
        }
    }

    /// Reads a question back; one that names more than one thing is none.
    fn read(subject: &str) -> Option<Self> {
        let tokens: Vec<&str> = subject.split('.').collect();
        match *tokens.as_slice() {
            ["lh", "ask", "cluster", worker] => {
                let worker = leasehold_tools::from_subject_token(worker).ok()?;
                Some(Question::Cluster(WorkerId::new(worker).ok()?))
            }
            ["lh", "ask", "pool", shard, consumer] => Some(Question::Pool(
                Shard(shard.parse().ok()?),
                consumer.to_owned(),
            )),
            ["lh", "ask", "chain", run, tool, step, attempt, origin] => {
                names::chain_of(run, tool, step, attempt, origin).map(Question::Chain)
            }
            ["lh", "ask", "notes", run, tool, step, attempt, origin] => {
                names::chain_of(run, tool, step, attempt, origin).map(Question::Notes)
            }
            [
                "lh",
                "ask",
                "last",
                "lh",
                "ws",
                domain,
                worker,
                what @ ("live" | "logbook"),
            ] => {
                for token in [domain, worker] {
                    leasehold_tools::from_subject_token(token).ok()?;
                }
                Some(Question::Last(format!("lh.ws.{domain}.{worker}.{what}")))
            }
            ["lh", "ask", "piece", digest, n] => {
                Some(Question::Piece(digest.parse().ok()?, n.parse().ok()?))
            }
            _ => None,
        }
    }
}

/// What a cluster is, as a node tells it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    cluster: ClusterId,
    shards: u16,
    replicas: usize,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// Nobody is there who could.
    Nobody,
    /// Somebody, or nobody knows.
    Failed(String),
}

impl Unanswered {
    pub(crate) fn store(self, what: &str) -> StoreError {
        match self {
            Unanswered::Nobody => unread(what, "no node answers"),
            Unanswered::Failed(why) => unread(what, why),
        }
    }
}

impl Wire {
    /// Asks some node; all messages of its answer.
    pub(crate) async fn ask(
        &self,
        question: &Question,
        body: Bytes,
    ) -> Result<Vec<Stored>, Unanswered> {
        let failed = |why: &dyn std::fmt::Display| Unanswered::Failed(why.to_string());
        if !is_connected(&self.client) {
            return Err(failed(&"not connected to NATS"));
        }
        let inbox = self.client.new_inbox();
        let subscribed = self.client.subscribe(inbox.clone()).await;
        let mut answers = subscribed.map_err(|error| failed(&error))?;
        let subject = question.subject();
        let asked = self.client.publish_with_reply(subject, inbox, body).await;
        asked.map_err(|error| failed(&error))?;
        let mut messages = Vec::new();
        loop {
            let answer = tokio::time::timeout(WAIT, answers.next()).await;
            let Ok(Some(answer)) = answer else {
                return Err(failed(&"no answer in time"));
            };
            if answer.status == Some(async_nats::StatusCode::NO_RESPONDERS) {
                return Err(Unanswered::Nobody);
            }
            let header = |name: &str| {
                let headers = answer.headers.as_ref()?;
                headers.get(name).map(|value| value.as_str().to_owned())
            };
            if let Some(why) = header(FAILED) {
                return Err(failed(&why));
            }
            if let Some(count) = header(ANSWERED) {
                return match count.parse() == Ok(messages.len()) {
                    true => Ok(messages),
                    false => Err(failed(&"a part of the answer was lost")),
                };
            }
            let at = header(AT).and_then(|at| at.parse().ok()).unwrap_or(0);
            let message = direct(answer).map_err(|why| failed(&why))?;
            messages.push(Stored { at, ..message });
        }
    }

    /// What the cluster is, if a node is there to say so.
    pub(crate) async fn ask_cluster(&self, worker: &WorkerId) -> Result<Option<Cluster>, String> {
        let question = Question::Cluster(worker.clone());
        let told = match self.ask(&question, Bytes::new()).await {
            Ok(told) => told,
            Err(Unanswered::Nobody) => return Ok(None),
            Err(Unanswered::Failed(why)) => return Err(why),
        };
        let told = told.first().and_then(|told| {
            let json = AcceptedJson::check(&told.payload).ok()?;
            json.parse::<Told>().ok()
        });
        let told = told.filter(|told| (1..=MAX_SHARDS).contains(&told.shards));
        let told = told.ok_or("the node's answer is not understood: is it of another version?")?;
        Ok(Some(Cluster {
            id: told.cluster,
            shards: told.shards,
            replicas: told.replicas,
        }))
    }

    /// Has a node make the consumer of these tools.
    pub(crate) async fn ask_for_pool(
        &self,
        shard: Shard,
        consumer: &str,
        tools: &[String],
    ) -> Result<(), String> {
        let body = AcceptedJson::from_serialize(&tools).map_err(|error| error.to_string())?;
        let question = Question::Pool(shard, consumer.to_owned());
        match self.ask(&question, body.as_str().to_owned().into()).await {
            Ok(_) => Ok(()),
            Err(Unanswered::Nobody) => Err("no node answers".to_owned()),
            Err(Unanswered::Failed(why)) => Err(why),
        }
    }
}

impl NatsStore {
    /// Answers the questions of workers in their domains' accounts until the store is closed; each question goes to one of the nodes.
    pub fn answer_workers(&self) {
        let (inner, client) = (
            std::sync::Arc::downgrade(&self.inner),
            self.wire().client.clone(),
        );
        self.spawn(async move {
            let asked = client.queue_subscribe("lh.ask.>", "nodes".to_owned());
            let Ok(asked) = asked.await else {
                tracing::warn!("workers in accounts of their own cannot ask this node");
                return;
            };
            let answering = asked.for_each_concurrent(SIDE_BY_SIDE, |message| {
                let inner = inner.clone();
                async move {
                    if let Some(inner) = inner.upgrade() {
                        NatsStore { inner }.answer(message).await;
                    }
                }
            });
            answering.await;
        });
    }

    async fn answer(&self, message: async_nats::Message) {
        let Some(reply) = message.reply.clone() else {
            return;
        };
        let found = match Question::read(message.subject.as_str()) {
            Some(question) => self.found(question, &message.payload).await,
            None => Err("this is no question that this version knows".to_owned()),
        };
        let mut last = HeaderMap::new();
        match found {
            Ok(found) => {
                last.insert(ANSWERED, found.len().to_string());
                for stored in found {
                    let mut headers = stored.headers;
                    headers.insert(SUBJECT, stored.subject);
                    headers.insert(POSITION, stored.seq.0.to_string());
                    headers.insert(AT, stored.at.to_string());
                    let sent = self.wire().client.publish_with_headers(
                        reply.clone(),
                        headers,
                        stored.payload,
                    );
                    if let Err(error) = sent.await {
                        tracing::debug!(%error, "a worker's question was not answered; it asks again");
                        return;
                    }
                }
            }
            // A header is one line.
            Err(why) => last.insert(FAILED, why.replace(['\r', '\n'], " ")),
        }
        let client = &self.wire().client;
        // Whoever asked may have gone.
        let _ = client.publish_with_headers(reply, last, Bytes::new()).await;
    }

    async fn found(&self, question: Question, body: &Bytes) -> Result<Vec<Stored>, String> {
        let failed = |error: StoreError| error.to_string();
        match question {
            Question::Cluster(_) => {
                let cluster = &self.inner.cluster;
                let told = Told {
                    cluster: cluster.id.clone(),
                    shards: cluster.shards,
                    replicas: cluster.replicas,
                };
                let told =
                    AcceptedJson::from_serialize(&told).map_err(|error| error.to_string())?;
                Ok(vec![Stored {
                    seq: Seq::NONE,
                    at: 0,
                    subject: "lh.ask.cluster".to_owned(),
                    headers: HeaderMap::new(),
                    payload: told.as_str().to_owned().into(),
                }])
            }
            Question::Pool(shard, consumer) => {
                if shard.0 >= self.shards() {
                    return Err(format!("there is no shard {shard}"));
                }
                let tools = AcceptedJson::check(body).ok();
                let tools = tools.and_then(|json| json.parse::<Vec<String>>().ok());
                let pool = tools.and_then(|tools| {
                    let (ack_wait, replicas) = (self.inner.ack_wait, self.inner.cluster.replicas);
                    Pool::named(&consumer, &tools, ack_wait, replicas)
                });
                let pool = pool.ok_or("the consumer's name is not the one of these tools")?;
                pool.provide(self.wire(), shard).await?;
                Ok(Vec::new())
            }
            Question::Chain(chain) => {
                let mut found = self.stored_chain(&chain).await.map_err(failed)?;
                for stored in &mut found {
                    if names::is_call(&stored.subject) {
                        stored.payload = Bytes::new();
                    }
                }
                Ok(found)
            }
            Question::Notes(chain) => self.stored_notes(&chain).await.map_err(failed),
            Question::Last(subject) => {
                let last = self.wire().last(LIVENESS, &subject).await.map_err(failed)?;
                Ok(last.into_iter().collect())
            }
            Question::Piece(digest, n) => {
                let piece = piece(&digest, n);
                let found = self.wire().read(BLOBS, &piece, Seq::NONE).await;
                found.map_err(failed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_protocol::{RunId, SessionId};

    #[test]
    fn every_question_is_read_back_and_one_for_many_things_is_none() {
        let chain = ChainKey {
            run: RunId::new("r 1").unwrap(),
            tool: "a.b*>".to_owned(),
            step: "3-0".parse().unwrap(),
            attempt: "2".parse().unwrap(),
            origin: SessionId::new("s_1").unwrap(),
        };
        for question in [
            Question::Cluster(WorkerId::new("w.1").unwrap()),
            Question::Pool(Shard(3), "pool_a_0011223344556677".to_owned()),
            Question::Chain(chain.clone()),
            Question::Notes(chain),
            Question::Last("lh.ws.a.w_2E1.live".to_owned()),
            Question::Piece(Digest::of(b"x"), 2),
        ] {
            assert_eq!(Question::read(&question.subject()), Some(question));
        }
        for text in [
            "lh.ask.chain.*.t.1-0.1.s",
            "lh.ask.chain.r.*.1-0.1.s",
            "lh.ask.chain.r.t.*.1.s",
            "lh.ask.chain.r.t.1-0.1.>",
            "lh.ask.notes.r.t.1-0.*.s",
            "lh.ask.last.lh.ws.*.w.live",
            "lh.ask.last.lh.ws.a.>.live",
            "lh.ask.last.lh.0.run.r.j.open",
            "lh.ask.piece.*.0",
            "lh.ask.cluster.*",
            "lh.ask.other",
        ] {
            assert_eq!(Question::read(text), None, "{text}");
        }
    }
}
