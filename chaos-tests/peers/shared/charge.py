"""The payment of the crash test: one fsynced line in a file, then a sleep in which the worker dies.

Every engine calls `charge` as its one step; Leasehold starts this file as a command tool (`charge.py`), and asks it later as a probe
(`charge.py probe`). It is on purpose what many real services are: called twice, it pays twice. `PEER_HOME` says where its files are.
"""

import json
import os
import pathlib
import sys
import time

# Long enough that the kill surely falls into it, short enough that every engine's default timeout is longer.
SLEEP_SECONDS = 3


def books(home=None):
    """The file with one line for each payment."""
    return pathlib.Path(home or os.environ["PEER_HOME"]) / "payments.txt"


def durable(home=None):
    """Exists from when the first payment is on the disk."""
    return books(home).with_suffix(".durable")


def charge(key):
    """Pays once more, durably, and then takes its time to return."""
    with books().open("a") as out:
        out.write(f"{key}\n")
        out.flush()
        os.fsync(out.fileno())
    durable().touch()
    time.sleep(SLEEP_SECONDS)
    return {"charged": True}


def probe(key):
    """Whether a payment with this key is in the books; says it in the words of Leasehold's probes."""
    paid = books().read_text().splitlines().count(key) if books().exists() else 0
    if paid > 1:
        return {"answer": "conflict", "detail": f"{paid} payments under one key"}
    return {"answer": "done", "result": {"charged": True}} if paid else {"answer": "not_done"}


if __name__ == "__main__":
    question = json.load(sys.stdin)
    if sys.argv[1:] == ["probe"]:
        print(json.dumps(probe(question["idempotency_key"])))
    else:
        print(json.dumps(charge(os.environ["LEASEHOLD_IDEMPOTENCY_KEY"])))
