//! What a node says of its runs while it is measured: each step with its time, and each run that has ended.
//!
//! In one process it goes through a channel; from a process to another one it is a line of text each.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use leasehold_actors::{Place, Point, Points};
use leasehold_agents::{AgentError, FnAgent};
use leasehold_protocol::{AgentView, RunId};
use tokio::time::Instant;

use crate::stats::now;

/// The agent's name.
pub(crate) const AGENT: &str = "counts";

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A step of a run, by its number: from its decision until the agent is asked again.
    Step(u32, Duration),
    /// The run's last commit is stored.
    Ended(RunId),
}

impl Event {
    fn line(&self) -> String {
        match self {
            Event::Step(number, time) => format!("step {number} {}", time.as_nanos()),
            Event::Ended(run) => format!("ended {run}"),
        }
    }

    /// Reads a line; none if it is no event.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let (kind, rest) = line.split_once(' ')?;
        match kind {
            "step" => {
                let (number, nanos) = rest.split_once(' ')?;
                let time = Duration::from_nanos(nanos.parse().ok()?);
                Some(Event::Step(number.parse().ok()?, time))
            }
            "ended" => Some(Event::Ended(RunId::new(rest).ok()?)),
            _ => None,
        }
    }
}

/// Whoever is told.
pub(crate) type Tell = Arc<dyn Fn(Event) + Send + Sync>;

/// Tells standard output, from a thread of its own, so that nothing that is measured waits for a pipe.
pub(crate) fn tell_standard_output() -> anyhow::Result<Tell> {
    let (sender, events) = mpsc::channel::<Event>();
    let write = move || -> io::Result<()> {
        let mut out = io::BufWriter::new(io::stdout());
        while let Ok(event) = events.recv() {
            writeln!(out, "{}", event.line())?;
            for event in events.try_iter() {
                writeln!(out, "{}", event.line())?;
            }
            out.flush()?;
        }
        Ok(())
    };
    std::thread::Builder::new()
        .name("events".to_owned())
        .spawn(write)
        .context("starting the thread that tells")?;
    // Nobody listens any more: the measurement is over.
    Ok(Arc::new(move |event| drop(sender.send(event))))
}

/// Tells of ended runs.
pub(crate) struct Ends(pub(crate) Tell);

#[async_trait::async_trait]
impl Points for Ends {
    fn wants(&self, point: Point) -> bool {
        point == Point::R14
    }

    async fn reached(&self, _: Point, place: Place<'_>) {
        (self.0)(Event::Ended(place.run.clone()));
    }
}

/// An agent that calls its tool as often as the run's input says, each time with another number, then completes; it tells of each step.
pub(crate) fn agent(
    tell: Tell,
) -> FnAgent<impl Fn(&AgentView) -> Result<Vec<u8>, AgentError> + Send + Sync> {
    let decided = Mutex::<HashMap<RunId, Instant>>::default();
    FnAgent::new(AGENT, move |view| {
        let asked = now();
        let (steps, tool) = plan(view).map_err(|error| AgentError::Input(format!("{error:#}")))?;
        let before = lock(&decided).remove(&view.run);
        if let Some(before) = before {
            let step = view.turn.saturating_sub(1);
            tell(Event::Step(step, asked.saturating_duration_since(before)));
        }
        if view.turn > steps {
            return Ok(br#"{"kind":"complete","result":{}}"#.to_vec());
        }
        lock(&decided).insert(view.run.clone(), now());
        let turn = view.turn;
        Ok(format!(
            r#"{{"kind":"tool_calls","calls":[{{"id":"{turn}","tool":"{tool}","arguments":{{"n":{turn},"text":"what a small call carries"}}}}]}}"#
        )
        .into_bytes())
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn plan(view: &AgentView) -> anyhow::Result<(u32, String)> {
    let input = view.input.as_ref().context("no input")?;
    let steps = input.member("steps").context("no steps")?.parse()?;
    let tool = input.member("tool").context("no tool")?.parse()?;
    Ok((steps, tool))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_the_event_was() {
        let run = RunId::new("a run with spaces").unwrap();
        for event in [
            Event::Step(7, Duration::from_nanos(1_234_567)),
            Event::Ended(run),
        ] {
            assert_eq!(Event::read(&event.line()), Some(event));
        }
        for line in ["", "ready", "step 1", "step x 1", "ended "] {
            assert_eq!(Event::read(line), None, "{line:?}");
        }
    }
}
