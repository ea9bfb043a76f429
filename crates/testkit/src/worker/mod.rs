//! The suite that a worker process passes: each row of the worker's side of the protocol as a case named after what it proves.
//!
//! A worker implements [`Rig`]: how its process is started, and how its effects are counted from outside. Then
//! [`worker_conformance_tests!`](crate::worker_conformance_tests) makes one test per case, each on a fresh nats-server. The suite plays
//! the node: it dispatches calls, revokes, seals and asks, and reads registers and notes, through the same store that nodes use.
//!
//! The worker serves the tool `publish`, a remote mutation whose arguments are `{"text": "..."}`: it publishes one text.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a suite of tests: a broken promise is a panic"
)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

pub mod crashes;
mod disk;
pub mod evidence;
pub mod gate;
mod stage;

pub use stage::Stage;

/// The tool that the worker serves.
pub const TOOL: &str = "publish";

/// A moment at which the worker can be told to stand still, so that a kill hits exactly there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The claim is stored and acknowledged, nothing is armed.
    AfterClaim,
    /// Claimed and armed, the effect is not begun.
    Armed,
    /// The effect has happened, nothing of it is written.
    Effect,
    /// The outcome is in the worker's own durable store and not in the register.
    Logged,
}

/// What a life of the worker is started with.
#[derive(Debug, Clone)]
pub struct Life {
    /// Where NATS is.
    pub nats: String,
    /// The worker's name, the same in each of its lives.
    pub name: String,
    /// The folder of its durable store.
    pub data: PathBuf,
    /// Where its effects go: a file of its own for each case.
    pub effects: PathBuf,
    /// Where it stands still for ever, at every call that gets there.
    pub stall: Option<Moment>,
    /// How long its tool goes on after the effect before it returns.
    pub slow: Option<Duration>,
}

/// A worker under test.
pub trait Rig: Send + Sync {
    /// The command that starts this life. SIGTERM ends it in good order.
    ///
    /// # Errors
    /// What is missing on this machine, and where to get it.
    fn command(&self, life: &Life) -> Result<Command, String>;

    /// What the worker writes to its standard output, in a line of its own, when it stands still there.
    fn reached(&self, at: Moment) -> String;

    /// Whether a tool that has not returned by its deadline goes on and may still return; otherwise the worker ends it there.
    fn outlives_its_deadline(&self) -> bool;

    /// The texts that were published, in order. An unreadable line is an effect as well, and stands for itself.
    fn published(&self, effects: &Path) -> Vec<String>;
}

/// Makes a test of every case. The argument is an expression that yields a [`Rig`].
#[macro_export]
macro_rules! worker_conformance_tests {
    ($rig:expr) => {
        $crate::worker_conformance_tests! { @cases $rig;
            gate: p1_a_call_is_executed_once_and_its_outcome_is_written;
            gate: p1_of_many_calls_each_is_executed_once;
            gate: k58_odd_names_and_texts_arrive_as_they_are;
            gate: large_arguments_are_fetched_from_the_blob_store;
            gate: k22_a_call_that_was_handed_out_before_is_executed_once;
            gate: a_finished_call_is_acknowledged;
            gate: k21_i5_a_call_that_comes_again_while_it_runs_is_not_executed_again;
            gate: k30_i5_a_call_that_another_worker_claimed_is_not_executed;
            gate: i5_a_revoked_call_is_not_executed;
            gate: i5_a_call_that_is_over_is_not_executed;
            gate: i5_a_chain_whose_call_is_not_its_first_message_is_never_claimed;
            gate: void_messages_do_not_keep_a_call_from_its_worker;
            gate: a_call_of_a_newer_version_or_without_sense_is_left_alone;
            gate: s16_arguments_that_the_tool_refuses_are_nothing_happened;
            gate: a_worker_that_is_told_to_stop_finishes_its_calls;
            crashes: w3_killed_between_claim_and_arming_it_is_not_started;
            crashes: w5_killed_between_arming_and_effect_it_is_not_executed_and_unsure;
            crashes: w7_killed_after_the_effect_it_is_not_executed_again_and_unsure;
            crashes: w8_killed_with_the_outcome_in_its_store_it_publishes_it;
            crashes: k22_a_call_that_comes_again_to_a_later_life_is_settled_and_not_executed;
            crashes: k34_a_worker_whose_store_cannot_be_read_is_unsure;
            crashes: a_worker_whose_disk_went_back_in_time_is_unsure;
            crashes: a_worker_on_a_fresh_disk_is_unsure;
            crashes: k26_an_attempt_that_its_store_knows_is_not_executed_whatever_the_cluster_forgot;
            crashes: another_life_says_the_same_thing_once;
            evidence: an_outcome_that_meets_a_seal_is_a_note;
            evidence: an_outcome_of_an_earlier_life_that_meets_a_seal_is_a_note;
            evidence: i11_at_the_deadline_the_worker_says_that_it_may_have_happened;
            evidence: a_truth_that_comes_after_the_deadline_is_the_outcome;
            evidence: a_deadline_that_passed_before_the_effect_is_not_started;
            evidence: an_inspection_is_told_running_while_the_effect_may_happen_and_settled_afterwards;
            evidence: an_inspection_of_an_unclaimed_call_changes_nothing;
        }
    };
    (@cases $rig:expr; $($group:ident: $case:ident;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::worker::$group::$case($crate::worker::Stage::new(&$rig).await).await;
            }
        )*
    };
}
