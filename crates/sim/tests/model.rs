//! The model at its bound: no promise broken, nothing stuck, everything it is about seen; and weakenings that it finds.

use leasehold_protocol::{RunWeakening, WorkerWeakening};
use leasehold_sim::{Bound, Checked};

/// Checks everything within the bound and says how much that was.
fn exhaust(what: &str, bound: Bound) -> Checked {
    let checked = bound.check();
    println!(
        "{what}: {} states, {} transitions, depth {}",
        checked.states, checked.transitions, checked.depth
    );
    assert!(checked.broken.is_empty(), "{what}: {:#?}", checked.broken);
    checked
}

#[test]
fn probe() {
    for faults in 0..2 {
        for fencing in [false, true] {
            let c = exhaust(&format!("{faults} {fencing}"), Bound::new(faults, fencing));
            println!("never {:?}", c.never);
        }
    }
}

#[test]
fn weak() {
    let mut b = Bound::new(2, false);
    b.run = RunWeakening::NoSeal;
    println!("{:#?}", b.check());
    let mut b = Bound::new(2, false);
    b.worker = WorkerWeakening::SkipClaim;
    println!("{:#?}", b.check());
}
