"""A cluster inside this process, and the stock Java client outside: hours pass in seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ledgermq.testing import LedgerCluster
from tests.interop.builds import java_program
from tests.interop.conftest import Tell
from tests.interop.programs import Report, run

ROOT = Path(__file__).resolve().parents[2]
COUNT = 20
DEADLINE_SECONDS = 100.0
CLUSTERS = 100


def play(
    cluster: LedgerCluster, log: Path, mode: str, expected: int, move: Callable[[], None]
) -> list[Report]:
    """Runs the Java program, moves the clock when all is sent, and returns its reports."""
    reports: list[Report] = []

    def listen(report: Report) -> None:
        reports.append(report)
        if report["event"] == "sent" and len(of(reports, "sent")) == COUNT:
            move()

    cluster.create_topic(mode, queues=2)
    command = [
        *java_program("4.9.3", "WaitingMessages"), mode, "--namesrv", cluster.name_server,
        "--topic", mode, "--group", f"group_{mode}", "--count", str(COUNT),
        "--expect", str(expected), "--idle", "1",
    ]  # fmt: skip
    run(command, listen, log_path=log, deadline_seconds=DEADLINE_SECONDS)
    return reports


def of(reports: list[Report], event: str) -> list[Report]:
    return [report for report in reports if report["event"] == event]


def test_java_client_gets_delayed_messages_hours_later_in_seconds(workspace: Path) -> None:
    log = workspace / "cluster-delay.log"
    with LedgerCluster(3, settings={"messageDelayLevel": "1h 2h 10s"}) as cluster:
        reports = play(cluster, log, "delay", COUNT, lambda: cluster.clock.advance(hours=2))
        stored = cluster.messages("delay")
    expected = {f"level-{1 + number % 2}-{number}" for number in range(COUNT)}
    assert {report["body"] for report in of(reports, "message")} == expected
    assert {message.body.decode() for message in stored} == expected
    for message in stored:
        level = int(message.body.split(b"-")[1])
        assert message.store_timestamp_ms - message.born_timestamp_ms >= level * 3_600_000


def test_java_producer_is_asked_about_its_transactions(workspace: Path) -> None:
    """In turn committed, rolled back, and unknown: those are asked about."""
    log = workspace / "cluster-transaction.log"
    with LedgerCluster(3) as cluster:

        def ask() -> None:
            senders = "group_transaction_senders"
            cluster.wait_until(lambda: cluster.clients(senders), timeout_s=60)
            cluster.clock.advance(minutes=2)

        reports = play(cluster, log, "transaction", COUNT // 2, ask)
    unknown = {f"t{number}" for number in range(COUNT) if number % 4 in (2, 3)}
    committed = {f"t{number}" for number in range(COUNT) if number % 4 in (0, 2)}
    assert {report["body"] for report in of(reports, "checked")} >= unknown
    assert {report["body"] for report in of(reports, "message")} == committed


def test_hundred_clusters_leave_nothing_behind(tell: Tell) -> None:
    words = [sys.executable, "-W", "error", "-m", "tests.e2e.many_clusters", str(CLUSTERS)]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, timeout=110, check=True)
    result = json.loads(done.stdout)
    tell(
        f"{CLUSTERS} clusters inside one process: {result['seconds']} s in all, ready in the median"
        f" after {result['start_median_ms']} ms, after {result['start_max_ms']} ms at the latest"
    )
    assert result["count"] == CLUSTERS
    assert result["threads"] == ["MainThread"]
    left = {key: result[key] for key in ("ports", "descriptors", "calls", "mappings", "files")}
    assert left == {"ports": [], "descriptors": 0, "calls": [], "mappings": 0, "files": []}
    assert result["brokers"] == 0
