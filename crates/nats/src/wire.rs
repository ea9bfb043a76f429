//! The few things that everything here does with a server: publish with an expectation and an acknowledgement, read a filter's messages in
//! order, read the first or last message of a filter from the leader.

use std::time::Duration;

use async_nats::header::HeaderMap;
use async_nats::jetstream::Context;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{LastRawMessageError, LastRawMessageErrorKind, Stream};
use async_nats::{Client, Message, Request, StatusCode};
use backon::{ExponentialBuilder, Retryable as _};
use bytes::Bytes;
use futures_util::StreamExt as _;
use leasehold_protocol::Seq;
use leasehold_store::StoreError;

use crate::asking::Question;
use crate::connect::{Connection, is_connected};
use crate::error::{Unstored, acknowledged, unanswered, unread};

/// How long an acknowledgement is waited for. When a leader steps down, what was in flight vanishes without an answer: the gap in writing is
/// as long as this wait. A loaded server answers well within it.
const ACK_WAIT: Duration = Duration::from_millis(500);
/// How long the next message of a batch is waited for.
const READ_WAIT: Duration = Duration::from_secs(2);
/// Pause before a replica that lags behind its leader is asked again, and how often it is.
const LAG: Duration = Duration::from_millis(10);
const LAGGING: usize = 100;
/// Messages asked for at a time. The server sends at most so many without being asked again.
const BATCH: usize = 512;

const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";
const EXPECTED_OF: &str = "Nats-Expected-Last-Subject-Sequence-Subject";
/// Where a message that is read or republished was stored.
pub(crate) const SUBJECT: &str = "Nats-Subject";
/// And at which position.
pub(crate) const POSITION: &str = "Nats-Sequence";
/// How long the message lives, as the server reads it.
pub(crate) const TTL: &str = "Nats-TTL";

/// A connection as everything here uses it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Wire {
    pub(crate) client: Client,
    pub(crate) jetstream: Context,
    /// No stream can be read over it: nodes are asked.
    pub(crate) asks: bool,
}

/// A stored message.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) seq: Seq,
    /// When the leader stored it, on its own wall clock, unix milliseconds; 0 where that was not asked.
    pub(crate) at: i64,
    pub(crate) subject: String,
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Bytes,
}

impl Stored {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.as_str())
    }
    /// The last position that its writer expected.
    pub(crate) fn expected(&self) -> Option<Seq> {
        number(&self.headers, EXPECTED).map(Seq)
    }
}

impl From<StreamMessage> for Stored {
    fn from(message: StreamMessage) -> Self {
        Self {
            seq: Seq(message.sequence),
            at: i64::try_from(message.time.unix_timestamp_nanos() / 1_000_000).unwrap_or(0),
            subject: message.subject.to_string(),
            headers: message.headers,
            payload: message.payload,
        }
    }
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.as_str().parse().ok()
}

/// The expected last position of a republished message.
pub(crate) fn expected_of(headers: &HeaderMap) -> Option<Seq> {
    number(headers, EXPECTED).map(Seq)
}

/// The position of a republished message.
pub(crate) fn position_of(headers: &HeaderMap) -> Option<Seq> {
    number(headers, POSITION).map(Seq)
}

/// Headers that make a publish conditional: the last position of the filter's subjects must be this one.
pub(crate) fn expecting(filter: &str, last: Seq) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(EXPECTED, last.0.to_string());
    headers.insert(EXPECTED_OF, filter);
    headers
}

/// Headers that make a publish conditional on the last position of its own subject.
pub(crate) fn expecting_own(last: Seq) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(EXPECTED, last.0.to_string());
    headers
}

/// Tries again for about as long as an election takes, at moments that differ between those who failed together.
pub(crate) fn patience() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(5))
        .with_max_delay(Duration::from_secs(1))
        .with_total_delay(Some(crate::connect::API_WAIT))
        .without_max_times()
        .with_jitter()
}

impl Wire {
    pub(crate) fn new(connection: &Connection) -> Self {
        let client = connection.client.clone();
        let mut jetstream = async_nats::jetstream::new(client.clone());
        jetstream.set_timeout(crate::connect::API_WAIT);
        Self {
            client,
            jetstream,
            asks: connection.asks,
        }
    }

    /// Publishes and waits for the position.
    pub(crate) async fn publish(
        &self,
        subject: String,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<Seq, Unstored> {
        if !is_connected(&self.client) {
            return Err(Unstored::Busy("not connected to NATS".to_owned()));
        }
        let request = Request::new()
            .headers(headers)
            .payload(payload)
            .timeout(Some(ACK_WAIT));
        match self.client.send_request(subject, request).await {
            Ok(answer) => acknowledged(&answer.payload),
            Err(error) => Err(unanswered(&error)),
        }
    }

    /// Publishes, and tries again for about an election's time while the answer is that it was not stored and that this passes.
    pub(crate) async fn insist(
        &self,
        subject: String,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<Seq, Unstored> {
        let publish = || self.publish(subject.clone(), headers.clone(), payload.clone());
        let is_busy = |error: &Unstored| matches!(error, Unstored::Busy(_));
        publish.retry(patience()).when(is_busy).await
    }

    /// All messages of the filter from this position on, in order, at least up to the last one that the leader knows at the time of the
    /// call. Replicas answer; one that lags is asked again.
    pub(crate) async fn read_current(
        &self,
        stream: &str,
        filter: &str,
        from: Seq,
    ) -> Result<Vec<Stored>, StoreError> {
        let last = self.last(stream, filter).await?;
        let Some(last) = last.filter(|last| last.seq >= from) else {
            return Ok(Vec::new());
        };
        for _ in 0..LAGGING {
            let stored = self.read(stream, filter, from).await?;
            if stored.last().is_some_and(|read| read.seq >= last.seq) {
                return Ok(stored);
            }
            tokio::time::sleep(LAG).await;
        }
        Err(unread(
            &format!("reading {filter} of {stream}"),
            "the replicas lag behind the leader",
        ))
    }

    /// All messages of the filter from this position on, in order. Any replica may answer: what is read is stored; what is missing may be
    /// stored all the same.
    pub(crate) async fn read(
        &self,
        stream: &str,
        filter: &str,
        from: Seq,
    ) -> Result<Vec<Stored>, StoreError> {
        let mut messages: Vec<Stored> = Vec::new();
        let mut from = from.0.max(1);
        loop {
            let asked = messages.len();
            let left = self.read_batch(stream, filter, from, &mut messages).await?;
            match messages.last() {
                Some(last) if left > 0 && messages.len() > asked => from = last.seq.0 + 1,
                _ => return Ok(messages),
            }
        }
    }

    /// Reads up to a batch; returns how many are left behind it.
    async fn read_batch(
        &self,
        stream: &str,
        filter: &str,
        from: u64,
        messages: &mut Vec<Stored>,
    ) -> Result<u64, StoreError> {
        let failed = |why: String| unread(&format!("reading {filter} of {stream}"), why);
        if !is_connected(&self.client) {
            return Err(failed("not connected to NATS".to_owned()));
        }
        let inbox = self.client.new_inbox();
        let mut answers = self
            .client
            .subscribe(inbox.clone())
            .await
            .map_err(|error| failed(error.to_string()))?;
        let question =
            serde_json::json!({"seq": from, "next_by_subj": filter, "batch": BATCH}).to_string();
        self.client
            .publish_with_reply(
                format!("$JS.API.DIRECT.GET.{stream}"),
                inbox,
                question.into(),
            )
            .await
            .map_err(|error| failed(error.to_string()))?;
        loop {
            let answer = tokio::time::timeout(READ_WAIT, answers.next()).await;
            let Ok(Some(message)) = answer else {
                return Err(failed("no answer in time".to_owned()));
            };
            match message.status.map(|status| status.as_u16()) {
                None | Some(200) => messages.push(direct(message).map_err(failed)?),
                Some(204) => {
                    let headers = message.headers.unwrap_or_default();
                    return Ok(number(&headers, "Nats-Num-Pending").unwrap_or(0));
                }
                Some(404) => return Ok(0),
                Some(status) => {
                    let why = message.description.unwrap_or_default();
                    let why = match StatusCode::from_u16(status) {
                        Ok(StatusCode::NO_RESPONDERS) => {
                            "no server leads the stream now".to_owned()
                        }
                        _ => format!("status {status} {why}"),
                    };
                    return Err(failed(why));
                }
            }
        }
    }

    /// A stream to ask things of; asks nothing itself.
    pub(crate) async fn stream(&self, name: &str) -> Result<Stream<()>, StoreError> {
        let stream = self.jetstream.get_stream_no_info(name).await;
        stream.map_err(|error| unread(name, error))
    }

    /// The last message of the filter, as the leader knows it.
    pub(crate) async fn last(
        &self,
        stream: &str,
        filter: &str,
    ) -> Result<Option<Stored>, StoreError> {
        if self.asks {
            let asked = Question::Last(filter.to_owned());
            let answer = self.ask(&asked, Bytes::new()).await;
            let answer = answer.map_err(|error| error.store(&format!("the last of {filter}")))?;
            return Ok(answer.into_iter().next_back());
        }
        let handle = self.stream(stream).await?;
        let message = handle.get_last_raw_message_by_subject(filter).await;
        if_there(message).map_err(|error| unread(&format!("reading the last of {filter}"), error))
    }

    /// The first message of the filter, as the leader knows it.
    pub(crate) async fn first(
        &self,
        stream: &str,
        filter: &str,
    ) -> Result<Option<Stored>, StoreError> {
        let handle = self.stream(stream).await?;
        let message = handle.get_first_raw_message_by_subject(filter, 1).await;
        if_there(message).map_err(|error| unread(&format!("reading the first of {filter}"), error))
    }

    /// The subjects of a filter that hold messages.
    pub(crate) async fn subjects(
        &self,
        stream: &str,
        filter: &str,
    ) -> Result<Vec<String>, StoreError> {
        let failed = |error: &dyn std::fmt::Display| unread(&format!("listing {filter}"), error);
        let handle = self.stream(stream).await?;
        let mut listed = handle
            .info_with_subjects(filter)
            .await
            .map_err(|error| failed(&error))?;
        let mut subjects = Vec::new();
        while let Some(subject) = listed.next().await {
            subjects.push(subject.map_err(|error| failed(&error))?.0);
        }
        Ok(subjects)
    }
}

/// That there is none is an answer, not an error.
fn if_there(
    message: Result<StreamMessage, LastRawMessageError>,
) -> Result<Option<Stored>, LastRawMessageError> {
    match message {
        Ok(message) => Ok(Some(message.into())),
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A message as a consumer hands it out.
pub(crate) fn delivered(message: async_nats::jetstream::Message) -> Option<Stored> {
    let seq = message.info().ok()?.stream_sequence;
    let message = message.message;
    Some(Stored {
        seq: Seq(seq),
        at: 0,
        subject: message.subject.to_string(),
        headers: message.headers.unwrap_or_default(),
        payload: message.payload,
    })
}

/// A message as a direct read hands it out.
pub(crate) fn direct(message: Message) -> Result<Stored, String> {
    let headers = message.headers.unwrap_or_default();
    let subject = headers
        .get(SUBJECT)
        .map(|subject| subject.as_str().to_owned());
    let seq = position_of(&headers);
    match (subject, seq) {
        (Some(subject), Some(seq)) => Ok(Stored {
            seq,
            at: 0,
            subject,
            payload: message.payload,
            headers,
        }),
        _ => Err("an answer without subject and position".to_owned()),
    }
}
