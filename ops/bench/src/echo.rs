//! The tool: this program again, as a child that answers each POST with its body, over connections that are kept.

use std::process::Stdio;

use anyhow::{Context as _, bail};
use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

/// What the child says before its address.
const READY: &str = "listening on ";

/// The child's side: serves until it is killed.
pub(crate) async fn serve() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{READY}{}", listener.local_addr()?);
    let app = Router::new().route("/", post(async |body: Bytes| body));
    axum::serve(listener, app).await?;
    Ok(())
}

/// The child, killed when dropped.
pub(crate) struct Echo {
    child: Child,
    /// Where it answers.
    pub(crate) url: String,
}

impl Echo {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this program's own file")?;
        let mut child = Command::new(program)
            .arg("echo")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting the tool's process")?;
        let out = child
            .stdout
            .take()
            .context("the tool's output is not there")?;
        let said = BufReader::new(out).lines().next_line().await?;
        match said.as_deref().and_then(|said| said.strip_prefix(READY)) {
            Some(address) => Ok(Self {
                url: format!("http://{address}/"),
                child,
            }),
            None => bail!("the tool's process did not come up: {said:?}"),
        }
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }
}
