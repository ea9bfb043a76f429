//! The scene of the embedded store: one `leasehold dev` on a data folder.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::process::Command;
use tokio_util::task::TaskTracker;

use super::children::{Folder, Process, READY};
use super::operator::Troubles;
use super::plan::SLOTS;
use super::scene::{Pace, Scene, Stall, Who};
use crate::place::Place;

/// The subcommand.
const DEV: &str = "dev";
/// How the lines begin that tell the demo something.
const READY_LINE: &str = "ready";
const REACHED_LINE: &str = "reached";

/// The longest that a healthy runtime is silent is the wait for a call of which nothing is heard (its timeout and 5 s), then six tries of a
/// probe (6 s).
const PACE: Pace = Pace {
    settle: Duration::from_millis(1_500),
    settle_alone: Duration::from_secs(10),
    reach: Duration::from_secs(4),
    silence: Duration::from_secs(20),
    end: Duration::from_secs(120),
};

/// What every life is started with.
pub(super) struct Setting {
    pub(super) folder: Folder,
    pub(super) payments: SocketAddr,
    pub(super) sabotage: Option<String>,
    pub(super) record: Option<PathBuf>,
}

/// The runtime on the demo's data folder.
pub(super) struct Dev {
    setting: Setting,
    process: Process,
    tasks: TaskTracker,
}

impl Dev {
    pub(super) async fn start(
        setting: Setting,
        stall: Option<Stall>,
        tasks: &TaskTracker,
    ) -> anyhow::Result<Self> {
        let process = process(&setting, stall, tasks).await?;
        Ok(Self {
            setting,
            process,
            tasks: tasks.clone(),
        })
    }

    async fn restart(&mut self, stall: Option<Stall>) -> anyhow::Result<()> {
        self.process = process(&self.setting, stall, &self.tasks).await?;
        Ok(())
    }

    fn data(&self) -> PathBuf {
        self.setting.folder.store()
    }
}

async fn process(
    setting: &Setting,
    stall: Option<Stall>,
    tasks: &TaskTracker,
) -> anyhow::Result<Process> {
    let folder = &setting.folder;
    let arguments = |command: &mut Command| {
        let mut path = |name: &str, path: &Path| {
            command.arg(name).arg(path);
        };
        path("--data", &folder.store());
        path("--tools", &folder.tools());
        path("--policy", &folder.policy());
        if let Some(record) = &setting.record {
            path("--record", record);
        }
        let payments = format!("PAYMENTS={}", setting.payments);
        command.args(["--set", &payments, "--slots", &SLOTS.to_string()]);
        if let Some(stall) = stall {
            command.args(["--stall", &stall.argument()]);
        }
        if let Some(sabotage) = &setting.sabotage {
            command.args(["--sabotage", sabotage]);
        }
    };
    let mut process = Process::start(DEV, folder, &[READY_LINE, REACHED_LINE], arguments, tasks)?;
    process.says(READY_LINE, READY).await?;
    Ok(process)
}

#[async_trait]
impl Scene for Dev {
    fn pace(&self) -> Pace {
        PACE
    }

    fn place(&self) -> Arc<Place> {
        Arc::new(Place::Folder(self.data()))
    }

    fn reach(&self) -> [OsString; 2] {
        ["--data".into(), self.data().into()]
    }

    /// The data folder has them in it.
    fn logbooks(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Its lives have appended to it themselves.
    fn gather(&self, _: &Path) -> std::io::Result<()> {
        Ok(())
    }

    async fn stalled(&mut self) -> bool {
        let said = self.process.said.borrow();
        said.iter().any(|line| line.starts_with(REACHED_LINE))
    }

    async fn kill(&mut self, _: Who, next: Option<Stall>) -> anyhow::Result<()> {
        self.process.kill().await?;
        self.restart(next).await
    }

    /// The data folder's lock is held by a paused process too, so nobody could take its runs.
    async fn pause(&mut self, _: Who) -> anyhow::Result<bool> {
        Ok(false)
    }

    async fn tend(&mut self, troubles: &Troubles) -> anyhow::Result<()> {
        if self.process.ended()? {
            troubles.add("the runtime ended by itself; its log says why".to_owned());
            self.restart(None).await?;
        }
        Ok(())
    }

    fn whole(&self) -> bool {
        true
    }

    async fn stop(&mut self, troubles: &Troubles) -> anyhow::Result<()> {
        if !self.process.stop().await? {
            troubles.add("the runtime did not stop in good order; its log says why".to_owned());
        }
        Ok(())
    }

    async fn down(self: Box<Self>, _: &Troubles) -> anyhow::Result<()> {
        Ok(())
    }

    fn diary(&self) -> &[String] {
        &[]
    }
}
