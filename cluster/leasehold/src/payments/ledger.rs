//! The service's books: SQLite in WAL mode with full synchronisation. A request is one durable insert; an effect is one
//! transaction that takes the write lock first, checks the deadline under it, and inserts exactly one row. A probe takes
//! the same lock, so it sees an effect wholly or not at all, and no effect whose deadline has passed can follow it.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use super::caller::Caller;
use super::faults::{Arm, Fault};

/// How long to wait for the write lock: a reader of the books holds it only for moments.
const BUSY: Duration = Duration::from_secs(5);

/// `applied` in refunds and cases is the rowid of the request that was applied.
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS requests (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, tool TEXT NOT NULL, run TEXT NOT NULL, step TEXT NOT NULL,
  attempt INTEGER NOT NULL, epoch INTEGER NOT NULL, key TEXT NOT NULL, args_sha256 TEXT NOT NULL, deadline INTEGER);
CREATE TABLE IF NOT EXISTS refunds (
  id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, order_id TEXT NOT NULL, amount TEXT NOT NULL,
  currency TEXT NOT NULL, run TEXT NOT NULL, step TEXT NOT NULL, attempt INTEGER NOT NULL, at INTEGER NOT NULL,
  applied INTEGER NOT NULL REFERENCES requests(id));
CREATE TABLE IF NOT EXISTS cases (
  id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, order_id TEXT NOT NULL, decision TEXT NOT NULL,
  refund_id TEXT, run TEXT NOT NULL, step TEXT NOT NULL, attempt INTEGER NOT NULL, at INTEGER NOT NULL,
  applied INTEGER NOT NULL REFERENCES requests(id));
CREATE TABLE IF NOT EXISTS faults (
  id INTEGER PRIMARY KEY AUTOINCREMENT, tool TEXT NOT NULL, fault TEXT NOT NULL, remaining INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS refunds_by_key ON refunds(key);
CREATE INDEX IF NOT EXISTS cases_by_key ON cases(key);
";

/// What an effect's transaction came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Applied {
    /// Committed; the new row.
    Row(i64),
    /// The deadline had passed; nothing was written.
    Late,
}

/// A refund as the books have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refund {
    pub(super) order_id: String,
    pub(super) amount: String,
    pub(super) currency: String,
}

/// A closed case as the books have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) order_id: String,
    pub(super) decision: String,
    pub(super) refund_id: Option<String>,
}

/// The books. Calls block; they are short.
pub(super) struct Ledger(Mutex<Connection>);

impl Ledger {
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let what = || format!("opening the payments database {}", path.display());
        let connection = Connection::open(path).with_context(what)?;
        connection.busy_timeout(BUSY).with_context(what)?;
        connection
            .pragma_update(None, "journal_mode", "WAL")
            .with_context(what)?;
        connection
            .pragma_update(None, "synchronous", "FULL")
            .with_context(what)?;
        connection.execute_batch(SCHEMA).with_context(what)?;
        Ok(Self(Mutex::new(connection)))
    }

    /// Writes a request down and takes the fault that is armed for it, if any. Durable once it returns.
    pub(super) fn record(
        &self,
        tool: &str,
        caller: &Caller,
        args_sha256: &str,
        now: i64,
    ) -> rusqlite::Result<(i64, Option<Fault>)> {
        let mut connection = self.lock();
        let tx = immediate(&mut connection)?;
        tx.execute(
            "INSERT INTO requests (at, tool, run, step, attempt, epoch, key, args_sha256, deadline) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![now, tool, caller.run, caller.step, caller.attempt, caller.epoch, caller.key, args_sha256, caller.deadline],
        )?;
        let request = tx.last_insert_rowid();
        let armed: Option<(i64, String)> = tx
            .query_row("SELECT id, fault FROM faults WHERE tool = ?1 AND remaining > 0 ORDER BY id LIMIT 1", [tool], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        let mut fault = None;
        if let Some((id, name)) = armed {
            tx.execute(
                "UPDATE faults SET remaining = remaining - 1 WHERE id = ?1",
                [id],
            )?;
            fault = Fault::named(&name);
        }
        tx.commit()?;
        Ok((request, fault))
    }

    /// Pays, unless it is too late. Never looks whether the key was paid before.
    pub(super) fn refund(
        &self,
        request: i64,
        caller: &Caller,
        refund: &Refund,
        deadline: i64,
        clock: fn() -> i64,
    ) -> rusqlite::Result<Applied> {
        self.apply(deadline, clock, |tx, now| {
            tx.execute(
                "INSERT INTO refunds (key, order_id, amount, currency, run, step, attempt, at, applied) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                params![
                    caller.key,
                    refund.order_id,
                    refund.amount,
                    refund.currency,
                    caller.run,
                    caller.step,
                    caller.attempt,
                    now,
                    request
                ],
            )
        })
    }

    /// Closes a case, unless it is too late. Never looks whether it was closed before.
    pub(super) fn close(
        &self,
        request: i64,
        caller: &Caller,
        case: &Case,
        deadline: i64,
        clock: fn() -> i64,
    ) -> rusqlite::Result<Applied> {
        self.apply(deadline, clock, |tx, now| {
            tx.execute(
                "INSERT INTO cases (key, order_id, decision, refund_id, run, step, attempt, at, applied) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                params![caller.key, case.order_id, case.decision, case.refund_id, caller.run, caller.step, caller.attempt, now, request],
            )
        })
    }

    /// The first refund under a key, read under the lock that refunds take.
    pub(super) fn refund_of(&self, key: &str) -> rusqlite::Result<Option<(i64, Refund)>> {
        self.look(
            "SELECT id, order_id, amount, currency FROM refunds WHERE key = ?1 ORDER BY id LIMIT 1",
            key,
            |row| {
                Ok((
                    row.get(0)?,
                    Refund {
                        order_id: row.get(1)?,
                        amount: row.get(2)?,
                        currency: row.get(3)?,
                    },
                ))
            },
        )
    }

    /// The first closing under a key, read under the lock that closings take.
    pub(super) fn case_of(&self, key: &str) -> rusqlite::Result<Option<(i64, Case)>> {
        self.look("SELECT id, order_id, decision, refund_id FROM cases WHERE key = ?1 ORDER BY id LIMIT 1", key, |row| {
            Ok((row.get(0)?, Case { order_id: row.get(1)?, decision: row.get(2)?, refund_id: row.get(3)? }))
        })
    }

    /// Arms faults, durably.
    pub(super) fn arm(&self, arm: &Arm) -> rusqlite::Result<()> {
        let connection = self.lock();
        connection.execute(
            "INSERT INTO faults (tool, fault, remaining) VALUES (?1, ?2, ?3)",
            params![arm.tool.name(), arm.fault.name(), arm.count],
        )?;
        Ok(())
    }

    fn apply(
        &self,
        deadline: i64,
        clock: fn() -> i64,
        insert: impl FnOnce(&Transaction<'_>, i64) -> rusqlite::Result<usize>,
    ) -> rusqlite::Result<Applied> {
        let mut connection = self.lock();
        let tx = immediate(&mut connection)?;
        // Under the lock: a probe that comes after the deadline either sees this row or knows that it never will.
        let now = clock();
        if now >= deadline {
            return Ok(Applied::Late);
        }
        insert(&tx, now)?;
        let row = tx.last_insert_rowid();
        tx.commit()?;
        Ok(Applied::Row(row))
    }

    fn look<T>(
        &self,
        sql: &str,
        key: &str,
        read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        let mut connection = self.lock();
        let tx = immediate(&mut connection)?;
        let found = tx.query_row(sql, [key], read).optional()?;
        tx.commit()?;
        Ok(found)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A panic in a holder rolled its transaction back; the connection is as good as before.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn immediate(connection: &mut Connection) -> rusqlite::Result<Transaction<'_>> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}
