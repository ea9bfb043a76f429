#!/usr/bin/env python3
"""The same crash for several engines, side by side: `run.py all`, or the names of some. README.md says what it shows and what it does not."""

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from crash import Broken, Engine, crash

ENGINES = [
    Engine("dbos", "DBOS, SQLite", "dbos"),
    Engine("langgraph", "LangGraph, durability sync, SQLite", "langgraph"),
    Engine("restate", "Restate, `ctx.run`, default retry", "restate", server=True, submit=True),
    Engine("restate-once", "Restate, `ctx.run`, `max_attempts=1`", "restate", option="once", server=True, submit=True),
    Engine("temporal", "Temporal dev server, default retry", "temporal", server=True, submit=True),
    Engine("temporal-once", "Temporal dev server, `maximum_attempts=1`", "temporal", option="once", server=True, submit=True),
    Engine("leasehold", "Leasehold, tool without a probe", "leasehold", submit=True),
    Engine("leasehold-probe", "Leasehold, tool with a probe", "leasehold", option="probe", submit=True),
]


def main():
    names = {engine.name: engine for engine in ENGINES}
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("engine", nargs="+", choices=["all", *names], metavar="ENGINE",
                       help=f"all (without Leasehold, if LEASEHOLD_BIN names no binary), {', '.join(names)}")
    parse.add_argument("--json", action="store_true", help="one JSON object for each engine and nothing else on standard output")
    parse.add_argument("--home", type=pathlib.Path, help="installs here, and keeps everything; without it a temporary folder that is removed")
    given = parse.parse_args()

    binary = os.environ.get("LEASEHOLD_BIN")
    chosen = list(dict.fromkeys(given.engine))
    if "all" in chosen:
        chosen = [name for name in names if binary or not name.startswith("leasehold")]
    if any(name.startswith("leasehold") for name in chosen) and not binary:
        parse.error("LEASEHOLD_BIN has to name the leasehold binary")
    if binary:
        os.environ["LEASEHOLD_BIN"] = str(pathlib.Path(binary).resolve())  # the workers run in other folders

    failed = False
    with tempfile.TemporaryDirectory(prefix="peers-") as scratch:
        home = (given.home or pathlib.Path(scratch)).resolve()
        if not given.json:
            print("| system | version | payments | the engine's verdict | seconds |\n|---|---|---|---|---|")
        for name in chosen:
            try:
                row = crash(names[name], home)
            except (Broken, OSError, subprocess.SubprocessError) as reason:
                print(f"{name}: not measured: {reason}", file=sys.stderr)
                failed = True
                continue
            if given.json:
                print(json.dumps(dataclasses.asdict(row)), flush=True)
            else:
                print(f"| {row.title} | {row.version} | {row.lines} | {row.verdict} | {row.seconds} |", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
