//! The payments service's books, read from its own database.

use std::path::Path;

use anyhow::Context as _;
use rusqlite::{Connection, OpenFlags};

/// One effect: a refund or a closed case.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) tool: &'static str,
    pub(crate) key: String,
    pub(crate) order: String,
    pub(crate) run: String,
    pub(crate) step: String,
    pub(crate) attempt: u64,
    /// The request that was applied.
    pub(crate) applied: i64,
}

/// One request that reached the service, applied or not.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) id: i64,
    pub(crate) key: String,
    pub(crate) run: String,
    pub(crate) step: String,
    pub(crate) attempt: u64,
    pub(crate) args_sha256: String,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Books {
    pub(crate) requests: Vec<Request>,
    pub(crate) rows: Vec<Row>,
}

impl Books {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        Self::open(path)
            .with_context(|| format!("reading the payments database {}", path.display()))
    }

    fn open(path: &Path) -> rusqlite::Result<Self> {
        let books = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let mut requests = books
            .prepare("SELECT id, key, run, step, attempt, args_sha256 FROM requests ORDER BY id")?;
        let requests = requests.query_map([], |row| {
            Ok(Request {
                id: row.get(0)?,
                key: row.get(1)?,
                run: row.get(2)?,
                step: row.get(3)?,
                attempt: attempt(row.get(4)?),
                args_sha256: row.get(5)?,
            })
        })?;
        let requests = requests.collect::<rusqlite::Result<Vec<_>>>()?;
        let mut rows = Vec::new();
        for (tool, table) in [("refund_order", "refunds"), ("close_case", "cases")] {
            let mut statement = books.prepare(&format!(
                "SELECT key, order_id, run, step, attempt, applied FROM {table} ORDER BY id"
            ))?;
            let found = statement.query_map([], |row| {
                Ok(Row {
                    tool,
                    key: row.get(0)?,
                    order: row.get(1)?,
                    run: row.get(2)?,
                    step: row.get(3)?,
                    attempt: attempt(row.get(4)?),
                    applied: row.get(5)?,
                })
            })?;
            rows.extend(found.collect::<rusqlite::Result<Vec<_>>>()?);
        }
        Ok(Self { requests, rows })
    }
}

/// An attempt that is no number was never dispatched, like attempt 0.
fn attempt(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or(0)
}
