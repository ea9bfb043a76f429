//! Time, read in one place: everything above gets it handed in, so that a recorded run replays.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_protocol::Now;

/// Longest single sleep of a wait. The timer that sleeps does not count suspension and the boot clock does: after a suspension a wait ends
/// at most this late.
const LONGEST_SLEEP: Duration = Duration::from_secs(20);

/// Two clocks and a way to wait for one of them.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// Both clocks, read now.
    fn now(&self) -> Now;

    /// Returns once the boot clock has reached this moment (milliseconds), at once if it has.
    async fn sleep_until(&self, boot: u64) {
        loop {
            let left = boot.saturating_sub(self.now().boot);
            if left == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(left).min(LONGEST_SLEEP)).await;
        }
    }
}

/// The clocks of this machine: CLOCK_REALTIME and CLOCK_BOOTTIME.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let wall = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Now {
            wall: millis(&wall),
            boot: u64::try_from(millis(&boot)).unwrap_or(0),
        }
    }
}

fn millis(time: &rustix::time::Timespec) -> i64 {
    time.tv_sec
        .saturating_mul(1000)
        .saturating_add(time.tv_nsec / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_never_ends_before_its_moment() {
        let clock = SystemClock;
        let until = clock.now().boot + 15;
        clock.sleep_until(until).await;
        assert!(clock.now().boot >= until);
        assert!(clock.now().wall > 1_600_000_000_000);
    }
}
