//! A further attempt follows from a journal, not from a number.
use leasehold_protocol::Attempt;

fn main() {
    let _ = Attempt(2);
    let _ = Attempt::FIRST.next();
    let _: Attempt = 2.into();
}
