//! Named moments between two durable facts, at which a test or a demonstration may stop a process for ever and kill it.
//!
//! The names are those of the design's table of crash points. In production nothing wants a point, and none is reached.

use async_trait::async_trait;
use leasehold_protocol::{ChainKey, RunId};

/// A moment at which a process can die.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// The lease is written, the journal is not read.
    R1,
    /// The journal is read, nothing is committed under the new epoch.
    R3,
    /// A call's commit is acknowledged, before anything else.
    R5,
    /// An outcome was heard and is not applied.
    R6,
    /// The commit that follows an outcome is stored, its acknowledgement is lost.
    R7,
    /// An inbox message is received and not folded.
    R9,
    /// An inbox message is folded and not acknowledged.
    R10,
    /// The durable timer is set, the park commit is not sent.
    R12,
    /// The park commit is stored, the lease is not deleted.
    R13,
    /// The end is stored, the lease is not deleted.
    R14,
    /// A revocation or seal is stored, its finding is not committed.
    R15,
    /// The commit that takes the run is acknowledged, nothing is done about it.
    R17,
    /// A call is received, nothing is done.
    W1,
    /// The claim is stored, its acknowledgement is not heard; arming goes on beside it.
    W2,
    /// The claim is acknowledged, nothing is armed: while somebody wants this point, arming waits behind it.
    W3,
    /// Claimed and armed, the effect is not begun.
    W5,
    /// The tool works; its answer is never heard.
    W6,
    /// The tool has returned, its outcome is written nowhere.
    W7,
    /// The outcome is in the logbook and not in the register: while somebody wants this point, the register waits behind it.
    W8,
    /// The outcome is in the register, its acknowledgement is lost.
    W9,
    /// All is written, the call is not acknowledged.
    W10,
    /// An orphan is to be inspected, nobody has been asked.
    C1,
    /// The ladder has an answer that is not sealed.
    C2,
    /// A finding is sealed and not committed.
    C3,
}

impl Point {
    /// All points.
    pub const ALL: [Point; 24] = [
        Point::R1,
        Point::R3,
        Point::R5,
        Point::R6,
        Point::R7,
        Point::R9,
        Point::R10,
        Point::R12,
        Point::R13,
        Point::R14,
        Point::R15,
        Point::R17,
        Point::W1,
        Point::W2,
        Point::W3,
        Point::W5,
        Point::W6,
        Point::W7,
        Point::W8,
        Point::W9,
        Point::W10,
        Point::C1,
        Point::C2,
        Point::C3,
    ];

    /// The point of that name.
    pub fn named(name: &str) -> Option<Point> {
        Self::ALL
            .into_iter()
            .find(|point| point.to_string() == name)
    }
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Where a point was reached.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The run.
    pub run: &'a RunId,
    /// The attempt, where there is one.
    pub chain: Option<&'a ChainKey>,
}

/// Is told when a wanted point is reached.
#[async_trait]
pub trait Points: Send + Sync + 'static {
    /// Whether [`reached`](Self::reached) is called at this point. Must not change its answer for W3 and W8 in the middle of a call.
    fn wants(&self, point: Point) -> bool;
    /// The point is reached. While this does not return, what follows the point does not happen.
    async fn reached(&self, point: Point, place: Place<'_>);
}

/// Wants no point.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPoints;

#[async_trait]
impl Points for NoPoints {
    fn wants(&self, _: Point) -> bool {
        false
    }
    async fn reached(&self, _: Point, _: Place<'_>) {}
}

/// Tells `points`, if they want it.
pub(crate) async fn reach(
    points: &dyn Points,
    point: Point,
    run: &RunId,
    chain: Option<&ChainKey>,
) {
    if points.wants(point) {
        points.reached(point, Place { run, chain }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_found_by_its_name() {
        for point in Point::ALL {
            assert_eq!(Point::named(&point.to_string()), Some(point));
        }
        assert_eq!(Point::named("W4"), None);
    }
}
