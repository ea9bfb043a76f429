//! Only folding a journal yields an epoch.
use leasehold_protocol::Epoch;

fn main() {
    let _ = Epoch(7);
    let _ = Epoch::NONE.next();
    let _: Epoch = 7.into();
}
