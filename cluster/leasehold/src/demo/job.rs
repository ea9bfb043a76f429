//! The job itself: stage by stage through the plan, then to the end without kills.
//!
//! Everything is paced by what is heard of the runs, never by time alone; every wait has a bound, so that a runtime that hangs, or one whose
//! rules were left out on purpose, still comes to be checked.

use std::time::Duration;

use leasehold_json::AcceptedJson;
use leasehold_protocol::{ClientId, Limits, RunId, Submission, WIRE_VERSION};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::board::{Board, Seen};
use super::children::{Dev, Payments, Stall};
use super::clerk::{REFUND_CLERK, TOOLS};
use super::operator::{Troubles, Withdrawals};
use super::orders::Job;
use super::plan::{Fault, Kill, Plan, Stage};
use super::report::Kills;
use super::show::Show;

/// Runs that may still be in hand when the next stage begins: so the kills are spread over the whole job.
const IN_HAND: usize = 6;
/// How long a stage waits for that. What a stage leaves mostly waits for a timeout of a call, and the next stage need not.
const SETTLE: Duration = Duration::from_millis(1_500);
/// How long a stage waits until it is alone. Longer: it is worth nothing otherwise.
const SETTLE_ALONE: Duration = Duration::from_secs(10);
/// How long to wait until the runtime stalls, or so many commits are heard, before it is killed as it is.
const REACH: Duration = Duration::from_secs(4);
/// How long to wait until a fault kills the payments service before the next stage begins with the fault still armed.
const FAULT: Duration = Duration::from_secs(5);
/// How long the first stage waits until its runs wait in the queue.
const QUEUED: Duration = Duration::from_secs(10);
/// How long the end may take without any commit. The longest a healthy runtime is silent is the wait for a call of which nothing is heard
/// (its timeout and 5 s), then six tries of a probe (6 s).
const SILENCE: Duration = Duration::from_secs(20);
/// How long the end may take in all.
const END: Duration = Duration::from_secs(120);
/// How often to look after the children when nothing is heard.
const LOOK: Duration = Duration::from_millis(50);
/// Failures in a row, and repetitions, that end a run: services that are killed again and again fail more often than the usual limits allow.
const PATIENCE: u32 = 50;

/// Everything that the job works with.
pub(super) struct Work<'a> {
    pub(super) job: &'a Job,
    pub(super) dev: Dev,
    pub(super) payments: Payments,
    pub(super) board: Board,
    pub(super) arrivals: UnboundedSender<Submission>,
    pub(super) withdrawals: Withdrawals,
    pub(super) troubles: Troubles,
    pub(super) show: Show,
    pub(super) kills: Kills,
    /// Faults that are armed and have not killed the payments service yet.
    pub(super) deaths_due: usize,
    /// Each kill, in words, for who wants to know.
    pub(super) told: Vec<String>,
    pub(super) changes: watch::Receiver<Seen>,
}

impl Work<'_> {
    /// Does the job. Returns once every run is over, or nothing moves any more.
    pub(super) async fn through(&mut self, plan: &Plan) -> anyhow::Result<()> {
        for (place, stage) in plan.stages.iter().enumerate() {
            self.settle(stage).await?;
            if let Some(fault) = &stage.mishap {
                self.arm(fault).await?;
            }
            if place == 0 && !plan.cancelled_in_queue.is_empty() {
                self.hold_up(stage, &plan.cancelled_in_queue).await?;
            } else {
                self.submit(&stage.orders)?;
                self.withdraw(&stage.orders)?;
            }
            if let Some(kill) = stage.kill {
                let next = plan.stages.get(place + 1..).unwrap_or_default();
                self.kill(kill, next).await?;
            }
        }
        self.finish().await
    }

    /// Waits until little enough is in hand.
    async fn settle(&mut self, stage: &Stage) -> anyhow::Result<()> {
        let (most, bound) = if stage.alone {
            (0, SETTLE_ALONE)
        } else {
            (IN_HAND, SETTLE)
        };
        self.wait(bound, |work| work.board.look(Seen::in_hand) <= most)
            .await?;
        Ok(())
    }

    /// The first stage: orders that take every slot, then those whose calls wait behind them until their runs are cancelled.
    async fn hold_up(&mut self, stage: &Stage, withdrawn: &[usize]) -> anyhow::Result<()> {
        let (holders, behind) = stage
            .orders
            .split_at(stage.orders.len().saturating_sub(withdrawn.len()));
        for orders in [holders, behind] {
            let runs = self.submit(orders)?;
            self.wait(QUEUED, |work| {
                work.board
                    .look(|seen| runs.iter().all(|run| seen.has_called(run)))
            })
            .await?;
        }
        self.withdraw(withdrawn)
    }

    /// Has the runs of those among the orders cancelled that customers take back.
    fn withdraw(&self, orders: &[usize]) -> anyhow::Result<()> {
        let orders = orders
            .iter()
            .filter_map(|place| self.job.orders.get(*place));
        for order in orders.filter(|order| order.traits.withdrawn) {
            self.withdrawals.add(RunId::new(order.run())?);
        }
        Ok(())
    }

    /// Hands orders in.
    fn submit(&mut self, orders: &[usize]) -> anyhow::Result<Vec<RunId>> {
        let mut runs = Vec::new();
        for order in orders
            .iter()
            .filter_map(|place| self.job.orders.get(*place))
        {
            let run = RunId::new(order.run())?;
            let id = AcceptedJson::check_str(&order.id)?;
            let submission = Submission {
                v: WIRE_VERSION,
                run: run.clone(),
                client: ClientId::new("refund-desk")?,
                agent: REFUND_CLERK.to_owned(),
                goal: format!(
                    "Refund order {} of {}, or say why not",
                    order.id, order.customer
                ),
                input: Some(AcceptedJson::object([("order_id", &id)])?),
                tools: TOOLS.map(str::to_owned).to_vec(),
                limits: Limits {
                    max_steps: PATIENCE * 4,
                    max_consecutive_failures: PATIENCE,
                    max_repeats: PATIENCE,
                    ..Limits::default()
                },
            };
            // The task that takes it lives as long as the job.
            let _ = self.arrivals.send(submission);
            runs.push(run);
        }
        Ok(runs)
    }

    /// One kill, and what was killed is there again.
    async fn kill(&mut self, kill: Kill, next: &[Stage]) -> anyhow::Result<()> {
        let heard = self.board.look(|seen| seen.commits);
        let heard_since = move |work: &Self, commits: u32| {
            work.board.look(|seen| seen.commits) >= heard + u64::from(commits)
        };
        let reached = match kill {
            Kill::Stall { .. } => self.wait(REACH, |work| work.dev.stalled()).await?,
            Kill::Runtime { commits } | Kill::Payments { commits } => {
                self.wait(REACH, |work| heard_since(work, commits)).await?
            }
            Kill::Fault(fault) => {
                let before = self.deaths_due;
                self.deaths_due += 1;
                self.arm(&fault).await?;
                // If it does not come to that now, it will with a later refund.
                self.wait(FAULT, |work| work.deaths_due <= before).await?
            }
        };
        self.told.push(format!(
            "{kill:?}{}",
            if reached { "" } else { ", not reached in time" }
        ));
        match kill {
            Kill::Stall { .. } | Kill::Runtime { .. } => {
                self.dev.kill().await?;
                self.kills.runtime += 1;
                self.dev.restart(stall(next)).await
            }
            Kill::Payments { .. } => {
                self.payments.kill().await?;
                self.kills.payments += 1;
                self.payments.restart().await
            }
            Kill::Fault(_) => Ok(()),
        }
    }

    /// The service may be dying of an earlier fault at this moment: armed is armed.
    async fn arm(&mut self, fault: &Fault) -> anyhow::Result<()> {
        if let Err(first) = self.payments.arm(fault).await {
            self.look_after_payments().await?;
            self.payments.arm(fault).await.map_err(|_| first)?;
        }
        Ok(())
    }

    /// No more kills: waits until every run is over, for as long as anything moves.
    async fn finish(&mut self) -> anyhow::Result<()> {
        let orders = self.job.orders.len();
        let over = move |work: &Self| work.board.look(Seen::over) >= orders;
        let began = Instant::now();
        while began.elapsed() < END {
            let heard = self.board.look(|seen| seen.commits);
            let moved =
                move |work: &Self| over(work) || work.board.look(|seen| seen.commits) > heard;
            if !self.wait(SILENCE, moved).await? || over(self) {
                break;
            }
        }
        if self.deaths_due > 0 {
            // The fault found nothing to hit: the kill is made by hand.
            self.payments.kill().await?;
            self.payments.restart().await?;
            self.kills.payments += std::mem::take(&mut self.deaths_due);
        }
        Ok(())
    }

    /// Waits until something is so. Whether it is, within the bound. Looks after the children all the while.
    async fn wait(&mut self, bound: Duration, so: impl Fn(&Self) -> bool) -> anyhow::Result<bool> {
        let began = Instant::now();
        loop {
            self.show.update(self.kills, self.board.look(Seen::over));
            if so(self) {
                return Ok(true);
            }
            if began.elapsed() >= bound {
                return Ok(false);
            }
            self.look_after_payments().await?;
            if self.dev.ended()? {
                self.troubles
                    .add("the runtime ended by itself; its log says why".to_owned());
                self.dev.restart(None).await?;
            }
            let _ = timeout(LOOK, self.changes.changed()).await;
        }
    }

    async fn look_after_payments(&mut self) -> anyhow::Result<()> {
        if self.payments.ended()? {
            self.kills.payments += 1;
            if self.deaths_due == 0 {
                self.troubles.add(
                    "the payments service died without being told to; its log says why".to_owned(),
                );
            }
            self.deaths_due = self.deaths_due.saturating_sub(1);
            self.payments.restart().await?;
        }
        Ok(())
    }
}

/// Where the next life of the runtime will be killed, if that is at a named moment.
pub(super) fn stall(stages: &[Stage]) -> Option<Stall> {
    let kill = stages
        .iter()
        .filter_map(|stage| stage.kill)
        .find(|kill| kill.of_runtime());
    match kill {
        Some(Kill::Stall { point, nth }) => Some(Stall { point, nth }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_stalled_where_the_next_kill_of_the_runtime_wants_it() {
        let stage = |kill| Stage {
            orders: Vec::new(),
            mishap: None,
            kill: Some(kill),
            alone: false,
        };
        let stalled = stage(Kill::Stall {
            point: "W6",
            nth: 3,
        });
        let payments = stage(Kill::Payments { commits: 1 });
        assert!(
            stall(&[payments.clone(), stalled.clone()]).is_some_and(|stall| stall.point == "W6")
        );
        assert!(stall(&[stage(Kill::Runtime { commits: 1 }), stalled]).is_none());
        assert!(stall(&[payments]).is_none());
    }
}
