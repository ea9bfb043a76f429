//! The scene of a cluster: three NATS servers, three nodes and four workers, each a process of its own on this machine.
//!
//! The servers have the shipped configuration, so every acknowledged record is on two disks. What is killed stays away for a while and
//! comes back with the data it had; what is paused goes on when its session has long been over. A process that ends by itself, because its
//! session is over or because no server answers at its start, is started again, as a service manager would. No more than one server is
//! down at a time.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use leasehold_local::{Doing, Fleet, Kind, Member, NatsOptions, NatsServers, Program, Tended};
use leasehold_nats::Target;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::TaskTracker;

use super::children::READY;
use super::members::Setting;
use super::operator::Troubles;
use super::plan::{NODES, WORKERS};
use super::scene::{Pace, Scene, Stall, Who};
use super::servers::Servers;
use crate::place::Place;

/// NATS servers: as few as can lose one.
const SERVERS: usize = 3;
/// How long a process counts as alive without a renewal. Far below what production uses: the demo should not wait for half a minute
/// whenever one dies.
pub(super) const SESSION_TTL: Duration = Duration::from_secs(3);
/// How much longer than that a pause lasts, at least and at most. Some end just when others begin to take over what the paused one had, some
/// when they have long done so.
const PAUSE_BEYOND: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(7));
/// How long a killed process stays away, at most. Some are back before anybody has noticed, some are not.
const AWAY: Duration = Duration::from_secs(8);
/// How often a process may end by itself before that is a trouble. Each time NATS is without a leader for longer than a session lives, the
/// workers end theirs; more than a few times for each such event, something is wrong.
const MOST_ENDS: usize = 60;
/// How long a process may take to end after SIGTERM: longer than the slowest call of the example.
const ORDERLY: Duration = Duration::from_secs(30);
/// How often the processes are looked after: each look reads the state of every process from the system.
const LOOK: Duration = Duration::from_millis(200);

/// Beside what the embedded store needs, an answer may wait for a session to lapse, an election (6 s) and the next scan.
const PACE: Pace = Pace {
    settle: Duration::from_millis(2_500),
    settle_alone: Duration::from_secs(15),
    reach: Duration::from_secs(6),
    silence: Duration::from_secs(45),
    end: Duration::from_secs(180),
};

/// See the module.
pub(super) struct Cluster {
    servers: Servers,
    fleet: Fleet,
    url: String,
    place: Arc<Place>,
    setting: Setting,
    rng: StdRng,
    looked: Instant,
    diary: Vec<String>,
}

impl Cluster {
    pub(super) async fn start(
        setting: Setting,
        seed: u64,
        stalls: impl Fn(Who) -> Option<Stall>,
        tasks: &TaskTracker,
    ) -> anyhow::Result<Self> {
        let servers =
            NatsServers::start(NatsOptions::new(SERVERS, setting.folder.cluster())).await?;
        let url = servers.urls()?;
        let program = Program {
            binary: std::env::current_exe().context("finding this program's own file")?,
            nats: url.clone(),
        };
        let target = Target {
            url,
            ..Target::default()
        };
        let mut fleet = Fleet::new(setting.folder.cluster())?;
        let nodes = (1..=NODES).map(|n| (Who::Nodes, n, setting.node(n)));
        let workers = (1..=WORKERS).map(|n| (Who::Workers, n, setting.worker(n)));
        for (who, n, recipe) in nodes.chain(workers) {
            let stalls = if n == 1 { stalls(who) } else { None };
            fleet.add(program.clone(), recipe, stalls.map(stall))?;
        }
        fleet.ready(READY).await?;
        Ok(Self {
            servers: Servers::new(servers, tasks.clone()),
            fleet,
            url: program.nats,
            place: Arc::new(Place::Cluster(Box::new(target))),
            setting,
            rng: StdRng::seed_from_u64(seed),
            looked: Instant::now(),
            diary: Vec::new(),
        })
    }

    /// One process of this kind that runs, if there is one.
    fn runs(&mut self, who: Who) -> Option<String> {
        let members = self.fleet.members().iter();
        let up: Vec<&str> = members
            .filter(|member| Some(member.kind()) == kind(who) && member.doing() == Doing::Runs)
            .map(Member::name)
            .collect();
        up.choose(&mut self.rng).map(|name| (*name).to_owned())
    }

    /// Which process of this kind to kill, if one can be killed now. The one that was told to stall, even if it is paused: nothing but a kill
    /// ends its stall, and what it stands still with would never be over.
    fn victim(&mut self, who: Who) -> Option<String> {
        let mut members = self.fleet.members().iter();
        let stalls =
            members.find(|member| Some(member.kind()) == kind(who) && member.stall().is_some());
        match stalls {
            Some(member) => {
                let is_away = matches!(member.doing(), Doing::Away(_));
                (!is_away).then(|| member.name().to_owned())
            }
            None => self.runs(who),
        }
    }

    fn named(&self, kind: Kind) -> impl Iterator<Item = &str> {
        let members = self.fleet.members().iter();
        members
            .filter(move |member| member.kind() == kind)
            .map(Member::name)
    }

    fn some(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.rng.random_range(0.0..1.0))
    }

    async fn stop_all(&self, kind: Kind, troubles: &Troubles) -> anyhow::Result<()> {
        for name in self.fleet.stop_all(kind, ORDERLY).await? {
            troubles.add(format!(
                "{name} did not stop in good order; its log says why"
            ));
        }
        Ok(())
    }

    async fn tend_members(&mut self, troubles: &Troubles) -> anyhow::Result<()> {
        for tended in self.fleet.tend().await? {
            let Tended::Ended(name, ends) = tended else {
                continue;
            };
            self.diary.push(format!("{name} ended by itself"));
            if ends == MOST_ENDS {
                troubles.add(format!(
                    "{name} ended by itself {MOST_ENDS} times; its log says why"
                ));
            }
        }
        Ok(())
    }
}

/// The kind of process that the cluster's fleet knows; servers and the payments service are not of it.
fn kind(who: Who) -> Option<Kind> {
    match who {
        Who::Nodes => Some(Kind::Node),
        Who::Workers => Some(Kind::Worker),
        Who::Runtime | Who::Servers | Who::Payments => None,
    }
}

fn stall(stall: Stall) -> leasehold_local::Stall {
    leasehold_local::Stall {
        point: stall.point.to_owned(),
        nth: stall.nth,
    }
}

#[async_trait]
impl Scene for Cluster {
    fn pace(&self) -> Pace {
        PACE
    }

    fn place(&self) -> Arc<Place> {
        self.place.clone()
    }

    fn reach(&self) -> [OsString; 2] {
        ["--nats".into(), self.url.clone().into()]
    }

    fn logbooks(&self) -> Vec<PathBuf> {
        let workers = self.named(Kind::Worker);
        let folder = self.fleet.processes().folder();
        workers.map(|worker| folder.join(worker)).collect()
    }

    fn gather(&self, record: &Path) -> std::io::Result<()> {
        let mut all = File::create(record)?;
        for node in self.named(Kind::Node) {
            let path = self.setting.folder.recording(node);
            std::io::copy(&mut File::open(path)?, &mut all)?;
        }
        Ok(())
    }

    async fn stalled(&mut self) -> bool {
        for member in self.fleet.members() {
            if member.doing() == Doing::Runs && self.fleet.stalled(member.name()).await.is_some() {
                return true;
            }
        }
        false
    }

    async fn kill(&mut self, who: Who, next: Option<Stall>) -> anyhow::Result<()> {
        let away = self.some(AWAY);
        if who == Who::Servers {
            let told = self.servers.kill(away).await?;
            self.diary.push(told);
            return Ok(());
        }
        // It, or all of a kind, may be away: one will be back soon.
        let victim = loop {
            match self.victim(who) {
                Some(victim) => break victim,
                None => {
                    self.tend_members(&Troubles::default()).await?;
                    sleep(LOOK).await;
                }
            }
        };
        self.fleet.kill(&victim, away, next.map(stall)).await?;
        self.diary
            .push(format!("{victim} killed, away for {away:.1?}"));
        Ok(())
    }

    async fn pause(&mut self, who: Who) -> anyhow::Result<bool> {
        let (least, most) = PAUSE_BEYOND;
        let lasts = SESSION_TTL + least + self.some(most - least);
        let Some(victim) = self.runs(who) else {
            return Ok(false);
        };
        if !self.fleet.pause(&victim, lasts).await {
            return Ok(false);
        }
        self.diary.push(format!("{victim} paused for {lasts:.1?}"));
        Ok(true)
    }

    async fn tend(&mut self, troubles: &Troubles) -> anyhow::Result<()> {
        if self.looked.elapsed() < LOOK {
            return Ok(());
        }
        self.looked = Instant::now();
        self.servers.tend().await?;
        self.tend_members(troubles).await
    }

    fn whole(&self) -> bool {
        self.fleet.whole() && self.servers.whole()
    }

    async fn stop(&mut self, troubles: &Troubles) -> anyhow::Result<()> {
        self.servers.back().await?;
        self.stop_all(Kind::Worker, troubles).await
    }

    async fn down(self: Box<Self>, troubles: &Troubles) -> anyhow::Result<()> {
        self.stop_all(Kind::Node, troubles).await?;
        for panic in self.fleet.panics()? {
            troubles.add(panic);
        }
        let down = timeout(ORDERLY, self.fleet.down());
        down.await.context("stopping the NATS servers")??;
        Ok(())
    }

    fn diary(&self) -> &[String] {
        &self.diary
    }
}
