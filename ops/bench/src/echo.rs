//! The tool: this program again, as a child that answers each POST with its body, over connections that are kept.

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use tokio::net::TcpListener;

use crate::children::{Offspring, until_alone};

/// What the child says before its address.
const READY: &str = "listening on ";
/// Where an answer never comes.
pub(crate) const SLOW_PATH: &str = "slow";

/// The child's side: serves until it is alone.
pub(crate) async fn serve() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{READY}{}", listener.local_addr()?);
    let slow = post(async |_: Bytes| std::future::pending::<Bytes>().await);
    let app = Router::new()
        .route("/", post(async |body: Bytes| body))
        .route(&format!("/{SLOW_PATH}"), slow);
    tokio::select! {
        served = axum::serve(listener, app) => Ok(served?),
        () = until_alone() => Ok(()),
    }
}

/// The child, killed when dropped.
pub(crate) struct Echo {
    child: Offspring,
    /// Where it answers.
    pub(crate) url: String,
}

impl Echo {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let child = Offspring::start(["echo".to_owned()], READY).await?;
        Ok(Self {
            url: format!("http://{}/", child.said),
            child,
        })
    }

    pub(crate) fn pid(&self) -> anyhow::Result<u32> {
        self.child.pid()
    }
}
