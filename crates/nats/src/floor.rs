//! What a plain publish costs: streams of their own, no expectation, nothing around it. Benches hold everything else against it.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::stream::{Config, StorageType};
use bytes::Bytes;
use leasehold_protocol::Seq;
use leasehold_store::StoreError;

use crate::connect::{StartError, Target};
use crate::wire::Wire;

/// As for the cluster's own streams.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// File streams beside a cluster's own, for publishes that mean nothing.
pub struct PlainStreams {
    wire: Wire,
    count: u16,
}

impl PlainStreams {
    /// Makes so many of them, on a connection of their own. They are there already: so much the better.
    pub async fn make(target: &Target, count: u16, replicas: usize) -> Result<Self, StartError> {
        let wire = Wire::new(&target.connect("floor").await?);
        for n in 0..count {
            let config = Config {
                name: format!("LHFLOOR_{n}"),
                subjects: vec![subject(n)],
                storage: StorageType::File,
                num_replicas: replicas,
                duplicate_window: DUPLICATE_WINDOW,
                ..Config::default()
            };
            let made = wire.jetstream.get_or_create_stream(config).await;
            made.map_err(|error| StartError::api("a plain stream could not be made", error))?;
        }
        Ok(Self { wire, count })
    }

    /// Publishes to one of them (`n` is taken modulo their number) and waits for the acknowledgement.
    pub async fn publish(&self, n: usize, body: Bytes) -> Result<Seq, StoreError> {
        let n = u16::try_from(n % usize::from(self.count.max(1))).unwrap_or_default();
        let stored = self.wire.publish(subject(n), HeaderMap::new(), body).await;
        stored.map_err(|error| error.store())
    }
}

fn subject(n: u16) -> String {
    format!("lhfloor.{n}")
}
