"""A real Prometheus scrapes a group: what rules and dashboards ask is answered, and alerts ring."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ledgermq.broker.watching.alerts import ALERTS, rules_file
from ledgermq.broker.watching.dashboards import DASHBOARDS
from ledgermq.protocol.codes import RequestCode
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


def find_prometheus() -> str:
    folder = os.environ.get("LEDGERMQ_PROMETHEUS", "")
    path = shutil.which("prometheus", path=os.pathsep.join((folder, os.environ.get("PATH", ""))))
    if path is None:
        pytest.skip("prometheus is not there: install Debian's prometheus, or say where it is by"
                    " LEDGERMQ_PROMETHEUS")  # fmt: skip
    return path


class Prometheus:
    """One that runs, and is asked."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/query"

    def ask(self, expr: str) -> list[Any]:
        """The series of an expression at this moment; empty as long as it does not answer."""
        query = urllib.parse.urlencode({"query": expr})
        try:
            with urllib.request.urlopen(f"{self._url}?{query}", timeout=20) as reply:
                answer = json.loads(reply.read())
        except OSError as error:
            status = getattr(error, "code", 0)
            assert status != 400, (expr, error)
            return []
        assert answer["status"] == "success", (expr, answer)
        result: list[Any] = answer["data"]["result"]
        return result


@contextmanager
def prometheus_for(folder: Path, ports: list[int]) -> Iterator[Prometheus]:
    program = find_prometheus()
    [own] = free_ports(1)
    folder.mkdir()
    (folder / "rules.yml").write_text(rules_file())
    targets = [f"127.0.0.1:{port}" for port in ports]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / "rules.yml")],
        "scrape_configs": [
            {"job_name": "ledgermq", "static_configs": [{"targets": targets}]},
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    words = [
        program, f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{own}",
    ]  # fmt: skip
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            yield Prometheus(own)
        finally:
            process.terminate()
            process.wait(30)


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
