"""What a worker does with NATS: conditional writes with their three answers, reads, pulls, acknowledgements. `docs/protocol.md` section 19.

Three answers are kept apart everywhere: a position (stored), `Refused` or `Busy` (definitely not stored), `Unknown`. An error is never read
as "it did not happen".
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import nats
from nats.aio.client import Client
from nats.errors import Error, MaxPayloadError, NoRespondersError, OutboundBufferLimitError

import names
from names import Attempt
from records import Chain, Stored, Unreadable

log = logging.getLogger("worker")

ACK_WAIT = 30.0
"""Seconds for which a delivered call is its receiver's. The same in every worker of a pool."""
MAX_NOTES = 8
"""Evidence notes of an attempt; the last place is kept for an outcome that met a seal."""
PUBLISH_TIMEOUT = 0.5
"""When a leader steps down, what was in flight vanishes without an answer: the gap is as long as this wait."""
API_TIMEOUT = 8.0
"""An election takes five to six seconds."""
ASK_TIMEOUT = 4.0
"""How long the next message of a node's answer is waited for."""
PIECE = 512 * 1024
"""Longest piece of a blob, in bytes."""
PULL_EXPIRES = 30.0
PULL_SILENCE = 11.0
"""Twice the heartbeat and a little: a pull that is silent for longer is lost."""
EXPECTED = "Nats-Expected-Last-Subject-Sequence"

# Answers of the server (err_code).
WRONG_LAST = 10071
NO_MESSAGE = 10037
NOT_STORED = {10164, 10077, 10008, 10009, 10023, 10118, 10194, 10076, 10039, 10002, 10047}
"""A write in flight, a full stream, no leader, no resources: not stored, and it passes."""


class Refused(Exception):
    """Not stored: the last position is another one. Read again."""


class Busy(Exception):
    """Not stored, and it passes: try again."""


class Unknown(Exception):
    """Stored or not, nobody knows: read, then decide."""


@dataclass(frozen=True)
class Delivery:
    """A call as it was pulled."""

    attempt: Attempt
    seq: int
    envelope: bytes
    redelivered: bool
    received: float
    reply: str


class Wire:
    """One connection and what the cluster is."""

    def __init__(self, client: Client, shards: int, worker: str, asks: bool, now: Callable[[], float]) -> None:
        self.client = client
        self.shards = shards
        # Where streams have copies, consumers are kept in memory; only who makes consumers has to know.
        self.copies = 1
        self.worker = worker
        self.asks = asks
        self._now = now

    @classmethod
    async def connect(cls, url: str, worker: str, domain: str | None, now: Callable[[], float]) -> Wire:
        """Connects, for as long as the network is away, and learns the cluster's shard count. In a domain's account no stream can be read:
        nodes are asked, and answer to subjects that only this worker may subscribe to."""
        client = await nats.connect(
            url.split(","),
            name=worker,
            max_reconnect_attempts=-1,
            reconnect_time_wait=1,
            # Nothing is kept back for a later connection: what cannot be sent now was definitely not sent.
            pending_size=0,
            error_cb=_reconnects,
            inbox_prefix=f"_INBOX.{names.token(worker)}".encode(),
        )
        if domain is not None:
            wire = cls(client, 0, worker, True, now)
            told = await wire._insist(f"cluster.{names.token(worker)}")
            wire.shards = int(json.loads(told[0].data)["shards"])
            return wire
        info = await _api(client, f"STREAM.INFO.{names.stream(0)}", {})
        try:
            shards = int(info["config"]["metadata"]["leasehold.shards"])
        except (KeyError, ValueError) as error:
            raise SystemExit("error: there is no Leasehold cluster at this server; start a node there first") from error
        wire = cls(client, shards, worker, False, now)
        wire.copies = int(info["config"].get("num_replicas", 1))
        return wire

    def stream(self, attempt: Attempt) -> str:
        return names.stream(names.shard(attempt.run, self.shards))

    async def publish(self, subject: str, headers: dict[str, str], body: bytes) -> int:
        """One conditional write; its position. Raises `Refused`, `Busy` or `Unknown`."""
        try:
            answer = await self.client.request(subject, body, timeout=PUBLISH_TIMEOUT, headers=headers)
            reply = json.loads(answer.data)
        except (NoRespondersError, OutboundBufferLimitError) as error:
            raise Busy(str(error)) from error
        except MaxPayloadError:
            raise
        except (Error, OSError, ValueError) as error:
            raise Unknown(str(error)) from error
        if refusal := reply.get("error"):
            code = refusal.get("err_code")
            if code == WRONG_LAST:
                raise Refused(subject)
            raise (Busy if code in NOT_STORED else Unknown)(refusal.get("description"))
        match reply:
            case {"seq": int(position)}:
                return position
        raise Unknown(f"an answer without a position: {reply}")

    async def write_register(self, attempt: Attempt, register: str, expected: int, body: bytes) -> int:
        """Writes claim or outcome if the chain's last position is `expected`."""
        headers = {EXPECTED: str(expected), f"{EXPECTED}-Subject": attempt.chain(self.shards)}
        return await self.publish(attempt.register(self.shards, register, self.worker), headers, body)

    async def write_note(self, attempt: Attempt, body: bytes, last_place: bool = False) -> None:
        """Writes an evidence note into the first free place; gives up when all are taken: the owner's own wait takes its place."""
        places = MAX_NOTES if last_place else MAX_NOTES - 1
        backoff = Backoff()
        place = len(await self.read_notes(attempt))
        while place < places:
            headers = {EXPECTED: "0", f"{EXPECTED}-Subject": attempt.place(self.shards, place)}
            try:
                await self.publish(attempt.note(self.shards, self.worker, place), headers, body)
                return
            except Refused:
                place += 1
            except Busy:
                await backoff.pause()
            except Unknown:
                notes = await self.read_notes(attempt)
                if any(note.body == body and note.writer == names.token(self.worker) for note in notes):
                    return
        log.warning("%s has all the notes it may have", attempt)

    async def read_chain(self, attempt: Attempt) -> Chain:
        return Chain.read(await self.read(self.stream(attempt), attempt.chain(self.shards), f"chain.{attempt.question()}"))

    async def read_notes(self, attempt: Attempt) -> list[Stored]:
        return await self.read(self.stream(attempt), attempt.notes(self.shards), f"notes.{attempt.question()}")

    async def own_record(self, subject: str) -> Stored | None:
        """What stands under a subject of this worker's own."""
        found = await self.read("LHS", subject, f"last.{subject}")
        return found[-1] if found else None

    async def ask(self, question: str, body: bytes = b"") -> list[Any]:
        """Asks some node; all messages of its answer. An answer that is not complete is none."""
        inbox = await self.client.subscribe(self.client.new_inbox())
        try:
            await self.client.publish(f"lh.ask.{question}", body, reply=inbox.subject)
            messages: list[Any] = []
            while True:
                message = await inbox.next_msg(timeout=ASK_TIMEOUT)
                headers = message.headers or {}
                if headers.get("Status") == "503":
                    raise Busy("no node answers")
                if why := headers.get("Lh-Failed"):
                    raise Busy(why)
                if count := headers.get("Lh-Answered"):
                    if int(count) != len(messages):
                        raise Busy("a part of the answer was lost")
                    return messages
                messages.append(message)
        finally:
            await inbox.unsubscribe()

    async def _insist(self, question: str, body: bytes = b"") -> list[Any]:
        """Asks until there is an answer."""
        backoff = Backoff()
        while True:
            try:
                return await self.ask(question, body)
            except (Error, OSError, Busy) as error:
                log.warning("no answer to %s (%s); asking again", question, error)
                await backoff.pause()

    async def _read_by_asking(self, question: str) -> list[Stored]:
        messages: list[Stored] = []
        for message in await self._insist(question):
            subject = message.headers["Nats-Subject"]
            body = message.data
            if ".j.call." in subject:
                body = await self.envelope(message.headers)
            messages.append(Stored(int(message.headers["Nats-Sequence"]), subject, body))
        return messages

    async def read(self, stream: str, subject_filter: str, question: str) -> list[Stored]:
        """All messages of the filter, in order, as the leader knows them. Tries again until there is an answer."""
        if self.asks:
            return await self._read_by_asking(question)
        backoff = Backoff()
        messages: list[Stored] = []
        while True:
            start = messages[-1].seq + 1 if messages else 1
            try:
                answer = await _api(self.client, f"STREAM.MSG.GET.{stream}", {"seq": start, "next_by_subj": subject_filter})
            except (Error, OSError) as error:
                log.warning("%s cannot be read (%s); asking again", subject_filter, error)
                await backoff.pause()
                continue
            if refusal := answer.get("error"):
                if refusal.get("err_code") == NO_MESSAGE:
                    return messages
                await backoff.pause()
                continue
            message = answer["message"]
            body = base64.b64decode(message.get("data", ""))
            if ".j.call." in message["subject"]:
                body = await self.envelope(_headers(base64.b64decode(message.get("hdrs", ""))))
            messages.append(Stored(message["seq"], message["subject"], body))

    async def envelope(self, headers: dict[str, str]) -> bytes:
        """The call's envelope: in a header, or in the blob store."""
        if line := headers.get("Lh-Call"):
            return line.encode()
        if digest := headers.get("Lh-Call-Blob"):
            return await self.blob(digest)
        raise Unreadable("a call without an envelope")

    async def blob(self, digest: str) -> bytes:
        """A large value by its SHA-256: pieces `lh.a.<digest>.<n>`, verified whole."""
        pieces: list[bytes] = []
        count = 1
        while len(pieces) < count:
            if self.asks:
                found = await self._insist(f"piece.{digest}.{len(pieces)}")
                if not found:
                    raise Unreadable(f"blob {digest} is not complete")
                count = int(found[0].headers["Lh-Pieces"])
                pieces.append(found[0].data)
                continue
            subject = f"lh.a.{digest}.{len(pieces)}"
            answer = await _api(self.client, "STREAM.MSG.GET.LHA", {"last_by_subj": subject})
            if "error" in answer:
                raise Unreadable(f"blob {digest} is not complete")
            message = answer["message"]
            count = int(_headers(base64.b64decode(message["hdrs"]))["Lh-Pieces"])
            pieces.append(base64.b64decode(message.get("data", "")))
        value = b"".join(pieces)
        if hashlib.sha256(value).hexdigest() != digest:
            raise Unreadable(f"blob {digest} has another digest")
        return value

    async def put_blob(self, value: bytes) -> str:
        """Stores a large value in pieces; its SHA-256. Tries again until it is stored."""
        digest = hashlib.sha256(value).hexdigest()
        pieces = range(0, len(value), PIECE)
        backoff = Backoff()
        for number, start in enumerate(pieces):
            while True:
                try:
                    headers = {EXPECTED: "0", "Lh-Pieces": str(len(pieces))}
                    await self.publish(f"lh.a.{digest}.{number}", headers, value[start : start + PIECE])
                except Refused:
                    pass  # It is there: the same bytes, for they have the same digest.
                except (Busy, Unknown):
                    await backoff.pause()
                    continue
                break
        return digest

    async def provide(self, domain: str, tools: list[str]) -> str:
        """Makes this pool's consumer on every shard, or finds it; its name. Where workers may not, a node has made it."""
        name = names.pool(domain, tools)
        for number in range(self.shards):
            await self._provide(number, name, tools)
        return name

    async def _provide(self, number: int, name: str, tools: list[str]) -> None:
        if self.asks:
            await self._insist(f"pool.{number}.{name}", json.dumps(tools).encode())
            return
        config = {
            "durable_name": name,
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": int(ACK_WAIT * 1e9),
            "max_deliver": -1,
            "filter_subjects": [names.calls(number, tool) for tool in sorted(tools)],
            "replay_policy": "instant",
            "max_waiting": 8192,
            "max_ack_pending": 65536,
            "headers_only": True,
            "inactive_threshold": 7 * 24 * 3600 * 1_000_000_000,
        }
        if self.copies > 1:
            config["mem_storage"] = True
        stream = names.stream(number)
        answer = await _api(self.client, f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})
        if "error" in answer:
            raise Busy(f"consumer {name} on {stream}: {answer['error']}")

    async def pull(self, number: int, domain: str, tools: list[str]) -> AsyncIterator[Delivery]:
        """Calls of one shard, one at a time: the next is asked for when the caller comes back."""
        consumer = names.pool(domain, tools)
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{names.stream(number)}.{consumer}"
        question = {"batch": 1, "expires": int(PULL_EXPIRES * 1e9), "idle_heartbeat": 5_000_000_000}
        while True:
            inbox = None
            try:
                inbox = await self.client.subscribe(self.client.new_inbox())
                await self.client.publish(subject, json.dumps(question).encode(), reply=inbox.subject)
                while True:
                    message = await inbox.next_msg(timeout=PULL_SILENCE)
                    headers = message.headers or {}
                    status = headers.get("Status")
                    if status is None:
                        yield await self._delivery(message, headers)
                        break
                    if status in ("404", "408"):
                        break
                    if status != "100":
                        raise Busy(f"status {status} {headers.get('Description')}")
            except Unreadable as error:
                log.error("%s; the call is left alone", error)
            except (Error, OSError, Busy) as error:
                log.info("a pull of shard %s was lost (%s); pulling again", number, error)
                await asyncio.sleep(0.25)
                try:
                    await self._provide(number, consumer, tools)
                except (Error, OSError, Busy) as error:
                    log.warning("the consumer cannot be looked after: %s", error)
            finally:
                try:
                    if inbox:
                        await inbox.unsubscribe()
                except (Error, OSError):
                    pass  # The connection is away; the subscription goes with it.

    async def _delivery(self, message: Any, headers: dict[str, str]) -> Delivery:
        received = self._now()
        metadata = message.metadata
        return Delivery(
            attempt=Attempt.of_call(message.subject),
            seq=metadata.sequence.stream,
            envelope=await self.envelope(headers),
            redelivered=metadata.num_delivered > 1,
            received=received,
            reply=message.reply,
        )

    async def ack(self, delivery: Delivery) -> None:
        """The call needs no more deliveries. Losing this is harmless: it comes again and is found over."""
        try:
            await self.client.publish(delivery.reply, b"+ACK")
        except (Error, OSError) as error:
            log.info("an acknowledgement was not sent: %s", error)


class Backoff:
    """Pauses that grow, at moments that differ between those who failed together."""

    def __init__(self) -> None:
        self._most = 0.02

    async def pause(self) -> None:
        await asyncio.sleep(random.uniform(0, self._most))
        self._most = min(self._most * 2, 1.0)


async def _reconnects(error: Exception) -> None:
    log.info("the connection: %s", error)


async def _api(client: Client, subject: str, question: dict[str, Any]) -> dict[str, Any]:
    answer = await client.request(f"$JS.API.{subject}", json.dumps(question).encode(), timeout=API_TIMEOUT)
    reply: dict[str, Any] = json.loads(answer.data)
    return reply


def _headers(block: bytes) -> dict[str, str]:
    """The headers of a stored message: `NATS/1.0`, then `Name: value` lines."""
    lines = [line.partition(b":") for line in block.split(b"\r\n")[1:] if line]
    return {name.decode(): value.strip().decode() for name, _, value in lines}
