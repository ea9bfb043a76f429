//! The payments service of the refund desk: a program that Leasehold does not control, with its own database.
//!
//! It is naive on purpose. It writes down every request durably before it looks at it, then applies each refund in one
//! transaction, and it never deduplicates: asked twice, it pays twice, so that a double execution shows in its books.
//! What it does offer is what makes recovery possible: it refuses a request whose deadline has passed inside the
//! transaction that would pay, and it answers under the same lock whether a key was paid. It may be killed at any
//! moment and goes on from the same database on the same port. Faults are armed over `POST /faults` and are durable
//! too, so that a fault that kills the service stays counted.

mod caller;
mod desk;
mod faults;
mod ledger;
mod line;
mod orders;
mod server;

#[cfg(test)]
mod tests;

pub(crate) use orders::{ColumnMap, Order, Orders};

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use tokio::net::TcpSocket;

use desk::Desk;
use ledger::Ledger;
use line::Doors;

/// Connections that may wait to be accepted: more than the demo's workers ever open at once.
const BACKLOG: u32 = 1024;

/// What the service is started with.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PaymentsArgs {
    /// The service's own SQLite database; created if it is not there
    #[arg(long)]
    pub(crate) db: PathBuf,
    /// The orders, as a CSV file with a header row
    #[arg(long)]
    pub(crate) orders: PathBuf,
    /// Which columns of a foreign file mean what, for example id=invoice_id,customer=customer,amount=total
    #[arg(long, default_value = "")]
    pub(crate) map: ColumnMap,
    /// The loopback address to listen on
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
}

/// Runs the service until the process dies. Prints one line, `payments listening on ADDR`, once it can be called.
///
/// # Errors
/// The address is not a loopback address or is taken, the orders cannot be read (every fault of the file at once), or
/// the database cannot be opened.
pub(crate) async fn run(args: PaymentsArgs) -> anyhow::Result<()> {
    let (doors, desk) = open(&args)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "payments listening on {}", doors.address()?)
        .context("saying which address is listened on")?;
    out.flush().context("saying which address is listened on")?;
    drop(out);
    server::serve(doors, desk).await
}

fn open(args: &PaymentsArgs) -> anyhow::Result<(Doors, Arc<Desk>)> {
    let address = args.listen;
    ensure!(
        address.ip().is_loopback(),
        "{address} is not a loopback address: the service has no authentication, use 127.0.0.1 or [::1]"
    );
    let orders = Orders::read(&args.orders, &args.map)?;
    let ledger = Ledger::open(&args.db)?;
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }
    .context("making a socket")?;
    // A killed predecessor leaves connections in TIME_WAIT; they must not keep its successor from the port.
    socket
        .set_reuseaddr(true)
        .context("making the port reusable")?;
    socket
        .bind(address)
        .with_context(|| format!("binding {address}"))?;
    let listener = socket
        .listen(BACKLOG)
        .with_context(|| format!("listening on {address}"))?;
    Ok((
        Doors::new(listener),
        Arc::new(Desk::new(orders, ledger, unix_ms)),
    ))
}

/// The wall clock in unix milliseconds: deadlines arrive in it, from a process on the same host.
fn unix_ms() -> i64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "a service outside the runtime has its own clock; this is its only reading"
    )]
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_millis()).ok())
        .unwrap_or(i64::MAX)
}
