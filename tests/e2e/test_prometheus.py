"""A real Prometheus scrapes a group: what rules and dashboards ask is answered, and alerts ring."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from ledgermq.broker.watching.alerts import ALERTS
from ledgermq.broker.watching.dashboards import DASHBOARDS
from ledgermq.protocol.codes import RequestCode
from tests.e2e.prometheus import find_prometheus, prometheus_for
from tests.e2e.up_cluster import UpCluster
from tests.e2e.wire_client import WireClient
from tests.free_ports import free_ports
from tests.processes import SMALL_STORE
from tests.waiting import wait_until

# Waits are long, for a starved machine; several may follow each other.
pytestmark = pytest.mark.timeout(300)

_WAIT_S = 90.0
# Panels of what does not happen in a group of a minute.
_EMPTY = {"Dead letters", "Consumers", "Delayed messages"}


def filled(expr: str) -> str:
    """A panel's expression with what Grafana puts in."""
    expr = expr.replace("$__rate_interval", "30s").replace("[15m]", "[30s]")
    return expr.replace("$cluster", ".*").replace("$broker", ".*").replace("[1h]", "[30s]")


def test_prometheus_answers_panels_and_rings_for_a_lost_member(tmp_path: Path) -> None:
    find_prometheus()
    [first] = free_ports(1, spread=(0, 10, 20))
    with UpCluster(tmp_path / "up", settings=[*SMALL_STORE, f"httpPort={first}"]) as cluster:
        cluster.wait_for_all()
        leader = cluster.wait_for_leader()
        with WireClient(leader["address"]) as client:
            for number in range(10):
                assert client.send("Orders", 0, b"%d" % number).code == 0
            assert client.read_queue("Orders", 0)
            fields = {
                "consumerGroup": "billing", "topic": "Orders", "queueId": "0", "commitOffset": "5",
            }  # fmt: skip
            assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET.value, fields).code == 0
        ports = [first, first + 10, first + 20]
        with prometheus_for(tmp_path / "prometheus", ports) as prometheus:

            def has(expr: str) -> bool:
                return bool(prometheus.ask(expr))

            wait_until(lambda: has("sum(up) == 3"), what="three members", deadline_s=_WAIT_S)
            wait_until(
                lambda: has("count(count_over_time(ledgermq_raft_term[30s]) >= 3) == 3"),
                what="some scrapes",
                deadline_s=_WAIT_S,
            )
            for board in DASHBOARDS:
                for panel in board.panels:
                    for expr, _ in panel.queries:
                        found = prometheus.ask(filled(expr))
                        assert found or panel.title in _EMPTY, (board.title, panel.title, expr)
            ringing = {
                series["metric"]["alertname"].removeprefix("LedgerMQ")
                for series in prometheus.ask("ALERTS")
            }
            # On a full or slow machine the disk may ring; nothing is wrong with the group.
            assert not ringing & {"NoLeader", "MemberDown", "QuorumAtRisk", "MemberFailed"}

            follower = next(node for node in cluster.nodes() if node["id"] != leader["id"])
            cluster.signal(signal.SIGSTOP, follower)
            pending = 'ALERTS{{alertname="LedgerMQ{}"}}'
            for alert in ("QuorumAtRisk", "MemberDown"):
                assert alert in {known.name for known in ALERTS}
                wait_until(
                    lambda alert=alert: has(pending.format(alert)),
                    what=f"the alert {alert}",
                    deadline_s=_WAIT_S,
                )
            cluster.signal(signal.SIGCONT, follower)
            wait_until(
                lambda: not has(pending.format("QuorumAtRisk")),
                what="the end of the alert",
                deadline_s=_WAIT_S,
            )
