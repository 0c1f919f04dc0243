"""Leaders die under the load of the stock producer; nothing that was acknowledged is lost.

INTEROP_KILLS (10) sets how often the leader is killed, INTEROP_LOAD_RATE (400) the messages a
second of the load. Times are printed, not asserted.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.up_cluster import UpCluster, port_of
from tests.interop.conftest import LedgerMQStarter, Tell
from tests.interop.load import StockLoad, consume_all, find_faults, read_acks
from tests.interop.mqadmin import make_topic
from tests.interop.probe import WriteProbe, max_offsets
from tests.interop.programs import Report
from tests.interop.replicas import compare, find_members
from tests.processes import run_ledgermq
from tests.waiting import pause

KILL_COUNT = int(os.environ.get("INTEROP_KILLS", "10"))
RATE_PER_SECOND = int(os.environ.get("INTEROP_LOAD_RATE", "400"))
TOPIC = "FailoverLoad"
PROBE_TOPIC = "FailoverProbe"
QUEUES = 4
# Acknowledgements that must come before the first kill and after each.
ACKS_BETWEEN = 200


@dataclass(slots=True)
class Scene:
    """A group under load: the cluster, all acknowledgements so far, the number of checks."""

    cluster: UpCluster
    workspace: Path
    tell: Tell
    acks: list[Report] = field(default_factory=list)
    checks: int = 0

    def probe(self) -> WriteProbe:
        """Return a write probe over all brokers, not yet started."""
        return WriteProbe(list(map(port_of, self.cluster.nodes())), PROBE_TOPIC)

    def load(self, name: str) -> StockLoad:
        """Return a load with an acknowledgement file of its own, not yet started."""
        return StockLoad(
            namesrv=self.cluster.name_server,
            topic=TOPIC,
            acks=self.workspace / f"{name}.acks",
            rate_per_second=RATE_PER_SECOND,
        )

    def finish(self, load: StockLoad) -> None:
        """Stop a load and remember what it was promised."""
        done = load.stop()
        self.acks += read_acks(load.acks)
        print(f"load: {done['count']} acknowledged, {done['failed']} refused or unanswered")

    def check_topic(self) -> None:
        """Consume the whole topic in a new group and compare with every acknowledgement."""
        self.cluster.wait_for_all()
        ends = max_offsets(port_of(self.cluster.wait_for_leader()), TOPIC, QUEUES)
        self.checks += 1
        delivery = consume_all(
            namesrv=self.cluster.name_server,
            topic=TOPIC,
            group=f"check_{self.checks}",
            expect=sum(ends),
            log_path=self.workspace / f"check-{self.checks}.log",
        )
        faults = find_faults(self.acks, delivery, ends)
        self.tell(
            f"check {self.checks}: {len(self.acks)} acknowledged, {len(delivery.found)} consumed, "
            f"queue ends {ends}, {len(faults)} faults"
        )
        assert not faults, "\n".join(faults[:30])

    def check_replicas(self) -> None:
        """Stop the cluster; compare the replicas by `ledgermq log verify` and by ourselves."""
        self.cluster.stop()
        members = find_members(self.cluster.data)
        assert len(members) == self.cluster.node_count, members
        comparison = compare(members)
        stores = (self.cluster.data / f"n{i}" for i in range(self.cluster.node_count))
        verify = run_ledgermq("log", "verify", *stores)
        print(
            f"replicas: committed {comparison.committed}, {comparison.compared_bytes} bytes equal"
        )
        print("\n".join(f"  {line}" for line in verify.stdout.splitlines()[-8:]))
        assert comparison.first_difference is None, comparison
        assert verify.returncode == 0, verify.stdout + verify.stderr
        self.cluster.start()


@pytest.fixture(scope="module")
def scene(
    start_ledgermq: LedgerMQStarter, tmp_path_factory: pytest.TempPathFactory, tell: Tell
) -> Iterator[Scene]:
    """A group of three with the topics of the load and of the probe."""
    cluster = start_ledgermq()
    make_topic(cluster.name_server, TOPIC, QUEUES)
    make_topic(cluster.name_server, PROBE_TOPIC, QUEUES)
    cluster.wait_for_all()
    yield Scene(cluster, tmp_path_factory.mktemp("failover"), tell)


@pytest.mark.timeout(1500)
def test_no_acknowledged_message_is_lost_when_leaders_are_killed(scene: Scene) -> None:
    probe = scene.probe()
    probe.start()
    outages: list[float] = []
    try:
        with scene.load("leader-kills") as load:
            load.wait_for_acks(ACKS_BETWEEN, seconds=60)
            for number in range(1, KILL_COUNT + 1):
                scene.cluster.wait_for_all()
                leader = scene.cluster.wait_for_leader()
                killed_at = time.monotonic()
                scene.cluster.kill(leader)
                outage = probe.wait_for_write(
                    killed_at, seconds=60, detail=scene.cluster.last_words
                )
                outages.append(outage)
                load.wait_for_acks(ACKS_BETWEEN, seconds=90)
                name = leader["id"]
                print(f"kill {number}: leader {name}, {outage:.2f} s without a writable leader")
            scene.finish(load)
    finally:
        probe.stop()
    scene.tell(
        f"{KILL_COUNT} kills: median {statistics.median(outages):.2f} s, "
        f"worst {max(outages):.2f} s without a writable leader"
    )
    scene.check_topic()
    scene.check_replicas()


@pytest.mark.timeout(900)
def test_no_acknowledged_message_is_lost_when_all_nodes_are_killed_at_once(scene: Scene) -> None:
    probe = scene.probe()
    probe.start()
    try:
        with scene.load("all-killed") as load:
            load.wait_for_acks(ACKS_BETWEEN, seconds=60)
            pause(2)
            scene.cluster.wait_for_all()
            nodes = scene.cluster.nodes()
            killed_at = time.monotonic()
            scene.cluster.kill(*nodes)
            recovery = probe.wait_for_write(killed_at, seconds=90, detail=scene.cluster.last_words)
            scene.tell(
                f"all {len(nodes)} nodes killed: {recovery:.2f} s until a write was accepted"
            )
            load.wait_for_acks(ACKS_BETWEEN, seconds=90)
            scene.finish(load)
    finally:
        probe.stop()
    scene.check_topic()
    scene.check_replicas()
