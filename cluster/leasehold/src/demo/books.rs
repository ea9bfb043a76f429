//! The payments service's books, as somebody who may look at them reads them: the operator who decides about one payment, and whoever
//! compares all of them with the orders at the end. Opened anew for each look and never written; nothing here asks the runtime.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use leasehold_json::AcceptedJson;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::clerk::{CLOSE, REFUND};

/// How long to wait while the service writes: it does so for moments.
const BUSY: Duration = Duration::from_secs(5);

/// The open books.
pub(super) struct Books(Connection);

/// Money that was paid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Paid {
    pub(super) amount: String,
    pub(super) currency: String,
}

impl Books {
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let what = || format!("opening the payments database {}", path.display());
        let books = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
            .with_context(what)?;
        books.busy_timeout(BUSY).with_context(what)?;
        Ok(Self(books))
    }

    /// What a step of a run has done, as the service would have answered it; `None`: nothing under this step stands in the books.
    pub(super) fn effect(
        &self,
        tool: &str,
        run: &str,
        step: &str,
    ) -> anyhow::Result<Option<AcceptedJson>> {
        let sql = match tool {
            REFUND => {
                "SELECT id, order_id, amount, currency FROM refunds WHERE run = ?1 AND step = ?2 ORDER BY id LIMIT 1"
            }
            CLOSE => {
                "SELECT id, order_id, decision, '' FROM cases WHERE run = ?1 AND step = ?2 ORDER BY id LIMIT 1"
            }
            _ => return Ok(None),
        };
        let row: Option<(i64, String, String, String)> = self
            .0
            .query_row(sql, [run, step], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })
            .optional()
            .context("reading the payments database")?;
        row.map(|(id, order, third, currency)| result(tool, id, &order, &third, &currency))
            .transpose()
    }

    /// The latest moment, in unix milliseconds, until which a request of this step that reached the service may act; `None`: none did.
    pub(super) fn deadline(&self, run: &str, step: &str) -> anyhow::Result<Option<i64>> {
        self.0
            .query_row(
                "SELECT max(deadline) FROM requests WHERE run = ?1 AND step = ?2",
                [run, step],
                |row| row.get(0),
            )
            .context("reading the payments database")
    }

    /// All refunds, by order.
    pub(super) fn paid(&self) -> anyhow::Result<BTreeMap<String, Vec<Paid>>> {
        let mut paid: BTreeMap<String, Vec<Paid>> = BTreeMap::new();
        let mut rows = self
            .0
            .prepare("SELECT order_id, amount, currency FROM refunds ORDER BY id")?;
        let rows = rows.query_map([], |row| {
            Ok((
                row.get(0)?,
                Paid {
                    amount: row.get(1)?,
                    currency: row.get(2)?,
                },
            ))
        })?;
        for row in rows {
            let (order, refund) = row.context("reading the payments database")?;
            paid.entry(order).or_default().push(refund);
        }
        Ok(paid)
    }
}

/// Numbers stand in the books as the exact digits that were sent.
fn result(
    tool: &str,
    id: i64,
    order: &str,
    third: &str,
    currency: &str,
) -> anyhow::Result<AcceptedJson> {
    let order = AcceptedJson::check_str(order)?;
    let word = |word: &str| AcceptedJson::from_serialize(word);
    let object = if tool == REFUND {
        let (id, amount, currency) = (
            word(&format!("rf-{id}"))?,
            AcceptedJson::check_str(third)?,
            word(currency)?,
        );
        AcceptedJson::object([
            ("refund_id", &id),
            ("order_id", &order),
            ("amount", &amount),
            ("currency", &currency),
        ])
    } else {
        let (id, decision) = (word(&format!("case-{id}"))?, word(third)?);
        AcceptedJson::object([
            ("case_id", &id),
            ("order_id", &order),
            ("decision", &decision),
        ])
    };
    Ok(object?)
}
