//! The external effect ledger: the world that the runtime's tools change.
//!
//! A process of its own with a file of its own, which the runtime never reads. Every request that reaches it is one line of JSON, fsynced
//! before anything else is done for it, and so is every effect. The independent checker reads the file at the end; the operators of the
//! workload look into it while they decide, as a person would look into the books of a bank.

mod book;
mod mode;
mod reader;
mod server;

pub(crate) use mode::Mode;
pub(crate) use reader::{Ledger, LineOf};
pub(crate) use server::LATE;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::net::TcpListener;

/// What the process says once it serves.
pub(crate) const LISTENING: &str = "listening on ";

/// Arguments of `leasehold-chaos ledger`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct LedgerArgs {
    /// The file that it appends to
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Where it listens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

/// Serves until the process is killed.
pub(crate) async fn run(args: LedgerArgs) -> anyhow::Result<()> {
    let what = || format!("opening the ledger {}", args.file.display());
    let book = book::Book::open(&args.file).with_context(what)?;
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("listening on {}", args.listen))?;
    let mut out = std::io::stdout();
    writeln!(out, "{LISTENING}{}", listener.local_addr()?)?;
    out.flush()?;
    server::serve(listener, Arc::new(book)).await
}
