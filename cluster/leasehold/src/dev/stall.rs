//! `--stall POINT[:N]`: the process stands still at a named moment, so that a kill -9 hits exactly there.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use leasehold_actors::{Place, Point, Points};

use crate::say;

/// Where to stand still: the N-th time, counted from 1, that a point is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stall {
    point: Point,
    time: u32,
}

impl FromStr for Stall {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, time) = text.split_once(':').unwrap_or((text, "1"));
        let known = || {
            let names: Vec<String> = Point::ALL.iter().map(ToString::to_string).collect();
            format!("no point is called {name:?}; known: {}", names.join(", "))
        };
        let point = Point::named(name).ok_or_else(known)?;
        let time = time.parse().ok().filter(|time| *time > 0);
        let time = time.ok_or_else(|| format!("{text:?}: N counts from 1"))?;
        Ok(Self { point, time })
    }
}

/// The points of one process, with how often each was reached.
#[derive(Debug)]
pub(crate) struct Stalls {
    wanted: Vec<Stall>,
    reached: BTreeMap<Point, AtomicU32>,
}

impl Stalls {
    pub(crate) fn new(wanted: Vec<Stall>) -> Self {
        let reached = wanted.iter().map(|stall| (stall.point, AtomicU32::new(0)));
        Self {
            reached: reached.collect(),
            wanted,
        }
    }
}

#[async_trait]
impl Points for Stalls {
    fn wants(&self, point: Point) -> bool {
        self.reached.contains_key(&point)
    }

    async fn reached(&self, point: Point, _: Place<'_>) {
        let Some(count) = self.reached.get(&point) else {
            return;
        };
        let time = count.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if self.wanted.contains(&Stall { point, time }) {
            // Whoever waits for the line kills this process; if nobody reads it, it stands still all the same.
            let _ = say::line(&format!("reached {point}"));
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_names_a_point_and_a_count() {
        let stall = |text: &str| text.parse::<Stall>();
        assert_eq!(
            stall("W6:3"),
            Ok(Stall {
                point: Point::W6,
                time: 3
            })
        );
        assert_eq!(stall("R5"), stall("R5:1"));
        for bad in ["W4", "w6", "W6:0", "W6:", "W6:x", ""] {
            assert!(stall(bad).is_err(), "{bad}");
        }
    }
}
