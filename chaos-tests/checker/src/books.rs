//! The books of whoever had the effects: the payments service's own database, or a ledger of requests and effects.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use rusqlite::{Connection, OpenFlags};

use crate::ledger;

/// How a database begins.
const SQLITE: &[u8] = b"SQLite format 3\0";
/// The payments service's tools with effects, and the one whose effects are money.
const PAYMENTS: [&str; 2] = [REFUND, "close_case"];
const REFUND: &str = "refund_order";

/// One effect.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) tool: String,
    pub(crate) key: String,
    /// What it was about: an order; of a ledger, the key.
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
    /// The tools whose effects stand in them.
    pub(crate) tools: Arc<BTreeSet<String>>,
    /// The tool whose effects alone make up the sums; all of them otherwise.
    pub(crate) counted: Option<&'static str>,
}

impl Books {
    /// Either kind: a file tells by its first bytes which it is.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let mut head = Vec::new();
        let length = u64::try_from(SQLITE.len()).unwrap_or(0);
        std::fs::File::open(path)
            .and_then(|file| file.take(length).read_to_end(&mut head))
            .with_context(|| format!("reading the books {}", path.display()))?;
        if head == SQLITE {
            return Self::open(path)
                .with_context(|| format!("reading the payments database {}", path.display()));
        }
        ledger::read(path).with_context(|| format!("reading the ledger {}", path.display()))
    }

    /// The payments service's, empty.
    pub(crate) fn of_payments() -> Self {
        Self {
            tools: Arc::new(PAYMENTS.map(str::to_owned).into()),
            counted: Some(REFUND),
            ..Self::default()
        }
    }

    /// Whether this tool's effects are part of the sums.
    pub(crate) fn counts(&self, tool: &str) -> bool {
        self.counted.is_none_or(|counted| counted == tool)
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
        for (tool, table) in [(REFUND, "refunds"), ("close_case", "cases")] {
            let mut statement = books.prepare(&format!(
                "SELECT key, order_id, run, step, attempt, applied FROM {table} ORDER BY id"
            ))?;
            let found = statement.query_map([], |row| {
                Ok(Row {
                    tool: tool.to_owned(),
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
        Ok(Self {
            requests,
            rows,
            ..Self::of_payments()
        })
    }
}

/// An attempt that is no number was never dispatched, like attempt 0.
fn attempt(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or(0)
}
