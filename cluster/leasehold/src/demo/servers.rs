//! The NATS servers of the demo's cluster: one at a time is killed and comes back with its data.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use leasehold_local::{LocalError, NatsServers};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::task::TaskTracker;

/// The stream whose leader is killed: the first shard's journal.
const STREAM: &str = "LH_0";
/// How often to look whether a server that is on its way back is there.
const LOOK: Duration = Duration::from_millis(50);

/// See the module.
pub(super) struct Servers {
    servers: Arc<NatsServers>,
    tasks: TaskTracker,
    kills: usize,
    down: Option<Down>,
}

/// The one that does not serve.
enum Down {
    Until {
        n: usize,
        until: Instant,
    },
    /// It starts and catches up.
    Starts(JoinHandle<Result<(), LocalError>>),
}

impl Servers {
    pub(super) fn new(servers: NatsServers, tasks: TaskTracker) -> Self {
        Self {
            servers: Arc::new(servers),
            tasks,
            kills: 0,
            down: None,
        }
    }

    /// Kills one, which stays away for a while, as soon as all serve: in turn the leader of a shard's journal, the leader of the servers
    /// themselves, and another one. What was done, in words.
    pub(super) async fn kill(&mut self, away: Duration) -> anyhow::Result<String> {
        self.back().await?;
        let leads = [Some(STREAM), None][self.kills % 2];
        let leader = match leads {
            Some(stream) => self.servers.stream_leader(stream).await?,
            None => self.servers.meta_leader().await?,
        };
        // Without a leader at this moment any of them will do.
        let n = leader.unwrap_or(1 + self.kills % 3);
        self.kills += 1;
        self.servers.kill(n).await?;
        let what = match (leader, leads) {
            (Some(_), Some(stream)) => format!("leader of {stream}"),
            (Some(_), None) => "leader of the servers".to_owned(),
            (None, _) => "no leader known".to_owned(),
        };
        self.down = Some(Down::Until {
            n,
            until: Instant::now() + away,
        });
        Ok(format!("nats-{n} killed ({what}), away for {away:.1?}"))
    }

    /// Brings back what is due.
    pub(super) async fn tend(&mut self) -> anyhow::Result<()> {
        match self.down.take() {
            Some(Down::Until { n, until }) if Instant::now() >= until => {
                self.down = Some(Down::Starts(self.start(n)));
            }
            Some(Down::Starts(task)) if task.is_finished() => {
                task.await?.context("starting a NATS server again")?;
            }
            down => self.down = down,
        }
        Ok(())
    }

    fn start(&self, n: usize) -> JoinHandle<Result<(), LocalError>> {
        let servers = self.servers.clone();
        self.tasks.spawn(async move {
            servers.restart(n).await?;
            servers.ready().await
        })
    }

    pub(super) fn whole(&self) -> bool {
        self.down.is_none()
    }

    /// Waits until all serve.
    pub(super) async fn back(&mut self) -> anyhow::Result<()> {
        while !self.whole() {
            self.tend().await?;
            sleep(LOOK).await;
        }
        Ok(())
    }
}
