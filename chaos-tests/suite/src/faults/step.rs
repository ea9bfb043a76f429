//! What is done at one moment: the words of a schedule.

use std::fmt;
use std::time::Duration;

use crate::proxy::{Condition, Flow};

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    Node(usize),
    Worker(usize),
    Server(usize),
}

impl fmt::Display for Who {
    /// Its name in the cluster's folder.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Node(n) => write!(f, "node-{n}"),
            Who::Worker(n) => write!(f, "worker-{n}"),
            Who::Server(n) => write!(f, "nats-{n}"),
        }
    }
}

/// To whom a process talks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Toward {
    Nats,
    Tool,
}

/// What a network does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// What it sends arrives late.
    HoldOut,
    /// What it is sent arrives late.
    HoldIn,
    /// Both.
    Hold,
    /// What it sends is lost.
    SwallowOut,
    /// What it is sent is lost.
    SwallowIn,
    /// Everything takes this much longer each way.
    Delay(Duration),
    /// Its connections end.
    Cut,
}

impl Trouble {
    /// What a link does meanwhile; nothing of a cut, which is a moment.
    pub(crate) fn condition(self) -> Option<Condition> {
        let (out, back) = match self {
            Trouble::HoldOut => (Flow::Held, Flow::Open),
            Trouble::HoldIn => (Flow::Open, Flow::Held),
            Trouble::Hold => (Flow::Held, Flow::Held),
            Trouble::SwallowOut => (Flow::Swallowed, Flow::Open),
            Trouble::SwallowIn => (Flow::Open, Flow::Swallowed),
            Trouble::Delay(by) => (Flow::Delayed(by), Flow::Delayed(by)),
            Trouble::Cut => return None,
        };
        Some(Condition { out, back })
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// SIGKILL; it stays away for so long.
    Kill { who: Who, away: Duration },
    /// A new life that is killed at the n-th visit of a point; the next one as well, if `twice`.
    KillAt {
        who: Who,
        point: &'static str,
        nth: usize,
        twice: bool,
    },
    /// SIGKILL of whoever leads a stream; nobody named: of whoever leads the servers.
    KillLeader {
        stream: Option<&'static str>,
        away: Duration,
    },
    /// SIGKILL of all of them.
    KillServers { away: Duration },
    /// SIGKILL of all of them.
    KillNodes { away: Duration },
    /// SIGSTOP for so long.
    Pause { who: Who, lasts: Duration },
    /// The stream's leader steps down.
    Depose { stream: &'static str },
    /// The leader of the stream's consumers steps down.
    DeposeConsumers { stream: &'static str },
    /// The workers' consumers of a stream are deleted.
    DeleteConsumers { stream: &'static str },
    /// A process's network.
    Network {
        who: Who,
        toward: Toward,
        trouble: Trouble,
        lasts: Duration,
    },
    /// A bucket is deleted and made again.
    ResetBucket { stream: &'static str },
    /// So many leases are deleted.
    DeleteLeases { most: usize },
    /// So many runs are cancelled, by two people each if `twice`.
    Cancel { most: usize, twice: bool },
    /// Every question is answered by two operators, who differ.
    TwoOperators { lasts: Duration },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Kill { who, away } => write!(f, "kill {who}, away for {away:.1?}"),
            Step::KillAt {
                who,
                point,
                nth,
                twice,
            } => {
                let again = if *twice {
                    ", and its next life there again"
                } else {
                    ""
                };
                write!(f, "kill {who} at {point}, visit {nth}{again}")
            }
            Step::KillLeader { stream, away } => write!(
                f,
                "kill the leader of {}, away for {away:.1?}",
                stream.unwrap_or("the servers")
            ),
            Step::KillServers { away } => write!(f, "kill all NATS servers, away for {away:.1?}"),
            Step::KillNodes { away } => write!(f, "kill all nodes, away for {away:.1?}"),
            Step::Pause { who, lasts } => write!(f, "stop {who} for {lasts:.1?}"),
            Step::Depose { stream } => write!(f, "step-down of {stream}"),
            Step::DeposeConsumers { stream } => write!(f, "step-down of the consumers of {stream}"),
            Step::DeleteConsumers { stream } => {
                write!(f, "delete the workers' consumers of {stream}")
            }
            Step::Network {
                who,
                toward,
                trouble,
                lasts,
            } => {
                let toward = match toward {
                    Toward::Nats => "NATS",
                    Toward::Tool => "the tool",
                };
                let what = match trouble {
                    Trouble::HoldOut => "one way out, held".to_owned(),
                    Trouble::HoldIn => "one way in, held".to_owned(),
                    Trouble::Hold => "both ways, held".to_owned(),
                    Trouble::SwallowOut => "one way out, swallowed".to_owned(),
                    Trouble::SwallowIn => "one way in, swallowed".to_owned(),
                    Trouble::Delay(by) => format!("delayed by {by:.1?}"),
                    Trouble::Cut => return write!(f, "cut {who} from {toward} once"),
                };
                write!(f, "{who} and {toward}: {what}, for {lasts:.1?}")
            }
            Step::ResetBucket { stream } => write!(f, "delete and remake {stream}"),
            Step::DeleteLeases { most } => write!(f, "delete the leases of {most} runs"),
            Step::Cancel { most, twice } => {
                let twice = if *twice { " twice" } else { "" };
                write!(f, "cancel {most} runs{twice}")
            }
            Step::TwoOperators { lasts } => write!(f, "two operators differ, for {lasts:.1?}"),
        }
    }
}
