//! Carries steps out, brings everything back, and says for each step whether it took effect and by what that is known.

mod carry;

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_local::{LocalError, Stall, Tended};
use serde::Serialize;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::task::TaskTracker;

use super::catalogue::Fault;
use super::step::{Step, Toward, Who};
use crate::board::Board;
use crate::client::Client;
use crate::clock;
use crate::operators::Mood;
use crate::proxy::{Condition, Counts};
use crate::system::System;

/// How often everything is looked after.
const LOOK: Duration = Duration::from_millis(100);
/// How long before a step is tried again that could not be done: what it wants may be away, or nobody may be at work yet.
const AGAIN: Duration = Duration::from_secs(1);
/// How long everything may take to be back. A server with much data reads it again first, and a process waits for NATS.
const WHOLE: Duration = Duration::from_secs(90);
/// How often a member may end by itself before that is a trouble: each time NATS is without a leader for longer than a session lives, workers
/// end theirs.
const MOST_ENDS: usize = 60;

/// What was done, and what came of it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Injected {
    pub(crate) fault: Fault,
    /// In words, as the schedule has it.
    pub(crate) what: String,
    /// On whom, for a chart: a process, or `nats`, `runs`.
    pub(crate) whom: String,
    /// Unix milliseconds.
    pub(crate) at: i64,
    /// When it was over; nothing of what is but a moment.
    pub(crate) until: Option<i64>,
    /// Whether it took effect.
    pub(crate) fired: bool,
    /// By what that is known, or what was in the way.
    pub(crate) evidence: String,
}

/// What is not over yet.
enum Pending {
    /// A life that is to be killed at a point.
    Stall {
        who: Who,
        again: Option<Stall>,
        point: &'static str,
        place: usize,
    },
    /// A network that heals then.
    Network {
        who: Who,
        toward: Toward,
        until: Instant,
        before: Counts,
        place: usize,
    },
    /// A paused server goes on then.
    Server {
        n: usize,
        until: Instant,
        place: usize,
    },
    /// A killed server comes back then.
    ServerBack { n: usize, until: Instant },
    /// It starts and catches up.
    ServerStarts(JoinHandle<Result<(), LocalError>>),
    /// The operators differ until then.
    Operators { until: Instant, place: usize },
    /// Something that is asked of the servers, who may be at an election, or somebody who waits for them.
    Asked {
        task: JoinHandle<anyhow::Result<String>>,
        place: usize,
    },
    /// A step that could not be done, and is tried again then.
    Again {
        step: Step,
        until: Instant,
        why: String,
        place: usize,
    },
    /// A pause or absence of a member that the fleet ends; until then it is on the chart.
    Member { who: Who, place: usize },
}

/// See the module.
pub(crate) struct Injector {
    pub(crate) system: System,
    board: Board,
    client: Client,
    mood: Mood,
    tasks: TaskTracker,
    pending: Vec<Pending>,
    pub(crate) injected: Vec<Injected>,
    /// The step of each of them.
    steps: Vec<Step>,
    is_healing: bool,
    /// Members that ended by themselves, and how often.
    pub(crate) ends: BTreeMap<String, usize>,
    pub(crate) troubles: Vec<String>,
    looked: Instant,
}

impl Injector {
    pub(crate) fn new(
        system: System,
        board: Board,
        client: Client,
        mood: Mood,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            system,
            board,
            client,
            mood,
            tasks,
            pending: Vec::new(),
            injected: Vec::new(),
            steps: Vec::new(),
            is_healing: false,
            ends: BTreeMap::new(),
            troubles: Vec::new(),
            looked: Instant::now(),
        }
    }

    /// Begins a step. What cannot be done at this moment is tried again until the period ends; what was not done then is no error.
    pub(crate) async fn begin(&mut self, fault: Fault, step: &Step) {
        let place = self.injected.len();
        self.injected.push(Injected {
            fault,
            what: step.to_string(),
            whom: whom(step),
            at: clock::now(),
            until: None,
            fired: false,
            evidence: String::new(),
        });
        self.steps.push(step.clone());
        self.try_to(step, place).await;
    }

    async fn try_to(&mut self, step: &Step, place: usize) {
        match self.carry_out(step, place).await {
            Ok(Some(evidence)) => self.fired(place, evidence),
            // It shows later.
            Ok(None) => {}
            Err(error) => self.again(place, &error),
        }
    }

    /// Tries a step again later, unless everything is being healed.
    fn again(&mut self, place: usize, why: &anyhow::Error) {
        let why = format!("not done: {why:#}");
        match self.steps.get(place).filter(|_| !self.is_healing) {
            Some(step) => self.pending.push(Pending::Again {
                step: step.clone(),
                until: Instant::now() + AGAIN,
                why,
                place,
            }),
            None => self.evidence(place, why),
        }
    }

    fn fired(&mut self, place: usize, evidence: String) {
        if let Some(injected) = self.injected.get_mut(place) {
            injected.fired = true;
        }
        self.evidence(place, evidence);
    }

    fn evidence(&mut self, place: usize, evidence: String) {
        if let Some(injected) = self.injected.get_mut(place) {
            if !injected.evidence.is_empty() {
                injected.evidence.push_str("; ");
            }
            injected.evidence.push_str(&evidence);
        }
    }

    fn over(&mut self, place: usize) {
        if let Some(injected) = self.injected.get_mut(place) {
            injected.until = Some(clock::now());
        }
    }

    /// Looks after everything until then.
    pub(crate) async fn tend_until(&mut self, until: Instant) -> anyhow::Result<()> {
        while Instant::now() < until {
            self.tend().await?;
            sleep(LOOK.min(until.saturating_duration_since(Instant::now()))).await;
        }
        Ok(())
    }

    /// Brings back what is due, kills what stands still where it was told to.
    pub(crate) async fn tend(&mut self) -> anyhow::Result<()> {
        if self.looked.elapsed() < LOOK {
            return Ok(());
        }
        self.looked = Instant::now();
        for pending in std::mem::take(&mut self.pending) {
            if let Some(pending) = self.look_after(pending).await? {
                self.pending.push(pending);
            }
        }
        for tended in self.system.fleet.tend().await? {
            if let Tended::Ended(name, ends) = tended {
                if ends == MOST_ENDS {
                    let text =
                        format!("{name} ended by itself {MOST_ENDS} times; its log says why");
                    self.troubles.push(text);
                }
                self.ends.insert(name, ends);
            }
        }
        Ok(())
    }

    /// What is left of it.
    async fn look_after(&mut self, pending: Pending) -> anyhow::Result<Option<Pending>> {
        let now = Instant::now();
        let left = match pending {
            Pending::Stall {
                who,
                again,
                point,
                place,
            } => {
                let name = who.to_string();
                if self.system.fleet.stalled(&name).await.is_none() {
                    return Ok(Some(Pending::Stall {
                        who,
                        again,
                        point,
                        place,
                    }));
                }
                let next = again.clone();
                self.system.fleet.kill(&name, Duration::ZERO, next).await?;
                self.fired(
                    place,
                    format!("{who} said `reached {point}` and was killed there"),
                );
                self.over(place);
                again.map(|_| Pending::Stall {
                    who,
                    again: None,
                    point,
                    place,
                })
            }
            Pending::Network {
                who,
                toward,
                until,
                before,
                place,
            } if now >= until => {
                let link = self.system.link(who, toward);
                let untouched = link.is_some_and(|link| link.counts() == before);
                let cut = link.is_some_and(|link| link.condition() == Condition::default());
                match (untouched && !self.is_healing, cut) {
                    (true, true) => {
                        self.again(place, &anyhow::anyhow!("there was no connection"));
                        None
                    }
                    // It lasts until something comes by.
                    (true, false) => Some(Pending::Network {
                        who,
                        toward,
                        until,
                        before,
                        place,
                    }),
                    (false, _) => {
                        self.heal_network(who, toward, before, place);
                        None
                    }
                }
            }
            Pending::Server { n, until, place } if now >= until => {
                self.system.servers.resume(n).await?;
                self.over(place);
                None
            }
            Pending::ServerBack { n, until } if now >= until => {
                let servers = self.system.servers.clone();
                Some(Pending::ServerStarts(self.tasks.spawn(async move {
                    servers.restart(n).await?;
                    servers.ready().await
                })))
            }
            Pending::ServerStarts(task) if task.is_finished() => {
                // Not well in time is told by whoever waits for it.
                if let Err(error) = task.await? {
                    self.troubles.push(format!("a NATS server: {error}"));
                }
                None
            }
            // It goes on until somebody has asked something: it breaks nothing that would have to be healed.
            Pending::Operators { until, place } if now >= until && self.mood.answered() > 0 => {
                self.end_quarrel(place);
                None
            }
            Pending::Asked { task, place } if task.is_finished() => {
                match task.await? {
                    Ok(evidence) => self.fired(place, evidence),
                    Err(error) => self.again(place, &error),
                }
                None
            }
            Pending::Again {
                step, until, place, ..
            } if now >= until => {
                if let Some(injected) = self.injected.get_mut(place) {
                    injected.at = clock::now();
                }
                self.try_to(&step, place).await;
                None
            }
            Pending::Member { who, place } if self.must_run(who).is_ok() => {
                self.over(place);
                None
            }
            waits => Some(waits),
        };
        Ok(left)
    }

    fn heal_network(&mut self, who: Who, toward: Toward, before: Counts, place: usize) {
        let Some(link) = self.system.link(who, toward) else {
            return;
        };
        link.set(Condition::default());
        let now = link.counts();
        let (swallowed, waited, cut) = (
            now.swallowed - before.swallowed,
            now.waited - before.waited,
            now.cut - before.cut,
        );
        let evidence =
            format!("{swallowed} bytes lost, {waited} pieces late, {cut} connections cut");
        if swallowed + waited + cut > 0 {
            self.fired(place, evidence);
        } else {
            self.evidence(place, format!("nothing came by: {evidence}"));
        }
        self.over(place);
    }

    fn end_quarrel(&mut self, place: usize) {
        let answered = self.mood.quarrel(false);
        let evidence = format!("{answered} questions were answered by both, differently");
        if answered > 0 {
            self.fired(place, evidence);
        } else {
            self.evidence(place, evidence);
        }
        self.over(place);
    }

    /// Nobody asks any more: ends what waits for a question.
    pub(crate) fn finish(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            if let Pending::Operators { place, .. } = pending {
                self.end_quarrel(place);
            }
        }
    }

    /// Ends every fault and waits until everything runs.
    pub(crate) async fn heal(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        self.is_healing = true;
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::Stall { who, place, .. } => {
                    let fired = self.injected.get(place).is_some_and(|one| one.fired);
                    let again = if fired { " a second time" } else { "" };
                    self.evidence(place, format!("{who} did not come to the point{again}"));
                    self.over(place);
                }
                Pending::Network {
                    who,
                    toward,
                    before,
                    place,
                    ..
                } => self.heal_network(who, toward, before, place),
                Pending::Server { n, place, .. } => {
                    let until = now;
                    self.pending.push(Pending::Server { n, until, place });
                }
                Pending::ServerBack { n, .. } => {
                    let until = now;
                    self.pending.push(Pending::ServerBack { n, until });
                }
                Pending::Again { why, place, .. } => self.evidence(place, why),
                Pending::Operators { place, .. } => {
                    let until = now;
                    self.pending.push(Pending::Operators { until, place });
                }
                other => self.pending.push(other),
            }
        }
        for link in self.system.links() {
            link.set(Condition::default());
        }
        self.system.fleet.heal().await?;
        let end = now + WHOLE;
        let breaks = |pending: &Pending| !matches!(pending, Pending::Operators { .. });
        while self.pending.iter().any(breaks) || !self.system.fleet.whole() {
            if Instant::now() >= end {
                self.troubles.push(format!(
                    "not everything was back {} s after healing",
                    WHOLE.as_secs()
                ));
                break;
            }
            self.tend().await?;
            sleep(LOOK).await;
        }
        self.is_healing = false;
        Ok(())
    }
}

fn whom(step: &Step) -> String {
    match step {
        Step::Kill { who, .. } | Step::KillAt { who, .. } | Step::Pause { who, .. } => {
            who.to_string()
        }
        Step::Network { who, .. } => who.to_string(),
        Step::KillNodes { .. } => "nodes".to_owned(),
        Step::KillLeader { .. }
        | Step::KillServers { .. }
        | Step::Depose { .. }
        | Step::DeposeConsumers { .. }
        | Step::DeleteConsumers { .. }
        | Step::ResetBucket { .. } => "nats".to_owned(),
        Step::DeleteLeases { .. } | Step::Cancel { .. } | Step::TwoOperators { .. } => {
            "runs".to_owned()
        }
    }
}
