"""One attempt, from the delivered call to the outcome that everybody can read. `docs/protocol.md` section 16, line by line.

The order is the promise: claim, then `armed` in the receipt store, then the last gate with nothing awaited after it, then the effect, then the
outcome in the receipt store and in the register, then the acknowledgement. (Claim and `armed` may also be written side by side, which is
faster; one after the other is easier to read.) Whatever is unclear ends in a note, never in "it did not happen".
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import receipts
import records
import stall
import tool
from names import Attempt
from receipts import Receipt, Receipts
from records import Call, Chain, Newer, Unreadable
from session import Session, boot
from wire import Backoff, Busy, Delivery, Refused, Unknown, Wire

log = logging.getLogger("worker")
T = TypeVar("T")

LONGEST_SLEEP = 20.0
"""The timer that sleeps does not count suspension and the deadline's clock does."""


class Abandoned(Exception):
    """This process may not act any more. Whatever is written stands; the next life settles it."""


@dataclass
class InHand:
    """An attempt that this process is working on."""

    running: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Attempts:
    """Everything that this worker does with attempts."""

    def __init__(
        self, wire: Wire, session: Session, store: Receipts, incarnation: str, run_tool: Callable[[Call], str], slots: int
    ) -> None:
        self._wire = wire
        self._session = session
        self._store = store
        self._incarnation = incarnation
        self._run_tool = run_tool
        self._in_hand: dict[Attempt, InHand] = {}
        # SQLite is used from one thread; each running tool has a thread of its own.
        self._disk = ThreadPoolExecutor(1, "receipts")
        self._threads = ThreadPoolExecutor(slots, "tool")

    # From outside.

    async def delivered(self, delivery: Delivery) -> None:
        """Takes a call as far as it goes. Returns when nothing more happens here."""
        attempt = delivery.attempt
        if attempt in self._in_hand:
            return  # Not acknowledged: it comes again, and is then found over.
        try:
            call = Call.decode(delivery.envelope)
        except Newer:
            return  # Left to a newer worker.
        except Unreadable as error:
            log.error("the call of %s cannot be read (%s); it is left alone", attempt, error)
            return
        await self._handle(attempt, self._execute(delivery, call))

    async def inspected(self, attempt: Attempt) -> str:
        """What the run's owner is told. Only `running` is believed; everything else is written before it is said."""
        in_hand = self._in_hand.get(attempt)
        if in_hand and in_hand.running:
            return "running"
        if in_hand:
            await in_hand.over.wait()
        else:
            await self._handle(attempt, self._resolve(attempt))
        return "settled"

    async def resolve_open(self) -> None:
        """Settles what an earlier life of this worker left, without executing anything."""
        for attempt in await self._on_disk(self._store.open):
            if attempt not in self._in_hand:
                await self._handle(attempt, self._resolve(attempt))

    async def idle(self) -> None:
        """Returns when nothing is in hand."""
        while self._in_hand:
            await next(iter(self._in_hand.values())).over.wait()

    async def _handle(self, attempt: Attempt, work: Any) -> None:
        in_hand = self._in_hand[attempt] = InHand()
        try:
            await work
        except Abandoned:
            log.warning("%s is let go", attempt)
        except Newer:
            log.warning("%s has a record of a newer version; it is left to a newer worker", attempt)
        except Exception:  # A fault of this program: nothing is known but what is written.
            log.exception("%s failed here; it is settled from what is written", attempt)
            in_hand.running = False
            await self._resolve(attempt)
        finally:
            in_hand.running = False
            in_hand.over.set()
            del self._in_hand[attempt]

    # A delivered call.

    async def _execute(self, delivery: Delivery, call: Call) -> None:
        attempt = delivery.attempt
        deadline = boot() + call.timeout_ms / 1000
        expected = delivery.seq
        if delivery.redelivered:
            chain = await self._wire.read_chain(attempt)
            if chain.call is None or chain.outcome or chain.claim:
                await self._settle(attempt, chain)
                return await self._wire.ack(delivery)
            expected = chain.last

        claim = secrets.token_hex(16)
        in_hand = self._in_hand[attempt]
        in_hand.running = True
        claimed = await self._claim(attempt, expected, claim)
        if claimed is None:
            return await self._wire.ack(delivery)
        await self._reach("after_claim")

        armed = receipts.armed(claim, self._incarnation, delivery.seq)
        try:
            standing = await self._on_disk(self._store.create, attempt, armed)
        except (sqlite3.Error, OSError) as error:
            # In doubt: no effect may follow in this life of the process.
            self._session.lost = True
            return await self._refuse(delivery, claim, claimed, f"the receipt store could not arm: {error}; nothing was begun")
        if standing is not None:
            return await self._refuse(delivery, claim, claimed, "an older receipt of this attempt is there; nothing was begun")
        await self._reach("armed")

        # The last gate. Nothing is awaited between here and the effect.
        if not self._session.alive():
            raise Abandoned
        if boot() >= deadline:
            fact = records.not_started("the deadline had passed before the effect could begin")
            await self._conclude(attempt, claim, armed, claimed, fact)
            return await self._wire.ack(delivery)
        effect = asyncio.get_running_loop().run_in_executor(self._threads, self._effect, call)

        timed_out = not await _done_before(effect, deadline)
        if timed_out:
            # Whether or not the tool ever returns: the run's owner must not wait for it.
            in_hand.running = False
            await self._note(attempt, claim, records.may_have_happened("timeout", "the deadline passed before the tool answered"))
            await self._wire.ack(delivery)
        learned = await self._fact(effect, attempt, claim, timed_out)
        if learned is not None:
            await self._conclude(attempt, claim, armed, claimed, learned)
        await self._wire.ack(delivery)

    async def _claim(self, attempt: Attempt, expected: int, claim: str) -> int | None:
        """The position of our claim, once the answer is definite; nothing if the attempt is not ours."""
        body = records.claim(claim, self._wire.worker, self._incarnation, self._store.id)
        backoff = Backoff()
        while True:
            if not self._session.alive():
                raise Abandoned
            try:
                return await self._wire.write_register(attempt, "claim", expected, body)
            except Busy:
                await backoff.pause()
                continue
            except (Refused, Unknown):
                # The same bytes may be stored already, or arrive later: only the register can say.
                chain = await self._wire.read_chain(attempt)
            if chain.claim and chain.claim.claim == claim:
                return chain.claim.seq
            if chain.claim or chain.call is None:
                await self._settle(attempt, chain)
                return None
            expected = chain.last
            await backoff.pause()

    def _effect(self, call: Call) -> str:
        """In the tool's own thread."""
        if not self._session.alive():
            raise Abandoned
        result = self._run_tool(call)
        stall.reach("effect")
        return result

    async def _fact(self, effect: asyncio.Future[str], attempt: Attempt, claim: str, timed_out: bool) -> dict[str, Any] | None:
        """What the tool's return means: a fact, or a note and nothing."""
        try:
            result = await effect
        except tool.NothingHappened as error:
            return records.nothing_happened(str(error))
        except Abandoned:
            raise
        except Exception as error:  # Whatever it is: it says nothing about the effect.
            log.exception("the tool failed")
            if not timed_out:
                await self._note(attempt, claim, records.may_have_happened("error", f"{type(error).__name__}: {error}"))
            return None
        fact = records.done(result)
        if fact["kind"] == "done" and len(encoded := fact["result"]["json"].encode()) > records.MAX_INLINE:
            return records.done_in_blob(await self._wire.put_blob(encoded), len(encoded))
        return fact

    # Outcomes and notes.

    async def _conclude(self, attempt: Attempt, claim: str, armed: Receipt, expected: int, fact: dict[str, Any]) -> None:
        """Receipt store first, then the register: what was executed can always be published."""
        try:
            await self._on_disk(self._store.outcome, attempt, armed, fact)
        except (sqlite3.Error, OSError) as error:
            # The register takes the fact all the same; but nothing further may be begun on this disk.
            self._session.lost = True
            log.error("the receipt store failed: %s", error)
        await self._reach("logged")
        await self._publish(attempt, claim, expected, fact)

    async def _refuse(self, delivery: Delivery, claim: str, claimed: int, why: str) -> None:
        """The gate cannot be passed, for good."""
        await self._publish(delivery.attempt, claim, claimed, records.not_started(why))
        await self._wire.ack(delivery)

    async def _publish(self, attempt: Attempt, claim: str, expected: int, fact: dict[str, Any]) -> None:
        """Offers a fact to the outcome register. If that is taken, says as a note what it would have held. A fact needs no authority."""
        body = records.outcome(claim, fact)
        backoff = Backoff()
        while True:
            try:
                await self._wire.write_register(attempt, "outcome", expected, body)
                break
            except Busy:
                await backoff.pause()
                continue
            except (Refused, Unknown):
                chain = await self._wire.read_chain(attempt)
            if chain.outcome:
                await self._met(attempt, claim, chain.outcome.body, fact)
                break
            if chain.claim is None or chain.claim.claim != claim:
                break
            expected = chain.last
            await backoff.pause()
        await self._forget(attempt)

    async def _met(self, attempt: Attempt, claim: str, standing: bytes, fact: dict[str, Any]) -> None:
        """The register is taken: by this very fact, or by something that the truth must stand beside."""
        if standing != records.outcome(claim, fact) and fact["kind"] != "not_started":
            await self._note(attempt, claim, records.met_seal(fact), last_place=True)

    async def _note(self, attempt: Attempt, claim: str, evidence: dict[str, Any], last_place: bool = False) -> None:
        """Writes a note, unless this worker has written one of that kind for this claim."""
        body = records.note(claim, evidence)
        for note in await self._wire.read_notes(attempt):
            try:
                standing = records.decode(note.body)
            except (Newer, Unreadable):
                continue
            if standing.get("claim") == claim and standing.get("evidence", {}).get("kind") == evidence["kind"]:
                return
        await self._wire.write_note(attempt, body, last_place)

    # What an earlier life left, or an owner asks about.

    async def _resolve(self, attempt: Attempt) -> None:
        await self._settle(attempt, await self._wire.read_chain(attempt))

    async def _settle(self, attempt: Attempt, chain: Chain) -> None:
        """Says what is known of an attempt that this process is not executing, and nothing beyond it."""
        claim = chain.claim
        if chain.outcome or claim is None or claim.claim is None or claim.worker != self._wire.worker:
            return await self._nothing_to_write(attempt, chain)
        if claim.logbook != self._store.id:
            return await self._note(
                attempt, claim.claim, records.unsure(f"claimed under receipt store {claim.logbook}, which this worker does not have")
            )
        try:
            receipt = await self._on_disk(self._store.get, attempt)
            if receipt is None:
                why = "claimed by an earlier life of this worker, which never armed"
                receipt = await self._on_disk(self._store.create, attempt, receipts.tombstone(claim.claim, why))
                receipt = receipt or receipts.tombstone(claim.claim, why)
        except (sqlite3.Error, OSError, ValueError) as error:
            return await self._note(attempt, claim.claim, records.unsure(f"the receipt store cannot be used: {error}"))
        match receipt:
            case {"kind": "tombstone", "why": why}:
                await self._publish(attempt, claim.claim, chain.last, records.not_started(why))
            case {"kind": "outcome", "armed": {"claim": armed_for}, "outcome": fact} if armed_for == claim.claim:
                await self._publish(attempt, claim.claim, chain.last, fact)
            case {"kind": "armed", "claim": armed_for, "incarnation": incarnation} if armed_for == claim.claim:
                await self._note(attempt, claim.claim, records.unsure(f"armed by incarnation {incarnation}, no outcome recorded"))
            case _:
                why = "the receipt store armed for another claim than the one that counts; nothing was begun under this one"
                await self._publish(attempt, claim.claim, chain.last, records.not_started(why))

    async def _nothing_to_write(self, attempt: Attempt, chain: Chain) -> None:
        """The register is taken, or never was ours. An outcome that only the store holds is still told, as a note."""
        receipt = await self._on_disk(self._store.get, attempt)
        claim = chain.claim.claim if chain.claim else None
        if receipt and claim and chain.outcome and receipt["kind"] == "outcome" and receipt["armed"]["claim"] == claim:
            await self._met(attempt, claim, chain.outcome.body, receipt["outcome"])
        await self._forget(attempt)

    async def _forget(self, attempt: Attempt) -> None:
        try:
            await self._on_disk(self._store.settle, attempt)
        except (sqlite3.Error, OSError) as error:
            log.warning("%s stays open in the receipt store (%s); the next life settles it again", attempt, error)

    # Helpers.

    async def _on_disk(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work, *arguments)

    async def _reach(self, point: str) -> None:
        await asyncio.to_thread(stall.reach, point)


async def _done_before(effect: asyncio.Future[str], deadline: float) -> bool:
    """Whether the tool returned by the deadline."""
    while not effect.done() and (left := deadline - boot()) > 0:
        await asyncio.wait([effect], timeout=min(left, LONGEST_SLEEP))
    return effect.done()
