"""The tool itself: `publish` publishes one text, by appending a line to a file that readers follow.

This is the only module that a service owner replaces. Its contract: `publish` is called at most once for an attempt, in a thread of its own;
it returns a JSON text, or raises `NothingHappened` when it *knows* that it had no effect. Any other exception means that the effect may
have happened.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from records import Call, usable

NAME = "publish"


class NothingHappened(Exception):
    """The tool failed and had no effect."""


def text_of(call: Call) -> str:
    """The argument. The node has checked it against the tool's schema; a worker that trusts nobody looks again."""
    arguments = usable(call.arguments)
    match arguments:
        case {"text": str(text), **rest} if not rest:
            return text
    raise NothingHappened('the arguments are not {"text": "..."}')


def publish(call: Call, outbox: Path) -> str:
    """Appends the text to the outbox, on the disk when it returns. The line carries the idempotency key: a reader can tell a repetition."""
    line = json.dumps({"key": call.idempotency_key, "attempt": call.attempt, "text": text_of(call)}, ensure_ascii=False)
    descriptor = os.open(outbox, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        # One write, so that a line is whole or absent.
        os.write(descriptor, (line + "\n").encode())
        os.fsync(descriptor)
        at = os.lseek(descriptor, 0, os.SEEK_CUR)
    finally:
        os.close(descriptor)
    return json.dumps({"published": True, "offset": at - len((line + "\n").encode())}, separators=(",", ":"))
