//! Durable timers: message schedules that the server publishes when their moment has come, and stays quiet about until then.
//!
//! A run has one timer. Not due, it is a schedule; due, it is a message at the run's `t` subject, until somebody clears it.

use async_nats::header::HeaderMap;
use async_trait::async_trait;
use bytes::Bytes;
use leasehold_json::AcceptedJson;
use leasehold_protocol::{RunId, Seq};
use leasehold_store::{StoreError, TimerEntry, Timers};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::error::unread;
use crate::names::{self, Named};
use crate::store::NatsStore;

/// When the server is to publish.
const SCHEDULE: &str = "Nats-Schedule";
/// Where.
const TARGET: &str = "Nats-Schedule-Target";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    v: u32,
    at: i64,
}

#[async_trait]
impl Timers for NatsStore {
    async fn set_timer(&self, run: &RunId, at: i64) -> Result<(), StoreError> {
        let shard = self.shard(run);
        let body = Body {
            v: leasehold_protocol::WIRE_VERSION,
            at,
        };
        let json = AcceptedJson::from_serialize(&body).map_err(|error| unread("a timer", error))?;
        let body = Bytes::copy_from_slice(json.as_bytes());
        let (mut headers, now) = (HeaderMap::new(), self.inner.clock.now().wall);
        let subject = match schedule(at).filter(|_| at > now) {
            Some(schedule) => {
                headers.insert(SCHEDULE, schedule);
                headers.insert(TARGET, shard.due(run));
                shard.scheduled(run)
            }
            // Its moment has passed, or no calendar has it: due at once.
            None => shard.due(run),
        };
        let is_due = subject == shard.due(run);
        let stored = self.wire().insist(subject, headers, body).await;
        stored.map_err(|error| error.store())?;
        // What was set before stands at the other subject, if it does.
        let other = if is_due {
            shard.scheduled(run)
        } else {
            shard.due(run)
        };
        self.purge(&shard.timer_stream(), other).await
    }

    async fn clear_timer(&self, run: &RunId) -> Result<(), StoreError> {
        let shard = self.shard(run);
        self.purge(&shard.timer_stream(), shard.timer_filter(run))
            .await
    }

    async fn due_timers(&self, now: i64) -> Result<Vec<TimerEntry>, StoreError> {
        let mut due = Vec::new();
        for shard in self.all_shards() {
            let filter = format!("lh.{shard}.t.*");
            for stored in self
                .wire()
                .read(&shard.timer_stream(), &filter, Seq::NONE)
                .await?
            {
                let body = AcceptedJson::check(&stored.payload).ok();
                let body = body.and_then(|json| json.parse::<Body>().ok());
                let Ok(Named::Timer(run)) = names::read(&stored.subject) else {
                    continue;
                };
                // One that cannot be read is due: waking a run for nothing does nothing.
                let at = body.map_or(now, |body| body.at);
                if at <= now {
                    due.push(TimerEntry { run, at });
                }
            }
        }
        due.sort_by(|a, b| (a.at, a.run.as_str()).cmp(&(b.at, b.run.as_str())));
        Ok(due)
    }
}

impl NatsStore {
    async fn purge(&self, stream: &str, filter: String) -> Result<(), StoreError> {
        let failed = |error: &dyn std::fmt::Display| unread(&format!("purging {filter}"), error);
        let handle = self.wire().stream(stream).await?;
        handle
            .purge()
            .filter(&filter)
            .await
            .map_err(|error| failed(&error))?;
        Ok(())
    }
}

/// The moment as the server's schedules write it; none that no calendar of four-digit years has.
fn schedule(at: i64) -> Option<String> {
    let moment = OffsetDateTime::from_unix_timestamp_nanos(i128::from(at) * 1_000_000).ok()?;
    Some(format!("@at {}", moment.format(&Rfc3339).ok()?))
}
