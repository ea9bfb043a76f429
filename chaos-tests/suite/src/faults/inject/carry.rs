//! How each step is done.

use std::time::Duration;

use anyhow::Context as _;
use leasehold_local::{Doing, Kind, Stall};
use tokio::time::Instant;

use super::{Injector, LOOK, Pending};
use crate::client::{Client, Said};
use crate::faults::step::{Step, Toward, Trouble, Who};

impl Injector {
    /// Does it, or says why that cannot be done now. What shows only later has no evidence yet.
    pub(super) async fn carry_out(
        &mut self,
        step: &Step,
        place: usize,
    ) -> anyhow::Result<Option<String>> {
        let evidence = match step {
            Step::Kill {
                who: Who::Server(n),
                away,
            } => self.kill_server(*n, *away).await?,
            Step::Kill { who, away } => {
                self.kill(*who, *away, None).await?;
                self.pending.push(Pending::Member { who: *who, place });
                format!("{who} is gone")
            }
            Step::KillAt {
                who,
                point,
                nth,
                twice,
            } => {
                let stall = |nth| Stall {
                    point: (*point).to_owned(),
                    nth,
                };
                self.kill(*who, Duration::ZERO, Some(stall(*nth))).await?;
                self.pending.push(Pending::Stall {
                    who: *who,
                    again: twice.then(|| stall(1)),
                    point,
                    place,
                });
                return Ok(None);
            }
            Step::KillLeader { stream, away } => {
                let servers = &self.system.servers;
                let leader = match stream {
                    Some(stream) => servers.stream_leader(stream).await?,
                    None => servers.meta_leader().await?,
                };
                let leader = leader.context("nobody leads at this moment")?;
                self.kill_server(leader, *away).await?
            }
            Step::KillServers { away } => {
                for n in 1..=self.system.servers.count() {
                    if !self.is_away(n) {
                        self.kill_server(n, *away).await?;
                    }
                }
                "all servers are gone".to_owned()
            }
            Step::KillNodes { away } => {
                let nodes = self.named(Kind::Node);
                for node in &nodes {
                    self.system.fleet.kill(node, *away, None).await?;
                }
                for n in 1..=nodes.len() {
                    let who = Who::Node(n);
                    self.pending.push(Pending::Member { who, place });
                }
                format!("{} nodes are gone", nodes.len())
            }
            Step::Pause {
                who: Who::Server(n),
                lasts,
            } => {
                self.system.servers.pause(*n).await?;
                let until = Instant::now() + *lasts;
                self.pending.push(Pending::Server {
                    n: *n,
                    until,
                    place,
                });
                format!("nats-{n} is stopped")
            }
            Step::Pause { who, lasts } => {
                self.must_run(*who)?;
                if !self.system.fleet.pause(&who.to_string(), *lasts).await {
                    anyhow::bail!("{who} had just ended");
                }
                self.pending.push(Pending::Member { who: *who, place });
                format!("{who} is stopped")
            }
            Step::Depose { stream } => {
                let (nats, stream) = (self.system.nats.clone(), *stream);
                return Ok(self.ask(place, async move { nats.step_down(stream).await }));
            }
            Step::DeposeConsumers { stream } => {
                let (nats, stream) = (self.system.nats.clone(), *stream);
                return Ok(self.ask(place, async move { nats.step_down_consumers(stream).await }));
            }
            Step::DeleteConsumers { stream } => {
                let (nats, stream) = (self.system.nats.clone(), *stream);
                return Ok(self.ask(place, async move { nats.delete_consumers(stream).await }));
            }
            Step::Network {
                who,
                toward,
                trouble,
                lasts,
            } => return self.network(*who, *toward, *trouble, *lasts, place),
            Step::ResetBucket { stream } => {
                let (nats, stream) = (self.system.nats.clone(), *stream);
                return Ok(self.ask(place, async move { nats.reset_bucket(stream).await }));
            }
            Step::DeleteLeases { most } => {
                let (nats, most) = (self.system.nats.clone(), *most);
                return Ok(self.ask(place, async move {
                    let runs = nats.delete_leases(most).await?;
                    anyhow::ensure!(!runs.is_empty(), "no run had a lease");
                    Ok(format!("deleted: {}", runs.join(", ")))
                }));
            }
            Step::Cancel { most, twice } => {
                // The newest ones: they are at work.
                let open = self.board.open().into_iter().rev();
                let runs: Vec<String> = open.take(*most).collect();
                anyhow::ensure!(!runs.is_empty(), "no run is open");
                let cancelling = cancel(self.client.clone(), runs, *twice);
                return Ok(self.ask(place, cancelling));
            }
            Step::TwoOperators { lasts } => {
                self.mood.quarrel(true);
                let until = Instant::now() + *lasts;
                self.pending.push(Pending::Operators { until, place });
                return Ok(None);
            }
        };
        Ok(Some(evidence))
    }

    async fn kill(&mut self, who: Who, away: Duration, next: Option<Stall>) -> anyhow::Result<()> {
        let name = who.to_string();
        let stalls = self
            .pending
            .iter()
            .any(|pending| matches!(pending, Pending::Stall { who: stalls, .. } if *stalls == who));
        anyhow::ensure!(!stalls, "{who} is on its way to a crash point");
        self.must_run(who)?;
        self.system.fleet.kill(&name, away, next).await?;
        Ok(())
    }

    pub(super) fn must_run(&self, who: Who) -> anyhow::Result<()> {
        let name = who.to_string();
        let members = self.system.fleet.members();
        let member = members.iter().find(|member| member.name() == name);
        let runs = member.is_some_and(|member| member.doing() == Doing::Runs);
        anyhow::ensure!(runs, "{who} does not run at this moment");
        Ok(())
    }

    fn is_away(&self, server: usize) -> bool {
        let mut pending = self.pending.iter();
        pending.any(|pending| matches!(pending, Pending::ServerBack { n, .. } if *n == server))
    }

    async fn kill_server(&mut self, n: usize, away: Duration) -> anyhow::Result<String> {
        anyhow::ensure!(!self.is_away(n), "nats-{n} is away already");
        self.system.servers.kill(n).await?;
        let until = Instant::now() + away;
        self.pending.push(Pending::ServerBack { n, until });
        Ok(format!("nats-{n} is gone"))
    }

    fn network(
        &mut self,
        who: Who,
        toward: Toward,
        trouble: Trouble,
        lasts: Duration,
        place: usize,
    ) -> anyhow::Result<Option<String>> {
        let link = self
            .system
            .link(who, toward)
            .with_context(|| format!("{who} has no such link"))?;
        let before = link.counts();
        let until = match trouble.condition() {
            Some(condition) => {
                link.set(condition);
                Instant::now() + lasts
            }
            None => {
                link.cut();
                Instant::now() + LOOK
            }
        };
        self.pending.push(Pending::Network {
            who,
            toward,
            until,
            before,
            place,
        });
        Ok(None)
    }

    /// Has something done beside everything else; what came of it is written down when it is known.
    fn ask(
        &mut self,
        place: usize,
        doing: impl Future<Output = anyhow::Result<String>> + Send + 'static,
    ) -> Option<String> {
        let task = self.tasks.spawn(doing);
        self.pending.push(Pending::Asked { task, place });
        None
    }

    fn named(&self, kind: Kind) -> Vec<String> {
        let members = self.system.fleet.members().iter();
        let members = members.filter(|member| member.kind() == kind);
        members.map(|member| member.name().to_owned()).collect()
    }
}

/// Cancels runs, by one person or by two.
async fn cancel(client: Client, runs: Vec<String>, twice: bool) -> anyhow::Result<String> {
    let people: &[&str] = if twice { &["ann", "bob"] } else { &["ann"] };
    let requests = runs
        .iter()
        .flat_map(|run| people.iter().map(move |by| (run, by)));
    let requests = requests.map(|(run, by)| client.cancel(run, by));
    let said = futures_util::future::join_all(requests).await;
    let taken = said.into_iter().filter(|said| *said == Said::Ok).count();
    let evidence = format!("{taken} requests were stored for {}", runs.join(", "));
    anyhow::ensure!(taken > 0, "{evidence}");
    Ok(evidence)
}
