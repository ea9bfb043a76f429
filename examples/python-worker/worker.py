#!/usr/bin/env python3
"""A Leasehold worker in Python that serves one tool, `publish`. See README.md; the contract is `docs/protocol.md`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import uuid
from pathlib import Path

import names
import tool
from attempts import Attempts
from mark import Mark
from receipts import Receipts
from session import Session, boot
from wire import ACK_WAIT, Busy, Refused, Unknown, Wire

log = logging.getLogger("worker")

TOOLS = [tool.NAME]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Serves the tool `publish`: appends one text to a file.")
    parser.add_argument("--nats", default=os.environ.get("NATS_URL", "nats://127.0.0.1:4222"), help="the servers, with commas between")
    parser.add_argument("--name", required=True, help="this worker's name; the same in every life, and no other worker's")
    parser.add_argument("--data", required=True, type=Path, help="folder of the receipt store; keep it with the name")
    parser.add_argument("--outbox", required=True, type=Path, help="the file that texts are published to")
    parser.add_argument("--domain", help="the domain of the tools, whose NATS account the credentials belong to; without it: the nodes' account")
    parser.add_argument("--slots", type=int, default=8, help="calls at the same time")
    parser.add_argument("--ttl", type=float, default=30.0, help="seconds that the session lives without a renewal")
    return parser.parse_args()


async def pull(number: int, wire: Wire, domain: str, attempts: Attempts, slots: asyncio.Semaphore) -> None:
    """Calls of one shard, for ever. Nothing is pulled while one waits for a slot."""
    running: set[asyncio.Task[None]] = set()

    def over(task: asyncio.Task[None]) -> None:
        running.discard(task)
        slots.release()
        if not task.cancelled() and (error := task.exception()):
            log.error("an attempt could not be settled; its owner will ask", exc_info=error)

    async for delivery in wire.pull(number, domain, TOOLS):
        await slots.acquire()
        if boot() - delivery.received >= ACK_WAIT:
            slots.release()
            continue  # Somebody else may have it by now; it comes again.
        task = asyncio.create_task(attempts.delivered(delivery))
        running.add(task)
        task.add_done_callback(over)


async def answer_inspections(wire: Wire, domain: str, attempts: Attempts) -> None:
    """Answers the owners of runs about attempts of this worker."""

    async def answer(message: object) -> None:
        try:
            attempt = names.Attempt.from_json(message.data)  # type: ignore[attr-defined]
        except (ValueError, TypeError):
            return
        said = await attempts.inspected(attempt)
        await message.respond(f'"{said}"'.encode())  # type: ignore[attr-defined]

    # Each question in a task of its own: one attempt's answer must not wait for another's.
    tasks: set[asyncio.Task[None]] = set()

    async def asked(message: object) -> None:
        task = asyncio.create_task(answer(message))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    await wire.client.subscribe(names.inspect(domain, wire.worker), cb=asked)


async def keep_marking(mark: Mark, session: Session, every: float) -> None:
    """Keeps the mark's head near the store's. Ends this life once another process runs under this worker's name."""
    while await mark.refresh():
        await asyncio.sleep(every)
    session.lost = True
    raise RuntimeError("another process runs under this worker's name; stop one, or give it another name and folder")


async def main() -> None:
    options = arguments()
    logging.basicConfig(level=os.environ.get("LOG_LEVEL", "WARNING"), format="%(levelname)s %(message)s")
    store = Receipts(options.data)
    incarnation = uuid.uuid4().hex
    wire = await Wire.connect(options.nats, options.name, options.domain, boot)
    domain = options.domain or "default"
    mark = Mark(wire, domain, store)
    await mark.begin()
    session = Session(wire, domain, incarnation, options.ttl)
    attempts = Attempts(wire, session, store, incarnation, lambda call: tool.publish(call, options.outbox), options.slots)

    while not session.alive():
        try:
            await session.renew()
        except (Refused, Busy, Unknown):
            await asyncio.sleep(0.1)
    renewing = asyncio.create_task(session.run())
    marking = asyncio.create_task(keep_marking(mark, session, options.ttl))
    await answer_inspections(wire, domain, attempts)
    await attempts.resolve_open()
    await wire.provide(domain, TOOLS)
    slots = asyncio.Semaphore(options.slots)
    pulls = [asyncio.create_task(pull(number, wire, domain, attempts, slots)) for number in range(wire.shards)]

    stop = asyncio.Event()

    def told_to_stop() -> None:
        if stop.is_set():
            os._exit(1)  # Told twice: whatever is written stands, and the next life settles the rest.
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told_to_stop)
    stopping = asyncio.create_task(stop.wait())
    print("ready", flush=True)
    await asyncio.wait([stopping, renewing, marking, *pulls], return_when=asyncio.FIRST_COMPLETED)

    # Drain: pull nothing more, finish what runs, then say that this life is over.
    for task in pulls:
        task.cancel()
    await attempts.idle()
    await session.end()
    await wire.client.close()
    for task in (renewing, marking, *pulls):
        if task.done() and not task.cancelled() and (error := task.exception()):
            raise SystemExit(f"error: {error}")


if __name__ == "__main__":
    asyncio.run(main())
