//! An intent is recorded by the attempt's machine and by nobody else.
use leasehold_protocol::{Intent, Recorded};

fn forge(intent: Intent) -> Recorded<Intent> {
    Recorded(intent)
}

fn forge_by_name(intent: Intent) -> Recorded<Intent> {
    Recorded::of(intent)
}

fn main() {}
