"""Where each record lies: subject tokens, shards, and the subjects of one attempt. Pure; `docs/protocol.md` sections 3 and 19."""

from __future__ import annotations

import hashlib
import json
import string
from dataclasses import asdict, dataclass

_PLAIN = frozenset((string.ascii_letters + string.digits + "-").encode())

RUNTIME = "_rt"
"""The writer token of a run's owner. No name encodes to it."""


def token(name: str) -> str:
    """A name as one subject token: letters, digits and `-` stand for themselves, every other byte becomes `_` and two hex digits."""
    return "".join(chr(b) if b in _PLAIN else f"_{b:02X}" for b in name.encode())


def from_token(text: str) -> str:
    """The name that a token was made from."""
    out = bytearray()
    at = 0
    while at < len(text):
        if text[at] == "_":
            out.append(int(text[at + 1 : at + 3], 16))
            at += 3
        else:
            out += text[at].encode()
            at += 1
    return out.decode()


def shard(run: str, shards: int) -> int:
    """Which of the cluster's shards the run lies in."""
    head = hashlib.sha256(token(run).encode()).digest()[:8]
    return int.from_bytes(head, "big") % shards


@dataclass(frozen=True, order=True)
class Attempt:
    """The names that call, claim, outcome and notes of one attempt share. As JSON it is also what an inspection asks about."""

    run: str
    tool: str
    step: str
    attempt: int
    origin: str

    @classmethod
    def of_call(cls, subject: str) -> Attempt:
        """Reads `lh.<s>.run.<run>.j.call.<tool>.<step>.<attempt>.<origin>._`."""
        parts = subject.split(".")
        if len(parts) != 11 or parts[4:6] != ["j", "call"]:
            raise ValueError(f"{subject} is no call's subject")
        run, (tool, step, attempt, origin) = parts[3], parts[6:10]
        return cls(from_token(run), from_token(tool), step, int(attempt), from_token(origin))

    @classmethod
    def from_json(cls, text: str | bytes) -> Attempt:
        """Reads what `json` wrote, or what an owner asks."""
        return cls(**json.loads(text))

    def json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    def _run(self, shards: int) -> str:
        return f"lh.{shard(self.run, shards)}.run.{token(self.run)}"

    def _rest(self) -> str:
        return f"{token(self.tool)}.{self.step}.{self.attempt}"

    def chain(self, shards: int) -> str:
        """The filter that finds call, claims and outcomes. Every writer uses this very text."""
        return f"{self._run(shards)}.*.*.{self._rest()}.*.*"

    def register(self, shards: int, register: str, worker: str) -> str:
        """`register` is `claim` or `outcome`."""
        return f"{self._run(shards)}.w.{register}.{self._rest()}.{token(self.origin)}.{token(worker)}"

    def note(self, shards: int, worker: str, place: int) -> str:
        return f"{self._run(shards)}.w.evidence.{self._rest()}.{token(self.origin)}.{token(worker)}.{place}"

    def notes(self, shards: int) -> str:
        """The filter that finds every note."""
        return f"{self._run(shards)}.w.evidence.{self._rest()}.*.*.*"

    def question(self) -> str:
        """The attempt's whole name, as a node is asked about it."""
        return f"{token(self.run)}.{self._rest()}.{token(self.origin)}"

    def place(self, shards: int, place: int) -> str:
        """The filter of one place among the notes, whoever takes it."""
        return f"{self._run(shards)}.w.evidence.{self._rest()}.*.*.{place}"


def stream(number: int) -> str:
    """The stream that holds a shard's journals and registers."""
    return f"LH_{number}"


def calls(number: int, tool: str) -> str:
    """The filter of a tool's calls in a shard."""
    return f"lh.{number}.run.*.j.call.{token(tool)}.>"


def pool(domain: str, tools: list[str]) -> str:
    """The consumer that the workers with exactly these tools share, in every shard."""
    digest = hashlib.sha256("\n".join(sorted(tools)).encode()).hexdigest()
    return f"pool_{token(domain)}_{digest[:16]}"


def live(domain: str, worker: str) -> str:
    return f"lh.ws.{token(domain)}.{token(worker)}.live"


def logbook(domain: str, worker: str) -> str:
    return f"lh.ws.{token(domain)}.{token(worker)}.logbook"


def inspect(domain: str, worker: str) -> str:
    return f"lh.worker.{token(domain)}.{token(worker)}.inspect"
