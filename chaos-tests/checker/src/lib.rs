//! An independent reader of journals and ledgers: it takes a raw dump of everything a runtime stored and the books of
//! whoever had the effects (a payments database, or an effect ledger), and computes from them alone whether the promises held.
//!
//! It shares no code with the runtime, on purpose: subjects, hashes, registers and the rules that decide which message
//! counts are written here a second time, from `docs/protocol.md`. What the runtime believes about a run plays no part.
//! A dump that cannot be read is an error; a dump that breaks a promise gives a report with violations, each with the
//! number of the invariant.

mod attempt;
mod books;
mod dump;
mod effects;
mod grounds;
mod invariants;
mod journal;
mod ledger;
mod logbooks;
mod report;
mod timeline;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

pub use report::{Effects, Orphan, Report, Resolved, Runs, Violation};
pub use timeline::{Moment, moments, timeline};

use std::path::Path;

use books::Books;
use dump::Dump;
use journal::Run;

/// Everything that is known, read once: what the checks look at.
pub(crate) struct World {
    /// The runs that were submitted, by whoever submitted them.
    pub(crate) submitted: Vec<String>,
    /// Every run that has a journal, in order of id.
    pub(crate) runs: Vec<Run>,
    /// Submissions in the inbox: run, position, SHA-256.
    pub(crate) submissions: Vec<(String, u64, String)>,
    /// Inbox positions say nothing about the order of a submission and its run's journal.
    pub(crate) inbox_apart: bool,
    /// The workers' logbooks.
    pub(crate) logbooks: Vec<logbooks::Record>,
    /// The books.
    pub(crate) books: Books,
}

/// Checks a dump against the books: the payments service's database, or an effect ledger. `submitted` names the runs that were submitted; when it is empty, the
/// submissions in the dump's inbox are taken.
///
/// # Errors
/// A file cannot be read, or a line is no dump line. A broken promise is no error: it is in the report.
pub fn check(dump: &Path, books: &Path, submitted: &[String]) -> anyhow::Result<Report> {
    let dump = Dump::read(dump)?;
    let books = Books::read(books)?;
    Ok(report::of(&World::new(&dump, books, submitted)))
}

impl World {
    pub(crate) fn new(dump: &Dump, books: Books, submitted: &[String]) -> Self {
        let submissions = dump.submissions();
        let mut submitted = submitted.to_vec();
        if submitted.is_empty() {
            submitted = submissions.iter().map(|(run, ..)| run.clone()).collect();
        }
        submitted.sort();
        submitted.dedup();
        Self {
            submitted,
            runs: journal::read_all(dump, &books.tools),
            submissions,
            inbox_apart: dump.inbox_apart,
            logbooks: dump.logbooks.clone(),
            books,
        }
    }
}
