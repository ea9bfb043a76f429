//! The fold of a journal: what is true of a run after its commits.
//!
//! The same bytes give the same state on every machine and in every build (I9): nothing here reads a clock, a registry or a policy. A
//! commit that does not fit (wrong run, number, epoch or hash) changes nothing and is kept as [`VoidCommit`]; a commit that *is* linked
//! but whose events make no sense is [`FoldError::Impossible`], a broken invariant that is shown and never repaired by guessing.

mod apply;
mod hold;
mod step;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_json::{AcceptedJson, Digest};

use crate::ids::{ApprovalId, ClientId, Epoch, NodeId, OperatorId, RunId, Seq, SessionId, StepId};
use crate::wire::{
    Commit, Decision, InFlight, Limits, LostOwner, OfferedTool, Payload, Question, Reason, Status,
    StoredCommit, WireError,
};

pub(crate) use apply::Head;
pub use hold::MAX_LOST_OWNERS;
pub use step::{Accepted, AttemptState, FoundAt, Phase, Step, Turn};

/// A stored commit that changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoidCommit {
    /// Its position.
    pub seq: Seq,
    /// Why.
    pub why: String,
}

/// The journal cannot be folded further.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FoldError {
    /// Written by a newer version; the run is left to newer binaries.
    #[error("commit at position {seq}: {error}")]
    Newer {
        /// Where.
        seq: Seq,
        /// Which version.
        error: WireError,
    },
    /// A linked commit whose events cannot have happened.
    #[error("commit {n} at position {seq} cannot have happened: {why}")]
    Impossible {
        /// Where.
        seq: Seq,
        /// Its number.
        n: u64,
        /// Why not.
        why: String,
    },
}

/// What the first commit says.
#[derive(Debug, Clone, PartialEq)]
pub struct Opened {
    /// Who asked.
    pub client: ClientId,
    /// Which agent decides.
    pub agent: String,
    /// What for.
    pub goal: String,
    /// What the agent starts from.
    pub input: Option<AcceptedJson>,
    /// The tools, in order.
    pub toolset: Vec<OfferedTool>,
    /// The limits.
    pub limits: Limits,
    /// The submission's digest.
    pub request: Digest,
    /// When, unix milliseconds.
    pub at: i64,
}

/// A question to an operator and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Approval {
    /// The step it is about; absent: the run itself.
    pub step: Option<StepId>,
    /// What a decision must name.
    pub hash: Digest,
    /// What is asked.
    pub question: Question,
    /// When it was asked, unix milliseconds.
    pub asked_at: i64,
    /// When the wait ends.
    pub expires_at: Option<i64>,
    /// What became of it.
    pub state: ApprovalState,
}

/// What became of a question.
#[derive(Debug, Clone, PartialEq)]
pub enum ApprovalState {
    /// Nobody has answered.
    Open,
    /// Answered.
    Decided {
        /// The decision.
        decision: Decision,
        /// By whom.
        by: OperatorId,
        /// When it was folded, unix milliseconds.
        at: i64,
        /// Whether an attempt was dispatched on it, or the run went on.
        spent: bool,
    },
    /// It lost its object.
    Withdrawn,
    /// Nobody answered in time, or the grant was not used in time.
    Expired,
}

/// How the run will end.
#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    /// The final status.
    pub status: Status,
    /// Why.
    pub reason: Reason,
    /// In words.
    pub detail: Option<String>,
    /// The result.
    pub result: Option<Payload>,
}

/// What stands in a row at the end of the steps so far, in call order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Streak {
    /// Failed observations.
    pub failures: u32,
    /// The same call with the same observation.
    pub repeats: u32,
    call: Option<Digest>,
}

/// What is true of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunState {
    /// The run.
    pub run: RunId,
    /// What it is; absent before the first commit.
    pub opened: Option<Opened>,
    /// How often it has changed hands.
    pub epoch: Epoch,
    /// Its latest owner.
    pub owner: Option<(NodeId, SessionId)>,
    /// The latest owners in a row of which nothing has come but that they took the run, oldest first; the present one, if it is among them,
    /// is the last. Of a long row only the end is kept.
    pub(crate) idle_owners: Vec<LostOwner>,
    /// Valid commits so far.
    pub n: u64,
    /// SHA-256 of the first commit's bytes: what the run's idempotency keys come from.
    pub open: Digest,
    /// SHA-256 of the last valid commit's bytes.
    pub tail: Digest,
    /// The last journal position, void commits included: what the next writer expects.
    pub last: Seq,
    /// When the last valid commit was written, unix milliseconds.
    pub last_at: i64,
    /// Decisions and their steps, in order. Finished turns never change again.
    pub turns: Vec<Arc<Turn>>,
    /// Questions to operators.
    pub approvals: BTreeMap<ApprovalId, Approval>,
    /// Inbox messages that commits have named.
    pub folded: BTreeSet<Seq>,
    /// Set once the run was told to end.
    pub ending: Option<Ending>,
    /// Set by the last commit: what was in flight at the end.
    pub ended: Option<Vec<InFlight>>,
    /// Whether the last owner parked it.
    pub parked: bool,
    /// When time moves a parked run, unix milliseconds.
    pub wake_at: Option<i64>,
    /// The steps that had an open attempt when the run was told to end.
    pub open_at_ending: Vec<StepId>,
    /// Failures and repeats in a row.
    pub streak: Streak,
    before_turn: Streak,
    /// Milliseconds not spent waiting for an operator.
    pub active_ms: u64,
    /// Call ids that the agent has used.
    pub(crate) call_ids: BTreeSet<String>,
    /// Commits that changed nothing.
    pub void: Vec<VoidCommit>,
}

impl RunState {
    /// A run without a journal.
    pub fn new(run: RunId) -> Self {
        Self {
            run,
            opened: None,
            epoch: Epoch::NONE,
            owner: None,
            idle_owners: Vec::new(),
            n: 0,
            open: Digest::ZERO,
            tail: Digest::ZERO,
            last: Seq::NONE,
            last_at: 0,
            turns: Vec::new(),
            approvals: BTreeMap::new(),
            folded: BTreeSet::new(),
            ending: None,
            ended: None,
            parked: false,
            wake_at: None,
            open_at_ending: Vec::new(),
            streak: Streak::default(),
            before_turn: Streak::default(),
            active_ms: 0,
            call_ids: BTreeSet::new(),
            void: Vec::new(),
        }
    }

    /// Folds a whole journal.
    pub fn fold(run: RunId, commits: &[StoredCommit]) -> Result<Self, FoldError> {
        let mut state = Self::new(run);
        for commit in commits {
            state.apply(commit)?;
        }
        Ok(state)
    }

    /// Takes the next stored commit in. Returns the commit if it counts.
    pub fn apply(&mut self, stored: &StoredCommit) -> Result<Option<Commit>, FoldError> {
        self.last = stored.seq;
        let commit = match Commit::decode(stored.body.as_bytes()) {
            Ok(commit) => commit,
            Err(error @ WireError::Newer { .. }) => {
                return Err(FoldError::Newer {
                    seq: stored.seq,
                    error,
                });
            }
            Err(error) => return Ok(self.reject(stored.seq, error.to_string())),
        };
        if let Err(why) = self.check_link(&commit) {
            return Ok(self.reject(stored.seq, why));
        }
        let impossible = |why| FoldError::Impossible {
            seq: stored.seq,
            n: commit.n,
            why,
        };
        self.begin(&Head::of(&commit)).map_err(impossible)?;
        for event in &commit.events {
            self.event(event, commit.at).map_err(impossible)?;
        }
        self.link(Digest::of(stored.body.as_bytes()));
        Ok(Some(commit))
    }

    /// The commit just taken in has this hash: the next one names it.
    pub(crate) fn link(&mut self, digest: Digest) {
        self.tail = digest;
        if self.n == 1 {
            self.open = digest;
        }
    }

    fn reject(&mut self, seq: Seq, why: String) -> Option<Commit> {
        self.void.push(VoidCommit { seq, why });
        None
    }

    /// Whether a commit is the next one: run, number, hash link and epoch.
    fn check_link(&self, commit: &Commit) -> Result<(), String> {
        if commit.run != self.run {
            return Err(format!("it is a commit of run {}", commit.run));
        }
        if commit.n != self.n + 1 {
            return Err(format!(
                "its number is {}, the next one is {}",
                commit.n,
                self.n + 1
            ));
        }
        if commit.prev != self.tail {
            return Err("it is not linked to the commit before it".into());
        }
        let takes_over = commit
            .events
            .iter()
            .any(|event| matches!(event, crate::wire::Event::Owned { .. }));
        let wanted = if takes_over {
            self.epoch.next()
        } else {
            self.epoch
        };
        if commit.epoch != wanted {
            return Err(format!("its epoch is {}, expected {wanted}", commit.epoch));
        }
        if self.ended.is_some() {
            return Err("the run has ended".into());
        }
        Ok(())
    }

    /// The run's status.
    pub fn status(&self) -> Status {
        match (&self.ended, &self.ending) {
            (Some(_), Some(ending)) => ending.status,
            _ if self.waits_for_operator() => Status::Waiting,
            _ => Status::Running,
        }
    }

    /// Whether nothing but an operator (or an expiry) can move the run.
    pub fn waits_for_operator(&self) -> bool {
        if self.held_by().is_some() {
            return true;
        }
        if self.ending.is_some() {
            return false;
        }
        let steps = self.current_steps();
        steps.iter().any(|step| step.phase.asks().is_some())
            && steps
                .iter()
                .all(|step| step.phase.asks().is_some() || matches!(step.phase, Phase::Finished))
    }

    /// The step, if the run has it.
    pub fn step(&self, id: StepId) -> Option<&Step> {
        let turn = self.turns.get((id.turn as usize).checked_sub(1)?)?;
        turn.steps.get(id.index as usize)
    }

    /// The steps of the latest turn.
    pub fn current_steps(&self) -> &[Step] {
        self.turns
            .last()
            .map(|turn| turn.steps.as_slice())
            .unwrap_or_default()
    }

    /// Whether every step of the latest turn is over.
    pub fn turn_is_over(&self) -> bool {
        self.current_steps()
            .iter()
            .all(|step| step.phase == Phase::Finished)
    }

    /// The questions that wait for an answer.
    pub fn open_questions(&self) -> impl Iterator<Item = (&ApprovalId, &Approval)> {
        self.approvals
            .iter()
            .filter(|(_, approval)| approval.state == ApprovalState::Open)
    }
}
