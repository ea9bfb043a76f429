//! Reading a chain: which message of an attempt's call, claim and outcome counts.
//!
//! Position decides. The call must be the first message. The claim is the first claim or revocation after it. The outcome is the first
//! outcome after the claim that is written by the claim's worker or by the runtime (of a read_only call: by anyone, straight after the
//! call). Every other message is void, changes nothing and is counted. A chain is never read from its end.

use leasehold_tools::SideEffect;
use serde::{Deserialize, Serialize};

use crate::ids::{ChainKey, Seq};
use crate::wire::{Body, CallEnvelope, ClaimBody, Note, Outcome};

/// Which message of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// The call (a journal commit; the body here is its envelope).
    Call,
    /// The claim register.
    Claim,
    /// The outcome register.
    Outcome,
}

/// A message of a chain, as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainMessage {
    /// Its position.
    pub seq: Seq,
    /// The chain's last position that its writer expected; absent of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Seq>,
    /// Which link.
    pub link: Link,
    /// The writer's subject token.
    pub writer: String,
    /// Its bytes.
    pub body: Body,
}

/// An evidence note, as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoteMessage {
    /// Its position.
    pub seq: Seq,
    /// The writer's subject token.
    pub writer: String,
    /// Its bytes.
    pub body: Body,
}

/// A message that a store republished to the dispatching session: a hint, at most once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hint {
    /// The chain it belongs to.
    pub chain: ChainKey,
    /// The message. Absent: something happened (a note, say); read again.
    pub message: Option<ChainMessage>,
}

/// What a chain says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chain {
    /// The call's position and envelope.
    pub call: Option<(Seq, CallEnvelope)>,
    /// The claim or revocation that counts.
    pub claim: Option<(Seq, ClaimBody)>,
    /// The outcome that counts.
    pub outcome: Option<(Seq, Outcome)>,
    /// The last position, void messages included: what a writer expects.
    pub last: Seq,
    /// Messages that count for nothing.
    pub void: u32,
    /// A link that counts was written by a newer version: leave the run to newer binaries.
    pub newer: bool,
}

impl Chain {
    /// Reads the messages of one chain, in order of position. `class` decides who may write the outcome.
    pub fn read(class: SideEffect, messages: &[ChainMessage]) -> Self {
        let mut chain = Chain::default();
        for message in messages {
            chain.push(class, message);
        }
        chain
    }

    /// Takes the next message in. The caller has made sure that none lies between `last` and it.
    pub fn push(&mut self, class: SideEffect, message: &ChainMessage) {
        if message.seq <= self.last {
            return;
        }
        let first = self.last == Seq::NONE;
        self.last = message.seq;
        let counted = match message.link {
            // A call that is not the first message is a restored or purged attempt: it is never claimed.
            Link::Call => first && self.take_call(message),
            Link::Claim => {
                self.call.is_some()
                    && self.claim.is_none()
                    && self.outcome.is_none()
                    && self.take_claim(message)
            }
            Link::Outcome => {
                self.call.is_some() && self.outcome.is_none() && self.take_outcome(class, message)
            }
        };
        if !counted {
            self.void = self.void.saturating_add(1);
        }
    }

    /// Whether a hint may be taken in without reading: its writer saw exactly what we have seen.
    pub fn follows(&self, message: &ChainMessage) -> bool {
        self.last != Seq::NONE && message.expected == Some(self.last)
    }

    fn take_call(&mut self, message: &ChainMessage) -> bool {
        match CallEnvelope::decode(message.body.as_bytes()) {
            Ok(envelope) => self.call = Some((message.seq, envelope)),
            Err(error) => return self.unread(&error),
        }
        true
    }

    fn take_claim(&mut self, message: &ChainMessage) -> bool {
        let claim = match ClaimBody::decode(message.body.as_bytes()) {
            Ok(claim) => claim,
            Err(error) => return self.unread(&error),
        };
        let by = match &claim {
            ClaimBody::Claim { worker, .. } => worker.token(),
            ClaimBody::Revoke { .. } => crate::ids::RUNTIME_TOKEN.to_owned(),
        };
        // Who may write a subject is the store's permission; the body has to agree with it.
        if by != message.writer {
            return false;
        }
        self.claim = Some((message.seq, claim));
        true
    }

    fn take_outcome(&mut self, class: SideEffect, message: &ChainMessage) -> bool {
        let outcome = match Outcome::decode(message.body.as_bytes()) {
            Ok(outcome) => outcome,
            Err(error) => return self.unread(&error),
        };
        let by_runtime = message.writer == crate::ids::RUNTIME_TOKEN;
        let allowed = match &self.claim {
            Some((_, ClaimBody::Claim { worker, claim, .. })) => {
                by_runtime
                    || (worker.token() == message.writer && outcome.claim.as_ref() == Some(claim))
            }
            Some((_, ClaimBody::Revoke { .. })) => by_runtime,
            None => class == SideEffect::ReadOnly,
        };
        if allowed {
            self.outcome = Some((message.seq, outcome));
        }
        allowed
    }

    fn unread(&mut self, error: &crate::wire::WireError) -> bool {
        if matches!(error, crate::wire::WireError::Newer { .. }) {
            self.newer = true;
        }
        false
    }

    /// Whether the claim register holds a revocation.
    pub fn revoked(&self) -> bool {
        matches!(self.claim, Some((_, ClaimBody::Revoke { .. })))
    }

    /// The notes that count: those by the claim's worker for this claim, or of an unclaimed (read_only) call by anyone; unreadable ones
    /// count for nothing.
    pub fn notes(&self, messages: &[NoteMessage]) -> Vec<Note> {
        messages
            .iter()
            .filter_map(|message| {
                let note = Note::decode(message.body.as_bytes()).ok()?;
                match &self.claim {
                    Some((_, ClaimBody::Claim { worker, claim, .. })) => {
                        (worker.token() == message.writer && note.claim.as_ref() == Some(claim))
                            .then_some(note)
                    }
                    Some((_, ClaimBody::Revoke { .. })) => None,
                    None => Some(note),
                }
            })
            .collect()
    }
}
