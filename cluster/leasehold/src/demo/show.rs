//! What is seen of the demo while it runs: a progress bar on a terminal, and a line now and then where there is none.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};

use crate::say;

/// Kills between two lines where there is no terminal.
const KILLS_A_LINE: usize = 10;

/// See the module. Speaks on standard error only.
pub(super) struct Show {
    bar: Option<ProgressBar>,
    orders: usize,
    planned: usize,
    said: usize,
}

impl Show {
    pub(super) fn new(orders: usize, planned: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(u64::try_from(orders).unwrap_or(u64::MAX));
            let style = ProgressStyle::with_template(
                "{elapsed:>5} [{bar:40}] {pos}/{len} runs over · {msg}",
            );
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self {
            bar,
            orders,
            planned,
            said: 0,
        }
    }

    pub(super) fn update(&mut self, kills: usize, over: usize) {
        let text = format!("{} of {} kills -9", kills, self.planned);
        match &self.bar {
            Some(bar) => {
                bar.set_position(u64::try_from(over).unwrap_or(u64::MAX));
                bar.set_message(text);
            }
            None if kills >= self.said + KILLS_A_LINE => {
                self.said = kills;
                say::aside(&format!("{text}, {over} of {} runs over", self.orders));
            }
            None => {}
        }
    }

    pub(super) fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
