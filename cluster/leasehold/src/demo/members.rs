//! How the nodes and workers of the demo's cluster are started.

use std::net::SocketAddr;

use leasehold_local::{NodeOptions, Recipe, WorkerOptions};

use super::children::Folder;
use super::cluster::SESSION_TTL;
use super::plan::{SLOTS, WORKERS};

/// What every life is started with.
pub(super) struct Setting {
    pub(super) folder: Folder,
    pub(super) payments: SocketAddr,
    pub(super) sabotage: Option<String>,
    pub(super) record: bool,
}

impl Setting {
    pub(super) fn node(&self, n: usize) -> Recipe {
        let name = format!("node-{n}");
        let mut arguments = self.common();
        // One machine has one clock.
        arguments.extend(["--clock-bound".to_owned(), "0".to_owned()]);
        if self.record {
            let file = self.folder.recording(&name);
            let file = file.to_string_lossy().into_owned();
            arguments.extend(["--record".to_owned(), file]);
        }
        Recipe::Node(NodeOptions {
            name,
            tools: self.folder.tools(),
            policy: Some(self.folder.policy()),
            arguments,
            ..NodeOptions::default()
        })
    }

    pub(super) fn worker(&self, n: usize) -> Recipe {
        let mut arguments = self.common();
        let slots = SLOTS.div_ceil(WORKERS).to_string();
        arguments.extend(["--slots".to_owned(), slots]);
        Recipe::Worker(WorkerOptions {
            name: format!("worker-{n}"),
            tools: self.folder.tools(),
            arguments,
            ..WorkerOptions::default()
        })
    }

    fn common(&self) -> Vec<String> {
        let mut arguments = vec![
            "--session-ttl".to_owned(),
            SESSION_TTL.as_secs().to_string(),
            "--set".to_owned(),
            format!("PAYMENTS={}", self.payments),
        ];
        if let Some(sabotage) = &self.sabotage {
            arguments.extend(["--sabotage".to_owned(), sabotage.clone()]);
        }
        arguments
    }
}
