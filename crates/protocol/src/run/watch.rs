//! What an owner has seen of an open attempt's chain and evidence, and when it looks again.
//!
//! A republished message is a hint: it is taken in only if its writer expected exactly the position that we have seen last; otherwise the
//! chain is read. The chain and the notes are read at takeover and then at 1, 2, 4 .. 30 s in any case.

use leasehold_tools::SideEffect;

use super::RunMachine;
use super::io::{Effect, InspectAnswer, ProbeReply};
use crate::chain::{Chain, ChainMessage, Hint, Link, NoteMessage};
use crate::ids::{Attempt, ChainKey, Seq, StepId};
use crate::state::Phase;
use crate::wire::{Body, ClaimBody, Note};

/// The first wait between two reads of an open attempt; doubled up to [`LAST_READ_MS`].
const FIRST_READ_MS: u64 = 1_000;
/// The longest wait between two reads.
const LAST_READ_MS: u64 = 30_000;

/// How a probe's answer stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ProbeSlot {
    Idle,
    Asked,
    /// Ask (again) at this moment of the boot clock.
    Later(u64),
    Answered(ProbeReply),
}

/// One open attempt as its owner sees it.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    pub(super) key: ChainKey,
    pub(super) class: SideEffect,
    pub(super) chain: Chain,
    pub(super) notes: Vec<Note>,
    /// The chain and the notes have been read since this owner took over (or this owner dispatched the call itself).
    pub(super) known: bool,
    pub(super) reading: bool,
    pub(super) writing: bool,
    /// When this owner first saw the claim, boot clock.
    pub(super) claim_seen: Option<u64>,
    /// When this owner first saw the call, boot clock.
    pub(super) call_seen: u64,
    /// The attempt's fate could not be learned from a living worker at some time.
    pub(super) orphan: bool,
    pub(super) inspected: Option<InspectAnswer>,
    pub(super) inspecting: bool,
    pub(super) probe: ProbeSlot,
    pub(super) probes: u32,
    /// When the probe was asked last, boot clock.
    pub(super) probe_asked: u64,
    /// The ladder has not looked at what was read or heard last.
    pub(super) fresh: bool,
    /// When the ladder wants to look again, boot clock.
    pub(super) wait: Option<u64>,
    next_read: u64,
    read_gap: u64,
}

impl Watch {
    pub(super) fn dispatched(
        key: ChainKey,
        class: SideEffect,
        seq: Seq,
        envelope: Body,
        boot: u64,
    ) -> Self {
        let mut watch = Self::found(key, class, boot);
        let writer = crate::ids::RUNTIME_TOKEN.to_owned();
        watch.chain.push(
            class,
            &ChainMessage {
                seq,
                expected: None,
                link: Link::Call,
                writer,
                body: envelope,
            },
        );
        watch.known = true;
        watch
    }

    pub(super) fn found(key: ChainKey, class: SideEffect, boot: u64) -> Self {
        Self {
            key,
            class,
            chain: Chain::default(),
            notes: Vec::new(),
            known: false,
            reading: false,
            writing: false,
            claim_seen: None,
            call_seen: boot,
            orphan: false,
            inspected: None,
            inspecting: false,
            probe: ProbeSlot::Idle,
            probes: 0,
            probe_asked: 0,
            fresh: false,
            wait: None,
            next_read: boot.saturating_add(FIRST_READ_MS),
            read_gap: FIRST_READ_MS,
        }
    }

    /// When time alone makes something due. While an answer is on its way, that answer is waited for.
    pub(super) fn wakes_at(&self) -> Option<u64> {
        if self.reading || self.writing || self.probe == ProbeSlot::Asked {
            return None;
        }
        let later = match self.probe {
            ProbeSlot::Later(at) => Some(at),
            _ => None,
        };
        [Some(self.next_read), self.wait, later]
            .into_iter()
            .flatten()
            .min()
    }

    /// By when the worker's deadline has passed, boot clock: exec_timeout after the first sight of the claim, and a hundredth for a clock
    /// that runs slow.
    pub(super) fn deadline_by(&self) -> Option<u64> {
        let timeout = self.chain.call.as_ref()?.1.timeout_ms;
        let deadline = self.claim_seen?.saturating_add(timeout);
        Some(deadline.saturating_add(timeout / 100))
    }

    /// Asks for the chain and the notes.
    fn read(&mut self) -> Effect {
        self.reading = true;
        Effect::ReadChain {
            chain: self.key.clone(),
        }
    }

    /// An answer is on its way.
    pub(super) fn busy(&self) -> bool {
        self.reading || self.writing || self.inspecting || self.probe == ProbeSlot::Asked
    }

    /// Whether an answer has to be asked for again because it was given before `closed`; if so, when is noted.
    pub(super) fn wait_probe_after(&mut self, closed: u64, boot: u64) -> bool {
        let early = self.probe_asked <= closed;
        if early {
            self.probe = ProbeSlot::Later(closed.saturating_add(1).max(boot));
        }
        early
    }

    fn saw(&mut self, boot: u64) {
        self.fresh = true;
        if matches!(self.chain.claim, Some((_, ClaimBody::Claim { .. })))
            && self.claim_seen.is_none()
        {
            self.claim_seen = Some(boot);
        }
    }
}

impl RunMachine {
    /// A new owner looks at every open attempt before it does anything about it; so does an owner whose question about one was withdrawn.
    pub(super) fn take_over(&mut self) {
        let open: Vec<ChainKey> = self
            .state
            .current_steps()
            .iter()
            .filter(|step| step.phase.has_open_attempt())
            .filter_map(|step| {
                let latest = step.latest()?;
                Some(ChainKey {
                    run: self.state.run.clone(),
                    tool: step.accepted.as_ref()?.tool.clone(),
                    step: step.id,
                    attempt: latest.attempt,
                    origin: latest.origin.clone(),
                })
            })
            .collect();
        for key in open {
            let class = self.class(&key.tool);
            self.watches
                .entry(key.step)
                .or_insert_with(|| Watch::found(key, class, self.now.boot));
        }
    }

    /// Reads every chain whose time has come.
    pub(super) fn read_due(&mut self) {
        for watch in self.watches.values_mut() {
            let due = !watch.known || self.now.boot >= watch.next_read;
            if due && !watch.reading {
                if watch.known {
                    watch.read_gap = watch.read_gap.saturating_mul(2).min(LAST_READ_MS);
                }
                watch.next_read = self.now.boot.saturating_add(watch.read_gap);
                watch.inspected = None;
                self.out.push(watch.read());
            }
        }
    }

    pub(super) fn hint(&mut self, hint: &Hint) {
        let boot = self.now.boot;
        let Some(watch) = self
            .watches
            .get_mut(&hint.chain.step)
            .filter(|watch| watch.key == hint.chain)
        else {
            return;
        };
        match &hint.message {
            Some(message) if message.seq <= watch.chain.last => {}
            Some(message) if watch.known && watch.chain.follows(message) => {
                watch.chain.push(watch.class, message);
                watch.saw(boot);
            }
            _ if !watch.reading => self.out.push(watch.read()),
            // A read is on its way and may have missed this: the next scheduled read will not.
            _ => watch.next_read = boot,
        }
    }

    pub(super) fn chain_read(
        &mut self,
        step: StepId,
        attempt: Attempt,
        messages: &[ChainMessage],
        notes: &[NoteMessage],
    ) {
        let boot = self.now.boot;
        let Some(watch) = self
            .watches
            .get_mut(&step)
            .filter(|watch| watch.key.attempt == attempt)
        else {
            return;
        };
        let chain = Chain::read(watch.class, messages);
        // A read may be older than a hint that was taken in; registers never lose what they held.
        if chain.last >= watch.chain.last {
            watch.chain = chain;
        }
        watch.notes = watch.chain.notes(notes);
        let first = !watch.known;
        (watch.known, watch.reading, watch.writing) = (true, false, false);
        let claimed = watch.chain.claim.is_some() && !watch.chain.revoked();
        if (first && claimed) || !watch.notes.is_empty() {
            watch.orphan = true;
        }
        watch.saw(boot);
    }

    pub(super) fn register_tried(&mut self, step: StepId, attempt: Attempt) {
        // Whatever the answer was: what stands there decides.
        if let Some(watch) = self
            .watches
            .get_mut(&step)
            .filter(|watch| watch.key.attempt == attempt)
        {
            self.out.push(watch.read());
        }
    }

    pub(super) fn inspected(&mut self, step: StepId, attempt: Attempt, answer: InspectAnswer) {
        if let Some(watch) = self
            .watches
            .get_mut(&step)
            .filter(|watch| watch.key.attempt == attempt && watch.inspecting)
        {
            watch.inspecting = false;
            watch.inspected = Some(answer);
            if answer == InspectAnswer::Settled && !watch.reading {
                self.out.push(watch.read());
            }
        }
    }

    pub(super) fn probed(&mut self, step: StepId, attempt: Attempt, answer: ProbeReply) {
        if let Some(watch) = self
            .watches
            .get_mut(&step)
            .filter(|watch| watch.key.attempt == attempt)
            && watch.probe == ProbeSlot::Asked
        {
            watch.probe = ProbeSlot::Answered(answer);
        }
    }

    /// The steps whose open attempt the ladder may have something to say about.
    pub(super) fn open_attempts(&self) -> Vec<(StepId, Phase)> {
        let steps = self.state.current_steps().iter();
        steps
            .filter(|step| step.phase.has_open_attempt())
            .map(|step| (step.id, step.phase.clone()))
            .collect()
    }
}
