"""Reads from followers of a real group: who gives the rows, also when one is gone or behind.

What a machine with other work may delay is tried again: a follower that is silent for two seconds
is left out, and its leader reads on. The rows are compared each time.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.protocol import lenient_json
from ledgermq.protocol.codes import RequestCode
from tests.e2e.plain_pair import PlainBroker, brokers_in_route, wait_until_equal
from tests.e2e.up_cluster import Node, UpCluster
from tests.e2e.wire_client import WireClient
from tests.free_ports import free_ports
from tests.processes import name_server
from tests.spark import direct
from tests.spark.topics import send_numbered
from tests.waiting import wait_until

COUNT = 2000
TOPIC = "Shared"
OK = 0
# A broker starts twice and a busy machine takes its time.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpCluster]:
    """Three members that all hold a topic, and are all in its route."""
    with UpCluster(tmp_path_factory.mktemp("up")) as cluster:
        cluster.wait_for_all()
        send_numbered(cluster.name_server, TOPIC, COUNT)
        wait_until(
            lambda: len(brokers_in_route(cluster.name_server, TOPIC)) == 3,
            what="three members in the route",
        )
        wait_until(lambda: has_all(cluster), what="followers that have it all", deadline_s=60)
        yield cluster


def has_all(cluster: UpCluster) -> bool:
    return all(ends(node) == COUNT for node in cluster.nodes())


def ends(node: Node) -> int:
    """Sum of the offsets at which the queues of the topic end for a member."""
    found = 0
    with WireClient(node["address"]) as client:
        for queue_id in range(4):
            fields = {"topic": TOPIC, "queueId": str(queue_id)}
            answer = client.ask(RequestCode.GET_MAX_OFFSET.value, fields)
            found += int((answer.ext_fields or {}).get("offset", 0))
    return found


def given(address: str) -> int:
    """How many messages a broker has handed out since its start."""
    with WireClient(address) as client:
        answer = client.ask(RequestCode.GET_BROKER_RUNTIME_INFO.value)
    table: dict[str, str] = lenient_json.read(answer.body)["table"]
    return int(table["msgGetTotalTodayNow"])


def options_of(cluster: UpCluster, read_from: str) -> dict[str, object]:
    return {"nameServer": cluster.name_server, "topic": TOPIC, "read.from": read_from}


def shares(cluster: UpCluster, read_from: str) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Reads the topic; returns how many messages each member gave, by role and id, and the rows."""
    before = {node["id"]: given(node["address"]) for node in cluster.nodes()}
    rows = direct.read_rows(options_of(cluster, read_from))
    after = {
        f"{node['role']} {node['id']}": given(node["address"]) - before[node["id"]]
        for node in cluster.nodes()
    }
    return after, rows


def test_followers_give_the_rows_that_the_leader_gives(group: UpCluster) -> None:
    expected = direct.read_rows(options_of(group, "leader"))
    assert len(expected) == COUNT

    def are_spread(read_from: str, idle: str) -> bool:
        found, rows = shares(group, read_from)
        assert rows == expected
        return all(
            count == 0 if role.startswith(idle) else count > 0 for role, count in found.items()
        )

    for read_from, idle in (("leader", "FOLLOWER"), ("follower", "LEADER"), ("any", "none")):
        wait_until(
            lambda read_from=read_from, idle=idle: are_spread(read_from, idle),
            what=f"members that share the work: {read_from}",
            deadline_s=120,
        )


def test_a_follower_that_is_killed_leaves_no_hole(group: UpCluster) -> None:
    wait_until(group.has_all, what="all members", deadline_s=90)
    leader = group.wait_for_leader()
    followers = [node for node in group.nodes() if node["id"] != leader["id"]]
    before = {node["id"]: given(node["address"]) for node in followers}
    # Little at a time, so that most is still to come.
    options = {**options_of(group, "follower"), "columns": "body", "fetchBytes": 16384}
    source = direct.source_of(options)
    reader = source.reader(source.schema())
    batches = itertools.chain.from_iterable(map(reader.read, reader.partitions()))
    rows = next(batches).to_pylist()
    assert len(rows) < COUNT
    used = [node for node in followers if given(node["address"]) > before[node["id"]]]
    group.kill((used or followers)[0])
    rows += [row for batch in batches for row in batch.to_pylist()]
    assert sorted(int(row["body"].split()[1]) for row in rows) == list(range(COUNT))


def test_what_a_slave_has_not_got_comes_from_its_master(tmp_path: Path) -> None:
    with name_server(tmp_path) as namesrv:
        master = PlainBroker(tmp_path, namesrv, "ASYNC_MASTER")
        slave = PlainBroker(tmp_path, namesrv, "SLAVE")
        bodies = [b"%03d" % number * 200 for number in range(120)]
        with master.start():
            master.wait_for_code(OK, "the master")
            with slave.start():
                send(master, bodies[:60])
                wait_until_equal(master, slave)
            send(master, bodies[60:])
            (nobody,) = free_ports(1)
            behind = PlainBroker(
                tmp_path, namesrv, "SLAVE", f"haMasterAddress=127.0.0.1:{nobody}", store=slave.store
            )
            with behind.start():
                wait_until(
                    lambda: (
                        brokers_in_route(namesrv, TOPIC) == {0: master.address, 1: behind.address}
                    ),
                    what="both in the route",
                )
                options = {"nameServer": namesrv, "topic": TOPIC, "columns": "body"}

                def is_shared() -> bool:
                    before = given(master.address), given(behind.address)
                    rows = direct.read_rows({**options, "read.from": "follower"})
                    assert [row["body"] for row in rows] == bodies
                    own = given(master.address) - before[0], given(behind.address) - before[1]
                    return own == (60, 60)

                wait_until(is_shared, what="half of the rows from each", deadline_s=120)


def send(broker: PlainBroker, bodies: list[bytes]) -> None:
    with broker.client() as client:
        for body in bodies:
            assert client.send(TOPIC, 0, body).code == OK
