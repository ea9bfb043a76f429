"""This process's life as others see it, and its own belief that it may still act. `docs/protocol.md` section 19.

The liveness record carries a time to live and is renewed at a third of it. Authority lasts until the *send* time of the last acknowledged
renewal plus 90 % of the time to live, on a clock that counts suspension. It is checked before every claim and before every effect; a
process that was paused for too long finds it gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time

import names
from records import VERSION, encode
from wire import EXPECTED, Busy, Refused, Unknown, Wire

log = logging.getLogger("worker")

MARKER_TTL = 7 * 24 * 3600


def boot() -> float:
    """Seconds on a clock that counts suspension."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Session:
    def __init__(self, wire: Wire, domain: str, incarnation: str, ttl: float) -> None:
        self._wire = wire
        self._subject = names.live(domain, wire.worker)
        self._incarnation = incarnation
        self._ttl = ttl
        self._until = 0.0
        self._revision = 0
        self._renewal = 0
        self.lost = False

    def alive(self) -> bool:
        """Whether this process may act, at this very moment."""
        return not self.lost and boot() < self._until

    async def renew(self) -> None:
        """One renewal. Raises what `Wire.publish` raises."""
        self._renewal += 1
        body = {
            "v": VERSION,
            "session": self._incarnation,
            "name": self._wire.worker,
            "pid": os.getpid(),
            "version": "python-worker 1",
            "ttl_ms": int(self._ttl * 1000),
            "renewal": self._renewal,
        }
        headers = {EXPECTED: str(self._revision), "Nats-TTL": f"{max(1, int(self._ttl))}s"}
        sent = boot()
        try:
            revision = await self._wire.publish(self._subject, headers, encode(body))
        except Refused:
            # An earlier life's record, the mark of one that ran out, or our own renewal whose answer was lost.
            last = await self._wire.own_record(self._subject)
            self._revision = last.seq if last else 0
            raise
        if boot() - sent < self._ttl:
            self._revision = revision
            self._until = sent + 0.9 * self._ttl

    async def run(self) -> None:
        """Renews for ever. A worker's session that was missed goes on once it is renewed: nothing was taken from it meanwhile."""
        while not self.lost:
            try:
                await self.renew()
                await asyncio.sleep(self._ttl / 3)
            except (Refused, Busy, Unknown) as error:
                log.info("the session was not renewed yet: %s", error)
                await asyncio.sleep(self._ttl / 30)

    async def end(self) -> None:
        """No authority from here on; the record is taken away, so that nobody need wait for its time to run out."""
        self.lost = True
        headers = {EXPECTED: str(self._revision), "KV-Operation": "DEL", "Nats-TTL": f"{MARKER_TTL}s"}
        try:
            await self._wire.publish(self._subject, headers, b"")
        except (Refused, Busy, Unknown) as error:
            log.info("the session's record stays until its time has run out: %s", error)
