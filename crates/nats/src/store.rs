//! A cluster's store as one process has it open.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use leasehold_protocol::{ClusterId, RunId, Seq, SessionId};
use leasehold_store::{Clock, InboxMessage, StoreError};
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connect::{Account, StartError, Target};
use crate::deaths::Deaths;
use crate::feed::Feed;
use crate::names::Shard;
use crate::session::DEFAULT_TTL;
use crate::streams::{self, Cluster, Shape, Wish};
use crate::wire::{Stored, Wire};

/// The domain of tools, where nothing else is said.
pub const DEFAULT_DOMAIN: &str = "default";
/// How long a delivered message is its receiver's before the server delivers it again. A worker's claim and a node's commit come within
/// milliseconds; whoever is slower is not harmed by a second delivery.
pub const ACK_WAIT: Duration = Duration::from_secs(30);

/// What a process opens a cluster with.
#[derive(Clone)]
pub struct Options {
    /// The servers.
    pub target: Target,
    /// What the servers' lists show this process as.
    pub name: String,
    /// Make a new cluster if there is none. Without it, none is an error.
    pub make: Option<Wish>,
    /// This life of a node; what it is handed inbox messages by. Absent: this process drives nothing.
    pub session: Option<SessionId>,
    /// The domain of the tools that this process serves or asks about.
    pub domain: String,
    /// How long the sessions of this cluster live at most without a renewal: what an absent record is judged by.
    pub longest_ttl: Duration,
    /// See [`ACK_WAIT`].
    pub ack_wait: Duration,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

impl Options {
    /// Everything as usual.
    pub fn new(target: Target, name: impl Into<String>, clock: Arc<dyn Clock>) -> Self {
        Self {
            target,
            name: name.into(),
            make: None,
            session: None,
            domain: DEFAULT_DOMAIN.to_owned(),
            longest_ttl: DEFAULT_TTL,
            ack_wait: ACK_WAIT,
            clock,
        }
    }
}

/// A cluster's store on JetStream. Cheap to clone; dropping the last one ends its connection.
#[derive(Clone)]
pub struct NatsStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) wire: Wire,
    pub(crate) cluster: Cluster,
    pub(crate) session: Option<SessionId>,
    pub(crate) domain: String,
    pub(crate) longest_ttl: Duration,
    pub(crate) ack_wait: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) inbox: OnceLock<Feed>,
    pub(crate) pools: Mutex<std::collections::HashMap<Vec<String>, Arc<Feed>>>,
    pub(crate) forwarded: AsyncMutex<Option<mpsc::UnboundedReceiver<InboxMessage>>>,
    pub(crate) deaths: Deaths,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl NatsStore {
    /// Connects, checks servers and streams, and makes a new cluster where that is asked for.
    pub async fn open(options: Options) -> Result<Self, StartError> {
        let connection = options.target.connect(&options.name).await?;
        let wire = Wire::new(&connection);
        let cluster = connection.permitted(async {
            if let Account::Domain(worker) = &options.target.account {
                let told = wire.ask_cluster(worker).await;
                let told = told.map_err(|why| StartError::api("asking what the cluster is", why));
                return told?.ok_or(StartError::NoNode);
            }
            let Some(wish) = options.make else {
                let found = streams::find(&wire.jetstream).await?;
                return found.ok_or(StartError::NoCluster);
            };
            let is_one_of_many = wire.client.server_info().cluster.is_some();
            let usual = if is_one_of_many {
                Shape::THREE
            } else {
                Shape::ONE
            };
            streams::make(&wire.jetstream, wish.over(usual), fresh_cluster()?).await
        });
        let cluster = cluster.await?;
        Ok(Self {
            inner: Arc::new(Inner {
                wire,
                cluster,
                session: options.session,
                domain: options.domain,
                longest_ttl: options.longest_ttl,
                ack_wait: options.ack_wait,
                clock: options.clock,
                inbox: OnceLock::new(),
                pools: Mutex::default(),
                forwarded: AsyncMutex::new(None),
                deaths: Deaths::default(),
                tasks: TaskTracker::new(),
                stop: CancellationToken::new(),
            }),
        })
    }

    /// The cluster's id.
    pub fn cluster(&self) -> &ClusterId {
        &self.inner.cluster.id
    }

    /// How many shards the cluster has.
    pub fn shards(&self) -> u16 {
        self.inner.cluster.shards
    }

    pub(crate) fn wire(&self) -> &Wire {
        &self.inner.wire
    }

    pub(crate) fn shard(&self, run: &RunId) -> Shard {
        Shard::of(run, self.inner.cluster.shards)
    }

    pub(crate) fn all_shards(&self) -> impl Iterator<Item = Shard> + use<> {
        (0..self.inner.cluster.shards).map(Shard)
    }

    /// All records of the filter from this position on, in order, none of those missing that stand there now. Where several servers may
    /// answer, that takes a word of the leader.
    pub(crate) async fn records(
        &self,
        stream: &str,
        filter: &str,
        from: Seq,
    ) -> Result<Vec<Stored>, StoreError> {
        if self.inner.cluster.replicas > 1 {
            self.wire().read_current(stream, filter, from).await
        } else {
            self.wire().read(stream, filter, from).await
        }
    }

    /// Runs until the store is closed.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.inner.stop.clone();
        self.inner.tasks.spawn(async move {
            stop.run_until_cancelled(work).await;
        });
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a cluster is named once in its life, by the first of its nodes"
)]
fn fresh_cluster() -> Result<ClusterId, StartError> {
    ClusterId::new(uuid::Uuid::now_v7().to_string())
        .map_err(|error| StartError::Shape(error.to_string()))
}
