//! What is written: commits and their events, register and evidence bodies, call envelopes, inbox messages.
//!
//! Each body is one line of JSON without white space between tokens, fields in the order of the structs here, absent optional fields left
//! out. Foreign JSON (decisions, arguments, results) stands in it as a *string* of its exact bytes, so that no JSON tool on the way can
//! round a number. Reading refuses unknown fields and unknown kinds; a body of a higher version is [`WireError::Newer`], which is never
//! skipped: whoever meets it lets go of the run. `docs/protocol.md` is the table of all this, with golden bytes that tests read.

mod body;
mod commit;
mod event;
mod inbox;
mod question;
mod register;

pub use body::Body;
pub use commit::{Commit, JournalSubject, StoredCommit};
pub use event::{
    Basis, Decision, Event, Fate, Finding, InFlight, InboxAnswer, Limits, Observation,
    ObservationKind, OfferedTool, Reason, Status, Verdict,
};
pub use inbox::{CancelRequest, DecideRequest, Submission};
pub use question::{LostOwner, Question};
pub use register::{
    Armed, CallEnvelope, ClaimBody, LogbookRecord, Note, NoteKind, Outcome, OutcomeBody, Payload,
    RevokeReason, Sealed,
};

pub(crate) use register::sealed_trust;

use leasehold_json::{AcceptedJson, Refusal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

/// The version that this code writes, and the highest that it reads.
pub const WIRE_VERSION: u32 = 1;

/// Largest body in bytes that this code writes inline; larger values go to blobs first.
pub const MAX_INLINE: usize = 64 * 1024;

/// Why a stored body cannot be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WireError {
    /// Written by a newer version: leave it to newer binaries.
    #[error(
        "written by version {found} of the format; this binary reads up to {WIRE_VERSION}: use a newer binary"
    )]
    Newer {
        /// The version found.
        found: u32,
    },
    /// No usable JSON.
    #[error("not usable JSON: {0}")]
    Json(#[from] Refusal),
    /// JSON of another shape.
    #[error("not a {what}: {detail}")]
    Shape {
        /// What was expected.
        what: &'static str,
        /// The decoder's words.
        detail: String,
    },
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

/// Reads what stands beside the tag of a variant without fields: nothing. Such a variant needs it, because serde looks at the tag alone
/// there, whatever `deny_unknown_fields` says.
pub(crate) fn tag_only<'de, D: Deserializer<'de>>(beside: D) -> Result<(), D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Nothing {}
    Nothing::deserialize(beside).map(|Nothing {}| ())
}

/// Encodes a body. Infallible for the types of this module: they hold no maps with non-text keys and no foreign serialisers.
pub(crate) fn encode<T: Serialize>(body: &T) -> Vec<u8> {
    // The types here cannot fail to serialise; an empty body would be refused by every reader, so it cannot pass unnoticed either.
    serde_json::to_vec(body).unwrap_or_default()
}

/// Decodes a body and checks its version first, so that a newer one is told apart from a broken one.
pub(crate) fn decode<T: DeserializeOwned>(
    what: &'static str,
    bytes: &[u8],
) -> Result<T, WireError> {
    let json = AcceptedJson::check(bytes)?;
    let shape = |e: serde_json::Error| WireError::Shape {
        what,
        detail: e.to_string(),
    };
    let Version { v } = json.parse().map_err(shape)?;
    if v > WIRE_VERSION {
        return Err(WireError::Newer { found: v });
    }
    json.parse().map_err(shape)
}
