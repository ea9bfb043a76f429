//! The floor on servers: a plain publish with its acknowledgement, and a conditional append to a journal, so many side by side.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use leasehold_nats::{NatsStore, PlainStreams};
use leasehold_protocol::{JournalSubject, RunId, Seq};
use leasehold_store::{AppendError, JournalAppend, RunLog as _, StoreError};
use tokio::task::JoinSet;

use super::rig::Rig;
use crate::floor::RECORD;
use crate::load::{InTurns, Measured};
use crate::stats::{Times, now};

/// What it is called in the table.
pub(super) const PUBLISH: &str = "publish";
pub(super) const APPEND: &str = "append";

/// See the module.
#[derive(Clone)]
pub(super) struct Floor {
    plain: Arc<PlainStreams>,
    store: NatsStore,
    journals: Arc<AtomicU64>,
}

/// One of the two, by one caller.
enum Writer {
    Publish { floor: Floor, n: usize },
    Append { floor: Floor, run: RunId, last: Seq },
}

impl Writer {
    fn publish(floor: &Floor, n: usize) -> Self {
        Self::Publish {
            floor: floor.clone(),
            n,
        }
    }

    fn append(floor: &Floor) -> anyhow::Result<Self> {
        let n = floor.journals.fetch_add(1, Ordering::Relaxed);
        Ok(Self::Append {
            floor: floor.clone(),
            // It has no `open` commit, so no node takes it for a run.
            run: RunId::new(format!("floor-{n}"))?,
            last: Seq::NONE,
        })
    }

    /// One write. Of one that is not acknowledged in time nobody knows whether it is stored: it counts with its wait, and the caller goes on.
    async fn write(&mut self) -> anyhow::Result<()> {
        let body = Bytes::from_static(&RECORD);
        match self {
            Self::Publish { floor, n } => match floor.plain.publish(*n, body).await {
                Ok(_) | Err(StoreError::Unavailable(_)) => {}
                Err(error) => return Err(error.into()),
            },
            Self::Append { floor, run, last } => {
                let write = JournalAppend {
                    run: run.clone(),
                    subject: JournalSubject::Note,
                    expected: *last,
                    body,
                    call: None,
                };
                match floor.store.append(write).await {
                    Ok(appended) => *last = appended.seq,
                    Err(AppendError::Busy(_)) => {}
                    Err(AppendError::Unknown(_)) => *self = Self::append(&floor.clone())?,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
}

impl Floor {
    pub(super) async fn new(rig: &Rig) -> anyhow::Result<Self> {
        let (shards, replicas) = (rig.config.shards, rig.config.servers);
        let plain = PlainStreams::make(&rig.target, shards, replicas).await?;
        rig.servers.ready().await?;
        Ok(Self {
            plain: Arc::new(plain),
            store: rig.store.clone(),
            journals: Arc::default(),
        })
    }

    pub(super) async fn publishes(&self, width: usize, span: Duration) -> anyhow::Result<Measured> {
        let writers = (0..width).map(|n| Ok(Writer::publish(self, n)));
        side_by_side(writers, span).await
    }

    pub(super) async fn appends(&self, width: usize, span: Duration) -> anyhow::Result<Measured> {
        let writers = (0..width).map(|_| Writer::append(self));
        side_by_side(writers, span).await
    }

    /// One caller of each, to be measured in turns with steps.
    pub(super) fn in_turns(&self) -> anyhow::Result<FloorInTurns> {
        Ok(FloorInTurns {
            writers: [Writer::publish(self, 0), Writer::append(self)?],
            times: Default::default(),
        })
    }
}

async fn side_by_side(
    writers: impl Iterator<Item = anyhow::Result<Writer>>,
    span: Duration,
) -> anyhow::Result<Measured> {
    let start = now();
    let mut writing = JoinSet::new();
    for writer in writers {
        let mut writer = writer?;
        writing.spawn(async move {
            let mut times = Times::default();
            while start.elapsed() < span {
                let begun = now();
                writer.write().await?;
                times.push(begun.elapsed());
            }
            anyhow::Ok(times)
        });
    }
    let mut times = Times::default();
    while let Some(written) = writing.join_next().await {
        times.append(&written??);
    }
    Ok(Measured {
        steps_per_second: times.len() as f64 / start.elapsed().as_secs_f64(),
        times,
        ..Measured::default()
    })
}

/// Publishes and appends, in turns with something else.
pub(super) struct FloorInTurns {
    writers: [Writer; 2],
    /// Of the publishes, of the appends.
    pub(super) times: [Times; 2],
}

impl InTurns for FloorInTurns {
    async fn turn(&mut self, count: u64) -> anyhow::Result<()> {
        for _ in 0..count {
            for (writer, times) in self.writers.iter_mut().zip(&mut self.times) {
                let begun = now();
                writer.write().await?;
                times.push(begun.elapsed());
            }
        }
        Ok(())
    }
}
