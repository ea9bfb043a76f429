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
use futures_util::future::join_all;
use leasehold_local::{NatsOptions, NatsServers, Processes, Program, State};
use leasehold_nats::Target;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::TaskTracker;

use super::children::READY;
use super::members::{Member, Setting, What};
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
/// How long a process that ended by itself stays away.
const SERVICE_PAUSE: Duration = Duration::from_millis(500);
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
    processes: Processes,
    program: Program,
    place: Arc<Place>,
    setting: Setting,
    members: Vec<Member>,
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
        let node = |n| Member::new(Who::Nodes, format!("node-{n}"));
        let worker = |n| Member::new(Who::Workers, format!("worker-{n}"));
        let mut cluster = Self {
            servers: Servers::new(servers, tasks.clone()),
            processes: Processes::new(setting.folder.cluster())?,
            program,
            place: Arc::new(Place::Cluster(Box::new(target))),
            setting,
            members: (1..=NODES)
                .map(node)
                .chain((1..=WORKERS).map(worker))
                .collect(),
            rng: StdRng::seed_from_u64(seed),
            looked: Instant::now(),
            diary: Vec::new(),
        };
        for who in [Who::Nodes, Who::Workers] {
            let first = cluster.members.iter_mut().find(|member| member.who == who);
            if let Some(first) = first {
                first.stall = stalls(who);
            }
        }
        for member in &mut cluster.members {
            member.start(&cluster.processes, &cluster.program, &cluster.setting)?;
        }
        for member in &cluster.members {
            cluster
                .processes
                .says(&member.name, "ready:", READY)
                .await?;
        }
        Ok(cluster)
    }

    /// One process of this kind that runs, if there is one.
    fn runs(&mut self, who: Who) -> Option<usize> {
        let members = self.members.iter().enumerate();
        let up: Vec<usize> = members
            .filter(|(_, member)| member.who == who && matches!(member.what, What::Runs))
            .map(|(place, _)| place)
            .collect();
        up.choose(&mut self.rng).copied()
    }

    /// Which process of this kind to kill, if one can be killed now. The one that was told to stall, even if it is paused: nothing but a kill
    /// ends its stall, and what it stands still with would never be over.
    fn victim(&mut self, who: Who) -> Option<usize> {
        let stalls = |member: &Member| member.who == who && member.stall.is_some();
        match self.members.iter().position(stalls) {
            Some(place) => {
                let is_away = matches!(self.members[place].what, What::Away { .. });
                (!is_away).then_some(place)
            }
            None => self.runs(who),
        }
    }

    fn some(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.rng.random_range(0.0..1.0))
    }

    async fn stop_all(&self, who: Who, troubles: &Troubles) -> anyhow::Result<()> {
        let members = self.members.iter().filter(|member| member.who == who);
        let stops = members.map(|member| async {
            let stopped = self.processes.stop(&member.name, ORDERLY).await;
            (&member.name, stopped)
        });
        for (name, stopped) in join_all(stops).await {
            if !stopped? {
                troubles.add(format!(
                    "{name} did not stop in good order; its log says why"
                ));
            }
        }
        Ok(())
    }

    async fn tend_members(&mut self, troubles: &Troubles) -> anyhow::Result<()> {
        let now = Instant::now();
        let states = self.processes.status()?;
        for member in &mut self.members {
            match member.what {
                What::Away { until } if now >= until => {
                    member.start(&self.processes, &self.program, &self.setting)?;
                }
                What::Paused { until } if now >= until => {
                    self.processes.resume(&member.name).await?;
                    member.what = What::Runs;
                }
                What::Runs => {
                    let state = states.iter().find(|status| status.name == member.name);
                    if state.is_none_or(|status| status.state == State::Dead) {
                        self.diary.push(format!("{} ended by itself", member.name));
                        member.ended += 1;
                        if member.ended == MOST_ENDS {
                            troubles.add(format!(
                                "{} ended by itself {MOST_ENDS} times; its log says why",
                                member.name
                            ));
                        }
                        member.what = What::Away {
                            until: now + SERVICE_PAUSE,
                        };
                    }
                }
                What::Away { .. } | What::Paused { .. } => {}
            }
        }
        Ok(())
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
        ["--nats".into(), self.program.nats.clone().into()]
    }

    fn logbooks(&self) -> Vec<PathBuf> {
        let workers = self
            .members
            .iter()
            .filter(|member| member.who == Who::Workers);
        workers
            .map(|worker| self.processes.folder().join(&worker.name))
            .collect()
    }

    fn gather(&self, record: &Path) -> std::io::Result<()> {
        let mut all = File::create(record)?;
        for node in self
            .members
            .iter()
            .filter(|member| member.who == Who::Nodes)
        {
            let path = self.setting.folder.recording(&node.name);
            std::io::copy(&mut File::open(path)?, &mut all)?;
        }
        Ok(())
    }

    async fn stalled(&mut self) -> bool {
        for member in &self.members {
            if matches!(member.what, What::Runs) && member.has_stalled(&self.processes).await {
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
        let member = &mut self.members[victim];
        self.processes.kill(&member.name).await?;
        self.diary
            .push(format!("{} killed, away for {away:.1?}", member.name));
        member.stall = next;
        member.what = What::Away {
            until: Instant::now() + away,
        };
        Ok(())
    }

    async fn pause(&mut self, who: Who) -> anyhow::Result<bool> {
        let (least, most) = PAUSE_BEYOND;
        let lasts = SESSION_TTL + least + self.some(most - least);
        let Some(victim) = self.runs(who) else {
            return Ok(false);
        };
        let member = &mut self.members[victim];
        if self.processes.pause(&member.name).await.is_err() {
            // It has just ended by itself.
            return Ok(false);
        }
        self.diary
            .push(format!("{} paused for {lasts:.1?}", member.name));
        member.what = What::Paused {
            until: Instant::now() + lasts,
        };
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
        let runs = |member: &Member| matches!(member.what, What::Runs);
        self.members.iter().all(runs) && self.servers.whole()
    }

    async fn stop(&mut self, troubles: &Troubles) -> anyhow::Result<()> {
        self.servers.back().await?;
        self.stop_all(Who::Workers, troubles).await
    }

    async fn down(self: Box<Self>, troubles: &Troubles) -> anyhow::Result<()> {
        self.stop_all(Who::Nodes, troubles).await?;
        for member in &self.members {
            for panic in member.panics(self.processes.folder())? {
                troubles.add(format!("{} says: {panic}", member.name));
            }
        }
        let down = timeout(ORDERLY, self.processes.down());
        down.await.context("stopping the NATS servers")??;
        Ok(())
    }

    fn diary(&self) -> &[String] {
        &self.diary
    }
}
