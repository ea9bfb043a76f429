//! Being told to stop: the first signal ends a process in good order within a bound, the second one at once.

use std::time::Duration;

use leasehold_actors::{Drained, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Exit, Failure};
use crate::say;

/// How long a stop waits for calls in flight: longer than most tools take, shorter than service managers wait before they kill (90 s).
pub(crate) const DRAIN_BOUND: Duration = Duration::from_secs(20);

/// SIGTERM and SIGINT.
pub(crate) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::broken(format!("signals cannot be listened to: {error}")))
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Stops in good order within the bound, or at once after a second signal. `heir`: who settles then what was in hand.
pub(crate) async fn drain(runtime: &Runtime, signals: &mut Signals, heir: &str) -> Exit {
    let hurried = async {
        signals.next().await;
        runtime.drain(Duration::ZERO).await
    };
    let drained = tokio::select! {
        drained = runtime.drain(DRAIN_BOUND) => drained,
        drained = hurried => drained,
    };
    if drained == Drained::CutShort {
        say::aside(&format!(
            "stopped before everything was handed over or finished; {heir} settles what was in hand"
        ));
        return Exit::Broken;
    }
    say::aside("stopped");
    Exit::Done
}
