//! What is stored of the one run of a model: its journal, the chains and notes of its attempts, and the effects that the world saw.
//!
//! Positions count per lane (the journal by hundreds, a chain from its call on): the machines compare positions within one lane only, and
//! so writes to different lanes lead to the same situation in whatever order they came.

use leasehold_protocol::invariant::{self, RunRecord};
use leasehold_protocol::{
    Body, Chain, ChainKey, ChainMessage, CommitRequest, Effects, Invariant, JournalSubject, Link,
    MAX_NOTES, Note, NoteKind, NoteMessage, RUNTIME_TOKEN, RegisterRequest, RunId, RunState, Seq,
    Step, StoredCommit, Violation,
};

use super::memo::Memos;
use super::printed::Printed;
use crate::outside;

/// Room between two journal positions for the chain that a call begins.
const LANE: u64 = 100;
/// Attempts that the ledger has a place for; more than any bound that is worth a check leads to.
pub(crate) const ATTEMPTS: usize = 8;

/// The journal and its fold.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    pub(crate) commits: Vec<StoredCommit>,
    pub(crate) state: RunState,
}

/// The chain of one attempt and the notes beside it.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    pub(crate) key: ChainKey,
    pub(crate) messages: Vec<ChainMessage>,
    pub(crate) notes: Vec<NoteMessage>,
    pub(crate) chain: Chain,
    /// What the notes say.
    pub(crate) evidence: Vec<NoteKind>,
}

/// A write that its writer did not live to see answered.
#[derive(Debug)]
pub(crate) enum LateWrite {
    Commit(CommitRequest),
    Register {
        write: RegisterRequest,
        writer: String,
    },
    Note {
        lane: usize,
        writer: String,
        body: Body,
        last_place: bool,
    },
}

/// Everything stored, and what the world saw.
#[derive(Clone, PartialEq, Hash)]
pub(crate) struct Stored {
    pub(crate) memos: Memos,
    pub(crate) journal: Printed<Journal>,
    pub(crate) lanes: Vec<Printed<Lane>>,
    pub(crate) late: Vec<Printed<LateWrite>>,
    pub(crate) effects: [u8; ATTEMPTS],
    /// A promise about a moment that was broken in that moment.
    pub(crate) flaw: Option<Invariant>,
}

impl Lane {
    fn print(mut self) -> Printed<Self> {
        self.read();
        Printed::new(self)
    }

    fn read(&mut self) {
        let class = outside::registry()
            .get(&self.key.tool)
            .map_or(leasehold_tools::SideEffect::Destructive, |tool| {
                tool.spec().side_effect
            });
        self.chain = Chain::read(class, &self.messages);
        self.evidence = self
            .notes
            .iter()
            .filter_map(|note| Note::decode(note.body.as_bytes()).ok())
            .map(|note| note.evidence)
            .collect();
    }

    fn last(&self) -> Seq {
        self.messages
            .last()
            .map_or(Seq::NONE, |message| message.seq)
    }
}

impl Stored {
    pub(crate) fn new(run: RunId, memos: Memos) -> Self {
        let journal = Journal {
            commits: Vec::new(),
            state: RunState::new(run),
        };
        Self {
            memos,
            journal: Printed::by(journal, &0),
            lanes: Vec::new(),
            late: Vec::new(),
            effects: [0; ATTEMPTS],
            flaw: None,
        }
    }

    /// The run's one step, once the agent has decided.
    pub(crate) fn step(&self) -> Option<&Step> {
        self.journal.state.turns.first()?.steps.first()
    }

    /// The lane of the attempt that the journal says is open.
    pub(crate) fn open_lane(&self) -> Option<usize> {
        let open = self.step()?.phase.has_open_attempt();
        open.then(|| self.lanes.len().checked_sub(1)).flatten()
    }

    pub(crate) fn lane_of(&self, key: &ChainKey) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.key == *key)
    }

    pub(crate) fn break_promise(&mut self, invariant: Invariant) {
        self.flaw.get_or_insert(invariant);
    }

    /// The commits behind this position, as a reader of the journal gets them.
    pub(crate) fn commits_after(&self, after: Seq) -> Vec<StoredCommit> {
        let commits = self.journal.commits.iter();
        commits
            .filter(|stored| stored.seq > after)
            .cloned()
            .collect()
    }

    pub(crate) fn append(&mut self, write: &CommitRequest) -> Result<Seq, ()> {
        let last = self
            .journal
            .commits
            .last()
            .map_or(Seq::NONE, |stored| stored.seq);
        if last != write.expected {
            return Err(());
        }
        let seq = Seq((self.journal.commits.len() as u64 + 1) * LANE);
        let stored = StoredCommit {
            seq,
            subject: write.subject.clone(),
            body: write.body.clone(),
        };
        let print = (self.journal.print(), &stored.subject, &stored.body);
        let (journal, counts) = self.memos.journal.of(&print, || {
            let mut journal = (*self.journal).clone();
            let counts = matches!(journal.state.apply(&stored), Ok(Some(_)));
            journal.commits.push(stored.clone());
            (Printed::by(journal, &print), counts)
        });
        self.journal = journal;
        if !counts {
            self.break_promise(Invariant::I8);
        }
        if let (JournalSubject::Call(key), Some(envelope)) = (&write.subject, &write.call) {
            let call = ChainMessage {
                seq,
                expected: None,
                link: Link::Call,
                writer: RUNTIME_TOKEN.into(),
                body: envelope.clone(),
            };
            let lane = || Lane {
                key: key.clone(),
                messages: vec![call.clone()],
                notes: Vec::new(),
                chain: Chain::default(),
                evidence: Vec::new(),
            };
            if self.lanes.len() == ATTEMPTS {
                self.break_promise(Invariant::I17);
                return Ok(seq);
            }
            let print = (seq, envelope, key);
            let lane = self.memos.lane.of(&print, || lane().print());
            self.lanes.push(lane);
            if self.lanes.len() > 1
                && let Some(violation) = self.check().first()
            {
                // Now, and not at the end: what permits an attempt has to stand in the registers before it.
                self.break_promise(violation.invariant);
            }
        }
        Ok(seq)
    }

    pub(crate) fn register(&mut self, write: &RegisterRequest, writer: &str) -> Result<Seq, ()> {
        let Some(at) = self.lane_of(&write.chain) else {
            return Err(());
        };
        let before = self.lanes[at].clone();
        if before.last() != write.expected {
            return Err(());
        }
        let seq = Seq(before.last().0 + 1);
        let print = (before.print(), write.link, writer, &write.body);
        self.lanes[at] = self.memos.lane.of(&print, || {
            let mut lane = (*before).clone();
            lane.messages.push(ChainMessage {
                seq,
                expected: Some(write.expected),
                link: write.link,
                writer: writer.to_owned(),
                body: write.body.clone(),
            });
            lane.print()
        });
        Ok(seq)
    }

    pub(crate) fn note(&mut self, at: usize, writer: &str, body: &Body, last_place: bool) {
        let before = self.lanes[at].clone();
        let room = if last_place { MAX_NOTES } else { MAX_NOTES - 1 };
        if before.notes.len() < room {
            self.lanes[at] = self.memos.lane.of(&(before.print(), writer, body), || {
                let mut lane = (*before).clone();
                lane.notes.push(NoteMessage {
                    seq: Seq(lane.notes.len() as u64 + 1),
                    writer: writer.to_owned(),
                    body: body.clone(),
                });
                lane.print()
            });
        } else if last_place {
            self.break_promise(Invariant::I15);
        }
    }

    pub(crate) fn write_late(&mut self, write: &LateWrite) {
        // Nobody is left to be told.
        match write {
            LateWrite::Commit(write) => drop(self.append(write)),
            LateWrite::Register { write, writer } => drop(self.register(write, writer)),
            LateWrite::Note {
                lane,
                writer,
                body,
                last_place,
            } => self.note(*lane, writer, body, *last_place),
        }
    }

    pub(crate) fn send_late(&mut self, write: LateWrite) {
        self.late.push(Printed::new(write));
        self.late.sort_by_key(Printed::print);
    }

    pub(crate) fn total(&self) -> usize {
        self.effects.iter().map(|count| usize::from(*count)).sum()
    }

    /// Every invariant that stored bytes can tell, as the simulator and `verify` check them.
    pub(crate) fn check(&self) -> Vec<Violation> {
        let chains = self
            .lanes
            .iter()
            .map(|lane| (lane.key.clone(), lane.messages.clone()))
            .collect();
        let effects: Effects = self
            .lanes
            .iter()
            .zip(self.effects)
            .filter(|(_, count)| *count > 0)
            .map(|(lane, count)| ((lane.key.step, lane.key.attempt), u32::from(count)))
            .collect();
        let record = RunRecord {
            run: &self.journal.state.run,
            commits: &self.journal.commits,
            chains: &chains,
            effects: Some(&effects),
        };
        invariant::check(&record, &|_| leasehold_tools::SideEffect::LocalMutation)
    }
}
