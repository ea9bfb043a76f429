"""One crash of one engine: start, wait until the payment is on the disk, SIGKILL the worker, start it again, count.

It knows no engine: it calls the verbs of `engines/NAME/worker.py` (`shared/peer.py` says which there are) and reads the file of payments. Whatever it
starts it ends, by process id. Python's standard library is all it needs.
"""

import contextlib
import dataclasses
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import venv

HERE = pathlib.Path(__file__).resolve().parent
SHARED = HERE / "shared"
sys.path.insert(0, str(SHARED))

import charge  # noqa: E402
import peer  # noqa: E402

# How many ports an engine may ask for; Restate takes four.
PORTS = 4

# The slowest verdict is that of an engine that waits for a timeout first: six seconds here.
VERDICT_SECONDS = 150

# Watched after the verdict, so that a payment that comes late is counted too.
QUIET_SECONDS = 8


class Broken(Exception):
    """The test itself could not be done; says nothing about the engine."""


@dataclasses.dataclass
class Engine:
    """A row of the table: which folder, which variant, and which of the optional verbs its worker program has."""

    name: str
    title: str
    folder: str
    option: str = ""
    server: bool = False
    submit: bool = False


@dataclasses.dataclass
class Row:
    """What one crash has shown. `seconds` is from the kill to the verdict."""

    engine: str
    title: str
    version: str
    lines: int
    verdict: str
    seconds: float


def install(engine, home):
    """The interpreter with the engine's pinned packages, made once for each folder; what they are is in the engine's own files."""
    folder, place = HERE / "engines" / engine.folder, home / "installed" / engine.folder
    python = place / "venv" / "bin" / "python"
    done = place / "done"
    if not done.exists():
        venv.create(place / "venv", with_pip=True, clear=True)
        if (folder / "requirements.txt").exists():
            run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", folder / "requirements.txt"])
        if (folder / "package.json").exists():
            (place / "package.json").write_text((folder / "package.json").read_text())
            run(["npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", place])
        done.touch()
    return python, place / "node_modules"


def run(argv, env=None, seconds=600):
    """Runs a program to its end and returns what it printed."""
    done = subprocess.run(list(map(str, argv)), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=seconds)
    if done.returncode != 0:
        raise Broken(f"{' '.join(map(str, argv[:4]))} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout.strip()


def free_ports():
    """Loopback ports that nobody uses now."""
    with contextlib.ExitStack() as held:
        taken = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(PORTS)]
        return [one.getsockname()[1] for one in taken]


def answers(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def crash(engine, home):
    """Does the whole test once and returns its row."""
    python, node_modules = install(engine, home)
    case = home / "crashes" / f"{engine.name}-{time.time_ns()}"
    case.mkdir(parents=True)
    ports = free_ports()
    env = os.environ | {
        "PYTHONPATH": str(SHARED), "PYTHONDONTWRITEBYTECODE": "1", "PEER_HOME": str(case), "PEER_OPTION": engine.option,
        "PEER_PORTS": ",".join(map(str, ports)), "PEER_NODE_MODULES": str(node_modules),
    }
    program = [python, HERE / "engines" / engine.folder / "worker.py"]
    logs = (case / "log.txt").open("ab")

    def start(verb):
        return subprocess.Popen([*map(str, program), verb], env=env, cwd=case, stdout=logs, stderr=logs)

    def wait_for(what, condition, process):
        end = time.monotonic() + peer.READY_SECONDS
        while not condition():
            if process.poll() is not None or time.monotonic() > end:
                raise Broken(f"{engine.name}: no {what}; see {logs.name}")
            time.sleep(0.02)

    with contextlib.ExitStack() as running, logs:
        if engine.server:
            server = start("server")
            running.callback(end, server)
            wait_for("answer from its server", lambda: answers(ports[0]) and answers(ports[1]), server)
        first = start("work")
        running.callback(end, first)
        if engine.submit:
            run([*program, "submit"], env)
        wait_for("payment", charge.durable(case).exists, first)

        first.send_signal(signal.SIGKILL)
        first.wait()
        killed = time.monotonic()
        second = start("work")
        running.callback(end, second)
        verdict = run([*program, "verdict"], env, VERDICT_SECONDS)
        seconds = time.monotonic() - killed
        time.sleep(QUIET_SECONDS)
        lines = len(charge.books(case).read_text().splitlines())
    return Row(engine.name, engine.title, run([*program, "version"], env).replace("\n", ", "), lines, verdict.replace("\n", " "), round(seconds, 1))


def end(process):
    """Ends a process that this crash has started, if it has not ended by itself."""
    if process.poll() is None:
        process.kill()
    process.wait()
