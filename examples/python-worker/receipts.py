"""The durable receipt store: this worker's own record of what it armed and what came of it. `docs/protocol.md` section 12.

It is evidence and an outbox, never a to-do list. The first receipt of an attempt is create-if-absent: a receipt that is there already means
*do not execute*. Every write is on the disk when its method returns (SQLite, `synchronous=FULL`).

A store has an id, minted with its file, which stands in every claim: a claim made under another store is one that this store knows nothing
about. A store that cannot be read, or is not the one that the cluster last saw (`mark.py`), is set aside for a fresh one. The lock is held for the process's life, so two workers never share a store.
"""

from __future__ import annotations

import fcntl
import json
import logging
import sqlite3
import uuid
from pathlib import Path
from typing import Any

from names import Attempt

log = logging.getLogger("worker")

Receipt = dict[str, Any]


def armed(claim: str, incarnation: str, call: int) -> Receipt:
    """The effect may begin any time from here."""
    return {"kind": "armed", "claim": claim, "incarnation": incarnation, "call": call}


def tombstone(claim: str, why: str) -> Receipt:
    """The effect never began and never will."""
    return {"kind": "tombstone", "claim": claim, "why": why}


class Receipts:
    """The store in a folder. Its methods block; used by one thread at a time."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = open(folder / "lock", "w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SystemExit(f"error: another worker uses {folder}; give each worker a folder of its own") from error
        self._folder = folder
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            self.replace(f"it cannot be read: {error}")

    def _open(self) -> None:
        self._db = sqlite3.connect(self._folder / "receipts.db", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("CREATE TABLE IF NOT EXISTS store (id TEXT NOT NULL, head INTEGER NOT NULL)")
        self._db.execute("CREATE TABLE IF NOT EXISTS boots (boot TEXT NOT NULL)")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS receipts (attempt TEXT PRIMARY KEY, receipt TEXT NOT NULL, settled INTEGER NOT NULL DEFAULT 0)"
        )
        if (damage := self._db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(damage)
        self._db.execute("INSERT INTO store SELECT ?, 0 WHERE NOT EXISTS (SELECT 1 FROM store)", (uuid.uuid4().hex,))
        row = self._db.execute("SELECT id, head FROM store").fetchone()
        self.id: str = row[0]
        self.head: int = row[1]
        """How far the store has reached, on the disk: how often a receipt was written."""
        self._db.execute("INSERT INTO boots VALUES (?)", (uuid.uuid4().hex,))
        self.boots: list[str] = [row[0] for row in self._db.execute("SELECT boot FROM boots ORDER BY rowid")]
        """The starts that opened this store, the present one last."""

    def replace(self, why: str) -> None:
        """A store that is not to be believed knows nothing: a fresh one, with a fresh id, stands in its place, and what it held is unknown."""
        self._db.close()
        aside = self._folder / f"not-believed-{uuid.uuid4().hex[:8]}"
        aside.mkdir()
        for file in self._folder.glob("receipts.db*"):
            file.rename(aside / file.name)
        log.error("the receipt store is not to be believed (%s); it was set aside as %s, and what it held is unknown", why, aside)
        self._open()

    def create(self, attempt: Attempt, receipt: Receipt) -> Receipt | None:
        """Writes the attempt's first receipt. If one is there already, writes nothing and returns that one."""
        written = self._write(
            "INSERT INTO receipts (receipt, attempt) VALUES (?, ?) ON CONFLICT DO NOTHING", json.dumps(receipt), attempt.json()
        )
        return None if written else self.get(attempt)

    def outcome(self, attempt: Attempt, armed: Receipt, fact: dict[str, Any]) -> None:
        """Replaces the armed receipt by its outcome."""
        receipt = {"kind": "outcome", "armed": armed, "outcome": fact}
        self._write("UPDATE receipts SET receipt = ? WHERE attempt = ?", json.dumps(receipt), attempt.json())

    def _write(self, statement: str, *values: str) -> bool:
        """One transaction: the receipt and how far the store has reached. Whether anything was written."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            written = self._db.execute(statement, values).rowcount == 1
            self._db.execute("UPDATE store SET head = head + ?", (int(written),))
            self._db.execute("COMMIT")
        except BaseException:
            self._db.rollback()
            raise
        self.head += int(written)
        return written

    def get(self, attempt: Attempt) -> Receipt | None:
        row = self._db.execute("SELECT receipt FROM receipts WHERE attempt = ?", (attempt.json(),)).fetchone()
        return json.loads(row[0]) if row else None

    def settle(self, attempt: Attempt) -> None:
        """Everything known about the attempt stands in its register. The receipt stays."""
        self._db.execute("UPDATE receipts SET settled = 1 WHERE attempt = ?", (attempt.json(),))

    def open(self) -> list[Attempt]:
        """What an earlier life of this worker did not settle."""
        rows = self._db.execute("SELECT attempt FROM receipts WHERE settled = 0 ORDER BY rowid").fetchall()
        return [Attempt.from_json(row[0]) for row in rows]
