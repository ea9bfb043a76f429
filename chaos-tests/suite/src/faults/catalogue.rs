//! F1 to F24: what each fault is, how it heals, and what of it is done here.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// A fault by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Fault(u8);

/// What of a fault is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    /// Steps of the schedule.
    Steps,
    /// The workload itself: faults of its tools.
    Workload,
    /// It is the schedule: random subsets, quiet periods.
    Mix,
    /// Not here, and why.
    Not(&'static str),
}

/// One line of the catalogue: the fault, what is done, how it heals or why it is not done.
struct Entry {
    title: &'static str,
    means: Means,
    /// What is injected.
    does: &'static str,
    /// How it ends.
    heals: &'static str,
}

const fn steps(title: &'static str, does: &'static str, heals: &'static str) -> Entry {
    Entry {
        title,
        means: Means::Steps,
        does,
        heals,
    }
}

const fn not(title: &'static str, why: &'static str) -> Entry {
    Entry {
        title,
        means: Means::Not(why),
        does: "",
        heals: "",
    }
}

const ALL: [Entry; 24] = [
    steps(
        "kill -9 at crash points and at random moments",
        "a node or worker stands still at a named point and is killed there, half the time in its next life once more; another one is killed whenever",
        "it is started again with the data it had",
    ),
    steps(
        "SIGSTOP of a node, worker or NATS server",
        "for 0.5, 1.01 or 3 times the session's TTL",
        "SIGCONT",
    ),
    steps(
        "double zombie",
        "node A is stopped beyond its TTL, then node B, then A goes on, then B",
        "SIGCONT",
    ),
    not(
        "wall clock jumps and drifts",
        "needs libfaketime or a clock of the binary's own; the simulation in crates/sim has it",
    ),
    steps(
        "partitions between a process and NATS, or a worker and its tool",
        "one-way out, one-way in, both ways, bytes swallowed without a reset, delay, cut",
        "the proxy passes bytes on again; a connection that has lost bytes is cut",
    ),
    not(
        "partition between NATS servers",
        "routes between servers run without a proxy here: they would have to be configured through one",
    ),
    steps(
        "NATS: kill -9, leader step-down, all servers at once",
        "any server, the leader of a journal or of all servers; a step-down of a journal, lease bucket or consumer; all servers killed",
        "they are started again on the data they had",
    ),
    not(
        "power loss",
        "needs a file system that loses unsynced bytes (LazyFS, a FUSE device); a killed process loses nothing the kernel has",
    ),
    not(
        "slow or full disk",
        "needs device-mapper or a mount of its own; tests of the store mount small and read-only disks where they may",
    ),
    not(
        "damage of logbook and store files",
        "crates/embedded cuts and damages files at every byte in its own tests",
    ),
    steps(
        "messages delivered again",
        "the workers' consumers are deleted with what they know, so every call that was ever dispatched is delivered again",
        "whoever pulls makes the consumer again",
    ),
    not(
        "a publish acknowledgement lost, by itself",
        "a proxy cannot pick one message; F5 one-way in loses all of them for a while, which has this fault in it",
    ),
    Entry {
        title: "reply lost after the effect, or late",
        means: Means::Workload,
        does: "the tool has its effect and resets the connection, or stays silent; or has it after the deadline",
        heals: "the tool's next request is answered",
    },
    not(
        "watches that lag or die silently",
        "they are the client library's; F5 held bytes and F7 come closest",
    ),
    steps(
        "a bucket is deleted and made again",
        "the sessions' or the leases' bucket: revisions begin at 1 again",
        "it is there again with the settings it had",
    ),
    steps(
        "leases deleted by hand",
        "every lease of up to five running runs",
        "whoever wants the run takes it",
    ),
    steps(
        "all nodes killed at once",
        "every run loses its owner in one moment",
        "all are started again at once",
    ),
    not(
        "renewal starved by a busy process",
        "needs tools inside the worker's process; F2 stops the whole of it",
    ),
    not(
        "poison messages",
        "not yet part of the workload; the runtime's own tests have them",
    ),
    Entry {
        title: "tool faults",
        means: Means::Workload,
        does: "effect then silence, effect then reset, error without effect, error that says nothing, silence, late effect",
        heals: "the tool's next request is answered",
    },
    steps(
        "cancel at any moment",
        "runs are cancelled while they work or wait, some twice by two people",
        "they end",
    ),
    steps(
        "two operators answer at once, and differ",
        "while it lasts every question is answered by both",
        "one operator alone again",
    ),
    not(
        "rolling upgrade",
        "there is only one version of the binary so far",
    ),
    Entry {
        title: "the mix",
        means: Means::Mix,
        does: "random subsets of the armed faults, a quarter of the periods quiet",
        heals: "every period ends healed",
    },
];

impl Fault {
    pub(crate) const F1: Fault = Fault(1);
    pub(crate) const F2: Fault = Fault(2);
    pub(crate) const F3: Fault = Fault(3);
    pub(crate) const F5: Fault = Fault(5);
    pub(crate) const F7: Fault = Fault(7);
    pub(crate) const F11: Fault = Fault(11);
    pub(crate) const F13: Fault = Fault(13);
    pub(crate) const F15: Fault = Fault(15);
    pub(crate) const F16: Fault = Fault(16);
    pub(crate) const F17: Fault = Fault(17);
    pub(crate) const F20: Fault = Fault(20);
    pub(crate) const F21: Fault = Fault(21);
    pub(crate) const F22: Fault = Fault(22);
    pub(crate) const F24: Fault = Fault(24);

    /// All of them, in order.
    pub(crate) fn all() -> impl Iterator<Item = Fault> {
        (1..=24).map(Fault)
    }

    /// Those that are done here.
    pub(crate) fn possible() -> impl Iterator<Item = Fault> {
        Self::all().filter(|fault| !matches!(fault.means(), Means::Not(_)))
    }

    fn entry(self) -> &'static Entry {
        let place = usize::from(self.0).saturating_sub(1).min(ALL.len() - 1);
        &ALL[place]
    }

    pub(crate) fn title(self) -> &'static str {
        self.entry().title
    }

    pub(crate) fn means(self) -> Means {
        self.entry().means
    }

    pub(crate) fn does(self) -> &'static str {
        self.entry().does
    }

    pub(crate) fn heals(self) -> &'static str {
        self.entry().heals
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "F{}", self.0)
    }
}

impl Serialize for Fault {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = Self::all().find(|fault| fault.to_string() == text);
        let fault = fault.ok_or_else(|| format!("{text:?} is no fault: F1 to F24"))?;
        match fault.means() {
            Means::Not(why) => Err(format!(
                "{fault} ({}) is not done here: {why}",
                fault.title()
            )),
            _ => Ok(fault),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_is_not_done_here_is_refused_with_its_reason() {
        assert_eq!("F2".parse(), Ok(Fault::F2));
        for (text, words) in [("F8", "LazyFS"), ("F25", "F1 to F24"), ("2", "no fault")] {
            let error = text.parse::<Fault>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn every_fault_that_is_done_says_what_it_does_and_how_it_heals() {
        for fault in Fault::possible() {
            assert!(
                !fault.does().is_empty() && !fault.heals().is_empty(),
                "{fault}"
            );
        }
    }
}
