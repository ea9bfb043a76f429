//! Fresh identifiers and random bits, read in one place: everything above gets them handed in.

use leasehold_protocol::{ClaimId, IdError, Incarnation, SessionId};

/// A source of identifiers that nobody else has, and of bits for jitter.
pub trait Ids: Send + Sync + 'static {
    /// A text that was never used as an identifier before, sortable by time where that is possible.
    fn unique(&self) -> String;
    /// 64 fresh random bits; decide nothing but how long to wait.
    fn bits(&self) -> u64;

    /// A fresh session: one life of a node.
    fn session(&self) -> Result<SessionId, IdError> {
        SessionId::new(self.unique())
    }
    /// A fresh incarnation: one life of a worker.
    fn incarnation(&self) -> Result<Incarnation, IdError> {
        Incarnation::new(self.unique())
    }
    /// A fresh claim.
    fn claim(&self) -> Result<ClaimId, IdError> {
        ClaimId::new(self.unique())
    }
}

/// Identifiers from the operating system's random numbers.
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomIds;

impl Ids for RandomIds {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one sanctioned source of identifiers"
    )]
    fn unique(&self) -> String {
        // The sortable kind has 74 random bits and a millisecond; claims need to be told apart, not guessed.
        uuid::Uuid::now_v7().to_string()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one sanctioned source of random bits"
    )]
    fn bits(&self) -> u64 {
        uuid::Uuid::new_v4().as_u64_pair().1
    }
}
