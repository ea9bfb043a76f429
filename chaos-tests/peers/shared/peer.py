"""What the worker programs of all engines share: their verbs, and what the driver tells them in the environment.

A worker program is called with one verb: `version` prints what is installed; `server` is the engine's server, where it has one; `work` is
the process that is killed and started again; `submit` starts the one run from outside, where the engine wants that; `verdict` waits until the
engine calls the run over (or waiting for a person) and prints what it says of it.
"""

import importlib.metadata
import os
import pathlib
import sys
import time

RUN = "charge-1"

# How long one part of an engine may take to become ready on a busy machine.
READY_SECONDS = 60


def home():
    """The scratch folder of this one crash; everything durable is in it."""
    return pathlib.Path(os.environ["PEER_HOME"])


def port(index):
    """One of the free loopback ports that the driver has picked for this crash."""
    return int(os.environ["PEER_PORTS"].split(",")[index])


def option():
    """Which variant of the engine's row this is; empty for its defaults."""
    return os.environ["PEER_OPTION"]


def versions(*packages):
    """A version verb: the installed versions of these Python packages."""
    return lambda: print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages))


def until(attempt, seconds=READY_SECONDS):
    """Calls `attempt` until it returns something true, and returns that."""
    end = time.monotonic() + seconds
    while True:
        found = attempt()
        if found:
            return found
        if time.monotonic() > end:
            sys.exit(f"nothing after {seconds} s")
        time.sleep(0.1)


def main(**verbs):
    """Does the verb that the command line names."""
    verbs[sys.argv[1]]()
