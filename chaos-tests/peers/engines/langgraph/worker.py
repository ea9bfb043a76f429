"""LangGraph with its SQLite checkpointer: a graph of one node, every checkpoint written before the next step. A new process goes on from the
last checkpoint, as the documentation says: by invoking the thread again without input.
"""

from typing import TypedDict

import charge
import peer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

THREAD = {"configurable": {"thread_id": peer.RUN}}


class State(TypedDict):
    customer: str
    charged: bool


def pay(state: State):
    return charge.charge(peer.RUN)


def graph(saver):
    build = StateGraph(State)
    build.add_node("pay", pay)
    build.add_edge(START, "pay")
    build.add_edge("pay", END)
    return build.compile(checkpointer=saver)


def work():
    with SqliteSaver.from_conn_string(f"{peer.home()}/checkpoints.sqlite") as saver:
        purchase = graph(saver)
        started = purchase.get_state(THREAD).next
        purchase.invoke(None if started else {"customer": "ada"}, THREAD, durability="sync")


def verdict():
    def over():
        with SqliteSaver.from_conn_string(f"{peer.home()}/checkpoints.sqlite") as saver:
            state = graph(saver).get_state(THREAD)
            return not state.next and state.values.get("charged") and "finished, nothing left to do"

    print(peer.until(over, 120))


peer.main(version=peer.versions("langgraph", "langgraph-checkpoint-sqlite"), work=work, verdict=verdict)
