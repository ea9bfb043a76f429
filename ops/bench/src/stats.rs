//! Latencies and what is said of them, and the CPU time of a process.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

/// Clock ticks per second in `/proc/PID/stat`: a fixed part of Linux's interface on every architecture that this runs on.
const TICKS: f64 = 100.0;
/// Places of user and system time in `/proc/PID/stat`, counted behind the command's name.
const USER_AND_SYSTEM: std::ops::Range<usize> = 11..13;

/// The one clock of the bench; monotonic.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Times of the same thing, sorted when asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub(crate) fn extend(&mut self, times: impl IntoIterator<Item = Duration>) {
        self.0.extend(times);
    }

    pub(crate) fn append(&mut self, times: &Self) {
        self.0.extend_from_slice(&times.0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Seconds; 0 of nothing.
    pub(crate) fn mean_seconds(&self) -> f64 {
        let sum: Duration = self.0.iter().sum();
        sum.as_secs_f64() / (self.0.len().max(1) as f64)
    }

    /// The p-th hundredth, in milliseconds; 0 of nothing.
    pub(crate) fn percentile(&self, p: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let place = (sorted.len() * p / 100).min(sorted.len().saturating_sub(1));
        sorted
            .get(place)
            .map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }
}

/// A range over passes: smallest, middle, largest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Range {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
}

impl Range {
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |place: usize| values.get(place).copied().unwrap_or(0.0);
        Self {
            min: at(0),
            median: at(values.len() / 2),
            max: at(values.len().saturating_sub(1)),
        }
    }
}

/// Seconds of CPU time that a process has used, its threads included.
pub(crate) fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks = fields.get(USER_AND_SYSTEM)?;
    let ticks: Option<Vec<f64>> = ticks.iter().map(|ticks| ticks.parse().ok()).collect();
    Some(ticks?.iter().sum::<f64>() / TICKS)
}

/// Bytes of memory that a process has resident.
pub(crate) fn resident_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_ranges_are_those_of_the_sorted_values() {
        let mut times = Times::default();
        times.extend((0..100).rev().map(Duration::from_millis));
        assert_eq!(times.percentile(50), 50.0);
        assert_eq!(times.percentile(99), 99.0);
        assert_eq!(Times::default().percentile(50), 0.0);
        let range = Range::of([3.0, 1.0, 2.0]);
        assert_eq!((range.min, range.median, range.max), (1.0, 2.0, 3.0));
    }

    #[test]
    fn the_own_process_has_cpu_time_and_memory() {
        assert!(cpu_seconds(std::process::id()).is_some());
        assert!(resident_bytes(std::process::id()).is_some_and(|bytes| bytes > 100_000));
    }
}
