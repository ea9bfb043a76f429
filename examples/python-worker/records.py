"""The bodies that a worker reads and writes, and which message of a chain counts. Pure; `docs/protocol.md` sections 1, 2 and 8 to 11.

A record is one line of JSON; foreign JSON (arguments, results) stands in it as a *string* of its exact bytes. A record of a higher version
is `Newer`, which is never skipped; anything else that cannot be read is `Unreadable`, which counts for nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import names

VERSION = 1
MAX_DEPTH = 256
MAX_INLINE = 64 * 1024
"""Bytes of a value that stands in a record itself; a longer one goes to the blob store first."""
FACTS = ("done", "done_unusable", "aborted", "nothing_happened", "not_started", "sealed")


class Unreadable(ValueError):
    """No record of this version."""


class Newer(Exception):
    """A record of a version that this worker does not know: leave the call to a newer worker."""


def usable(text: str | bytes) -> Any:
    """Parses JSON and refuses what the protocol refuses: repeated keys, lone surrogates, NaN, bad UTF-8, too many levels."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            raise Unreadable("a key is repeated")
        return members

    def constant(word: str) -> Any:
        raise Unreadable(f"{word} is no JSON")

    try:
        if isinstance(text, bytes):
            text = text.decode()
        # What no record counts with stays text: nothing here may round it.
        value = json.loads(
            text,
            object_pairs_hook=once,
            parse_constant=constant,
            parse_float=str,
            parse_int=lambda digits: int(digits) if len(digits) <= 20 else digits,
        )
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from error
    if _depth(value) > MAX_DEPTH:
        raise Unreadable(f"more than {MAX_DEPTH} levels")
    return value


def _depth(value: Any) -> int:
    deepest, level = 0, [value]
    while level:
        deepest += 1
        inner = [item for item in level if isinstance(item, (dict, list))]
        level = [child for item in inner for child in (item.values() if isinstance(item, dict) else item)]
        if not level or deepest > MAX_DEPTH:
            break
    return deepest


def encode(body: dict[str, Any]) -> bytes:
    """One line, no white space, fields in the order given."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def decode(body: bytes) -> dict[str, Any]:
    """Looks at the version before anything else."""
    value = usable(body)
    if not isinstance(value, dict) or type(value.get("v")) is not int:
        raise Unreadable("a record is an object with a version")
    if value["v"] > VERSION:
        raise Newer(f"version {value['v']}")
    return value


def _fields(value: dict[str, Any], wanted: dict[str, type]) -> None:
    if value.keys() != wanted.keys():
        raise Unreadable(f"fields {sorted(value)} and not {sorted(wanted)}")
    for name, kind in wanted.items():
        if type(value[name]) is not kind:
            raise Unreadable(f"{name} is no {kind.__name__}")


@dataclass(frozen=True)
class Call:
    """The call envelope: all that a worker learns of a run. `arguments` are the exact bytes that were accepted and approved."""

    v: int
    run: str
    step: str
    attempt: int
    epoch: int
    origin: str
    tool: str
    spec: str
    idempotency_key: str
    timeout_ms: int
    arguments: str

    @classmethod
    def decode(cls, body: bytes) -> Call:
        value = decode(body)
        _fields(value, {n: int if n in ("v", "attempt", "epoch", "timeout_ms") else str for n in cls.__annotations__})
        usable(value["arguments"])
        return cls(**value)


def claim(claim_id: str, worker: str, incarnation: str, logbook: str) -> bytes:
    return encode(
        {"kind": "claim", "v": VERSION, "claim": claim_id, "worker": worker, "incarnation": incarnation, "logbook": logbook}
    )


def outcome(claim_id: str, fact: dict[str, Any]) -> bytes:
    return encode({"v": VERSION, "claim": claim_id, "fact": fact})


def note(claim_id: str, evidence: dict[str, Any]) -> bytes:
    return encode({"v": VERSION, "claim": claim_id, "evidence": evidence})


def done(result: str) -> dict[str, Any]:
    """It happened. A result that is no usable JSON is kept aside: never dropped, for the effect has happened."""
    result = result.strip(" \t\r\n") or "{}"
    try:
        usable(result)
    except Unreadable as error:
        kept = result.encode(errors="replace")[:MAX_INLINE].decode(errors="ignore")
        return {"kind": "done_unusable", "kept": {"text": kept}, "error": _short(str(error))}
    return {"kind": "done", "result": {"json": result}}


def done_in_blob(sha256: str, size: int) -> dict[str, Any]:
    return {"kind": "done", "result": {"blob": {"sha256": sha256, "size": size}}}


def nothing_happened(message: str) -> dict[str, Any]:
    return {"kind": "nothing_happened", "failure": "error", "message": _short(message)}


def _short(message: str) -> str:
    """Words for people, and no more of them than people read."""
    return message[:2000]


def not_started(why: str) -> dict[str, Any]:
    return {"kind": "not_started", "why": why}


def unsure(detail: str) -> dict[str, Any]:
    return {"kind": "unsure", "detail": detail}


def may_have_happened(failure: str, message: str) -> dict[str, Any]:
    return {"kind": "may_have_happened", "failure": failure, "message": _short(message)}


def met_seal(fact: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "met_seal", "outcome": fact}


@dataclass(frozen=True)
class Stored:
    """A message as the stream holds it. Of a call, `body` is the envelope, not the commit."""

    seq: int
    subject: str
    body: bytes

    @property
    def link(self) -> str:
        return self.subject.split(".")[5]

    @property
    def writer(self) -> str:
        return self.subject.split(".")[10]


@dataclass(frozen=True)
class Claim:
    """The claim that counts. Without an id it is a revocation: nobody will ever execute the attempt."""

    seq: int
    claim: str | None
    worker: str | None = None
    incarnation: str | None = None
    logbook: str | None = None


@dataclass
class Chain:
    """An attempt's call, claim and outcome: of each the message that counts, and the last position, counting or not."""

    last: int = 0
    call: int | None = None
    claim: Claim | None = None
    outcome: Stored | None = None

    @classmethod
    def read(cls, messages: list[Stored]) -> Chain:
        """Position decides. Raises `Newer` at a message of a higher version."""
        chain = cls()
        for message in messages:
            first, chain.last = chain.last == 0, message.seq
            try:
                if message.link == "call" and first:
                    Call.decode(message.body)
                    chain.call = message.seq
                elif message.link == "claim" and chain.call and not chain.claim and not chain.outcome:
                    chain.claim = _claim(message)
                elif message.link == "outcome" and chain.call and not chain.outcome:
                    chain.outcome = message if chain._may_end(message) else None
            except Unreadable:
                continue
        return chain

    def _may_end(self, message: Stored) -> bool:
        value = decode(message.body)
        _fields({"claim": "", **value}, {"v": int, "claim": str, "fact": dict})
        if value["fact"].get("kind") not in FACTS:
            raise Unreadable("an unknown kind of fact")
        if message.writer == names.RUNTIME:
            return self.claim is not None
        by_claimant = self.claim is not None and self.claim.worker is not None and names.token(self.claim.worker) == message.writer
        return by_claimant and self.claim is not None and value.get("claim") == self.claim.claim


def _claim(message: Stored) -> Claim | None:
    value = decode(message.body)
    if value.get("kind") == "revoke":
        _fields(value, {"kind": str, "v": int, "by": str, "why": str})
        return Claim(message.seq, None) if message.writer == names.RUNTIME else None
    _fields(value, {"kind": str, "v": int, "claim": str, "worker": str, "incarnation": str, "logbook": str})
    if value["kind"] != "claim" or names.token(value["worker"]) != message.writer:
        return None
    return Claim(message.seq, value["claim"], value["worker"], value["incarnation"], value["logbook"])
