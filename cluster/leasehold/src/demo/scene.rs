//! The runtime under test, as the demo handles it: something whose processes are killed and paused, and come back.
//!
//! There are two: one process on a data folder ([`Dev`](super::dev::Dev)), and a whole cluster ([`Cluster`](super::cluster::Cluster)).
//! Plan, job and report know neither.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;

use super::operator::Troubles;
use crate::place::Place;

/// A kind of process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Who {
    /// `leasehold dev`: node and workers in one process.
    Runtime,
    /// One of the nodes.
    Nodes,
    /// One of the workers.
    Workers,
    /// One of the NATS servers.
    Servers,
    /// The payments service, which belongs to no runtime.
    Payments,
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Who::Runtime => "runtime",
            Who::Nodes => "nodes",
            Who::Workers => "workers",
            Who::Servers => "NATS servers",
            Who::Payments => "payments",
        }
    }
}

/// How often something was done to processes of each kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Tally(BTreeMap<Who, usize>);

impl Tally {
    /// Nothing was done yet; these kinds are shown all the same.
    pub(super) fn of(kinds: &[Who]) -> Self {
        Self(kinds.iter().map(|who| (*who, 0)).collect())
    }

    pub(super) fn add(&mut self, who: Who, times: usize) {
        *self.0.entry(who).or_default() += times;
    }

    pub(super) fn sum(&self) -> usize {
        self.0.values().sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (who, times)) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{} {times}", who.name())?;
        }
        Ok(())
    }
}

/// Where a life of a process stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stall {
    pub(super) who: Who,
    pub(super) point: &'static str,
    pub(super) nth: usize,
}

impl Stall {
    /// As the option `--stall` takes it.
    pub(super) fn argument(self) -> String {
        format!("{}:{}", self.point, self.nth)
    }
}

/// How long things may take before the job goes on without them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Until little is in hand. What a stage leaves mostly waits for a timeout of a call, and the next stage need not.
    pub(super) settle: Duration,
    /// Until nothing is in hand, for a stage that wants to be alone. Longer: it is worth nothing otherwise.
    pub(super) settle_alone: Duration,
    /// Until a process stalls, or so many commits are heard, before it is killed as it is.
    pub(super) reach: Duration,
    /// How long the end may take without any commit.
    pub(super) silence: Duration,
    /// How long the end may take in all.
    pub(super) end: Duration,
}

/// See the module.
#[async_trait]
pub(super) trait Scene: Send {
    fn pace(&self) -> Pace;

    /// Where clients and operators reach it.
    fn place(&self) -> Arc<Place>;

    /// How this binary reaches it for reading when it has [stopped](Self::stop).
    fn reach(&self) -> [OsString; 2];

    /// Folders of logbooks that lie beside what is stored.
    fn logbooks(&self) -> Vec<PathBuf>;

    /// Puts what its processes have recorded of their inputs into this file, if it is not there already.
    fn gather(&self, record: &Path) -> std::io::Result<()>;

    /// Whether a process stands still where it was told to.
    async fn stalled(&mut self) -> bool;

    /// SIGKILL of one process; of the one that stalls, if one of that kind does. It comes back by itself, at once or after a while, and is
    /// then told to stall where `next` says.
    async fn kill(&mut self, who: Who, next: Option<Stall>) -> anyhow::Result<()>;

    /// SIGSTOP of one process, and SIGCONT when its session has been over for a while. Whether there was one.
    async fn pause(&mut self, who: Who) -> anyhow::Result<bool>;

    /// Brings back what is due and what has ended by itself.
    async fn tend(&mut self, troubles: &Troubles) -> anyhow::Result<()>;

    /// Whether everything runs: nothing has to come back.
    fn whole(&self) -> bool;

    /// Stops in good order whatever has a logbook; what is stored can still be [reached](Self::reach).
    async fn stop(&mut self, troubles: &Troubles) -> anyhow::Result<()>;

    /// What is left of it goes too.
    async fn down(self: Box<Self>, troubles: &Troubles) -> anyhow::Result<()>;

    /// What it has to tell beside what was done to it, line by line.
    fn diary(&self) -> &[String];
}
