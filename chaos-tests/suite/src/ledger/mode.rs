//! How the ledger behaves at the first request of a call: the tool's own faults (F20, F13).
//!
//! A mode stands in the arguments of a call, so the seed that made the workload made it too. Only the first request with an idempotency key
//! has the mode; whatever comes after it, after a proof or an operator's word, is answered as it should be.

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// Effect, answer.
    Ok,
    /// Effect, then silence.
    EffectThenHang,
    /// Effect, then the connection is reset: not one byte of an answer.
    EffectThenReset,
    /// No effect, and an answer that says so.
    ErrorWithoutEffect,
    /// No effect, and an answer that does not say so.
    ErrorUnclassified,
    /// No effect, silence.
    Hang,
    /// Silence, and the effect when the caller's deadline is over, unless the tool has promised to refuse it then.
    LateEffect,
}

impl Mode {
    pub(crate) const ALL: [Mode; 7] = [
        Mode::Ok,
        Mode::EffectThenHang,
        Mode::EffectThenReset,
        Mode::ErrorWithoutEffect,
        Mode::ErrorUnclassified,
        Mode::Hang,
        Mode::LateEffect,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Ok => "ok",
            Mode::EffectThenHang => "effect_then_hang",
            Mode::EffectThenReset => "effect_then_reset",
            Mode::ErrorWithoutEffect => "error_without_effect",
            Mode::ErrorUnclassified => "error_unclassified",
            Mode::Hang => "hang",
            Mode::LateEffect => "late_effect",
        }
    }

    /// The mode of that name; an unknown one is no mode.
    pub(crate) fn named(name: &str) -> Mode {
        let known = Self::ALL.into_iter().find(|mode| mode.name() == name);
        known.unwrap_or(Mode::Ok)
    }
}
