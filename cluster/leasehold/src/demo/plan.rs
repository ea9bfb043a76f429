//! What is killed, when, and among which orders: a plan that follows from seed, kills and orders alone.
//!
//! The job is cut into stages, one per kill. A stage brings its orders in, perhaps one fault that kills nobody, perhaps a pause, and then
//! its kill: of a process of the runtime at a named moment or after so many commits, or of the payments service by a fault or from outside. Kinds of kills go round in a
//! seeded order, the ones that force an answer out of the ladder first, so that few kills already show most of it. The orders of the channel
//! whose probe cannot answer come together, in stages that orphan a payment: those end with an operator. Withdrawn orders come in the first
//! stage, while every worker is held up: their calls are still in the queue when their runs are cancelled.

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde::Serialize;

use super::scene::{Stall, Who};

/// Moments at which a process is stalled before it is killed, with what has to be counted to meet a call that pays: see [`Count`].
const POINTS: [(&str, Count); 13] = [
    ("W3", Count::Mutations),
    ("W5", Count::AfterLookups),
    ("W6", Count::AfterLookups),
    ("W8", Count::Mutations),
    ("W7", Count::AfterLookups),
    ("W9", Count::AfterLookups),
    ("R6", Count::AfterLookups),
    ("R7", Count::AfterLookups),
    ("R5", Count::AfterLookups),
    ("W1", Count::AfterLookups),
    ("R10", Count::Messages),
    ("R15", Count::Seals),
    ("C3", Count::Seals),
];

/// Kinds of kills that a short plan takes first: each leads to another way out of the ladder, or kills another process.
const FIRST: usize = 8;

/// Nodes and workers of a cluster.
pub(super) const NODES: usize = 3;
pub(super) const WORKERS: usize = 4;
/// One stage in so many pauses a process of a cluster: mostly one is paused or comes back, and there are always others.
const PAUSE_EVERY: usize = 3;

/// Orders that hold the workers up in the first stage: as many as the runtime's slots.
pub(super) const SLOTS: usize = 8;
/// Withdrawn orders that are not cancelled in the first stage, but each as soon as it is submitted, in any other one.
const LATE_WITHDRAWALS: usize = 5;
/// Stages in which the orders without a probe come together: two, so that one may miss.
const BLIND_STAGES: usize = 2;
/// Commits after which a runtime or a service is killed from outside, at most: less than a handful of orders make.
const MOST_COMMITS: u32 = 25;

/// How a point's visits are counted when a process is stalled at the n-th.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Count {
    /// Calls that are not read-only: any of the first ones.
    Mutations,
    /// All calls: one that comes after as many as there are lookups.
    AfterLookups,
    /// Inbox messages.
    Messages,
    /// Findings that are written into registers: there are few.
    Seals,
}

/// What the plan has to know about an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Traits {
    /// The service's probe cannot answer for it.
    pub(super) blind: bool,
    /// The customer takes the request back.
    pub(super) withdrawn: bool,
    /// There is something to pay.
    pub(super) refundable: bool,
}

/// A fault of the payments service, as it is armed over `POST /faults`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Fault {
    pub(super) tool: &'static str,
    pub(super) fault: &'static str,
    /// Calls that it hits.
    pub(super) count: usize,
}

/// One kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kill {
    /// A process, where it stalls at its n-th visit of a point.
    Stall(Stall),
    /// A process, after so many commits.
    After { who: Who, commits: u32 },
    /// The payments service, by a fault of this kind.
    Fault(Fault),
}

impl Kill {
    /// What dies.
    pub(super) fn victim(self) -> Who {
        match self {
            Kill::Stall(stall) => stall.who,
            Kill::After { who, .. } => who,
            Kill::Fault(_) => Who::Payments,
        }
    }
}

/// What the runtime is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// One process on a data folder.
    OneProcess,
    /// Nodes, workers and NATS servers.
    Cluster,
}

impl Made {
    /// Which process passes a point.
    fn at(self, point: &str) -> Who {
        match self {
            Made::OneProcess => Who::Runtime,
            Made::Cluster if point.starts_with('W') => Who::Workers,
            Made::Cluster => Who::Nodes,
        }
    }

    /// Over how many processes the calls and runs of a stage are spread.
    fn peers(self, who: Who) -> usize {
        match (self, who) {
            (Made::Cluster, Who::Nodes) => NODES,
            (Made::Cluster, Who::Workers) => WORKERS,
            _ => 1,
        }
    }

    /// Kills that no point and no fault makes, with their place among the others: the earlier, the more telling.
    fn plain_kills(self) -> &'static [(usize, Who)] {
        match self {
            Made::OneProcess => &[(6, Who::Runtime), (7, Who::Payments)],
            Made::Cluster => &[
                (0, Who::Servers),
                (1, Who::Nodes),
                (4, Who::Workers),
                (6, Who::Payments),
                (10, Who::Servers),
                (11, Who::Nodes),
                (12, Who::Workers),
            ],
        }
    }

    /// What is paused, if anything is.
    fn paused(self) -> &'static [Who] {
        match self {
            Made::OneProcess => &[],
            Made::Cluster => &[Who::Nodes, Who::Workers],
        }
    }
}

/// A part of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stage {
    /// Orders that are submitted at its beginning, by their place in the file.
    pub(super) orders: Vec<usize>,
    /// A fault that is armed before they are.
    pub(super) mishap: Option<Fault>,
    /// A process that is paused before they are.
    pub(super) pause: Option<Who>,
    /// How it ends; `None` of a job without kills.
    pub(super) kill: Option<Kill>,
    /// Its orders come alone: it waits until nothing else is in hand.
    pub(super) alone: bool,
}

/// The plan of a job. Every order is in exactly one stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) stages: Vec<Stage>,
    /// Withdrawn orders that are cancelled in the first stage, once all of them wait in the queue.
    pub(super) cancelled_in_queue: Vec<usize>,
}

impl Plan {
    /// A plan with exactly so many kills.
    pub(super) fn new(made: Made, seed: u64, kills: usize, orders: &[Traits]) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let kinds = kinds(made, kills, &mut rng);
        let Arrivals {
            waves,
            cancelled_in_queue,
            blind,
        } = arrivals(&kinds, orders, &mut rng);
        let mut mishaps = mishaps(&mut rng);
        let stages = waves.into_iter().enumerate().map(|(place, orders)| {
            let kind = kinds.get(place).copied();
            let alone = blind.contains(&place);
            let mishap = match kind {
                _ if place == 0 && !cancelled_in_queue.is_empty() => {
                    Some(fault("lookup_order", "hang_before", SLOTS))
                }
                // Only an orphan has a finding: an answer is lost, so that there is one.
                Some(Kind::Stall(_, Count::Seals)) => Some(fault("refund_order", "reset", 2)),
                _ if alone => Some(fault("refund_order", "reset", 2)),
                // A fault is consumed by the next call: a second one could take the place of the deadly one.
                Some(Kind::Stall(_, _) | Kind::After(_)) | None => mishaps.next().flatten(),
                Some(Kind::Fault(_)) => None,
            };
            let kill = kind.map(|kind| kind.kill(made, orders.len(), &mut rng));
            let pause = pauses(made, kind.is_some(), place);
            Stage {
                orders,
                mishap,
                pause,
                kill,
                alone,
            }
        });
        Self {
            stages: stages.collect(),
            cancelled_in_queue,
        }
    }
}

/// A kind of kill, before its numbers are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stall(&'static str, Count),
    Fault(&'static str),
    After(Who),
}

impl Kind {
    /// All of them, the most telling ones first.
    fn all(made: Made) -> Vec<Self> {
        let mut all: Vec<Self> = POINTS
            .iter()
            .map(|(point, count)| Self::Stall(point, *count))
            .collect();
        all.insert(2, Self::Fault("die_before"));
        all.insert(3, Self::Fault("die_after"));
        for (place, who) in made.plain_kills() {
            all.insert(*place, Self::After(*who));
        }
        all
    }

    /// Whether it leaves a payment of which only a probe, or a person, can say whether it was made.
    fn orphans_a_payment(self) -> bool {
        matches!(self, Self::Stall("W5" | "W6" | "W7", _))
    }

    fn kill(self, made: Made, wave: usize, rng: &mut StdRng) -> Kill {
        match self {
            Self::Stall(point, count) => {
                let who = made.at(point);
                let share = wave.div_ceil(made.peers(who)).max(1);
                let nth = match count {
                    Count::Mutations | Count::Messages => rng.random_range(1..=share),
                    Count::AfterLookups => rng.random_range(share + 1..=share * 2),
                    Count::Seals => 1,
                };
                Kill::Stall(Stall { who, point, nth })
            }
            Self::Fault(name) => Kill::Fault(fault("refund_order", name, 1)),
            Self::After(who) => Kill::After {
                who,
                commits: rng.random_range(1..=MOST_COMMITS),
            },
        }
    }
}

/// Every third stage with a kill pauses a process, in turn.
fn pauses(made: Made, kills: bool, place: usize) -> Option<Who> {
    let due = kills && place % PAUSE_EVERY == 1;
    let who = made.paused().iter().cycle().nth(place / PAUSE_EVERY);
    who.copied().filter(|_| due)
}

fn fault(tool: &'static str, fault: &'static str, count: usize) -> Fault {
    Fault { tool, fault, count }
}

/// The kinds of all kills, in the order in which they happen: rounds of all kinds, each shuffled; the last one, if it is not whole, begins
/// with the most telling.
fn kinds(made: Made, kills: usize, rng: &mut StdRng) -> Vec<Kind> {
    let all = Kind::all(made);
    let mut kinds = Vec::with_capacity(kills);
    while kinds.len() < kills {
        let mut round = all.clone();
        if kills - kinds.len() < all.len() {
            if let Some(rest) = round.get_mut(FIRST..) {
                rest.shuffle(rng);
            }
            round.truncate(kills - kinds.len());
        }
        round.shuffle(rng);
        kinds.append(&mut round);
    }
    kinds
}

/// Faults that kill nobody, now and then; each of them in each round.
fn mishaps(rng: &mut StdRng) -> impl Iterator<Item = Option<Fault>> + use<> {
    let refund = |name| Some(fault("refund_order", name, 1));
    let close = |name| Some(fault("close_case", name, 1));
    let mut round = [
        refund("garbage"),
        refund("hang_after"),
        refund("hang_before"),
        refund("reset"),
        close("reset"),
        close("garbage"),
        None,
        None,
    ];
    round.shuffle(rng);
    round.into_iter().cycle()
}

struct Arrivals {
    waves: Vec<Vec<usize>>,
    cancelled_in_queue: Vec<usize>,
    /// The stages of the orders without a probe.
    blind: Vec<usize>,
}

fn arrivals(kinds: &[Kind], orders: &[Traits], rng: &mut StdRng) -> Arrivals {
    let mut all: Vec<(usize, Traits)> = orders.iter().copied().enumerate().collect();
    all.shuffle(rng);
    let stages = kinds.len().max(1);
    let mut waves = vec![Vec::new(); stages];
    let (withdrawn, rest): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(_, order)| order.withdrawn);
    let late = if stages > 1 {
        LATE_WITHDRAWALS.min(withdrawn.len() / 2)
    } else {
        0
    };
    let (late, early) = withdrawn.split_at(late);
    let cancelled_in_queue: Vec<usize> = early.iter().map(|(place, _)| *place).collect();
    let blind = blind_stages(kinds);
    let is_blind = |order: &Traits| order.blind && order.refundable && !blind.is_empty();
    let (without_probe, mut plain): (Vec<_>, Vec<_>) =
        rest.into_iter().partition(|(_, order)| is_blind(order));
    // The first stage: what holds the workers up, and behind it what is cancelled.
    if !cancelled_in_queue.is_empty()
        && let Some(first) = waves.first_mut()
    {
        let holders = plain.len().min(SLOTS);
        first.extend(plain.drain(..holders).map(|(place, _)| place));
        first.extend(&cancelled_in_queue);
    }
    for ((place, _), stage) in without_probe.iter().zip(blind.iter().cycle()) {
        waves[*stage].push(*place);
    }
    plain.extend(late);
    plain.shuffle(rng);
    let first = usize::from(!cancelled_in_queue.is_empty() && stages > 1);
    let mut open: Vec<usize> = (first..stages)
        .filter(|stage| !blind.contains(stage))
        .collect();
    if open.is_empty() {
        open.push(0);
    }
    for ((place, _), stage) in plain.iter().zip(open.iter().cycle()) {
        waves[*stage].push(*place);
    }
    Arrivals {
        waves,
        cancelled_in_queue,
        blind,
    }
}

/// The stages whose kill orphans a payment, spread out; never the first, which has its own purpose.
fn blind_stages(kinds: &[Kind]) -> Vec<usize> {
    let fitting: Vec<usize> = (1..kinds.len())
        .filter(|stage| {
            kinds
                .get(*stage)
                .is_some_and(|kind| kind.orphans_a_payment())
        })
        .collect();
    let step = (fitting.len() / BLIND_STAGES).max(1);
    fitting
        .into_iter()
        .step_by(step)
        .take(BLIND_STAGES)
        .collect()
}

#[cfg(test)]
mod tests;
