"""DBOS on SQLite: a workflow with one step. A process that launches recovers what an earlier one left pending."""

import charge
import peer
from dbos import DBOS, DBOSClient, SetWorkflowID


def store():
    return f"sqlite:///{peer.home()}/dbos.sqlite"


@DBOS.step()
def pay():
    return charge.charge(peer.RUN)


@DBOS.workflow()
def purchase():
    return pay()


def work():
    DBOS(config={"name": "crash", "system_database_url": store(), "run_admin_server": False})
    DBOS.launch()
    if DBOS.get_workflow_status(peer.RUN) is None:  # the second life starts nothing: what runs then is DBOS's own recovery
        with SetWorkflowID(peer.RUN):
            DBOS.start_workflow(purchase)
    DBOS.retrieve_workflow(peer.RUN).get_result()


def verdict():
    client = DBOSClient(system_database_url=store())
    over = lambda: (status := client.retrieve_workflow(peer.RUN).get_status().status) not in ("PENDING", "ENQUEUED") and status
    print(peer.until(over, 120))


peer.main(version=peer.versions("dbos"), work=work, verdict=verdict)
