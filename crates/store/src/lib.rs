//! What the runtime asks of a store. Two backends answer: `embedded` (sled, one process) and `nats` (JetStream).
//!
//! Every trait says what is true once its method has returned. Three answers are kept apart everywhere, because everything else rests on
//! it: *stored*, *definitely not stored*, and *unknown*. An error is never read as "it did not happen", a missing record never as "it was
//! never there".
//!
//! `conformance` (behind the feature of that name) is the suite that both backends pass.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod authority;
mod clock;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod error;
mod logbook;
mod traits;

pub use authority::{Authority, LocalAuthority};
pub use clock::{Clock, SystemClock};
pub use error::{AppendError, StoreError, SubmitError};
pub use logbook::{ArmAnswer, Logbook, LogbookError};
pub use traits::{
    Appended, Backend, Blobs, CallQueue, Delivery, Inbox, InboxKind, InboxMessage, Inspection,
    Inspections, JournalAppend, Lease, LeaseRecord, Leases, Register, Registers, RunHead, RunLog,
    SharedBackend, TimerEntry, Timers,
};
