//! The suite that every backend passes: each promise of the traits, as a case named after what it proves.
//!
//! A backend implements [`Rig`] and calls [`conformance_tests!`](crate::conformance_tests), which makes one test per case, each on fresh
//! data. The suite knows nothing of a backend but the traits, and closes and opens it again where a promise is about what is stored.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a suite of tests: a broken promise is a panic"
)]

use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use leasehold_protocol::{ChainKey, JournalSubject, RunId, Seq, SessionId, WorkerId, Writer};

use crate::{AppendError, Backend, JournalAppend, Register, SharedBackend};

pub mod inbox;
pub mod journal;
pub mod leases;
pub mod names;
pub mod queue;
pub mod registers;
pub mod values;

/// A backend under test, on data of its own that are empty at first.
#[async_trait]
pub trait Rig: Send + Sync {
    /// Opens the data; again with what was stored, as a new process would. Every earlier handle has been dropped.
    async fn open(&self) -> SharedBackend;
    /// The session that the backend opened last counts as alive.
    fn session(&self) -> SessionId;
}

/// Makes a test of every case. The argument is an expression that yields a fresh [`Rig`](crate::conformance::Rig).
#[macro_export]
macro_rules! conformance_tests {
    ($rig:expr) => {
        $crate::conformance_tests! { @cases $rig;
            journal: a_first_append_expects_nothing;
            journal: a_wrong_expectation_is_refused_and_stores_nothing;
            journal: i8_of_many_writers_with_one_expectation_one_wins;
            journal: commits_are_read_in_order_after_any_position;
            journal: k24_the_same_commit_again_is_refused_or_stored_and_never_a_duplicate;
            journal: an_unknown_run_has_no_commits;
            journal: a_call_and_its_envelope_go_together;
            journal: bodies_come_back_byte_for_byte_after_reopening;
            journal: the_tail_is_compared_after_reopening;
            journal: runs_are_listed_in_pages_in_order_of_token;
            journal: open_runs_are_those_without_an_end;
            journal: i13_runs_side_by_side_keep_their_own_commits;
            registers: a_call_opens_its_chain;
            registers: a_register_is_written_at_the_chains_last_position_only;
            registers: p1_of_many_claims_with_one_expectation_one_wins;
            registers: registers_do_not_move_the_journal;
            registers: chains_that_differ_in_one_name_are_apart;
            registers: a_hint_follows_what_is_stored;
            registers: hints_go_to_every_listener_of_the_origin_and_to_nobody_else;
            registers: a_refused_write_gives_no_hint;
            registers: notes_are_bounded_and_the_last_place_is_kept;
            registers: notes_stand_beside_the_chain;
            registers: chains_and_notes_are_the_same_after_reopening;
            queue: calls_come_oldest_first_and_of_the_asked_tools;
            queue: a_worker_waits_until_there_is_a_call;
            queue: a_call_is_handed_to_one_worker;
            queue: a_naked_call_comes_again;
            queue: a_worker_that_stops_waiting_takes_no_call_along;
            queue: k22_unacknowledged_calls_come_again_after_reopening;
            queue: acknowledged_calls_do_not_come_again;
            queue: a_refused_call_is_not_queued;
            inbox: the_same_message_again_is_the_same_message;
            inbox: another_message_at_the_same_subject_is_refused_with_what_stands_there;
            inbox: of_many_different_messages_at_one_subject_one_is_stored;
            inbox: each_name_has_its_own_subject;
            inbox: messages_come_in_order_and_once;
            inbox: a_naked_message_waits_aside_and_comes_again;
            inbox: unacknowledged_messages_come_again_after_reopening;
            inbox: a_submission_is_found_whoever_sent_it;
            leases: a_lease_never_written_has_no_revision_and_no_holder;
            leases: k06_of_fifty_that_take_a_released_lease_one_wins;
            leases: a_released_lease_cannot_be_written_by_an_old_revision;
            leases: k15_who_judged_a_lease_stale_cannot_remove_the_one_that_followed;
            leases: a_lease_is_the_same_after_reopening;
            leases: a_session_that_nobody_has_is_found_dead;
            names: k58_names_never_meet;
            names: k58_tools_with_odd_names_get_their_own_calls;
            values: blobs_come_back_verified_and_are_stored_once;
            values: an_unknown_blob_is_absent;
            values: timers_that_are_due_are_found_in_order;
            values: a_later_timer_of_a_run_replaces_the_earlier;
            values: timers_are_the_same_after_reopening;
        }
    };
    (@cases $rig:expr; $($group:ident: $case:ident;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::conformance::$group::$case(&$rig).await;
            }
        )*
    };
}

/// Longer than anything takes that does happen.
const LONG: Duration = Duration::from_secs(20);

/// How long nothing must happen before it counts as not happening.
const QUIET: Duration = Duration::from_millis(60);

/// The result of what must happen.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LONG, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not happen within {LONG:?}"),
    }
}

/// What must not happen does not, for a while.
async fn never<T: std::fmt::Debug>(what: &str, future: impl Future<Output = T>) {
    if let Ok(value) = tokio::time::timeout(QUIET, future).await {
        panic!("{what} happened: {value:?}");
    }
}

fn run(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

fn session(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

fn worker(name: &str) -> Writer {
    Writer::Worker(WorkerId::new(name).unwrap())
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// The first attempt of a step.
fn chain(run: &RunId, tool: &str, step: &str) -> ChainKey {
    ChainKey {
        run: run.clone(),
        tool: tool.to_owned(),
        step: step.parse().unwrap(),
        attempt: "1".parse().unwrap(),
        origin: session("origin"),
    }
}

fn write(run: &RunId, subject: JournalSubject, expected: Seq, body: &str) -> JournalAppend {
    JournalAppend {
        run: run.clone(),
        subject,
        expected,
        body: bytes(body),
        call: None,
    }
}

/// What must be stored, asked for again for as long as the store is busy (it says that it did not store).
macro_rules! insist {
    ($ask:expr) => {
        soon("a write", async {
            loop {
                match $ask.await {
                    Err(AppendError::Busy(_)) => tokio::time::sleep(QUIET).await,
                    result => return result.unwrap(),
                }
            }
        })
        .await
    };
}

/// Appends a commit that must be stored.
async fn append(
    store: &dyn Backend,
    run: &RunId,
    subject: JournalSubject,
    expected: Seq,
    body: &str,
) -> Seq {
    let write = write(run, subject, expected, body);
    insist!(store.append(write.clone())).seq
}

/// Appends a call that must be stored, at the end of its run's journal.
async fn dispatch(store: &dyn Backend, chain: &ChainKey, envelope: &str) -> Seq {
    let last = store
        .read_journal(&chain.run, Seq::NONE)
        .await
        .unwrap()
        .last()
        .map_or(Seq::NONE, |commit| commit.seq);
    let call = JournalAppend {
        run: chain.run.clone(),
        subject: JournalSubject::Call(chain.clone()),
        expected: last,
        body: bytes("dispatching"),
        call: Some(bytes(envelope)),
    };
    insist!(store.append(call.clone())).seq
}

/// Writes a register that must be stored.
async fn register(
    store: &dyn Backend,
    chain: &ChainKey,
    register: Register,
    expected: Seq,
    body: &str,
) -> Seq {
    let writer = worker("w");
    insist!(store.write_register(chain, register, &writer, expected, bytes(body)))
}

/// The outcome of a race: who was stored, and that all others know that they were not.
fn one_winner(results: Vec<Result<Seq, AppendError>>) -> Seq {
    let mut winner = None;
    for result in results {
        match result {
            Ok(seq) => assert_eq!(winner.replace(seq), None, "two won"),
            Err(AppendError::Refused { .. } | AppendError::Busy(_)) => {}
            Err(other) => panic!("neither stored nor refused: {other}"),
        }
    }
    winner.unwrap()
}

/// Runs futures side by side; their results in the order given.
async fn together<T: Send + 'static>(
    futures: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let mut tasks = tokio::task::JoinSet::new();
    for (place, future) in futures.into_iter().enumerate() {
        tasks.spawn(async move { (place, future.await) });
    }
    let mut results = tasks.join_all().await;
    results.sort_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}
