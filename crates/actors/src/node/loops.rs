//! The node's loops over the store: intake, timers, sweep.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_protocol::{RunId, RunState, Seq, SessionId};
use ractor::ActorRef;
use tokio::sync::Semaphore;

use super::{Directory, NodeMsg};
use crate::mail::Mail;
use crate::points::Point;
use crate::shared::{Backoff, Shared, jittered};
use crate::tasks::Tasks;

/// Most inbox messages in memory that no commit names yet. More wait in the store, where they cost nothing.
const INTAKE: usize = 1024;
/// How often due timers are looked for. Expiries are judged by days and minutes; a quarter of a second late is on time.
const TIMER_LOOK: Duration = Duration::from_millis(250);
/// Between two sweeps, at most. A sweep is the net under hints, timers and restarts: what it finds was missed by something quicker.
const SWEEP: Duration = Duration::from_secs(30);

/// Runs of a dead neighbour that are gone through together.
const TAKEOVERS: usize = 4096;
/// Between two of them: at most a thousand takeovers a second, so that five hundred expiries at once are over within a second and a hundred
/// thousand do not bury the servers.
const TAKEOVER_PAUSE: Duration = Duration::from_millis(1);

pub(super) fn start(
    shared: Arc<Shared>,
    directory: Directory,
    node: ActorRef<NodeMsg>,
    tasks: &Tasks,
) {
    tasks.spawn(intake(shared.clone(), node.clone()));
    tasks.spawn(timers(shared.clone(), node.clone()));
    tasks.spawn(unowned(shared.clone(), directory.clone(), node.clone()));
    tasks.spawn(sweep(shared, directory, node));
}

async fn intake(shared: Arc<Shared>, node: ActorRef<NodeMsg>) {
    let places = Arc::new(Semaphore::new(INTAKE));
    let mut backoff = Backoff::default();
    loop {
        // The semaphore is never closed.
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        match shared.store.next_message().await {
            Ok(message) => {
                backoff = Backoff::default();
                shared.reach(Point::R9, &message.run, None).await;
                let _ = node.cast(NodeMsg::Mail(Mail {
                    message,
                    _place: place,
                }));
            }
            Err(error) => {
                tracing::warn!(%error, "the inbox does not answer; asking again");
                backoff.wait(&shared).await;
            }
        }
    }
}

async fn timers(shared: Arc<Shared>, node: ActorRef<NodeMsg>) {
    loop {
        match shared.store.due_timers(shared.clock.now().wall).await {
            Ok(due) if due.is_empty() => {}
            Ok(due) => {
                let _ = node.cast(NodeMsg::TimersDue(due));
            }
            Err(error) => tracing::warn!(%error, "due timers could not be read; trying again"),
        }
        tokio::time::sleep(TIMER_LOOK).await;
    }
}

/// Runs that have just lost their owner, or of which there is news. Many nodes hear of the same runs at once, so each goes through them in
/// an order and at a pace of its own: whoever comes second finds the lease taken.
async fn unowned(shared: Arc<Shared>, directory: Directory, node: ActorRef<NodeMsg>) {
    let mut hints = shared.store.unowned();
    let mut runs = Vec::new();
    while hints.recv_many(&mut runs, TAKEOVERS).await > 0 {
        runs.sort_by_cached_key(|_| shared.ids.bits());
        for run in runs.drain(..) {
            if !directory.contains(&run) {
                let _ = node.cast(NodeMsg::Wake(run));
            }
            tokio::time::sleep(jittered(TAKEOVER_PAUSE, shared.ids.bits())).await;
        }
    }
}

async fn sweep(shared: Arc<Shared>, directory: Directory, node: ActorRef<NodeMsg>) {
    let mut parked: HashMap<RunId, Seq> = HashMap::new();
    loop {
        if let Err(error) = sweep_once(&shared, &directory, &node, &mut parked).await {
            tracing::warn!(%error, "a sweep was cut short; the next one follows");
        }
        tokio::time::sleep(jittered(SWEEP, shared.ids.bits())).await;
    }
}

/// Wakes every run that is open, not parked and driven by nobody here. `parked` remembers those that need no second look.
async fn sweep_once(
    shared: &Shared,
    directory: &Directory,
    node: &ActorRef<NodeMsg>,
    parked: &mut HashMap<RunId, Seq>,
) -> Result<(), leasehold_store::StoreError> {
    let mut still = HashMap::new();
    let mut alive = HashMap::new();
    for head in shared.store.open_runs().await? {
        if directory.contains(&head.run) {
            continue;
        }
        if parked.get(&head.run) != Some(&head.last) {
            if is_held(shared, &head.run, &mut alive).await? {
                continue;
            }
            let commits = shared.store.read_journal(&head.run, Seq::NONE).await?;
            match RunState::fold(head.run.clone(), &commits) {
                Ok(state) if state.parked => {
                    if let Some(at) = state.wake_at {
                        // In case it was lost on the way: setting the same timer again changes nothing.
                        shared.store.set_timer(&head.run, at).await?;
                    }
                }
                // Not parked, or not to be folded: its actor finds out and says so.
                _ => {
                    let _ = node.cast(NodeMsg::Wake(head.run));
                    continue;
                }
            }
        }
        still.insert(head.run, head.last);
    }
    *parked = still;
    Ok(())
}

/// Whether another session that is alive holds the run. `alive` remembers the verdicts of this sweep.
async fn is_held(
    shared: &Shared,
    run: &RunId,
    alive: &mut HashMap<SessionId, bool>,
) -> Result<bool, leasehold_store::StoreError> {
    let Some(holder) = shared.store.lease(run).await?.record else {
        return Ok(false);
    };
    if holder.session == shared.session {
        return Ok(false);
    }
    if let Some(alive) = alive.get(&holder.session) {
        return Ok(*alive);
    }
    let is_alive = shared.store.session_alive(&holder.session).await?;
    alive.insert(holder.session, is_alive);
    Ok(is_alive)
}
