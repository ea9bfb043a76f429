//! One node or worker of the demo's cluster: how each of its lives is started, and what its log tells.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use leasehold_local::{LocalError, NodeOptions, Processes, Program, WorkerOptions};
use tokio::time::Instant;

use super::children::Folder;
use super::cluster::SESSION_TTL;
use super::plan::{SLOTS, WORKERS};
use super::scene::{Stall, Who};

/// How a line begins that says that a process stands still.
const REACHED_LINE: &str = "reached ";
/// What the log of a process holds that panicked somewhere. None may.
const PANIC: &str = "panicked at";

/// What every life is started with.
pub(super) struct Setting {
    pub(super) folder: Folder,
    pub(super) payments: SocketAddr,
    pub(super) sabotage: Option<String>,
    pub(super) record: bool,
}

/// What a process is doing.
#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    Runs,
    Away { until: Instant },
    Paused { until: Instant },
}

/// See the module.
pub(super) struct Member {
    pub(super) who: Who,
    pub(super) name: String,
    /// Where its present or next life stands still.
    pub(super) stall: Option<Stall>,
    pub(super) what: What,
    /// How often it has ended by itself.
    pub(super) ended: usize,
}

impl Member {
    pub(super) fn new(who: Who, name: String) -> Self {
        Self {
            who,
            name,
            stall: None,
            what: What::Runs,
            ended: 0,
        }
    }

    /// Its first or next life.
    pub(super) fn start(
        &mut self,
        processes: &Processes,
        program: &Program,
        setting: &Setting,
    ) -> Result<(), LocalError> {
        let (name, tools) = (self.name.clone(), setting.folder.tools());
        let mut arguments = vec![
            "--session-ttl".to_owned(),
            SESSION_TTL.as_secs().to_string(),
            "--set".to_owned(),
            format!("PAYMENTS={}", setting.payments),
        ];
        let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        if let Some(stall) = self.stall {
            option("--stall", stall.argument());
        }
        if let Some(sabotage) = &setting.sabotage {
            option("--sabotage", sabotage.clone());
        }
        if self.who == Who::Workers {
            option("--slots", SLOTS.div_ceil(WORKERS).to_string());
            let worker = WorkerOptions {
                name,
                tools,
                arguments,
                ..WorkerOptions::default()
            };
            processes.start_worker(program, worker)?;
        } else {
            // One machine has one clock.
            option("--clock-bound", "0".to_owned());
            if setting.record {
                let file = setting.folder.recording(&self.name);
                option("--record", file.to_string_lossy().into_owned());
            }
            let node = NodeOptions {
                name,
                tools,
                policy: Some(setting.folder.policy()),
                arguments,
                ..NodeOptions::default()
            };
            processes.start_node(program, node)?;
        }
        self.what = What::Runs;
        Ok(())
    }

    /// Whether it stands still where it was told to.
    pub(super) async fn has_stalled(&self, processes: &Processes) -> bool {
        let says = processes.says(&self.name, REACHED_LINE, Duration::ZERO);
        self.stall.is_some() && says.await.is_ok()
    }

    /// Lines of its log that say that it panicked.
    pub(super) fn panics(&self, folder: &Path) -> anyhow::Result<Vec<String>> {
        let log = folder.join(format!("{}.log", self.name));
        let text = std::fs::read(&log).with_context(|| format!("reading {}", log.display()))?;
        let text = String::from_utf8_lossy(&text);
        let panics = text.lines().filter(|line| line.contains(PANIC));
        Ok(panics.map(str::to_owned).collect())
    }
}
