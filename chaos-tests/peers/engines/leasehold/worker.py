"""Leasehold on its embedded store: `leasehold dev` and a run with one call of a command tool. With the option `probe` the tool can be asked
whether the payment is in the books. The binary is the one that `LEASEHOLD_BIN` names.
"""

import json
import os
import pathlib
import subprocess
import sys

import charge
import peer

HERE = pathlib.Path(__file__).parent


def command(*arguments):
    return [os.environ["LEASEHOLD_BIN"], "--data", f"{peer.home()}/data", *map(str, arguments)]


def work():
    tools = HERE / ("tools-probe.toml" if peer.option() == "probe" else "tools.toml")
    values = ["--set", f"PYTHON={sys.executable}", "--set", f"CHARGE={charge.__file__}"]
    argv = command("dev", "--tools", tools, "--policy", HERE / "policy.toml", *values)
    os.execv(argv[0], argv)


def submit():
    serving()
    subprocess.run(command("run", HERE / "run.toml"), stdout=subprocess.DEVNULL, check=True)


def serving():
    """Waits until the process answers. Before that, `show` would open the folder itself, and be in the way of the one that starts."""
    peer.until(lambda: subprocess.run(command("status"), capture_output=True).returncode == 0)


def verdict():
    serving()

    def over():
        shown = json.loads(subprocess.run(command("show", peer.RUN, "--json"), capture_output=True, text=True, check=True).stdout)
        questions = [question["question"]["ask"] for question in shown["questions"] if question["state"] == "open"]
        return shown["status"] != "running" and ", ".join([shown["status"], *questions])

    print(peer.until(over, 120))


def version():
    print(subprocess.run([os.environ["LEASEHOLD_BIN"], "--version"], capture_output=True, text=True, check=True).stdout.strip())


peer.main(version=version, work=work, submit=submit, verdict=verdict)
