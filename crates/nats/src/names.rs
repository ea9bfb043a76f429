//! Subjects, streams and shards: where each record lies. Pure; what it writes it also reads back.
//!
//! Every name of a run, tool, worker, client or operator is one subject token (`leasehold_tools::subject_token`), so no name can reach into
//! a neighbour's subjects. `docs/protocol.md` lists the subjects.

use leasehold_protocol::{
    ApprovalId, ChainKey, ClientId, JournalSubject, Link, OperatorId, RunId, SessionId, WorkerId,
};
use leasehold_store::{InboxKind, Register};
use leasehold_tools::{from_subject_token, subject_token};
use sha2::{Digest as _, Sha256};

/// A run's shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub(crate) u16);

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Shard {
    /// The run's shard of so many: the first 8 bytes, big endian, of the SHA-256 of its token, modulo the count.
    pub fn of(run: &RunId, shards: u16) -> Self {
        let hash = Sha256::digest(run.token());
        let head = hash
            .iter()
            .take(8)
            .fold(0u64, |head, byte| head << 8 | u64::from(*byte));
        // Less than a u16 by construction.
        Self(u16::try_from(head % u64::from(shards.max(1))).unwrap_or(0))
    }

    /// Journals and registers.
    pub(crate) fn stream(self) -> String {
        format!("LH_{self}")
    }
    /// Submissions, decisions, cancellations.
    pub(crate) fn inbox_stream(self) -> String {
        format!("LHI_{self}")
    }
    /// Timers.
    pub(crate) fn timer_stream(self) -> String {
        format!("LHT_{self}")
    }

    fn run(self, run: &RunId) -> String {
        format!("lh.{self}.run.{}", run.token())
    }
    pub(crate) fn journal(self, run: &RunId, subject: &JournalSubject) -> String {
        let run = self.run(run);
        match subject {
            JournalSubject::Open => format!("{run}.j.open"),
            JournalSubject::Own => format!("{run}.j.own"),
            JournalSubject::Note => format!("{run}.j.note"),
            JournalSubject::End => format!("{run}.j.end"),
            JournalSubject::Call(chain) => {
                format!("{run}.j.call.{}.{}._", attempt(chain), chain.origin.token())
            }
        }
    }
    /// Every commit of the run. All writers of the journal use this very text: a replicated stream's leader tracks checks in flight by it.
    pub(crate) fn journal_filter(self, run: &RunId) -> String {
        format!("{}.j.>", self.run(run))
    }
    /// Call, claims and outcomes of one attempt, whoever dispatched it.
    pub(crate) fn chain_filter(self, chain: &ChainKey) -> String {
        format!("{}.*.*.{}.*.*", self.run(&chain.run), attempt(chain))
    }
    pub(crate) fn register(self, chain: &ChainKey, register: Register, writer: &str) -> String {
        let register = match register {
            Register::Claim => "claim",
            Register::Outcome => "outcome",
        };
        let (run, origin) = (self.run(&chain.run), chain.origin.token());
        format!("{run}.w.{register}.{}.{origin}.{writer}", attempt(chain))
    }
    /// A note: one token longer than the chain's subjects, so that the chain's filter does not see it.
    pub(crate) fn note(self, chain: &ChainKey, writer: &str, place: usize) -> String {
        let (run, origin) = (self.run(&chain.run), chain.origin.token());
        format!(
            "{run}.w.evidence.{}.{origin}.{writer}.{place}",
            attempt(chain)
        )
    }
    pub(crate) fn notes_filter(self, chain: &ChainKey) -> String {
        format!(
            "{}.w.evidence.{}.*.*.*",
            self.run(&chain.run),
            attempt(chain)
        )
    }
    /// One place among an attempt's notes, whoever takes it.
    pub(crate) fn note_place_filter(self, chain: &ChainKey, place: usize) -> String {
        let run = self.run(&chain.run);
        format!("{run}.w.evidence.{}.*.*.{place}", attempt(chain))
    }
    /// Calls of the tool.
    pub(crate) fn calls_filter(self, tool: &str) -> String {
        format!("lh.{self}.run.*.j.call.{}.>", subject_token(tool))
    }
    pub(crate) fn inbox(self, run: &RunId, kind: &InboxKind) -> String {
        let run = run.token();
        match kind {
            InboxKind::Submit(client) => format!("lh.{self}.in.{run}.{}", client.token()),
            InboxKind::Decide(approval, operator) => {
                format!(
                    "lh.{self}.d.{run}.{}.{}",
                    approval.token(),
                    operator.token()
                )
            }
            InboxKind::Cancel(operator) => format!("lh.{self}.c.{run}.{}", operator.token()),
        }
    }
    pub(crate) fn submissions_filter(self, run: &RunId) -> String {
        format!("lh.{self}.in.{}.*", run.token())
    }
    /// A timer that is not due: the server publishes to [`Self::due`] when it is.
    pub(crate) fn scheduled(self, run: &RunId) -> String {
        format!("lh.{self}.ts.{}", run.token())
    }
    pub(crate) fn due(self, run: &RunId) -> String {
        format!("lh.{self}.t.{}", run.token())
    }
    /// Both subjects of the run's timer.
    pub(crate) fn timer_filter(self, run: &RunId) -> String {
        format!("lh.{self}.*.{}", run.token())
    }
}

/// An attempt's whole name, run first.
pub(crate) fn attempt_of(chain: &ChainKey) -> String {
    let (run, origin) = (chain.run.token(), chain.origin.token());
    format!("{run}.{}.{origin}", attempt(chain))
}

/// Reads the tokens of [`attempt_of`] back.
pub(crate) fn chain_of(
    run: &str,
    tool: &str,
    step: &str,
    attempt: &str,
    origin: &str,
) -> Option<ChainKey> {
    let run = RunId::new(from_subject_token(run).ok()?).ok()?;
    chain(&run, tool, step, attempt, origin)
}

/// Whether a call's commit lies there.
pub(crate) fn is_call(subject: &str) -> bool {
    matches!(
        named(subject),
        Some(Named::Journal(_, JournalSubject::Call(_)))
    )
}

/// The tokens that call, registers and notes of an attempt share.
fn attempt(chain: &ChainKey) -> String {
    format!(
        "{}.{}.{}",
        subject_token(&chain.tool),
        chain.step,
        chain.attempt
    )
}

/// Where the server republishes what is stored for calls of this session, in every shard.
pub(crate) fn stored_filter(origin: &SessionId) -> String {
    format!("lh.*.stored.*.w.*.*.*.*.{}.>", origin.token())
}

/// Where some node is told that there is news of a run.
pub(crate) fn wake(run: &RunId) -> String {
    format!("lh.wake.{}", run.token())
}

/// Where a node is handed inbox messages of runs that it holds.
pub(crate) fn mail(session: &SessionId) -> String {
    format!("lh.node.{}.mail", session.token())
}

/// Where a worker is asked about its attempts.
pub(crate) fn inspect(domain: &str, worker: &WorkerId) -> String {
    format!(
        "lh.worker.{}.{}.inspect",
        subject_token(domain),
        worker.token()
    )
}

/// A worker's liveness record.
pub(crate) fn live(domain: &str, worker: &WorkerId) -> String {
    format!("lh.ws.{}.{}.live", subject_token(domain), worker.token())
}

/// A worker's logbook, as the cluster last saw it.
pub(crate) fn logbook(domain: &str, worker: &WorkerId) -> String {
    format!("lh.ws.{}.{}.logbook", subject_token(domain), worker.token())
}

/// The durable pull consumer of those of a domain's workers that serve these tools, on every shard.
pub(crate) fn pool(domain: &str, tools: &str) -> String {
    format!("pool_{}_{tools}", subject_token(domain))
}

/// What a subject names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Named {
    Journal(RunId, JournalSubject),
    Register(ChainKey, Link, String),
    Note(ChainKey, String),
    Inbox(RunId, InboxKind),
    Timer(RunId),
}

/// The subject is none of this project's: somebody else writes here, or a newer version does.
#[derive(Debug, thiserror::Error)]
#[error("subject {0:?} is not one that this version knows")]
pub(crate) struct Strange(String);

/// Reads a subject back. A republished one (`lh.<s>.stored.<run>.w...`) names what was stored.
pub(crate) fn read(subject: &str) -> Result<Named, Strange> {
    named(subject).ok_or_else(|| Strange(subject.to_owned()))
}

/// The run that a record belongs to.
pub(crate) fn run_of(subject: &str) -> Option<RunId> {
    match named(subject)? {
        Named::Journal(run, _) | Named::Inbox(run, _) | Named::Timer(run) => Some(run),
        Named::Register(chain, ..) | Named::Note(chain, _) => Some(chain.run),
    }
}

fn named(subject: &str) -> Option<Named> {
    let tokens: Vec<&str> = subject.split('.').collect();
    let run = |token: &str| RunId::new(from_subject_token(token).ok()?).ok();
    let operator = |token: &str| OperatorId::new(from_subject_token(token).ok()?).ok();
    match *tokens.as_slice() {
        ["lh", _, "run", id, "j", what] => {
            let subject = match what {
                "open" => JournalSubject::Open,
                "own" => JournalSubject::Own,
                "note" => JournalSubject::Note,
                "end" => JournalSubject::End,
                _ => return None,
            };
            Some(Named::Journal(run(id)?, subject))
        }
        ["lh", _, "run", id, "j", "call", tool, step, n, origin, "_"] => {
            let run = run(id)?;
            let chain = chain(&run, tool, step, n, origin)?;
            Some(Named::Journal(run, JournalSubject::Call(chain)))
        }
        [
            "lh",
            _,
            "run" | "stored",
            id,
            "w",
            register,
            tool,
            step,
            n,
            origin,
            writer,
        ] => {
            let link = match register {
                "claim" => Link::Claim,
                "outcome" => Link::Outcome,
                _ => return None,
            };
            let chain = chain(&run(id)?, tool, step, n, origin)?;
            Some(Named::Register(chain, link, writer.to_owned()))
        }
        [
            "lh",
            _,
            "run" | "stored",
            id,
            "w",
            "evidence",
            tool,
            step,
            n,
            origin,
            writer,
            _,
        ] => {
            let chain = chain(&run(id)?, tool, step, n, origin)?;
            Some(Named::Note(chain, writer.to_owned()))
        }
        ["lh", _, "in", id, client] => {
            let client = ClientId::new(from_subject_token(client).ok()?).ok()?;
            Some(Named::Inbox(run(id)?, InboxKind::Submit(client)))
        }
        ["lh", _, "d", id, approval, by] => {
            let approval = ApprovalId::new(from_subject_token(approval).ok()?).ok()?;
            Some(Named::Inbox(
                run(id)?,
                InboxKind::Decide(approval, operator(by)?),
            ))
        }
        ["lh", _, "c", id, by] => Some(Named::Inbox(run(id)?, InboxKind::Cancel(operator(by)?))),
        ["lh", _, "t" | "ts", id] => Some(Named::Timer(run(id)?)),
        _ => None,
    }
}

fn chain(run: &RunId, tool: &str, step: &str, attempt: &str, origin: &str) -> Option<ChainKey> {
    Some(ChainKey {
        run: run.clone(),
        tool: from_subject_token(tool).ok()?,
        step: step.parse().ok()?,
        attempt: attempt.parse().ok()?,
        origin: SessionId::new(from_subject_token(origin).ok()?).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain() -> ChainKey {
        ChainKey {
            run: RunId::new("r 1.é").unwrap(),
            tool: "a.b*>".to_owned(),
            step: "3-0".parse().unwrap(),
            attempt: "2".parse().unwrap(),
            origin: SessionId::new("s_1").unwrap(),
        }
    }

    #[test]
    fn k58_every_subject_is_read_back_as_what_it_was_made_from() {
        let (chain, shard) = (chain(), Shard(3));
        let run = chain.run.clone();
        for subject in [
            JournalSubject::Open,
            JournalSubject::Own,
            JournalSubject::Note,
            JournalSubject::End,
            JournalSubject::Call(chain.clone()),
        ] {
            let text = shard.journal(&run, &subject);
            assert_eq!(read(&text).unwrap(), Named::Journal(run.clone(), subject));
        }
        let claim = shard.register(&chain, Register::Claim, "w_20x");
        let named = Named::Register(chain.clone(), Link::Claim, "w_20x".to_owned());
        assert_eq!(read(&claim).unwrap(), named);
        assert_eq!(read(&claim.replace(".run.", ".stored.")).unwrap(), named);
        let note = shard.note(&chain, "_rt", 7);
        assert_eq!(
            read(&note).unwrap(),
            Named::Note(chain.clone(), "_rt".to_owned())
        );
        for kind in [
            InboxKind::Submit(ClientId::new("c.d").unwrap()),
            InboxKind::Decide(
                ApprovalId::new("3-0.1").unwrap(),
                OperatorId::new("o").unwrap(),
            ),
            InboxKind::Cancel(OperatorId::new("*").unwrap()),
        ] {
            let text = shard.inbox(&run, &kind);
            assert_eq!(read(&text).unwrap(), Named::Inbox(run.clone(), kind));
        }
        for text in [shard.scheduled(&run), shard.due(&run)] {
            assert_eq!(read(&text).unwrap(), Named::Timer(run.clone()));
        }
    }

    #[test]
    fn strange_subjects_are_said_to_be_strange() {
        for text in [
            "",
            "lh.0.run.r.j.other",
            "lh.0.run.r_2.j.open",
            "x.0.run.r.j.open",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_chains_filter_sees_call_and_registers_and_no_notes() {
        let (chain, shard) = (chain(), Shard(0));
        let matches = |filter: &str, subject: &str| {
            let (filter, subject): (Vec<_>, Vec<_>) =
                (filter.split('.').collect(), subject.split('.').collect());
            filter.len() == subject.len()
                && filter
                    .iter()
                    .zip(&subject)
                    .all(|(f, s)| *f == "*" || f == s)
        };
        let filter = shard.chain_filter(&chain);
        let call = shard.journal(&chain.run, &JournalSubject::Call(chain.clone()));
        let outcome = shard.register(&chain, Register::Outcome, "_rt");
        assert!(matches(&filter, &call) && matches(&filter, &outcome));
        let note = shard.note(&chain, "w", 0);
        assert!(!matches(&filter, &note));
        assert!(matches(&shard.notes_filter(&chain), &note));
        assert!(matches(&shard.note_place_filter(&chain, 0), &note));
    }

    #[test]
    fn a_shard_is_the_hash_of_the_token_and_every_shard_is_used() {
        let run = RunId::new("order-1").unwrap();
        assert_eq!(Shard::of(&run, 1), Shard(0));
        let shards: std::collections::BTreeSet<_> = (0..200)
            .map(|n| Shard::of(&RunId::new(format!("order-{n}")).unwrap(), 8))
            .collect();
        assert_eq!(shards.len(), 8);
    }
}
