//! From an armed fault to steps, by the schedule's randomness alone: the same draws give the same steps, whatever the cluster does.

use std::time::Duration;

use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use super::catalogue::Fault;
use super::step::{Step, Toward, Trouble, Who};

/// What a cluster is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) nodes: usize,
    pub(crate) workers: usize,
    pub(crate) servers: usize,
    /// How long a process counts as alive without a renewal.
    pub(crate) ttl: Duration,
}

/// A step and how long after its period's beginning it comes.
pub(crate) type Drawn = (Duration, Step);

/// Crash points of nodes and workers that an ordinary workload passes again and again.
const NODE_POINTS: [&str; 13] = [
    "R1", "R3", "R5", "R6", "R7", "R9", "R10", "R12", "R13", "R14", "R15", "C1", "C3",
];
const WORKER_POINTS: [&str; 9] = ["W1", "W2", "W3", "W5", "W6", "W7", "W8", "W9", "W10"];
/// How long what was killed stays away, at most.
const AWAY: Duration = Duration::from_secs(5);
/// Pauses, as parts of the TTL: below it, just beyond it, far beyond it.
const PAUSES: [f64; 3] = [0.5, 1.01, 3.0];
/// The journals' streams that exist whatever the shape.
const JOURNALS: [&str; 2] = ["LH_0", "LH_1"];
const LEASES: &str = "KV_LH_LEASES";
const SESSIONS: &str = "KV_LH_SESSIONS";
/// The longest delay of a slow network: far above a machine's own, far below a commit's timeout times its tries.
const SLOW: Duration = Duration::from_millis(400);

/// The steps of one fault in one period.
pub(crate) fn draw(fault: Fault, shape: Shape, rng: &mut StdRng) -> Vec<Drawn> {
    let mut draw = Draw { shape, rng };
    match fault {
        Fault::F1 => draw.kills(),
        Fault::F2 => draw.pause(),
        Fault::F3 => draw.double_zombie(),
        Fault::F5 => draw.network(),
        Fault::F7 => draw.servers(),
        Fault::F11 => {
            let stream = draw_of(&JOURNALS, draw.rng);
            draw.soon(Step::DeleteConsumers { stream })
        }
        Fault::F15 => {
            let stream = draw_of(&[LEASES, SESSIONS], draw.rng);
            draw.soon(Step::ResetBucket { stream })
        }
        Fault::F16 => {
            let most = draw.rng.random_range(1..=5);
            draw.soon(Step::DeleteLeases { most })
        }
        Fault::F17 => {
            let away = draw.up_to(AWAY);
            draw.soon(Step::KillNodes { away })
        }
        Fault::F21 => {
            let (most, twice) = (draw.rng.random_range(1..=3), draw.rng.random());
            draw.soon(Step::Cancel { most, twice })
        }
        Fault::F22 => draw.soon(Step::TwoOperators {
            lasts: shape.ttl * 3,
        }),
        // The workload's, or the schedule itself.
        _ => Vec::new(),
    }
}

fn draw_of(names: &[&'static str], rng: &mut StdRng) -> &'static str {
    names.choose(rng).copied().unwrap_or_default()
}

struct Draw<'a> {
    shape: Shape,
    rng: &'a mut StdRng,
}

impl Draw<'_> {
    fn up_to(&mut self, most: Duration) -> Duration {
        Duration::from_millis(
            self.rng
                .random_range(0..=u64::try_from(most.as_millis()).unwrap_or(0)),
        )
    }

    /// Within a moment of the period's beginning.
    fn soon(&mut self, step: Step) -> Vec<Drawn> {
        let after = self.up_to(Duration::from_secs(1));
        vec![(after, step)]
    }

    fn node(&mut self) -> Who {
        Who::Node(self.rng.random_range(1..=self.shape.nodes))
    }

    fn worker(&mut self) -> Who {
        Who::Worker(self.rng.random_range(1..=self.shape.workers))
    }

    fn server(&mut self) -> Who {
        Who::Server(self.rng.random_range(1..=self.shape.servers))
    }

    /// One at a crash point, another one whenever.
    fn kills(&mut self) -> Vec<Drawn> {
        let by_node = self.rng.random_bool(0.4);
        let (who, other, points): (_, _, &[&str]) = if by_node {
            (self.node(), self.worker(), &NODE_POINTS)
        } else {
            (self.worker(), self.node(), &WORKER_POINTS)
        };
        let at = Step::KillAt {
            who,
            point: draw_of(points, self.rng),
            nth: self.rng.random_range(1..=2),
            twice: self.rng.random(),
        };
        let away = self.up_to(AWAY);
        let mut steps = self.soon(at);
        steps.push((self.up_to(AWAY), Step::Kill { who: other, away }));
        steps
    }

    fn pause(&mut self) -> Vec<Drawn> {
        let who = match self.rng.random_range(0..3) {
            0 => self.node(),
            1 => self.worker(),
            _ => self.server(),
        };
        let part = PAUSES.choose(self.rng).copied().unwrap_or(1.01);
        let lasts = self.shape.ttl.mul_f64(part);
        self.soon(Step::Pause { who, lasts })
    }

    /// A stops, B takes over and stops, C takes over; A goes on, then B.
    fn double_zombie(&mut self) -> Vec<Drawn> {
        let a = self.rng.random_range(1..=self.shape.nodes);
        let b = a % self.shape.nodes + 1;
        let ttl = self.shape.ttl;
        let pause = |n, lasts| Step::Pause {
            who: Who::Node(n),
            lasts,
        };
        vec![
            (Duration::ZERO, pause(a, ttl.mul_f64(3.0))),
            (ttl.mul_f64(1.5), pause(b, ttl.mul_f64(2.0))),
        ]
    }

    fn network(&mut self) -> Vec<Drawn> {
        let (who, toward) = match self.rng.random_range(0..5) {
            0 | 1 => (self.node(), Toward::Nats),
            2 | 3 => (self.worker(), Toward::Nats),
            _ => (self.worker(), Toward::Tool),
        };
        let delay = self.up_to(SLOW);
        let troubles = [
            Trouble::HoldOut,
            Trouble::HoldIn,
            Trouble::Hold,
            Trouble::SwallowOut,
            Trouble::SwallowIn,
            Trouble::Delay(delay),
            Trouble::Cut,
        ];
        let trouble = troubles.choose(self.rng).copied().unwrap_or(Trouble::Cut);
        let part = PAUSES.choose(self.rng).copied().unwrap_or(1.01);
        let lasts = self.shape.ttl.mul_f64(part);
        self.soon(Step::Network {
            who,
            toward,
            trouble,
            lasts,
        })
    }

    fn servers(&mut self) -> Vec<Drawn> {
        let away = self.up_to(AWAY);
        let journal = draw_of(&JOURNALS, self.rng);
        let step = match self.rng.random_range(0..7) {
            0 => Step::Kill {
                who: self.server(),
                away,
            },
            1 => Step::KillLeader {
                stream: Some(journal),
                away,
            },
            2 => Step::KillLeader { stream: None, away },
            3 => Step::KillServers { away },
            4 => Step::Depose { stream: journal },
            5 => Step::Depose { stream: LEASES },
            _ => Step::DeposeConsumers { stream: journal },
        };
        // One server has nobody to step down for.
        let step = match step {
            Step::Depose { .. } | Step::DeposeConsumers { .. } if self.shape.servers == 1 => {
                Step::KillServers { away }
            }
            step => step,
        };
        self.soon(step)
    }
}
