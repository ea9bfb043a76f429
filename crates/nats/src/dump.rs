//! The raw dump of a cluster: everything stored, as lines of JSON, for checkers that share no code with the runtime.
//!
//! The lines have the form that the embedded store's dump gives them. Shard by shard, in order of position within a shard; a position is
//! used once in a shard. Workers' logbooks lie with the workers and are not among them.

use std::io::{self, Write};

use base64::Engine as _;
use bytes::Bytes;
use leasehold_protocol::{ChainKey, JournalSubject, Link, RunId, Seq};
use leasehold_store::StoreError;
use serde::Serialize;

use crate::names::{self, Named, Shard};
use crate::runlog::strange;
use crate::store::NatsStore;
use crate::wire::Stored;

/// The dump ended early.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// A record cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The dump cannot be written.
    #[error("the dump could not be written: {0}")]
    Write(#[from] io::Error),
}

#[derive(Serialize)]
struct Line<'a> {
    seq: u64,
    stream: &'static str,
    subject: &'a str,
    run: &'a RunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    chain: Option<&'a ChainKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    writer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<u64>,
    #[serde(flatten)]
    body: Body<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<&'a str>,
}

/// The bytes as text, or as base64.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Body<'a> {
    Body(&'a str),
    BodyBase64(String),
}

impl<'a> From<&'a Bytes> for Body<'a> {
    fn from(bytes: &'a Bytes) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Body::Body(text),
            Err(_) => Body::BodyBase64(base64::engine::general_purpose::STANDARD.encode(bytes)),
        }
    }
}

impl NatsStore {
    /// Dumps what is stored at this moment.
    pub async fn dump(&self, out: &mut (dyn Write + Send)) -> Result<(), DumpError> {
        for shard in self.all_shards() {
            self.dump_stream(&shard.stream(), &format!("lh.{shard}.run.>"), out)
                .await?;
            for inbox in ["in.*.*", "d.*.*.*", "c.*.*"] {
                let filter = format!("lh.{shard}.{inbox}");
                self.dump_stream(&Shard::inbox_stream(shard), &filter, out)
                    .await?;
            }
        }
        Ok(out.flush()?)
    }

    async fn dump_stream(
        &self,
        stream: &str,
        filter: &str,
        out: &mut (dyn Write + Send),
    ) -> Result<(), DumpError> {
        for stored in self.records(stream, filter, Seq::NONE).await? {
            let line = self.line(&stored).await?;
            out.write_all(line.as_bytes())?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    async fn line(&self, stored: &Stored) -> Result<String, DumpError> {
        let named = names::read(&stored.subject).map_err(|_| strange(stored))?;
        let envelope = match &named {
            Named::Journal(_, JournalSubject::Call(_)) => Some(self.envelope(stored).await?),
            _ => None,
        };
        let call = envelope
            .as_ref()
            .and_then(|call| std::str::from_utf8(call).ok());
        let (stream, run, chain, writer) = match &named {
            Named::Journal(run, JournalSubject::Call(chain)) => ("call", run, Some(chain), None),
            Named::Journal(run, _) => ("journal", run, None, None),
            Named::Register(chain, link, writer) => {
                let stream = if *link == Link::Claim {
                    "claim"
                } else {
                    "outcome"
                };
                (stream, &chain.run, Some(chain), Some(writer.as_str()))
            }
            Named::Note(chain, writer) => {
                ("evidence", &chain.run, Some(chain), Some(writer.as_str()))
            }
            Named::Inbox(run, _) => ("inbox", run, None, None),
            Named::Timer(_) => return Err(strange(stored).into()),
        };
        let line = Line {
            seq: stored.seq.0,
            stream,
            subject: &stored.subject,
            run,
            chain,
            writer,
            expected: stored
                .expected()
                .filter(|_| stream != "inbox")
                .map(|expected| expected.0),
            body: Body::from(&stored.payload),
            call,
        };
        serde_json::to_string(&line).map_err(|error| DumpError::Write(error.into()))
    }
}
