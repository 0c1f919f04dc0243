"""Light queues: the stock Java client fills and reads those of a stock broker and of a LedgerMQ
group, and sees the same.

The stock broker has a plain log, for one of 4.9.3 fills no light queue on DLedger.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.cli.main import main
from tests.interop.builds import java_program
from tests.interop.conftest import LedgerMQStarter
from tests.interop.programs import Report, run
from tests.interop.stock_broker import JavaCluster, JavaClusterPlan

KEYS = {"enableLmq": "true", "enableMultiDispatch": "true"}
COUNT = 20
DEADLINE_SECONDS = 120.0


def play(namesrv: str, log: Path) -> list[Report]:
    reports: list[Report] = []
    command = [
        *java_program("4.9.3", "LightQueues"), "--namesrv", namesrv, "--topic", "TopicLight",
        "--group", "light", "--count", str(COUNT),
    ]  # fmt: skip
    run(command, reports.append, log_path=log, deadline_seconds=DEADLINE_SECONDS)
    return reports


def test_java_client_sees_the_same_light_queues(
    start_ledgermq: LedgerMQStarter,
    workspace: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with JavaCluster(tmp_path, JavaClusterPlan(broker_keys=KEYS)) as stock:
        expected = play(stock.namesrv, workspace / "light-stock.log")
    # Its queues, light ones among them, are what this log makes by our own rules.
    assert main(["log", "verify", str(tmp_path / "store-0")]) == 0, capsys.readouterr().out
    assert "3 queues with 51 messages" in capsys.readouterr().out
    cluster = start_ledgermq(tuple(f"{key}={value}" for key, value in KEYS.items()))
    assert play(cluster.name_server, workspace / "light-ledgermq.log") == expected
    found = [report for report in expected if report["event"] == "message"]
    by_queue = {
        name: [report["body"] for report in found if report["queue"] == name]
        for name in ("%LMQ%all", "%LMQ%other")
    }
    assert by_queue["%LMQ%all"] == [f"m{number}" for number in range(COUNT)]
    assert by_queue["%LMQ%other"] == [f"m{number}" for number in range(1, COUNT, 2)]
    ends = [report["max"] for report in expected if report["event"] == "offset"]
    assert ends == [COUNT, COUNT // 2]
