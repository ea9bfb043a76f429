//! A worker's side of one attempt: from the delivered call to the outcome that everybody can read.
//!
//! The order is the promise: claim and `armed` are durable before the effect, the outcome is offered to the register and written to the
//! logbook after it, the call is acknowledged last. [`AttemptEffect::Execute`] carries a [`Recorded`] intent, which only this module can
//! make, from a stored call, a claim that is ours and an armed logbook. Whatever is unclear ends in evidence, never in "it did not happen".

mod io;
mod outcome;
mod resolve;

use leasehold_tools::{Failure, SideEffect};

pub use io::{
    AttemptEffect, AttemptInput, Execution, Intent, LogbookAnswer, Recorded, ToolReturn,
    WorkerIdentity, WriteAnswer,
};

use crate::chain::{Chain, ChainMessage};
use crate::ids::{ChainKey, ClaimId, Seq};
use crate::run::Now;
use crate::wire::{
    Armed, Body, CallEnvelope, ClaimBody, LogbookRecord, NoteKind, OutcomeBody, WIRE_VERSION,
};

/// A deliberate weakening, for the negative controls that show the checkers can fail. Never set in production.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WorkerWeakening {
    /// None.
    #[default]
    None,
    /// Executes on every delivery, whoever holds the claim, and never arms.
    SkipClaim,
    /// Reads a logbook that cannot be read as one that holds nothing.
    ErrorIsAbsence,
    /// Reads an error that says nothing about the effect as "nothing happened".
    ErrorIsNothing,
}

/// Where the attempt stands on this worker.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    /// The chain is being read, to decide whether to begin.
    Looking,
    /// Claim and `armed` are on their way.
    Gate { claimed: Option<Seq>, armed: bool },
    /// The gate cannot be passed any more, and the claim is still on its way.
    Refused { why: String },
    /// The effect may be happening.
    Running,
    /// The outcome is on its way to the register.
    Publishing {
        outcome: OutcomeBody,
        stored: bool,
        logged: bool,
    },
    /// A note is on its way; then the attempt is over here.
    Noting,
    /// A predecessor's attempt: the logbook is being read.
    Consulting { claim: ClaimId },
    /// A predecessor's attempt that was never armed: the tombstone is on its way.
    Burying { claim: ClaimId },
    /// Nothing more happens here.
    Over,
}

/// One attempt on one worker.
#[derive(Debug, Clone)]
pub struct AttemptMachine {
    me: WorkerIdentity,
    class: SideEffect,
    key: ChainKey,
    /// Fresh bits, used if this machine claims.
    claim: ClaimId,
    /// The claim that an outcome or note belongs to; absent of a read_only call.
    for_claim: Option<ClaimId>,
    /// The claim was made by a life that may still run, on the machine that the logbook was moved from.
    elsewhere: bool,
    /// Only settle what a predecessor left; never execute.
    resolving: bool,
    call: Option<(Seq, CallEnvelope)>,
    chain: Chain,
    stage: Stage,
    deadline_boot: u64,
    deadline_wall: i64,
    /// The runtime has written that the deadline passed; the tool may still return.
    timed_out: bool,
    /// The note of the passed deadline is on its way.
    noting_timeout: bool,
    delivered: Option<Seq>,
}

impl AttemptMachine {
    /// A call was delivered. `claim` are fresh random bits. A first delivery is claimed without a read; a repeated one is looked at first.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is one fact of the delivery, and none of them has a default"
    )]
    pub fn deliver(
        me: WorkerIdentity,
        class: SideEffect,
        key: ChainKey,
        seq: Seq,
        envelope: CallEnvelope,
        redelivered: bool,
        claim: ClaimId,
        now: Now,
    ) -> (Self, Vec<AttemptEffect>) {
        let timeout = envelope.timeout_ms;
        let mut machine = Self {
            me,
            class,
            key,
            claim,
            for_claim: None,
            elsewhere: false,
            resolving: false,
            chain: Chain::default(),
            stage: Stage::Looking,
            deadline_boot: now.boot.saturating_add(timeout),
            deadline_wall: now
                .wall
                .saturating_add(i64::try_from(timeout).unwrap_or(i64::MAX)),
            timed_out: false,
            noting_timeout: false,
            delivered: Some(seq),
            call: Some((seq, envelope)),
        };
        let mut out = Vec::new();
        if class.is_read_only() || redelivered || machine.me.weakening == WorkerWeakening::SkipClaim
        {
            out.push(AttemptEffect::ReadChain);
        } else {
            machine.claim_and_arm(seq, &mut out);
        }
        (machine, out)
    }

    /// Settle what a predecessor of this worker left of an attempt, without executing anything.
    pub fn resolve(
        me: WorkerIdentity,
        class: SideEffect,
        key: ChainKey,
        claim: ClaimId,
    ) -> (Self, Vec<AttemptEffect>) {
        let machine = Self {
            me,
            class,
            key,
            claim,
            for_claim: None,
            elsewhere: false,
            resolving: true,
            call: None,
            chain: Chain::default(),
            stage: Stage::Looking,
            deadline_boot: 0,
            deadline_wall: 0,
            timed_out: false,
            noting_timeout: false,
            delivered: None,
        };
        (machine, vec![AttemptEffect::ReadChain])
    }

    /// The attempt.
    pub fn key(&self) -> &ChainKey {
        &self.key
    }

    /// Whether the effect may be happening right now: what an inspection calls `running`. Past the deadline it is not claimed any more.
    pub fn is_running(&self) -> bool {
        matches!(self.stage, Stage::Gate { .. } | Stage::Running) && !self.timed_out
    }

    /// Whether nothing more happens here.
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// When the runtime gives the tool up, milliseconds of the boot clock.
    pub fn deadline_boot(&self) -> u64 {
        self.deadline_boot
    }

    /// Takes an input in. `authority` is read by the shell at this very moment: nothing is awaited between it and what comes out.
    pub fn step(&mut self, now: Now, authority: bool, input: AttemptInput) -> Vec<AttemptEffect> {
        let mut out = Vec::new();
        match input {
            AttemptInput::ChainRead { messages } => {
                self.chain_read(now, authority, &messages, &mut out)
            }
            AttemptInput::ClaimTried(answer) => self.claim_tried(now, authority, answer, &mut out),
            AttemptInput::LogbookTried(answer) => {
                self.logbook_tried(now, authority, answer, &mut out)
            }
            AttemptInput::Returned(returned) => self.returned(returned, &mut out),
            AttemptInput::Deadline => self.deadline(now, &mut out),
            AttemptInput::OutcomeTried(answer) => self.outcome_tried(answer, &mut out),
            AttemptInput::OutcomeLogged(result) => self.outcome_logged(result, &mut out),
            AttemptInput::NoteTried => self.note_tried(&mut out),
            AttemptInput::LogbookRead(result) => self.logbook_read(result, &mut out),
        }
        out
    }

    fn claim_and_arm(&mut self, call: Seq, out: &mut Vec<AttemptEffect>) {
        self.stage = Stage::Gate {
            claimed: None,
            armed: false,
        };
        self.for_claim = Some(self.claim.clone());
        out.push(self.write_claim(call));
        out.push(AttemptEffect::CreateRecord {
            record: LogbookRecord::Armed(self.armed(call)),
        });
    }

    fn armed(&self, call: Seq) -> Armed {
        let claim = self.for_claim.clone().unwrap_or_else(|| self.claim.clone());
        Armed {
            claim,
            incarnation: self.me.incarnation.clone(),
            call,
        }
    }

    fn chain_read(
        &mut self,
        now: Now,
        authority: bool,
        messages: &[ChainMessage],
        out: &mut Vec<AttemptEffect>,
    ) {
        self.chain = Chain::read(self.class, messages);
        if self.chain.newer {
            // Left to a newer binary: no acknowledgement, so that it is delivered to one.
            return self.over(out);
        }
        match self.stage.clone() {
            Stage::Looking => self.look(now, authority, out),
            Stage::Gate {
                claimed: None,
                armed,
            } => self.whose_claim(now, authority, armed, out),
            Stage::Refused { why } => self.whose_refusal(why, out),
            Stage::Publishing {
                outcome, logged, ..
            } => self.reread_outcome(outcome, logged, out),
            _ => {}
        }
    }

    /// The first look at a chain: of a read_only call, of a repeated delivery, or of a predecessor's attempt.
    fn look(&mut self, now: Now, authority: bool, out: &mut Vec<AttemptEffect>) {
        let Some((call, _)) = self.chain.call.clone() else {
            // The call is not the chain's first message: a restored or purged attempt. It is never claimed.
            return self.acknowledge(out);
        };
        let claim = self.chain.claim.clone();
        if self.chain.outcome.is_some() || self.chain.revoked() {
            return self.late(claim, out);
        }
        if self.me.weakening == WorkerWeakening::SkipClaim
            && !self.class.is_read_only()
            && !self.resolving
        {
            return self.execute_without_claim(now, claim, out);
        }
        match claim {
            None if self.resolving => self.acknowledge(out),
            None if self.class.is_read_only() => {
                if self.chain.last == call {
                    self.execute(now, authority, out)
                } else {
                    self.acknowledge(out)
                }
            }
            None => {
                // Void messages may follow the call: expect what is there.
                let expected = self.chain.last;
                self.claim_and_arm(expected, out);
            }
            Some((
                _,
                ClaimBody::Claim {
                    claim,
                    worker,
                    incarnation,
                    logbook,
                    ..
                },
            )) if worker == self.me.worker => {
                if incarnation == self.me.incarnation && !self.resolving {
                    // Another machine of this process has it.
                    return self.acknowledge(out);
                }
                self.consult(claim, &incarnation, logbook, out);
            }
            Some(_) => self.acknowledge(out),
        }
    }

    /// The register is taken. If an earlier life of this worker claimed, its logbook may hold a truth that the register does not.
    fn late(&mut self, claim: Option<(Seq, ClaimBody)>, out: &mut Vec<AttemptEffect>) {
        match claim {
            Some((
                _,
                ClaimBody::Claim {
                    claim,
                    worker,
                    incarnation,
                    logbook,
                    ..
                },
            )) if worker == self.me.worker
                && logbook == self.me.logbook
                && (self.resolving || incarnation != self.me.incarnation) =>
            {
                self.consult(claim, &incarnation, logbook, out);
            }
            _ => {
                out.push(AttemptEffect::Published);
                self.acknowledge(out);
            }
        }
    }

    /// The claim was refused, or nobody knows: is the one that counts ours?
    fn whose_claim(
        &mut self,
        now: Now,
        authority: bool,
        armed: bool,
        out: &mut Vec<AttemptEffect>,
    ) {
        match self.chain.claim.clone() {
            Some((seq, ClaimBody::Claim { claim, .. })) if claim == self.claim => {
                self.stage = Stage::Gate {
                    claimed: Some(seq),
                    armed,
                };
                self.gate(now, authority, out);
            }
            Some((
                _,
                ClaimBody::Claim {
                    claim,
                    worker,
                    incarnation,
                    logbook,
                    ..
                },
            )) if worker == self.me.worker && incarnation != self.me.incarnation => {
                self.consult(claim, &incarnation, logbook, out)
            }
            Some(_) => self.acknowledge(out),
            None => {
                // Not there: publish the same claim again until the answer is definite.
                self.claim_again(out);
            }
        }
    }

    /// This machine's one claim: the same bytes however often it is offered.
    fn write_claim(&self, expected: Seq) -> AttemptEffect {
        let body = ClaimBody::Claim {
            v: WIRE_VERSION,
            claim: self.claim.clone(),
            worker: self.me.worker.clone(),
            incarnation: self.me.incarnation.clone(),
            logbook: self.me.logbook.clone(),
        };
        AttemptEffect::WriteClaim {
            expected,
            body: Body::from(body.encode()),
        }
    }

    /// Offers the claim again, after the chain as it was read; a chain without a call is never claimed.
    fn claim_again(&mut self, out: &mut Vec<AttemptEffect>) {
        if self.chain.call.is_some() {
            out.push(self.write_claim(self.chain.last));
        } else {
            self.acknowledge(out);
        }
    }

    fn claim_tried(
        &mut self,
        now: Now,
        authority: bool,
        answer: WriteAnswer,
        out: &mut Vec<AttemptEffect>,
    ) {
        if let (Stage::Refused { why }, WriteAnswer::Stored(seq)) = (&self.stage, answer) {
            let fact = OutcomeBody::NotStarted { why: why.clone() };
            return self.publish_unlogged(fact, seq, out);
        }
        let armed = match self.stage {
            Stage::Gate {
                claimed: None,
                armed,
            } => armed,
            Stage::Refused { .. } => false,
            _ => return,
        };
        match answer {
            WriteAnswer::Stored(seq) => {
                self.stage = Stage::Gate {
                    claimed: Some(seq),
                    armed,
                };
                self.gate(now, authority, out);
            }
            WriteAnswer::Refused | WriteAnswer::Unknown => out.push(AttemptEffect::ReadChain),
        }
    }

    fn logbook_tried(
        &mut self,
        now: Now,
        authority: bool,
        answer: LogbookAnswer,
        out: &mut Vec<AttemptEffect>,
    ) {
        match (&self.stage, answer) {
            (Stage::Gate { claimed, .. }, LogbookAnswer::Written) => {
                self.stage = Stage::Gate {
                    claimed: *claimed,
                    armed: true,
                };
                self.gate(now, authority, out);
            }
            // An older record of this attempt, made for another claim: nothing ever passed the gate under ours.
            (Stage::Gate { claimed, .. }, LogbookAnswer::Present(_)) => {
                let why = "the logbook holds an older record of this attempt; nothing was begun";
                self.refuse_gate(*claimed, why.to_owned(), out);
            }
            (Stage::Gate { claimed, .. }, LogbookAnswer::Failed(error)) => {
                self.refuse_gate(
                    *claimed,
                    format!("the logbook could not arm: {error}; nothing was begun"),
                    out,
                );
            }
            (Stage::Burying { .. }, answer) => self.buried(answer, out),
            _ => {}
        }
    }

    /// The gate cannot be passed any more. The claim may still be on its way: its answer decides whether there is anything to say.
    fn refuse_gate(&mut self, claimed: Option<Seq>, why: String, out: &mut Vec<AttemptEffect>) {
        match claimed {
            Some(seq) => self.publish_unlogged(OutcomeBody::NotStarted { why }, seq, out),
            // A chain read now may miss a claim that still arrives: the claim's own answer is waited for.
            None => self.stage = Stage::Refused { why },
        }
    }

    /// The claim's answer was not definite, and the gate cannot be passed: if the claim that counts is ours, say that nothing was begun.
    fn whose_refusal(&mut self, why: String, out: &mut Vec<AttemptEffect>) {
        match self.chain.claim.clone() {
            Some((seq, ClaimBody::Claim { claim, .. })) if claim == self.claim => {
                let expected = self.chain.last.max(seq);
                self.publish_unlogged(OutcomeBody::NotStarted { why }, expected, out);
            }
            Some(_) => self.acknowledge(out),
            // Claimed and given back: that costs one attempt, and the next one is not refused by this record.
            None => self.claim_again(out),
        }
    }

    /// The last gate: the claim is ours, `armed` is durable, authority holds, the deadline has not passed. Nothing is awaited after it.
    fn gate(&mut self, now: Now, authority: bool, out: &mut Vec<AttemptEffect>) {
        let Stage::Gate {
            claimed: Some(claimed),
            armed: true,
        } = self.stage
        else {
            return;
        };
        if !authority {
            // A successor finds the attempt armed and says what it knows: unsure.
            return self.over(out);
        }
        if now.boot >= self.deadline_boot {
            let why = "the deadline had passed before the effect could begin".to_owned();
            return self.publish(OutcomeBody::NotStarted { why }, claimed, out);
        }
        self.chain.last = claimed;
        self.execute(now, authority, out);
    }

    fn execute(&mut self, now: Now, authority: bool, out: &mut Vec<AttemptEffect>) {
        let Some((call, envelope)) = self.call.clone() else {
            return self.acknowledge(out);
        };
        if !authority {
            return self.over(out);
        }
        self.stage = Stage::Running;
        let intent = Recorded::of(Intent {
            chain: self.key.clone(),
            call,
            claim: self.for_claim.clone(),
        });
        out.push(AttemptEffect::Execute(Execution {
            intent,
            envelope,
            time_left_ms: self.deadline_boot.saturating_sub(now.boot),
            deadline_wall: self.deadline_wall,
        }));
    }

    /// Negative control: what a runtime without a believed claim does.
    fn execute_without_claim(
        &mut self,
        now: Now,
        claim: Option<(Seq, ClaimBody)>,
        out: &mut Vec<AttemptEffect>,
    ) {
        match claim {
            Some((_, ClaimBody::Claim { claim, .. })) => self.for_claim = Some(claim),
            _ => {
                self.for_claim = Some(self.claim.clone());
                out.push(self.write_claim(self.chain.last));
            }
        }
        self.execute(now, true, out);
    }

    fn deadline(&mut self, now: Now, out: &mut Vec<AttemptEffect>) {
        if self.stage != Stage::Running || self.timed_out || now.boot < self.deadline_boot {
            return;
        }
        self.timed_out = true;
        out.push(AttemptEffect::CancelTool);
        // Whether or not the tool ever returns: the run's owner must not wait for it.
        if !self.class.is_read_only() {
            self.noting_timeout = true;
            let message = "the deadline passed before the tool answered".to_owned();
            out.push(self.note(
                NoteKind::MayHaveHappened {
                    failure: Failure::Timeout,
                    message,
                },
                false,
            ));
        }
    }

    /// No more deliveries, nothing more to do.
    fn acknowledge(&mut self, out: &mut Vec<AttemptEffect>) {
        if let Some(seq) = self.delivered {
            out.push(AttemptEffect::AckCall { seq });
        }
        self.over(out);
    }

    fn over(&mut self, out: &mut Vec<AttemptEffect>) {
        if self.stage != Stage::Over {
            self.stage = Stage::Over;
            out.push(AttemptEffect::Over);
        }
    }
}
