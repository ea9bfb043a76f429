//! The people who answer questions: one careful operator, and a second one who differs while fault F22 lasts.
//!
//! Approvals are granted, a few are refused, and those of some runs are left open on purpose. Of a call of which nobody can say what became
//! of it, the operator looks into the ledger, as a person would into a bank's books: what is there is recorded as done; what is not there
//! when it can no longer come is made again, or given up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::{Instant, sleep};

use crate::board::{Board, Question};
use crate::client::{Client, Decision, Said};
use crate::clock;
use crate::ledger::{LATE, Ledger};
use crate::tools::TIMEOUT;
use crate::workload;

/// How often the operator looks for something to do.
const LOOK: Duration = Duration::from_millis(200);
/// How long the same question is left alone after an answer was begun: longer than a command takes, and than whoever drives the run needs to
/// fold it in.
const ASK_AGAIN: Duration = Duration::from_secs(25);
/// How long after a question was heard a call can still act: its timeout, the lateness of a late effect, and a second for a busy machine.
const STILL_ACTS: Duration = Duration::from_millis(1000);
/// One approval of so many is refused, and one unknown call of so many is given up.
const REFUSED: u32 = 12;
/// How many answers are under way at once.
const AT_ONCE: usize = 4;

/// Whether the operators differ, and how often both answered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mood(Arc<MoodOf>);

#[derive(Debug, Default)]
struct MoodOf {
    differ: AtomicBool,
    answered: AtomicUsize,
}

impl Mood {
    /// Begins or ends a quarrel; how many questions both have answered since the last call.
    pub(crate) fn quarrel(&self, differ: bool) -> usize {
        self.0.differ.store(differ, Ordering::Relaxed);
        self.0.answered.swap(0, Ordering::Relaxed)
    }

    /// How many questions both have answered in this quarrel.
    pub(crate) fn answered(&self) -> usize {
        self.0.answered.load(Ordering::Relaxed)
    }

    fn differ(&self) -> bool {
        self.0.differ.load(Ordering::Relaxed)
    }
}

/// See the module.
pub(crate) struct Operators {
    pub(crate) board: Board,
    pub(crate) client: Client,
    pub(crate) ledger: Ledger,
    pub(crate) mood: Mood,
    pub(crate) seed: u64,
}

impl Operators {
    /// Works for ever.
    pub(crate) async fn work(mut self) {
        let mut answered: BTreeMap<(String, String), Instant> = BTreeMap::new();
        let mut answers = tokio::task::JoinSet::new();
        loop {
            while answers.try_join_next().is_some() {}
            for question in self.board.questions() {
                if answers.len() >= AT_ONCE {
                    break;
                }
                let key = (question.run.clone(), question.approval.clone());
                let is_fresh = answered
                    .get(&key)
                    .is_none_or(|when| when.elapsed() >= ASK_AGAIN);
                if !is_fresh || workload::leaves_open(&question.run) && question.ask == "approve" {
                    continue;
                }
                let Some(decision) = self.decision(&question) else {
                    continue;
                };
                answered.insert(key, Instant::now());
                answers.spawn(answer(
                    self.client.clone(),
                    self.mood.clone(),
                    question,
                    decision,
                ));
            }
            sleep(LOOK).await;
        }
    }

    /// What to answer; nothing: not yet. The same question has the same answer, whenever it is asked.
    fn decision(&mut self, question: &Question) -> Option<Decision> {
        let mut rng = StdRng::seed_from_u64(self.seed ^ hash(question));
        let gives_up = rng.random_ratio(1, REFUSED);
        if question.ask == "approve" {
            return Some(match gives_up {
                true => Decision::Reject,
                false => Decision::Approve,
            });
        }
        if question.ask == "exhausted" {
            return Some(Decision::Continue);
        }
        // The clock first: whatever is not in the ledger afterwards was not there at that moment.
        let waited = clock::now().saturating_sub(question.heard);
        let effect = self.ledger.effect(&question.run, &question.step).ok()?;
        if let Some(n) = effect {
            return Some(Decision::Done(format!("{{\"effect\":{n}}}")));
        }
        let long_enough = i64::try_from((TIMEOUT + LATE + STILL_ACTS).as_millis()).ok()?;
        (waited >= long_enough).then_some(match gives_up {
            true => Decision::Reject,
            false => Decision::RunAgain,
        })
    }
}

/// One answer; two while the operators differ.
async fn answer(client: Client, mood: Mood, question: Question, decision: Decision) {
    if !mood.differ() {
        client.decide(&question, "ann", &decision).await;
        return;
    }
    let other = match decision {
        Decision::Reject => Decision::Approve,
        _ => Decision::Reject,
    };
    // Only an approval can be refused and granted; of an unknown call both say something that it offers.
    let other = match question.ask.as_str() {
        "approve" => other,
        _ => Decision::Reject,
    };
    let (first, second) = tokio::join!(
        client.decide(&question, "ann", &decision),
        client.decide(&question, "bob", &other)
    );
    if decision != other && first != Said::Info && second != Said::Info {
        mood.0.answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// A number of its own for each question. FNV-1a: stable across builds, unlike the standard library's hashers.
fn hash(question: &Question) -> u64 {
    let bytes = question.run.bytes().chain(question.approval.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
