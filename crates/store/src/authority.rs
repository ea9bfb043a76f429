//! A process's own belief that it may still act: read at the very moment before every commit, claim and execution, with nothing awaited
//! between the reading and the act.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this process may act.
///
/// A backend with sessions answers from a deadline on the boot clock that its renewals push on; the embedded store's lock on its folder
/// makes the process the only one, so there [`LocalAuthority`] serves.
pub trait Authority: Send + Sync + 'static {
    /// Whether it may act now. Never blocks.
    fn check(&self) -> bool;
    /// Something happened after which it must not act any more (the store refuses writes, the logbook is in doubt). For good: authority
    /// that was lost never comes back in this life of the process.
    fn lose(&self, why: &str);
}

/// Authority that lasts until it is lost.
#[derive(Debug, Default)]
pub struct LocalAuthority {
    lost: AtomicBool,
}

impl LocalAuthority {
    /// Authority that is not lost.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Authority for LocalAuthority {
    fn check(&self) -> bool {
        !self.lost.load(Ordering::Acquire)
    }

    fn lose(&self, why: &str) {
        if !self.lost.swap(true, Ordering::AcqRel) {
            tracing::error!(why, "this process may not act any more");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i19_lost_authority_never_comes_back() {
        let authority = LocalAuthority::new();
        assert!(authority.check());
        authority.lose("the disk is full");
        authority.lose("again");
        assert!(!authority.check());
    }
}
