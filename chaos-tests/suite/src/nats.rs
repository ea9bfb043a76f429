//! The NATS servers, seen and handled from outside: raw messages as they are stored, and what an administrator can do to streams, buckets,
//! consumers and leases. Reads ask a stream's leader; nothing here goes through a proxy.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context as _, bail};
use async_nats::jetstream::{self, stream::RawMessageErrorKind};
use async_nats::{ConnectOptions, HeaderMap};
use base64::Engine as _;
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use crate::json;

/// How long one answer of a server is waited for: an election takes five to six seconds.
const ANSWER: Duration = Duration::from_secs(8);
/// How often the server is asked whether it is there: one that is stopped is left within twice that.
const PING: Duration = Duration::from_secs(1);
/// How long a read that has to succeed is tried again.
const READ: Duration = Duration::from_secs(60);
/// How long to wait before a failed read is tried again.
const AGAIN: Duration = Duration::from_millis(300);
/// Streams of journals and registers, and of inboxes.
const JOURNALS: &str = "LH_";
const INBOXES: &str = "LHI_";
/// Subjects of an inbox stream that are messages of somebody's.
const INBOX_KINDS: [&str; 3] = ["in", "d", "c"];
const LEASES: &str = "KV_LH_LEASES";
/// How the runtime's consumers of calls begin.
const POOL: &str = "pool_";
/// A message's headers: the position it was expected on, and the call that came with it.
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";
const CALL: &str = "Lh-Call";

/// A stored message.
#[derive(Debug, Clone)]
pub(crate) struct Raw {
    pub(crate) seq: u64,
    pub(crate) subject: String,
    pub(crate) body: Bytes,
    headers: HeaderMap,
}

/// A connection of its own to all servers.
#[derive(Debug, Clone)]
pub(crate) struct Nats {
    client: async_nats::Client,
    js: jetstream::Context,
}

impl Nats {
    pub(crate) async fn connect(urls: &str) -> anyhow::Result<Self> {
        let urls: Vec<&str> = urls.split(',').collect();
        let client = ConnectOptions::new()
            .retry_on_initial_connect()
            .ping_interval(PING)
            .request_timeout(Some(ANSWER))
            .connect(urls)
            .await
            .context("connecting to the NATS servers")?;
        let mut js = jetstream::new(client.clone());
        js.set_timeout(ANSWER);
        Ok(Self { client, js })
    }

    /// The runtime's streams of journals and registers, in order.
    pub(crate) async fn journals(&self) -> anyhow::Result<Vec<String>> {
        self.streams(JOURNALS).await
    }

    async fn streams(&self, prefix: &str) -> anyhow::Result<Vec<String>> {
        let names: Vec<String> = self
            .js
            .stream_names()
            .try_collect()
            .await
            .context("listing the streams")?;
        let mut names: Vec<String> = names
            .into_iter()
            .filter(|name| name.starts_with(prefix))
            .collect();
        names.sort();
        Ok(names)
    }

    /// The first message at or after this position under this filter; nothing if there is none.
    pub(crate) async fn next(
        &self,
        stream: &str,
        from: u64,
        filter: &str,
    ) -> anyhow::Result<Option<Raw>> {
        let what = || format!("reading {stream} from {from}");
        let stream = self
            .js
            .get_stream_no_info(stream)
            .await
            .with_context(what)?;
        let reading = stream
            .raw_message_builder()
            .sequence(from.max(1))
            .next_by_subject(filter);
        match reading.send().await {
            Ok(message) => Ok(Some(Raw {
                seq: message.sequence,
                subject: message.subject.to_string(),
                body: message.payload,
                headers: message.headers,
            })),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(error).with_context(what),
        }
    }

    /// As [`next`](Self::next), and tried again for as long as an election may take.
    async fn next_for_sure(
        &self,
        stream: &str,
        from: u64,
        filter: &str,
    ) -> anyhow::Result<Option<Raw>> {
        let end = Instant::now() + READ;
        loop {
            match self.next(stream, from, filter).await {
                Err(_) if Instant::now() < end => sleep(AGAIN).await,
                read => return read,
            }
        }
    }

    /// Everything stored, as the lines that the checker reads: the raw messages, whatever the runtime would say of them.
    pub(crate) async fn dump(&self, out: &mut (dyn Write + Send)) -> anyhow::Result<usize> {
        let mut lines = 0;
        for (prefix, is_inbox) in [(JOURNALS, false), (INBOXES, true)] {
            for stream in self.streams(prefix).await? {
                let mut from = 1;
                while let Some(raw) = self.next_for_sure(&stream, from, ">").await? {
                    from = raw.seq + 1;
                    let kind = raw.subject.split('.').nth(2).unwrap_or_default();
                    if !is_inbox || INBOX_KINDS.contains(&kind) {
                        writeln!(out, "{}", line(&raw, is_inbox))?;
                        lines += 1;
                    }
                }
            }
        }
        out.flush()?;
        Ok(lines)
    }

    /// The stream's leader gives its leadership up. Whether another leads afterwards is the servers' affair.
    pub(crate) async fn step_down(&self, stream: &str) -> anyhow::Result<String> {
        self.ask(&format!("STREAM.LEADER.STEPDOWN.{stream}"), Bytes::new())
            .await?;
        Ok(format!("the leader of {stream} has stepped down"))
    }

    /// The same for each of its consumers.
    pub(crate) async fn step_down_consumers(&self, stream: &str) -> anyhow::Result<String> {
        let consumers = self.consumers(stream).await?;
        for consumer in &consumers {
            self.ask(
                &format!("CONSUMER.LEADER.STEPDOWN.{stream}.{consumer}"),
                Bytes::new(),
            )
            .await?;
        }
        if consumers.is_empty() {
            bail!("{stream} has no consumers");
        }
        Ok(format!("{} consumers have another leader", consumers.len()))
    }

    /// Deletes the workers' consumers of a stream, with what they know of what was delivered. One that has delivered nothing knows nothing.
    pub(crate) async fn delete_consumers(&self, stream: &str) -> anyhow::Result<String> {
        let mut delivered = Vec::new();
        for consumer in self.consumers(stream).await? {
            if !consumer.starts_with(POOL) {
                continue;
            }
            let info = self
                .ask(&format!("CONSUMER.INFO.{stream}.{consumer}"), Bytes::new())
                .await?;
            let sequence = info.pointer("/delivered/consumer_seq");
            let sequence = sequence.and_then(Value::as_u64).unwrap_or(0);
            if sequence == 0 {
                continue;
            }
            self.ask(
                &format!("CONSUMER.DELETE.{stream}.{consumer}"),
                Bytes::new(),
            )
            .await?;
            delivered.push(sequence);
        }
        match delivered.iter().sum::<u64>() {
            0 => bail!("no consumer of {stream} had delivered anything"),
            sum => Ok(format!(
                "{} consumers of {stream} deleted, which had delivered {sum} calls",
                delivered.len()
            )),
        }
    }

    async fn consumers(&self, stream: &str) -> anyhow::Result<Vec<String>> {
        let answer = self
            .ask(&format!("CONSUMER.NAMES.{stream}"), Bytes::new())
            .await?;
        let names = json::elements(&answer, "consumers").filter_map(Value::as_str);
        Ok(names.map(str::to_owned).collect())
    }

    /// Deletes a bucket's stream and makes it again with the settings that it had.
    pub(crate) async fn reset_bucket(&self, stream: &str) -> anyhow::Result<String> {
        let info = self
            .ask(&format!("STREAM.INFO.{stream}"), Bytes::new())
            .await?;
        let config = info.get("config").cloned().unwrap_or(Value::Null);
        let last = info.pointer("/state/last_seq").and_then(Value::as_u64);
        self.ask(&format!("STREAM.DELETE.{stream}"), Bytes::new())
            .await?;
        let body = Bytes::from(config.to_string());
        let end = Instant::now() + READ;
        // Deleted it must not stay, whatever the servers are at.
        while let Err(error) = self
            .ask(&format!("STREAM.CREATE.{stream}"), body.clone())
            .await
        {
            if Instant::now() >= end {
                return Err(error).context(format!("making {stream} again"));
            }
            sleep(AGAIN).await;
        }
        Ok(format!(
            "{stream} was deleted at position {} and made again, empty",
            last.unwrap_or(0)
        ))
    }

    /// Deletes the leases of so many runs, as a person with the administrator's tool would. The runs.
    pub(crate) async fn delete_leases(&self, most: usize) -> anyhow::Result<Vec<String>> {
        let mut runs = Vec::new();
        let mut from = 1;
        while let Some(raw) = self.next(LEASES, from, ">").await? {
            from = raw.seq + 1;
            if runs.len() == most {
                break;
            }
            // An empty value is the mark of a lease that is no more.
            if raw.body.is_empty() {
                continue;
            }
            let mut headers = HeaderMap::new();
            headers.insert("KV-Operation", "DEL");
            self.js
                .publish_with_headers(raw.subject.clone(), headers, Bytes::new())
                .await
                .context("deleting a lease")?
                .await
                .with_context(|| format!("deleting the lease {}", raw.subject))?;
            let run = raw.subject.rsplit('.').next().unwrap_or_default();
            runs.push(run.to_owned());
        }
        Ok(runs)
    }

    /// One request to the servers' interface; an error that they answer is an error.
    async fn ask(&self, what: &str, body: Bytes) -> anyhow::Result<Value> {
        let answer = self
            .client
            .request(format!("$JS.API.{what}"), body)
            .await
            .with_context(|| format!("asking for {what}"))?;
        let answer = json::read(&answer.payload);
        if let Some(error) = answer.get("error") {
            bail!("{what}: {}", json::text(error, "description"));
        }
        Ok(answer)
    }
}

impl Raw {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.as_str())
    }
}

/// A message as a line of a dump.
fn line(raw: &Raw, is_inbox: bool) -> Value {
    let mut line = Map::new();
    line.insert("seq".to_owned(), raw.seq.into());
    line.insert("stream".to_owned(), "raw".into());
    line.insert("subject".to_owned(), raw.subject.clone().into());
    match std::str::from_utf8(&raw.body) {
        Ok(text) => line.insert("body".to_owned(), text.into()),
        Err(_) => {
            let encoded = base64::engine::general_purpose::STANDARD.encode(&raw.body);
            line.insert("body_base64".to_owned(), encoded.into())
        }
    };
    let expected = raw
        .header(EXPECTED)
        .and_then(|text| text.parse::<u64>().ok());
    if let Some(expected) = expected.filter(|_| !is_inbox) {
        line.insert("expected".to_owned(), json!(expected));
    }
    if let Some(call) = raw.header(CALL) {
        line.insert("call".to_owned(), call.into());
    }
    Value::Object(line)
}
