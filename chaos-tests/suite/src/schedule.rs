//! What is done when: drawn from the seed before anything runs, so the same seed, length, shape and faults give the same schedule.
//!
//! Time is cut into periods. A quarter of them is quiet; each other one begins with at least one fault, dealt from a shuffled deck so that
//! every armed fault has its turn, and now and then with more. Every period ends healed: whatever was done is brought back before the next
//! one begins.

use std::fmt;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};

use crate::faults::{Fault, Means, Shape, Step, draw};

/// How long a period is, in seconds, at least and at most.
const PERIOD: (u64, u64) = (6, 11);
/// One period of so many is quiet.
const QUIET: usize = 4;
/// How likely each armed fault joins another one.
const JOINS: f64 = 0.12;
/// Faults of one period, at most: more of them hide each other.
const MOST: usize = 3;

/// One step with its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Action {
    /// After the period's beginning.
    pub(crate) after: Duration,
    pub(crate) fault: Fault,
    pub(crate) step: Step,
}

/// A part of the schedule; without actions it is quiet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Period {
    pub(crate) lasts: Duration,
    /// In order of time.
    pub(crate) actions: Vec<Action>,
}

impl Period {
    /// Its faults, each once.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let mut faults: Vec<Fault> = self.actions.iter().map(|action| action.fault).collect();
        faults.sort_unstable();
        faults.dedup();
        faults
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) seed: u64,
    pub(crate) armed: Vec<Fault>,
    pub(crate) periods: Vec<Period>,
}

impl Schedule {
    pub(crate) fn new(seed: u64, length: Duration, shape: Shape, armed: &[Fault]) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let lengths = lengths(length, &mut rng);
        let quiet = quiet(lengths.len(), &mut rng);
        let with_steps = armed.iter().copied();
        let with_steps: Vec<Fault> = with_steps
            .filter(|fault| fault.means() == Means::Steps)
            .collect();
        let active = quiet.iter().filter(|quiet| !**quiet).count().max(1);
        // Each has its turn, also in a short exercise.
        let dealt = with_steps.len().div_ceil(active).max(1);
        let mut deck = Vec::new();
        let mut periods = Vec::new();
        for (lasts, quiet) in lengths.into_iter().zip(quiet) {
            let mut faults = Vec::new();
            if !quiet && !with_steps.is_empty() {
                for _ in 0..dealt {
                    if deck.is_empty() {
                        deck.clone_from(&with_steps);
                        deck.shuffle(&mut rng);
                    }
                    faults.extend(deck.pop());
                }
                for fault in &with_steps {
                    if faults.len() < MOST.max(dealt) && rng.random_bool(JOINS) {
                        faults.push(*fault);
                    }
                }
                faults.sort_unstable();
                faults.dedup();
            }
            let mut actions = Vec::new();
            for fault in faults {
                let steps = draw(fault, shape, &mut rng).into_iter();
                actions.extend(steps.map(|(after, step)| Action { after, fault, step }));
            }
            actions.sort_by_key(|action| action.after);
            periods.push(Period { lasts, actions });
        }
        Self {
            seed,
            armed: armed.to_vec(),
            periods,
        }
    }
}

fn lengths(length: Duration, rng: &mut StdRng) -> Vec<Duration> {
    let mut left = length;
    let mut lengths = Vec::new();
    while !left.is_zero() {
        let mut lasts = Duration::from_secs(rng.random_range(PERIOD.0..=PERIOD.1));
        // No stump at the end.
        if left < lasts + Duration::from_secs(PERIOD.0) {
            lasts = left;
        }
        lengths.push(lasts);
        left -= lasts;
    }
    lengths
}

/// Which periods are quiet: a quarter, and never the first one.
fn quiet(periods: usize, rng: &mut StdRng) -> Vec<bool> {
    let mut quiet: Vec<bool> = (1..periods).map(|place| place % QUIET == 0).collect();
    quiet.shuffle(rng);
    quiet.insert(0, false);
    quiet.truncate(periods);
    quiet
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let armed: Vec<String> = self.armed.iter().map(ToString::to_string).collect();
        writeln!(f, "seed {}, armed: {}", self.seed, armed.join(" "))?;
        let mut at = Duration::ZERO;
        for period in &self.periods {
            let quiet = if period.actions.is_empty() {
                "  quiet"
            } else {
                ""
            };
            writeln!(
                f,
                "{:>5} s, for {:>2} s{quiet}",
                at.as_secs(),
                period.lasts.as_secs()
            )?;
            for action in &period.actions {
                let after = action.after.as_secs_f64();
                writeln!(
                    f,
                    "        +{after:>4.1} s  {:<4} {}",
                    action.fault.to_string(),
                    action.step
                )?;
            }
            at += period.lasts;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        nodes: 3,
        workers: 4,
        servers: 3,
        ttl: Duration::from_secs(3),
    };

    fn schedule(seed: u64, seconds: u64) -> Schedule {
        let armed: Vec<Fault> = Fault::possible().collect();
        Schedule::new(seed, Duration::from_secs(seconds), SHAPE, &armed)
    }

    #[test]
    fn the_same_seed_gives_the_same_schedule_and_another_seed_another() {
        assert_eq!(schedule(1, 120), schedule(1, 120));
        assert_eq!(schedule(1, 120).to_string(), schedule(1, 120).to_string());
        assert_ne!(schedule(1, 120), schedule(2, 120));
    }

    #[test]
    fn every_armed_fault_has_its_turn_and_a_quarter_is_quiet_whatever_the_seed() {
        for seed in 0..200 {
            for seconds in [60, 90, 240] {
                let schedule = schedule(seed, seconds);
                let total: Duration = schedule.periods.iter().map(|period| period.lasts).sum();
                assert_eq!(total.as_secs(), seconds);
                let used: Vec<Fault> = schedule.periods.iter().flat_map(Period::faults).collect();
                for fault in Fault::possible().filter(|fault| fault.means() == Means::Steps) {
                    assert!(
                        used.contains(&fault),
                        "seed {seed}, {seconds} s: no {fault}"
                    );
                }
                let quiet = |period: &&Period| period.actions.is_empty();
                let quiet = schedule.periods.iter().filter(quiet).count();
                assert!(quiet >= 1 && quiet * 3 <= schedule.periods.len());
            }
        }
    }

    #[test]
    fn a_single_fault_is_the_only_one() {
        let schedule = Schedule::new(1, Duration::from_secs(60), SHAPE, &[Fault::F2]);
        let used = schedule.periods.iter().flat_map(Period::faults);
        assert!(
            used.collect::<Vec<_>>()
                .iter()
                .all(|fault| *fault == Fault::F2)
        );
    }
}
