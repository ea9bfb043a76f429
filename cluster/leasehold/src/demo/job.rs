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
use super::children::Payments;
use super::clerk::{REFUND_CLERK, TOOLS};
use super::operator::{Troubles, Withdrawals};
use super::orders::Job;
use super::plan::{Fault, Kill, Plan, Stage};
use super::scene::{Scene, Stall, Tally, Who};
use super::show::Show;

/// Runs that may still be in hand when the next stage begins: so the kills are spread over the whole job.
const IN_HAND: usize = 6;
/// How long to wait until a fault kills the payments service before the next stage begins with the fault still armed.
const FAULT: Duration = Duration::from_secs(5);
/// How long the first stage waits until its runs wait in the queue.
const QUEUED: Duration = Duration::from_secs(10);
/// How long the end waits until what was killed or paused is there again. The longest pause and the longest start are well below.
const WHOLE: Duration = Duration::from_secs(60);
/// How often to look after the children when nothing is heard.
const LOOK: Duration = Duration::from_millis(50);
/// Failures in a row, and repetitions, that end a run: services that are killed again and again fail more often than the usual limits allow.
const PATIENCE: u32 = 50;

/// Everything that the job works with.
pub(super) struct Work<'a> {
    pub(super) job: &'a Job,
    pub(super) scene: Box<dyn Scene>,
    pub(super) payments: Payments,
    pub(super) board: Board,
    pub(super) arrivals: UnboundedSender<Submission>,
    pub(super) withdrawals: Withdrawals,
    pub(super) troubles: Troubles,
    pub(super) show: Show,
    pub(super) kills: Tally,
    pub(super) pauses: Tally,
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
            if let Some(who) = stage.pause
                && self.scene.pause(who).await?
            {
                self.pauses.add(who, 1);
                self.told.push(format!("{who:?} paused"));
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
        let pace = self.scene.pace();
        let (most, bound) = if stage.alone {
            (0, pace.settle_alone)
        } else {
            (IN_HAND, pace.settle)
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
        let reach = self.scene.pace().reach;
        let reached = match kill {
            Kill::Stall(_) => self.stalled(reach).await?,
            Kill::After { commits, .. } => {
                self.wait(reach, |work| heard_since(work, commits)).await?
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
            Kill::Fault(_) => return Ok(()),
            Kill::After {
                who: Who::Payments, ..
            } => {
                self.payments.kill().await?;
                self.payments.restart().await?;
            }
            Kill::Stall(_) | Kill::After { .. } => {
                let who = kill.victim();
                self.scene.kill(who, stall(next, who)).await?;
            }
        }
        self.kills.add(kill.victim(), 1);
        Ok(())
    }

    /// Waits until a process stands still where it was told to. Whether one does.
    async fn stalled(&mut self, bound: Duration) -> anyhow::Result<bool> {
        let began = Instant::now();
        while began.elapsed() < bound {
            if self.scene.stalled().await {
                return Ok(true);
            }
            self.wait(LOOK, |_| false).await?;
        }
        Ok(false)
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
        let pace = self.scene.pace();
        let began = Instant::now();
        while began.elapsed() < pace.end {
            let heard = self.board.look(|seen| seen.commits);
            let moved =
                move |work: &Self| over(work) || work.board.look(|seen| seen.commits) > heard;
            if !self.wait(pace.silence, moved).await? || over(self) {
                break;
            }
        }
        if self.deaths_due > 0 {
            // The fault found nothing to hit: the kill is made by hand.
            self.payments.kill().await?;
            self.payments.restart().await?;
            self.kills
                .add(Who::Payments, std::mem::take(&mut self.deaths_due));
        }
        self.wait(WHOLE, |work| work.scene.whole()).await?;
        Ok(())
    }

    /// Waits until something is so. Whether it is, within the bound. Looks after the children all the while.
    async fn wait(&mut self, bound: Duration, so: impl Fn(&Self) -> bool) -> anyhow::Result<bool> {
        let began = Instant::now();
        loop {
            self.show
                .update(self.kills.sum(), self.board.look(Seen::over));
            if so(self) {
                return Ok(true);
            }
            if began.elapsed() >= bound {
                return Ok(false);
            }
            self.look_after_payments().await?;
            self.scene.tend(&self.troubles).await?;
            let _ = timeout(LOOK, self.changes.changed()).await;
        }
    }

    async fn look_after_payments(&mut self) -> anyhow::Result<()> {
        if self.payments.ended()? {
            self.kills.add(Who::Payments, 1);
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

/// Where the next life of a process of this kind will be killed, if that is at a named moment.
pub(super) fn stall(stages: &[Stage], who: Who) -> Option<Stall> {
    let kill = stages
        .iter()
        .filter_map(|stage| stage.kill)
        .find(|kill| kill.victim() == who);
    match kill {
        Some(Kill::Stall(stall)) => Some(stall),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_stalled_where_the_next_kill_of_its_kind_wants_it() {
        let stage = |kill| Stage {
            orders: Vec::new(),
            mishap: None,
            pause: None,
            kill: Some(kill),
            alone: false,
        };
        let after = |who| stage(Kill::After { who, commits: 1 });
        let w6 = Stall {
            who: Who::Workers,
            point: "W6",
            nth: 3,
        };
        let stalled = stage(Kill::Stall(w6));
        let others = [after(Who::Payments), after(Who::Nodes), stalled.clone()];
        assert_eq!(stall(&others, Who::Workers), Some(w6));
        assert_eq!(stall(&[after(Who::Workers), stalled], Who::Workers), None);
        assert_eq!(stall(&others, Who::Nodes), None);
    }
}
