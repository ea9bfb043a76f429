//! The streams and buckets of a cluster: what they must look like, how the first node makes them, how every process checks them.
//!
//! `LH_0` is made first and its metadata name the cluster; `LHS` is made last. So while `LHS` is missing the making may go on, whoever was
//! interrupted in it; once it is there, a stream that is missing was lost, and nothing is made in its place: that is for a person to decide.
//! A stream that is configured otherwise is refused with what is different. Limits that only grow room (bytes, replicas, placement) are the
//! operator's own.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::jetstream::context::{
    CreateStreamError, CreateStreamErrorKind, GetStreamError, GetStreamErrorKind,
};
use async_nats::jetstream::stream::{Config, DiscardPolicy, Republish, StorageType};
use async_nats::jetstream::{Context, ErrorCode};
use backon::Retryable as _;
use leasehold_protocol::ClusterId;

use crate::connect::StartError;
use crate::names::Shard;
use crate::wire::patience;

/// Metadata: the cluster's id.
const CLUSTER: &str = "leasehold.cluster";
/// Metadata: how many shards the cluster has.
const SHARDS: &str = "leasehold.shards";
/// Most shards. More consumers and streams than any cluster of this kind can use.
pub(crate) const MAX_SHARDS: u16 = 64;
/// How long the mark of an ended session or a released lease stays. An observer that was away for less can read it.
pub(crate) const MARKER_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

pub(crate) const LIVENESS: &str = "LHS";
pub(crate) const BLOBS: &str = "LHA";
pub(crate) const SESSIONS: &str = "KV_LH_SESSIONS";
pub(crate) const LEASES: &str = "KV_LH_LEASES";

/// The first node's wish of a new cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// How many shards; fixed for the cluster's life.
    pub shards: u16,
    /// Copies of each message: 1, or 3 on a cluster of servers.
    pub replicas: usize,
}

/// What is wished of a new cluster, where it is not the usual for its servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wish {
    /// How many shards.
    pub shards: Option<u16>,
    /// How many copies.
    pub replicas: Option<usize>,
}

impl Wish {
    pub(crate) fn over(self, usual: Shape) -> Shape {
        Shape {
            shards: self.shards.unwrap_or(usual.shards),
            replicas: self.replicas.unwrap_or(usual.replicas),
        }
    }
}

impl Shape {
    /// One server: shards buy durable throughput, because a stream alone does not group its syncs.
    pub const ONE: Shape = Shape {
        shards: 8,
        replicas: 1,
    };
    /// Three servers: more shards than two dilute the servers' group commit.
    pub const THREE: Shape = Shape {
        shards: 2,
        replicas: 3,
    };
}

/// What a cluster is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cluster {
    pub(crate) id: ClusterId,
    pub(crate) shards: u16,
    pub(crate) replicas: usize,
}

/// Every stream in the order of its making.
fn wanted(id: &ClusterId, shape: Shape) -> Vec<Config> {
    let metadata = HashMap::from([
        (CLUSTER.to_owned(), id.to_string()),
        (SHARDS.to_owned(), shape.shards.to_string()),
    ]);
    let base = |name: String, subjects: Vec<String>| Config {
        name,
        subjects,
        storage: StorageType::File,
        num_replicas: shape.replicas,
        discard: DiscardPolicy::New,
        max_messages_per_subject: -1,
        allow_direct: true,
        // No publisher names its messages: a duplicate is found by its position, never by an id.
        duplicate_window: Duration::from_secs(120),
        metadata: metadata.clone(),
        ..Config::default()
    };
    let mut streams = Vec::new();
    for shard in (0..shape.shards).map(Shard) {
        streams.push(Config {
            republish: Some(Republish {
                source: format!("lh.{shard}.run.*.w.>"),
                destination: format!("lh.{shard}.stored.{{{{wildcard(1)}}}}.w.>"),
                headers_only: false,
            }),
            ..base(shard.stream(), vec![format!("lh.{shard}.run.>")])
        });
        let inbox = ["in.*.*", "d.*.*.*", "c.*.*"].map(|rest| format!("lh.{shard}.{rest}"));
        streams.push(Config {
            max_messages_per_subject: 1,
            discard_new_per_subject: true,
            deny_delete: true,
            ..base(shard.inbox_stream(), inbox.to_vec())
        });
        let timers = ["ts.*", "t.*"].map(|rest| format!("lh.{shard}.{rest}"));
        streams.push(Config {
            max_messages_per_subject: 1,
            discard: DiscardPolicy::Old,
            allow_message_schedules: true,
            // Schedules and delete marks need it; the server sets it unasked.
            allow_rollup: true,
            allow_message_ttl: true,
            ..base(shard.timer_stream(), timers.to_vec())
        });
    }
    streams.push(Config {
        max_messages_per_subject: 1,
        discard_new_per_subject: true,
        deny_delete: true,
        ..base(BLOBS.to_owned(), vec!["lh.a.*.*".to_owned()])
    });
    let bucket = |stream: &str| {
        let name = stream.trim_start_matches("KV_");
        Config {
            max_messages_per_subject: 1,
            allow_rollup: true,
            deny_delete: true,
            allow_message_ttl: true,
            subject_delete_marker_ttl: Some(MARKER_TTL),
            ..base(stream.to_owned(), vec![format!("$KV.{name}.>")])
        }
    };
    streams.extend([bucket(SESSIONS), bucket(LEASES)]);
    // Workers write here themselves: a rollup would let one of them remove the records of all, so what ran out leaves no mark either.
    streams.push(Config {
        max_messages_per_subject: 1,
        discard: DiscardPolicy::Old,
        allow_message_ttl: true,
        ..base(
            LIVENESS.to_owned(),
            ["lh.ws.*.*.live", "lh.ws.*.*.logbook"]
                .map(str::to_owned)
                .to_vec(),
        )
    });
    streams
}

/// What is different, if anything that matters is.
fn difference(wanted: &Config, found: &Config) -> Option<String> {
    let mut faults = Vec::new();
    let mut check = |what: &str, is: String, must: String| {
        if is != must {
            faults.push(format!("{what} is {is} and must be {must}"));
        }
    };
    let sorted = |subjects: &[String]| {
        let mut subjects = subjects.to_vec();
        subjects.sort();
        subjects.join(" ")
    };
    check(
        "subjects",
        sorted(&found.subjects),
        sorted(&wanted.subjects),
    );
    check(
        "storage",
        format!("{:?}", found.storage),
        format!("{:?}", wanted.storage),
    );
    check(
        "retention",
        format!("{:?}", found.retention),
        format!("{:?}", wanted.retention),
    );
    check(
        "discard",
        format!("{:?}", found.discard),
        format!("{:?}", wanted.discard),
    );
    check(
        "max_age",
        format!("{:?}", found.max_age),
        format!("{:?}", wanted.max_age),
    );
    check(
        "max_msgs_per_subject",
        found.max_messages_per_subject.max(0).to_string(),
        wanted.max_messages_per_subject.max(0).to_string(),
    );
    for (what, is, must) in [
        (
            "discard_new_per_subject",
            found.discard_new_per_subject,
            wanted.discard_new_per_subject,
        ),
        ("deny_delete", found.deny_delete, wanted.deny_delete),
        ("allow_rollup_hdrs", found.allow_rollup, wanted.allow_rollup),
        ("allow_direct", found.allow_direct, wanted.allow_direct),
        (
            "allow_msg_ttl",
            found.allow_message_ttl,
            wanted.allow_message_ttl,
        ),
        (
            "allow_msg_schedules",
            found.allow_message_schedules,
            wanted.allow_message_schedules,
        ),
        (
            "allow_atomic",
            found.allow_atomic_publish,
            wanted.allow_atomic_publish,
        ),
        ("no_ack", found.no_ack, wanted.no_ack),
        ("sealed", found.sealed, wanted.sealed),
    ] {
        check(what, is.to_string(), must.to_string());
    }
    let republish = |config: &Config| {
        config
            .republish
            .as_ref()
            .map(|republish| (republish.source.clone(), republish.headers_only))
    };
    check(
        "republish",
        format!("{:?}", republish(found)),
        format!("{:?}", republish(wanted)),
    );
    check(
        "persist_mode",
        format!(
            "{:?}",
            found
                .persist_mode
                .is_some_and(|mode| format!("{mode:?}") != "Default")
        ),
        "false".to_owned(),
    );
    (!faults.is_empty()).then(|| faults.join(", "))
}

async fn found(jetstream: &Context, name: &str) -> Result<Option<Config>, StartError> {
    let look = || jetstream.get_stream(name);
    let passes = |error: &GetStreamError| match error.kind() {
        GetStreamErrorKind::Request => true,
        GetStreamErrorKind::JetStream(error) => is_passing(&error),
        _ => false,
    };
    match look.retry(patience()).when(passes).await {
        Ok(stream) => Ok(Some(stream.cached_info().config.clone())),
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(error)
                if error.error_code() == ErrorCode::STREAM_NOT_FOUND =>
            {
                Ok(None)
            }
            GetStreamErrorKind::JetStream(error)
                if matches!(
                    error.error_code(),
                    ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT
                ) =>
            {
                Err(StartError::NoJetStream)
            }
            _ => Err(StartError::api(
                format!("stream {name} could not be looked at"),
                error,
            )),
        },
    }
}

/// Servers that have just started have no leader yet.
fn is_passing(error: &async_nats::jetstream::Error) -> bool {
    matches!(
        error.error_code(),
        ErrorCode::CLUSTER_NOT_AVAILABLE
            | ErrorCode::CLUSTER_NOT_LEADER
            | ErrorCode::CLUSTER_NO_PEERS
            | ErrorCode::STREAM_OFFLINE
    )
}

fn identity(name: &str, config: &Config) -> Result<(ClusterId, u16), StartError> {
    let foreign = || StartError::Foreign {
        stream: name.to_owned(),
    };
    let id = config.metadata.get(CLUSTER).ok_or_else(foreign)?;
    let shards = config
        .metadata
        .get(SHARDS)
        .and_then(|shards| shards.parse().ok());
    let shards = shards
        .filter(|shards| (1..=MAX_SHARDS).contains(shards))
        .ok_or_else(foreign)?;
    Ok((ClusterId::new(id).map_err(|_| foreign())?, shards))
}

/// Looks at a cluster that is there; makes nothing.
pub(crate) async fn find(jetstream: &Context) -> Result<Option<Cluster>, StartError> {
    let first = Shard(0).stream();
    let Some(config) = found(jetstream, &first).await? else {
        return Ok(None);
    };
    let (id, shards) = identity(&first, &config)?;
    if found(jetstream, LIVENESS).await?.is_none() {
        return Ok(None);
    }
    let cluster = Cluster {
        id,
        shards,
        replicas: config.num_replicas,
    };
    check(jetstream, &cluster).await?;
    Ok(Some(cluster))
}

/// Makes what is missing of a new cluster, or finds the one that is there.
pub(crate) async fn make(
    jetstream: &Context,
    shape: Shape,
    fresh: ClusterId,
) -> Result<Cluster, StartError> {
    if shape.shards == 0 || shape.shards > MAX_SHARDS {
        return Err(StartError::Shape(format!(
            "a cluster has 1 to {MAX_SHARDS} shards, not {}",
            shape.shards
        )));
    }
    if let Some(cluster) = find(jetstream).await? {
        return Ok(cluster);
    }
    // Whoever makes the first stream names the cluster.
    let first = wanted(&fresh, shape).into_iter().next();
    if let Some(first) = first {
        create(jetstream, first).await?;
    }
    let name = Shard(0).stream();
    let config = shows(jetstream, &name).await?;
    let (id, shards) = identity(&name, &config)?;
    let shape = Shape {
        shards,
        replicas: config.num_replicas,
    };
    for config in wanted(&id, shape) {
        let name = config.name.clone();
        create(jetstream, config).await?;
        shows(jetstream, &name).await?;
    }
    let cluster = Cluster {
        id,
        shards,
        replicas: shape.replicas,
    };
    check(jetstream, &cluster).await?;
    tracing::info!(cluster = %cluster.id, shards = cluster.shards, replicas = cluster.replicas, "a new cluster");
    Ok(cluster)
}

/// The configuration of a stream that was made a moment ago. While another node's request to make it is under way, the servers of a cluster
/// answer that its name is taken and that there is no such stream.
async fn shows(jetstream: &Context, name: &str) -> Result<Config, StartError> {
    let look = || async {
        found(jetstream, name)
            .await?
            .ok_or_else(|| StartError::Missing {
                stream: name.to_owned(),
            })
    };
    let is_missing = |error: &StartError| matches!(error, StartError::Missing { .. });
    look.retry(patience()).when(is_missing).await
}

/// Creates a stream; one that is there, made by somebody at the same moment, is looked at afterwards.
async fn create(jetstream: &Context, config: Config) -> Result<(), StartError> {
    let name = config.name.clone();
    let make = || jetstream.create_stream(config.clone());
    let passes = |error: &CreateStreamError| match error.kind() {
        CreateStreamErrorKind::TimedOut | CreateStreamErrorKind::Response => true,
        CreateStreamErrorKind::JetStream(error) => is_passing(&error),
        _ => false,
    };
    match make.retry(patience()).when(passes).await {
        Ok(_) => Ok(()),
        Err(error) => match error.kind() {
            CreateStreamErrorKind::JetStream(answer)
                if answer.error_code() == ErrorCode::STREAM_NAME_EXIST =>
            {
                Ok(())
            }
            _ => Err(StartError::api(
                format!("stream {name} could not be made"),
                error,
            )),
        },
    }
}

async fn check(jetstream: &Context, cluster: &Cluster) -> Result<(), StartError> {
    let shape = Shape {
        shards: cluster.shards,
        replicas: cluster.replicas,
    };
    for wanted in wanted(&cluster.id, shape) {
        let stream = wanted.name.clone();
        let config = found(jetstream, &stream).await?;
        let config = config.ok_or_else(|| StartError::Missing {
            stream: stream.clone(),
        })?;
        let (id, shards) = identity(&stream, &config)?;
        if (&id, shards) != (&cluster.id, cluster.shards) {
            return Err(StartError::Mixed {
                stream,
                found: format!("{id} with {shards} shards"),
                expected: format!("{} with {} shards", cluster.id, cluster.shards),
            });
        }
        if let Some(difference) = difference(&wanted, &config) {
            return Err(StartError::Configured { stream, difference });
        }
    }
    Ok(())
}
