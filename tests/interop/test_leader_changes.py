"""The leader hands on while a stock client with its default times is at work."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from ledgermq.protocol.codes import RequestCode
from tests.e2e.up_cluster import Node, UpCluster, port_of
from tests.processes import run_ledgermq
from tests.waiting import wait_until

from .builds import java_program
from .closed import wire
from .conftest import LedgerMQStarter
from .mqadmin import make_topic
from .probe import max_offsets
from .programs import Report, run

TOPIC = "HandedOn"
GROUP = "handed_on"
QUEUES = 4
COUNT = 200


def hand_on(cluster: UpCluster) -> Node:
    """Has another member lead; returns it."""
    leader = cluster.wait_for_leader()
    target = next(node for node in cluster.nodes() if node["id"] != leader["id"])

    def is_done() -> bool:
        words = ("transferLeader", "-n", cluster.name_server, "-a", leader["address"])
        run_ledgermq("admin", *words, "--to", target["id"])
        found = cluster.find_leader()
        return found is not None and found["id"] == target["id"]

    wait_until(is_done, what=f"{target['id']} to lead", detail=cluster.last_words)
    return cluster.wait_for_leader()


def send(node: Node, count: int) -> None:
    with wire(node["address"]) as client:
        for number in range(count):
            assert client.send(TOPIC, number % QUEUES, b"%d" % number).code == 0


def committed(node: Node) -> list[str]:
    """What the leader knows of the group's place in each queue."""
    found = []
    with wire(node["address"]) as client:
        for queue_id in range(QUEUES):
            fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id)}
            answer = client.ask(RequestCode.QUERY_CONSUMER_OFFSET.value, fields)
            found.append((answer.ext_fields or {}).get("offset", "-"))
    return found


def test_offsets_of_a_consumer_reach_the_next_leader(
    start_ledgermq: LedgerMQStarter, workspace: Path
) -> None:
    """It looks for another leader each 30 s only, and tells the former one what it consumed."""
    # A closed group lets the tool that hands over come from named addresses only.
    cluster = start_ledgermq(("dLegerToolAddresses=127.0.0.1",))
    make_topic(cluster.name_server, TOPIC, QUEUES)
    cluster.wait_for_all()
    send(cluster.wait_for_leader(), COUNT)
    messages: list[Report] = []
    command = [
        *java_program("4.9.3"), "consume", "--namesrv", cluster.name_server, "--topic", TOPIC,
        "--group", GROUP, "--expect", str(2 * COUNT), "--idle", "60", "--poll", "30000",
    ]  # fmt: skip

    def hear(report: Report) -> None:
        if report["event"] == "message":
            messages.append(report)

    def consume() -> None:
        run(command, hear, log_path=workspace / "handed-on.log", deadline_seconds=120)

    consumer = threading.Thread(target=consume)
    consumer.start()
    try:
        wait_until(lambda: len(messages) >= COUNT, what="the first messages", deadline_s=90)
        leader = hand_on(cluster)
        send(leader, COUNT)
    finally:
        consumer.join()
    assert len(messages) >= 2 * COUNT
    leader = cluster.wait_for_leader()
    ends = [str(end) for end in max_offsets(port_of(leader), TOPIC, QUEUES)]
    print(committed(leader), ends, file=sys.stderr)
    wait_until(
        lambda: committed(leader) == ends,
        what="the offsets",
        deadline_s=30,
        detail=cluster.last_words,
    )
