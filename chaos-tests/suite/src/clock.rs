//! Time, for what is written down: unix milliseconds. One machine has one clock, so whatever its processes write down compares.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now.
#[expect(
    clippy::disallowed_methods,
    reason = "the suite is outside the runtime: it writes down when things happened to it, and no seed replays that"
)]
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since
        .ok()
        .and_then(|since| i64::try_from(since.as_millis()).ok())
        .unwrap_or(0)
}
