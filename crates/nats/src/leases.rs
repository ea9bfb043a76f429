//! Leases in their bucket: which node should drive a run. A released lease leaves a mark behind, so that its revision cannot be used again
//! by somebody who read it earlier.

use std::collections::HashSet;

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_json::AcceptedJson;
use leasehold_protocol::{RunId, Seq, SessionId};
use leasehold_store::{AppendError, Lease, LeaseRecord, Leases, StoreError};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::error::Unstored;
use crate::names;
use crate::store::NatsStore;
use crate::streams::{LEASES, MARKER_TTL};
use crate::wire::{Stored, TTL, expecting_own};

/// How a bucket marks a key that was deleted.
pub(crate) const OPERATION: &str = "KV-Operation";
/// See [`OPERATION`].
pub(crate) const DELETED: &str = "DEL";

/// A lease as it lies in the bucket.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    v: u32,
    session: SessionId,
    epoch: u64,
}

fn key(run: &RunId) -> String {
    format!("$KV.LH_LEASES.{}", run.token())
}

/// A value that was deleted by somebody, or by the server when its time had come.
pub(crate) fn is_mark(stored: &Stored) -> bool {
    stored.header(OPERATION).is_some() || stored.header("Nats-Marker-Reason").is_some()
}

/// Who holds the lease. One that is empty or makes no sense names nobody: a lease says who should work, so it may be taken, by its revision,
/// like one that was released. What is written is fenced by the journal, whoever believes to hold this.
fn record(stored: &Stored) -> Option<LeaseRecord> {
    if is_mark(stored) {
        return None;
    }
    let json = AcceptedJson::check(&stored.payload).ok();
    let body = json.and_then(|json| json.parse::<Body>().ok());
    if body.is_none() {
        tracing::warn!(lease = %stored.subject, revision = stored.seq.0, "a lease makes no sense; it counts as nobody's");
    }
    body.map(|body| LeaseRecord {
        session: body.session,
        epoch: body.epoch,
    })
}

impl NatsStore {
    /// The runs whose leases these sessions hold, as the bucket says now.
    pub(crate) async fn held_by(
        &self,
        sessions: &HashSet<SessionId>,
    ) -> Result<Vec<RunId>, StoreError> {
        let leases = self
            .wire()
            .read(LEASES, "$KV.LH_LEASES.>", Seq::NONE)
            .await?;
        let mut runs = Vec::new();
        for lease in &leases {
            // What names nobody is found by a sweep.
            let Some(record) = record(lease) else {
                continue;
            };
            let token = lease.subject.rsplit('.').next().unwrap_or_default();
            let run = leasehold_tools::from_subject_token(token).ok();
            let run = run.and_then(|run| RunId::new(run).ok());
            runs.extend(run.filter(|_| sessions.contains(&record.session)));
        }
        Ok(runs)
    }
}

#[async_trait]
impl Leases for NatsStore {
    async fn lease(&self, run: &RunId) -> Result<Lease, StoreError> {
        let last = self.wire().last(LEASES, &key(run)).await?;
        let Some(stored) = last else {
            return Ok(Lease {
                revision: Seq::NONE,
                record: None,
            });
        };
        Ok(Lease {
            revision: stored.seq,
            record: record(&stored),
        })
    }

    async fn put_lease(
        &self,
        run: &RunId,
        expected: Seq,
        record: Option<LeaseRecord>,
    ) -> Result<Seq, AppendError> {
        let mut headers = expecting_own(expected);
        let body = match record {
            Some(record) => {
                let body = Body {
                    v: leasehold_protocol::WIRE_VERSION,
                    session: record.session,
                    epoch: record.epoch,
                };
                let json = AcceptedJson::from_serialize(&body);
                let json = json.map_err(|error| AppendError::Never(error.to_string()))?;
                Bytes::copy_from_slice(json.as_bytes())
            }
            None => {
                headers.insert(OPERATION, DELETED);
                headers.insert(TTL, format!("{}s", MARKER_TTL.as_secs()));
                Bytes::new()
            }
        };
        let stored = self.wire().publish(key(run), headers, body).await;
        stored.map_err(|error: Unstored| error.append(expected))
    }

    async fn session_alive(&self, session: &SessionId) -> Result<bool, StoreError> {
        self.judge(session).await
    }

    async fn wake(&self, run: &RunId) {
        let subject = names::wake(run);
        if let Err(error) = self.wire().client.publish(subject, Bytes::new()).await {
            tracing::debug!(%run, %error, "nobody was told of the news; a sweep finds it");
        }
    }

    fn unowned(&self) -> mpsc::UnboundedReceiver<RunId> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.watch_deaths(sender.clone());
        self.listen_for_wakes(sender);
        receiver
    }
}
