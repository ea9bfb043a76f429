//! Nodes and workers that come back: what a service manager does for them, for demos and chaos tests that kill and pause them.
//!
//! A member that was killed stays away as long as was said and is started again with the data it had; one that was paused goes on when its
//! time has come; one that ended by itself (its session was over, no server answered at its start) comes back after a moment. All of that
//! happens in [`tend`](Fleet::tend), which its owner calls again and again. A life can be told to stand still at a named moment
//! ([`Stall`]), so that a kill hits exactly there.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::LocalError;
use crate::log;
use crate::process::State;
use crate::processes::{NodeOptions, Processes, Program, WorkerOptions};
use crate::record::Kind;

/// How long a process that ended by itself stays away.
const SERVICE_PAUSE: Duration = Duration::from_millis(500);
/// How a process says that it is ready.
const READY_LINE: &str = "ready:";
/// How a line begins that says that a process stands still.
const REACHED_LINE: &str = "reached ";
/// What the log of a process holds that panicked somewhere.
const PANIC: &str = "panicked at";

/// Where a life of a process stands still: the n-th time, from 1, that it passes a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stall {
    /// The point's name.
    pub point: String,
    /// Which visit.
    pub nth: usize,
}

impl fmt::Display for Stall {
    /// As the option `--stall` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.point, self.nth)
    }
}

/// How a member is started in each of its lives, beside its stall.
#[derive(Debug, Clone)]
pub enum Recipe {
    /// A node.
    Node(NodeOptions),
    /// A worker.
    Worker(WorkerOptions),
}

impl Recipe {
    fn name(&self) -> &str {
        match self {
            Recipe::Node(node) => &node.name,
            Recipe::Worker(worker) => &worker.name,
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Recipe::Node(_) => Kind::Node,
            Recipe::Worker(_) => Kind::Worker,
        }
    }
}

/// What a member is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// It runs.
    Runs,
    /// It does not run and comes back then.
    Away(Instant),
    /// It is stopped (SIGSTOP) and goes on then.
    Paused(Instant),
}

/// One process of the fleet.
#[derive(Debug)]
pub struct Member {
    program: Program,
    recipe: Recipe,
    stall: Option<Stall>,
    doing: Doing,
    ends: usize,
}

impl Member {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.recipe.name()
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.recipe.kind()
    }

    /// What it is doing, as far as its owner made it.
    #[must_use]
    pub fn doing(&self) -> Doing {
        self.doing
    }

    /// Where its present or next life stands still.
    #[must_use]
    pub fn stall(&self) -> Option<&Stall> {
        self.stall.as_ref()
    }

    /// How often it has ended by itself.
    #[must_use]
    pub fn ends(&self) -> usize {
        self.ends
    }
}

/// What [`Fleet::tend`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tended {
    /// It runs again after it was away.
    Back(String),
    /// It goes on after a pause.
    Resumed(String),
    /// It had ended by itself, for the n-th time, and will be back.
    Ended(String, usize),
}

/// See the module.
#[derive(Debug)]
pub struct Fleet {
    processes: Processes,
    members: Vec<Member>,
}

impl Fleet {
    /// In this folder, as [`Processes::new`].
    ///
    /// # Errors
    /// [`LocalError::Folder`].
    pub fn new(folder: impl AsRef<Path>) -> Result<Self, LocalError> {
        Ok(Self {
            processes: Processes::new(folder)?,
            members: Vec::new(),
        })
    }

    /// Starts a process and keeps it.
    ///
    /// # Errors
    /// As of [`Processes::start_node`].
    pub fn add(
        &mut self,
        program: Program,
        recipe: Recipe,
        stall: Option<Stall>,
    ) -> Result<(), LocalError> {
        let mut member = Member {
            program,
            recipe,
            stall,
            doing: Doing::Runs,
            ends: 0,
        };
        start(&self.processes, &mut member)?;
        self.members.push(member);
        Ok(())
    }

    /// Waits until each of them has said that it is ready.
    ///
    /// # Errors
    /// As of [`Processes::says`].
    pub async fn ready(&self, bound: Duration) -> Result<(), LocalError> {
        for member in &self.members {
            self.processes
                .says(member.name(), READY_LINE, bound)
                .await?;
        }
        Ok(())
    }

    /// All of them, in the order in which they were added.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The processes themselves.
    #[must_use]
    pub fn processes(&self) -> &Processes {
        &self.processes
    }

    /// Whether everything runs: nothing has to come back.
    #[must_use]
    pub fn whole(&self) -> bool {
        self.members
            .iter()
            .all(|member| member.doing == Doing::Runs)
    }

    /// SIGKILL; it comes back after `away`, and then stands still where `next` says.
    ///
    /// # Errors
    /// [`LocalError::Unknown`], [`LocalError::Io`].
    pub async fn kill(
        &mut self,
        name: &str,
        away: Duration,
        next: Option<Stall>,
    ) -> Result<(), LocalError> {
        self.processes.kill(name).await?;
        if let Some(member) = self.find(name) {
            member.stall = next;
            member.doing = Doing::Away(Instant::now() + away);
        }
        Ok(())
    }

    /// SIGSTOP, and SIGCONT after `lasts`. Whether there was a process to stop: it may just have ended by itself.
    pub async fn pause(&mut self, name: &str, lasts: Duration) -> bool {
        if self.processes.pause(name).await.is_err() {
            return false;
        }
        if let Some(member) = self.find(name) {
            member.doing = Doing::Paused(Instant::now() + lasts);
        }
        true
    }

    /// What is away or paused comes back with the next [`tend`](Self::tend). Stalls that nobody has reached are forgotten with the life
    /// that has them, so a member that has one is killed.
    ///
    /// # Errors
    /// [`LocalError::Io`].
    pub async fn heal(&mut self) -> Result<(), LocalError> {
        let now = Instant::now();
        for member in &mut self.members {
            if member.stall.take().is_some() {
                self.processes.kill(member.recipe.name()).await?;
                member.doing = Doing::Away(now);
            }
            match &mut member.doing {
                Doing::Away(until) | Doing::Paused(until) => *until = now,
                Doing::Runs => {}
            }
        }
        Ok(())
    }

    /// Brings back what is due and what has ended by itself, and says so.
    ///
    /// # Errors
    /// As of [`Processes::start_node`].
    pub async fn tend(&mut self) -> Result<Vec<Tended>, LocalError> {
        let now = Instant::now();
        let states = self.processes.status()?;
        let mut tended = Vec::new();
        for member in &mut self.members {
            let name = member.name().to_owned();
            match member.doing {
                Doing::Away(until) if now >= until => {
                    start(&self.processes, member)?;
                    tended.push(Tended::Back(name));
                }
                Doing::Paused(until) if now >= until => {
                    // One that was killed meanwhile by somebody else is found dead by the next look.
                    let _ = self.processes.resume(&name).await;
                    member.doing = Doing::Runs;
                    tended.push(Tended::Resumed(name));
                }
                Doing::Runs => {
                    let state = states.iter().find(|status| status.name == name);
                    if state.is_none_or(|status| status.state == State::Dead) {
                        member.ends += 1;
                        member.doing = Doing::Away(now + SERVICE_PAUSE);
                        tended.push(Tended::Ended(name, member.ends));
                    }
                }
                Doing::Away(_) | Doing::Paused(_) => {}
            }
        }
        Ok(tended)
    }

    /// The point at which a member stands still, if it was told to and has come there.
    pub async fn stalled(&self, name: &str) -> Option<String> {
        let member = self.members.iter().find(|member| member.name() == name)?;
        member.stall.as_ref()?;
        let says = self.processes.says(name, REACHED_LINE, Duration::ZERO);
        let line = says.await.ok()?;
        let (_, point) = line.split_once(REACHED_LINE)?;
        Some(point.trim().to_owned())
    }

    /// SIGTERM to all of a kind, at once; each that does not go within `patience` is killed. The names of those.
    ///
    /// # Errors
    /// [`LocalError::Io`].
    pub async fn stop_all(
        &self,
        kind: Kind,
        patience: Duration,
    ) -> Result<Vec<String>, LocalError> {
        let members = self.members.iter().filter(|member| member.kind() == kind);
        let mut stops = tokio::task::JoinSet::new();
        for member in members {
            let (folder, name) = (self.processes.folder().to_owned(), member.name().to_owned());
            stops.spawn(async move {
                let stopped = Processes::open(folder)?.stop(&name, patience).await?;
                Ok::<_, LocalError>((name, stopped))
            });
        }
        let mut killed = Vec::new();
        for stopped in stops.join_all().await {
            let (name, orderly) = stopped?;
            if !orderly {
                killed.push(name);
            }
        }
        Ok(killed)
    }

    /// Lines of the members' logs that say that something panicked, each after its member's name.
    ///
    /// # Errors
    /// [`LocalError::Io`]: a log cannot be read.
    pub fn panics(&self) -> Result<Vec<String>, LocalError> {
        let mut panics = Vec::new();
        for member in &self.members {
            let log = self
                .processes
                .folder()
                .join(format!("{}.log", member.name()));
            let lines = log::lines_with(&log, PANIC)
                .map_err(crate::error::doing(format!("reading {}", log.display())))?;
            panics.extend(
                lines
                    .into_iter()
                    .map(|line| format!("{} says: {line}", member.name())),
            );
        }
        Ok(panics)
    }

    /// Everything that was started in the folder ends, servers too. Whether all went by themselves.
    ///
    /// # Errors
    /// As of [`Processes::down`].
    pub async fn down(self) -> Result<bool, LocalError> {
        self.processes.down().await
    }

    fn find(&mut self, name: &str) -> Option<&mut Member> {
        self.members
            .iter_mut()
            .find(|member| member.recipe.name() == name)
    }
}

/// The member's first or next life.
fn start(processes: &Processes, member: &mut Member) -> Result<(), LocalError> {
    let stall = member.stall.iter();
    let stall = stall.flat_map(|stall| ["--stall".to_owned(), stall.to_string()]);
    match member.recipe.clone() {
        Recipe::Node(mut node) => {
            node.arguments.extend(stall);
            processes.start_node(&member.program, node)?;
        }
        Recipe::Worker(mut worker) => {
            worker.arguments.extend(stall);
            processes.start_worker(&member.program, worker)?;
        }
    }
    member.doing = Doing::Runs;
    Ok(())
}
