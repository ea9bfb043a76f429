//! What is seen of an exercise while it runs, on standard error: a bar on a terminal, and a line for each period everywhere.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;

use crate::board::Numbers;
use crate::schedule::{Period, Schedule};

/// How often the numbers are said where there is no terminal.
const EVERY: Duration = Duration::from_secs(10);

/// See the module.
pub(crate) struct Show {
    bar: ProgressBar,
    is_terminal: bool,
    began: Instant,
    said: Instant,
}

impl Show {
    pub(crate) fn new(schedule: &Schedule) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let periods = u64::try_from(schedule.periods.len()).unwrap_or(u64::MAX);
        let bar = match is_terminal {
            true => ProgressBar::new(periods),
            false => ProgressBar::hidden(),
        };
        let style =
            ProgressStyle::with_template("{elapsed:>5} [{bar:30}] period {pos}/{len} · {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let now = Instant::now();
        Self {
            bar,
            is_terminal,
            began: now,
            said: now,
        }
    }

    pub(crate) fn say(&self, text: &str) {
        let text = format!("{:>5} s  {text}", self.began.elapsed().as_secs());
        match self.is_terminal {
            true => self.bar.println(text),
            false => eprintln!("{text}"),
        }
    }

    pub(crate) fn period(&mut self, place: usize, period: &Period) {
        self.bar.set_position(u64::try_from(place).unwrap_or(0));
        let steps: Vec<String> = period
            .actions
            .iter()
            .map(|action| format!("{} {}", action.fault, action.step))
            .collect();
        let text = match steps.is_empty() {
            true => "quiet".to_owned(),
            false => steps.join("; "),
        };
        self.say(&text);
    }

    pub(crate) fn numbers(&mut self, numbers: Numbers) {
        let text = format!(
            "{} runs, {} over, {} asking, {} commits, owned again {}, findings {}",
            numbers.runs,
            numbers.over,
            numbers.asking,
            numbers.commits,
            numbers.owned_again,
            numbers.findings
        );
        self.bar.set_message(text.clone());
        if !self.is_terminal && self.said.elapsed() >= EVERY {
            self.said = Instant::now();
            self.say(&text);
        }
    }

    pub(crate) fn done(&self) {
        self.bar.finish_and_clear();
    }
}
