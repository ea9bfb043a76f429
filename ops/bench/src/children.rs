//! This program again, as a child: it says one line when it is ready, and ends when its standard input does.

use std::process::Stdio;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::oneshot;

/// A running child, killed when dropped.
pub(crate) struct Offspring {
    child: Child,
    /// What it said when it was ready, after the word for it.
    pub(crate) said: String,
    /// What it says from then on.
    pub(crate) lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl Offspring {
    /// Starts it and waits until it says that it is ready, with this word at the line's beginning.
    pub(crate) async fn start(
        arguments: impl IntoIterator<Item = String>,
        ready: &str,
    ) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this program's own file")?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting a process that says {ready:?}"))?;
        let out = child.stdout.take().context("its output is not there")?;
        let mut lines = BufReader::new(out).lines();
        let said = lines.next_line().await?;
        match said.as_deref().and_then(|said| said.strip_prefix(ready)) {
            Some(said) => Ok(Self {
                said: said.to_owned(),
                child,
                lines: Some(lines),
            }),
            None => bail!("a process that says {ready:?} did not come up: {said:?}"),
        }
    }

    pub(crate) fn pid(&self) -> anyhow::Result<u32> {
        self.child.id().context("a process has ended")
    }

    /// Kills it, and waits until it is gone.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }
}

/// The child's side: returns once whoever started it is gone.
pub(crate) async fn until_alone() {
    let (alone, is_alone) = oneshot::channel::<()>();
    let wait = move || {
        // An error is as good as an end; nothing is ever said there.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        drop(alone);
    };
    if std::thread::Builder::new().spawn(wait).is_ok() {
        let _ = is_alone.await;
    }
}
