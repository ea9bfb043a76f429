"""Standing still at a named moment, so that a test can kill the process exactly there. Nothing of this happens unless `LEASEHOLD_STALL` is set.

`LEASEHOLD_STALL=POINT` stands still for ever, `LEASEHOLD_STALL=POINT:SECONDS` for so long; either says `reached POINT` on standard output.
"""

from __future__ import annotations

import os
import threading

POINTS = ("after_claim", "armed", "effect", "logged")
"""Claimed and not armed; claimed and armed, nothing begun; the effect happened, nobody knows; the outcome is in the receipt store only."""


def reach(point: str) -> None:
    """Called from threads, never from the event loop: everything else goes on meanwhile."""
    wanted, _, seconds = os.environ.get("LEASEHOLD_STALL", "").partition(":")
    if wanted == point:
        print(f"reached {point}", flush=True)
        threading.Event().wait(float(seconds) if seconds else None)
