"""Which receipt store the cluster last saw this worker with: what tells a disk that was cloned, or went back in time, from the right one.

Each start mints a boot id, writes it into the store, and then marks the store with the cluster by compare-and-set; while the worker runs it
refreshes how far the store has reached. A store is good if the boot id that stands in the mark is one of its own and it reaches at least as far.
A store that was restored from a moment after the last refresh cannot be told. `docs/protocol.md` section 19.
"""

from __future__ import annotations

import logging
from typing import Any

import names
from receipts import Receipts
from records import VERSION, decode, encode
from wire import EXPECTED, Backoff, Busy, Refused, Unknown, Wire

log = logging.getLogger("worker")


class Mark:
    def __init__(self, wire: Wire, domain: str, store: Receipts) -> None:
        self._wire = wire
        self._subject = names.logbook(domain, wire.worker)
        self._store = store
        self._revision = 0
        self._marked = -1

    async def begin(self) -> None:
        """Marks the store. One that is not to be believed is set aside first: what it alone knew counts as unknown."""
        backoff = Backoff()
        while True:
            if why := disbelieved(await self._read(), self._store):
                self._store.replace(why)
            try:
                return await self._write()
            except (Refused, Busy, Unknown):
                await backoff.pause()

    async def refresh(self) -> bool:
        """Tells how far the store has reached. False: another process has marked a store of this worker's name since."""
        if self._store.head == self._marked:
            return True
        try:
            await self._write()
        except (Refused, Unknown):
            mark = await self._read()
            return mark is not None and mark["boot"] == self._store.boots[-1]
        except Busy:
            pass
        return True

    async def _read(self) -> dict[str, Any] | None:
        last = await self._wire.own_record(self._subject)
        self._revision = last.seq if last else 0
        return decode(last.body) if last else None

    async def _write(self) -> None:
        head = self._store.head
        body = {"v": VERSION, "id": self._store.id, "boot": self._store.boots[-1], "head": head}
        self._revision = await self._wire.publish(self._subject, {EXPECTED: str(self._revision)}, encode(body))
        self._marked = head


def disbelieved(mark: dict[str, Any] | None, store: Receipts) -> str | None:
    """Why the store is not the one that was marked."""
    if mark is None:
        return None
    if mark["id"] != store.id:
        # One that has just been made knows nothing, and claims to know nothing.
        return f"store {mark['id']} was used since this one was open" if len(store.boots) > 1 else None
    if mark["boot"] not in store.boots:
        return "another copy of it was open since: it is a clone, or an old state of the disk"
    if mark["head"] > store.head:
        return f"it reaches {store.head} and had reached {mark['head']}: it is an old state of the disk"
    return None
