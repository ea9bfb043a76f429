//! What can be made to go wrong. A fault is armed for the next calls of one tool and consumed with the request that it
//! hits, in the same transaction, so that a service that dies of it does not die of it again.

use serde::Deserialize;

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fault {
    /// The process dies after it has written the request down, before the effect.
    DieBefore,
    /// The process dies after the effect is committed, before the answer.
    DieAfter,
    /// No effect and no answer.
    HangBefore,
    /// The effect, and no answer.
    HangAfter,
    /// The effect, and an answer that is no JSON.
    Garbage,
    /// The effect, and a connection reset in place of an answer.
    Reset,
}

impl Fault {
    const ALL: [(Self, &'static str); 6] = [
        (Self::DieBefore, "die_before"),
        (Self::DieAfter, "die_after"),
        (Self::HangBefore, "hang_before"),
        (Self::HangAfter, "hang_after"),
        (Self::Garbage, "garbage"),
        (Self::Reset, "reset"),
    ];

    /// Its name in requests and in the database.
    pub(super) fn name(self) -> &'static str {
        Self::ALL
            .into_iter()
            .find(|(fault, _)| *fault == self)
            .map_or("", |(_, name)| name)
    }

    /// The fault of that name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|(_, known)| *known == name)
            .map(|(fault, _)| fault)
    }
}

/// A request to arm faults.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arm {
    pub(super) tool: super::desk::Tool,
    pub(super) fault: Fault,
    /// How many calls it hits.
    pub(super) count: u32,
}

/// The process ends at once, as if killed from outside: nothing is flushed, no destructor runs.
pub(super) fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    // The signal is delivered before the call returns to user code; should it ever fail, the process still ends.
    std::process::abort()
}
