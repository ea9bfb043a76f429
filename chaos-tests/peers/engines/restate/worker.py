"""Restate: its server (the binary in the npm package) and a workflow in Python with one `ctx.run`. With the option `once` that has
`max_attempts=1`.
"""

import asyncio
import json
import os
import pathlib
import subprocess
import urllib.error
import urllib.request

import charge
import hypercorn.asyncio
import hypercorn.config
import peer
import restate

purchase = restate.Workflow("Purchase")


@purchase.main("run")
async def run(ctx: restate.WorkflowContext, order: dict) -> dict:
    options = restate.RunOptions(max_attempts=1) if peer.option() == "once" else restate.RunOptions()
    return await ctx.run_typed("pay", charge.charge, options, key=peer.RUN)


def binary():
    """The binary itself, in the npm package of this platform: the script in `.bin` would be a parent that dies without its child."""
    return str(next(pathlib.Path(os.environ["PEER_NODE_MODULES"]).glob("@restatedev/restate-server-*/bin/restate-server")))


def request(which, path, body=None):
    """The answer's text, `HTTP` and its code first if it is an error; nothing while there is nobody who answers."""
    data = None if body is None else json.dumps(body).encode()
    call = urllib.request.Request(f"http://127.0.0.1:{peer.port(which)}{path}", data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(call) as answer:
            return answer.read().decode() or "{}"
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}: {error.read().decode()}"
    except urllib.error.URLError:
        return None


ADMIN, INGRESS, NODE, SERVICE = range(4)


def server():
    at = lambda index: f"127.0.0.1:{peer.port(index)}"
    os.environ.update(RESTATE_ADMIN__BIND_ADDRESS=at(ADMIN), RESTATE_INGRESS__BIND_ADDRESS=at(INGRESS), RESTATE_BIND_ADDRESS=at(NODE),
                      RESTATE_LISTEN_MODE="tcp", RESTATE_DISABLE_TELEMETRY="true", RESTATE_LOG_FILTER="warn")
    os.execv(binary(), ["restate-server", "--base-dir", f"{peer.home()}/restate", "--node-name", "peer"])


def work():
    config = hypercorn.config.Config()
    config.bind = [f"127.0.0.1:{peer.port(SERVICE)}"]
    asyncio.run(hypercorn.asyncio.serve(restate.app([purchase]), config))


def submit():
    there = {"uri": f"http://127.0.0.1:{peer.port(SERVICE)}"}
    peer.until(lambda: "Purchase" in (request(ADMIN, "/deployments", there) or ""))
    peer.until(lambda: "invocationId" in (request(INGRESS, f"/Purchase/{peer.RUN}/run/send", {"customer": "ada"}) or ""))


def verdict():
    answer = request(INGRESS, f"/restate/workflow/Purchase/{peer.RUN}/attach")
    print(answer if answer.startswith("HTTP") else f"completed with {answer}")


def version():
    peer.versions("restate-sdk")()
    print(subprocess.run([binary(), "--version"], capture_output=True, text=True, check=True).stdout.strip())


peer.main(version=version, server=server, work=work, submit=submit, verdict=verdict)
