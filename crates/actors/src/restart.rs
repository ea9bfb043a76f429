//! The one restart policy: so many failures within a period are answered by starting again, one more is not.

use std::collections::VecDeque;

/// How often something may fail before it is left alone (OTP: intensity and period).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartPolicy {
    /// Most restarts within the period.
    pub intensity: usize,
    /// Milliseconds of the boot clock.
    pub period_ms: u64,
}

impl RestartPolicy {
    /// For runs and other actors that start again from durable records: a passing fault is over within seconds; what fails more often than
    /// this fails because of what is recorded, and a further start changes nothing.
    pub const USUAL: RestartPolicy = RestartPolicy {
        intensity: 3,
        period_ms: 60_000,
    };
}

/// The failures of one thing.
#[derive(Debug, Clone, Default)]
pub struct Failures(VecDeque<u64>);

impl Failures {
    /// Notes a failure at this moment of the boot clock. Whether the policy answers it with another start.
    pub fn may_restart(&mut self, policy: RestartPolicy, boot: u64) -> bool {
        self.0.push_back(boot);
        while self
            .0
            .front()
            .is_some_and(|&at| at.saturating_add(policy.period_ms) <= boot)
        {
            self.0.pop_front();
        }
        self.0.len() <= policy.intensity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i16_the_failure_beyond_the_intensity_is_not_answered_by_a_restart() {
        let policy = RestartPolicy {
            intensity: 2,
            period_ms: 100,
        };
        let mut failures = Failures::default();
        assert!(failures.may_restart(policy, 0));
        assert!(failures.may_restart(policy, 50));
        assert!(!failures.may_restart(policy, 99));
        let mut spread = Failures::default();
        for at in [0, 60, 120, 180] {
            assert!(spread.may_restart(policy, at), "{at}");
        }
    }
}
