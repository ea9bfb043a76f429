//! A run's owner: decides what is committed, dispatched, asked, revoked, sealed and told.
//!
//! The machine is level-triggered. An input changes what it knows; then [`RunMachine::step`] looks at everything it knows and does the
//! next thing that is due. One commit is in flight at a time, and while it is, nothing else is decided. Events are taken into the state
//! when they are drafted, so that the agent can be asked about an observation that rides in the same commit as its next decision; if the
//! commit turns out not to be ours to make, the machine stops and the journal is folded anew.

mod commit;
mod dispatch;
mod ending;
mod hook;
mod inbox;
mod io;
mod ladder;
mod observe;
mod question;
mod turn;
mod watch;

pub use ladder::{MAX_PROBES, MAX_PROVEN, PROBE_RETRY_MS, SILENCE_SLACK_MS};

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_json::Kept;
use leasehold_tools::{CompiledTool, Registry, SideEffect};

pub use io::{
    AgentView, CommitRequest, Effect, HookAnswer, Input, InspectAnswer, Left, Now, PolicyRequest,
    ProbeReply, ProbeRequest, RegisterRequest, StopReason,
};

use crate::ids::{ClusterId, NodeId, RunId, Seq, SessionId, StepId};
use crate::state::RunState;
use crate::wire::{Body, JournalSubject};
use commit::{Draft, Pending};
use dispatch::Judgement;
use inbox::Letter;
use watch::Watch;

/// How long drafted events may wait for the agent's or the policy's answer to ride in the same commit, in milliseconds. Long enough for a
/// plan or a local agent, short enough that a slow model does not leave the journal behind.
pub const RIDE_MS: u64 = 50;

/// What an owner is.
#[derive(Debug, Clone)]
pub struct RunConfig {
    /// The cluster.
    pub cluster: ClusterId,
    /// This node.
    pub node: NodeId,
    /// This life of it.
    pub session: SessionId,
    /// The tools as registered now.
    pub tools: Arc<Registry>,
    /// How far the clocks of two machines may be apart, milliseconds; 0 on one host.
    pub clock_bound_ms: u64,
    /// How long a node's session lives without a renewal, milliseconds.
    pub session_ttl_ms: u64,
    /// Whether a consumer's hook is asked when a run changes hands.
    pub hook: bool,
    /// A negative control.
    pub weakening: RunWeakening,
}

/// A deliberate weakening, for the negative controls that show the checkers can fail. Never set in production.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunWeakening {
    /// None.
    #[default]
    None,
    /// An attempt of which nobody knows anything is simply tried again.
    RetryUnknown,
    /// Findings are committed without being sealed first.
    NoSeal,
    /// "Not done" counts although the probe only observes and the service takes late requests.
    PlainProbeCounts,
    /// A new owner goes on in the epoch of the one before.
    SameEpoch,
    /// A grant counts for the step that it was given for, whatever is asked for now.
    ApprovalByPosition,
}

#[derive(Debug, Clone, PartialEq)]
enum AgentSlot {
    Idle,
    Asked,
    Decided(Kept),
    Failed(String),
}

/// The owner of one run.
#[derive(Debug, Clone)]
pub struct RunMachine {
    config: RunConfig,
    state: RunState,
    now: Now,
    loaded: bool,
    owned: bool,
    hook_due: bool,
    draining: bool,
    stopped: bool,
    timer_set: Option<i64>,
    timer_pending: bool,
    draft: Option<Draft>,
    pending: Option<Pending>,
    letters: BTreeMap<Seq, Letter>,
    watches: BTreeMap<StepId, Watch>,
    judgements: BTreeMap<StepId, Judgement>,
    agent: AgentSlot,
    submission: Option<(Seq, Body)>,
    out: Vec<Effect>,
}

impl RunMachine {
    /// A machine that knows nothing yet. Its first input is [`Input::Load`].
    pub fn new(config: RunConfig, run: RunId) -> Self {
        Self {
            config,
            state: RunState::new(run),
            now: Now { wall: 0, boot: 0 },
            loaded: false,
            owned: false,
            hook_due: false,
            draining: false,
            stopped: false,
            timer_set: None,
            timer_pending: false,
            draft: None,
            pending: None,
            letters: BTreeMap::new(),
            watches: BTreeMap::new(),
            judgements: BTreeMap::new(),
            agent: AgentSlot::Idle,
            submission: None,
            out: Vec::new(),
        }
    }

    /// What is true of the run, drafted events included.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// Takes an input in and says what is to be done.
    pub fn step(&mut self, now: Now, input: Input) -> Vec<Effect> {
        self.now = now;
        if !self.stopped {
            let done = self.take(input).and_then(|()| self.advance());
            if let Err(why) = done {
                // An event of our own that the fold refuses: a mistake in this code. Nothing of it was written; the journal stands.
                self.stop(StopReason::Unreadable(format!("internal error: {why}")));
            }
            self.wake();
        }
        std::mem::take(&mut self.out)
    }

    fn take(&mut self, input: Input) -> Result<(), String> {
        match input {
            Input::Load {
                commits,
                submission,
            } => self.load(&commits, submission),
            Input::Decide { inbox, body } => self.letter(inbox, Letter::Decide(body)),
            Input::Cancel { inbox, body } => self.letter(inbox, Letter::Cancel(body)),
            Input::CommitStored { seq } => self.commit_stored(seq),
            Input::CommitDoubtful => self.commit_doubtful(),
            Input::CommitBusy => self.commit_again(),
            Input::JournalRead { commits } => self.journal_read(&commits),
            Input::Hint(hint) => self.hint(&hint),
            Input::ChainRead {
                step,
                attempt,
                messages,
                notes,
            } => self.chain_read(step, attempt, &messages, &notes),
            Input::RegisterTried { step, attempt } => self.register_tried(step, attempt),
            Input::Inspected {
                step,
                attempt,
                answer,
            } => self.inspected(step, attempt, answer),
            Input::Probed {
                step,
                attempt,
                answer,
            } => self.probed(step, attempt, answer),
            Input::AgentDecided { turn, decision } => {
                if self.agent == AgentSlot::Asked && turn == self.next_turn() {
                    self.agent = AgentSlot::Decided(decision);
                }
            }
            Input::AgentFailed { turn, error } => {
                if self.agent == AgentSlot::Asked && turn == self.next_turn() {
                    self.agent = AgentSlot::Failed(error);
                }
            }
            Input::Judged {
                step,
                policy,
                verdict,
            } => self.judged(step, policy, verdict),
            Input::HookAnswered(answer) => return self.hook_answered(answer),
            Input::TimerSet => self.timer_was_set(),
            Input::Tick => {}
            Input::Drain => self.draining = true,
            Input::AuthorityLost => self.stop(StopReason::AuthorityLost),
        }
        Ok(())
    }

    fn load(&mut self, commits: &[crate::wire::StoredCommit], submission: Option<(Seq, Body)>) {
        match RunState::fold(self.state.run.clone(), commits) {
            Ok(state) => self.state = state,
            Err(error) => return self.stop(StopReason::Unreadable(error.to_string())),
        }
        self.submission = submission;
        self.loaded = true;
        if self.state.ended.is_some() {
            self.stop(StopReason::Ended);
        } else {
            self.hook_due =
                self.config.hook && self.state.opened.is_some() && self.state.held_by().is_none();
        }
    }

    /// Does everything that is due, up to the next commit or the next answer that has to be waited for.
    fn advance(&mut self) -> Result<(), String> {
        if self.stopped || !self.loaded || self.pending.is_some() {
            return Ok(());
        }
        if !self.owned {
            return self.own();
        }
        if self.hook_due {
            return Ok(());
        }
        self.expire()?;
        self.fold_letters()?;
        if self.draining {
            return self.release();
        }
        if self.state.held_by().is_some() {
            return if self.draft.is_some() {
                self.flush()
            } else {
                self.park()
            };
        }
        // A decision has force from its commit on: nothing is sealed or dispatched on a draft of it.
        if !self.draft_is_forced() {
            self.climb_all()?;
        }
        if self.state.is_ending() {
            return self.end();
        }
        if self.draft_is_forced() {
            return self.flush();
        }
        self.dispatch_ready()?;
        if self.draft_is_forced() {
            return self.flush();
        }
        self.turn_boundary()?;
        if self.draft_is_forced() || self.ride_is_over() {
            return self.flush();
        }
        self.park()
    }

    fn next_turn(&self) -> u32 {
        u32::try_from(self.state.turns.len())
            .unwrap_or(u32::MAX)
            .saturating_add(1)
    }

    fn stop(&mut self, reason: StopReason) {
        if !self.stopped {
            self.stopped = true;
            self.out.push(Effect::Stop(reason));
        }
    }

    fn tool(&self, name: &str) -> Option<&CompiledTool> {
        self.config.tools.get(name)
    }

    /// The class that decides recovery. A tool that is gone is treated as the worst it could be.
    fn class(&self, tool: &str) -> SideEffect {
        self.tool(tool)
            .map_or(SideEffect::Destructive, |tool| tool.spec().side_effect)
    }

    /// Wishes to be woken at the earliest moment at which time alone makes something due.
    fn wake(&mut self) {
        if self.stopped || self.pending.is_some() {
            return;
        }
        let wall = |at: i64| {
            self.now
                .boot
                .saturating_add(u64::try_from(at.saturating_sub(self.now.wall)).unwrap_or(0))
                .saturating_add(1)
        };
        let watches = self.watches.values().filter_map(Watch::wakes_at);
        let questions = self
            .state
            .open_questions()
            .filter_map(|(_, approval)| approval.expires_at)
            .map(wall);
        let ride = self
            .draft
            .as_ref()
            .map(|draft| draft.opened_boot.saturating_add(RIDE_MS));
        if let Some(boot) = watches.chain(questions).chain(ride).min() {
            self.out.push(Effect::WakeAt {
                boot: boot.max(self.now.boot),
            });
        }
    }

    /// Whether the journal subject of the draft says that it must go out now.
    fn draft_is_forced(&self) -> bool {
        self.draft
            .as_ref()
            .is_some_and(|draft| draft.forced || draft.subject != JournalSubject::Note)
    }

    /// Whether the draft goes out although nothing forces it: nobody whose answer could ride in it is asked, or the answer took too long.
    fn ride_is_over(&self) -> bool {
        let asked =
            self.agent == AgentSlot::Asked || self.judgements.values().any(Judgement::is_awaited);
        self.draft.as_ref().is_some_and(|draft| {
            !asked || self.now.boot >= draft.opened_boot.saturating_add(RIDE_MS)
        })
    }
}
