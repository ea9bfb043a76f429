//! The protocol derives these; nobody derives them for it.
use leasehold_protocol::{ApprovalId, CommitId, Epoch, SessionId, StepId};

fn commit(session: &SessionId) -> CommitId {
    CommitId::derive(session, Epoch::NONE, 1)
}

fn approval(step: StepId) -> ApprovalId {
    ApprovalId::derive(Some(step), 1)
}

fn main() {}
