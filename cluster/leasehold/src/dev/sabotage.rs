//! `--sabotage`: negative controls. Each leaves out one rule, so that the checks of the demo can be seen to notice.

use leasehold_protocol::{RunWeakening, WorkerWeakening};

/// Which rule is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sabotage {
    /// Workers execute without claiming
    SkipClaim,
    /// An attempt of which nobody knows anything is simply tried again
    RetryUnknown,
    /// Findings are not sealed before they are acted on
    NoSeal,
}

impl Sabotage {
    pub(crate) fn of_runs(self) -> RunWeakening {
        match self {
            Sabotage::SkipClaim => RunWeakening::None,
            Sabotage::RetryUnknown => RunWeakening::RetryUnknown,
            Sabotage::NoSeal => RunWeakening::NoSeal,
        }
    }

    pub(crate) fn of_workers(self) -> WorkerWeakening {
        match self {
            Sabotage::SkipClaim => WorkerWeakening::SkipClaim,
            Sabotage::RetryUnknown | Sabotage::NoSeal => WorkerWeakening::None,
        }
    }
}

/// The weakening that a recording names in words.
pub(crate) fn run_weakening(words: &str) -> Option<RunWeakening> {
    const ALL: [RunWeakening; 4] = [
        RunWeakening::None,
        RunWeakening::RetryUnknown,
        RunWeakening::NoSeal,
        RunWeakening::PlainProbeCounts,
    ];
    ALL.into_iter()
        .find(|weakening| format!("{weakening:?}") == words)
}
