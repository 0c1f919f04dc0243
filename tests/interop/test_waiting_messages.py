"""The stock Java client's messages that wait: delayed, failed and tried again, in transactions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.up_cluster import UpCluster
from tests.interop.builds import java_program
from tests.interop.conftest import LedgerMQStarter
from tests.interop.mqadmin import make_topic
from tests.interop.programs import Report, run

# Levels of one and two seconds; a failed message takes level 3 and those above.
SETTINGS = (
    "messageDelayLevel=1s 2s 1s 1s 1s",
    "transactionCheckInterval=1000",
    "transactionTimeOut=500",
)
DEADLINE_SECONDS = 120.0


@pytest.fixture(scope="module")
def cluster(start_ledgermq: LedgerMQStarter) -> UpCluster:
    return start_ledgermq(SETTINGS)


@pytest.fixture(params=["4.9.3", "5.3.3"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def play(
    cluster: UpCluster, workspace: Path, version: str, mode: str, **options: int
) -> list[Report]:
    """Runs one mode of the program on a topic of its own; returns its reports."""
    topic = f"{mode}_{version.replace('.', '_')}"
    make_topic(cluster.name_server, topic, 2)
    command = [
        *java_program(version, "WaitingMessages"), mode, "--namesrv", cluster.name_server,
        "--topic", topic, "--group", f"group_{topic}",
    ]  # fmt: skip
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    reports: list[Report] = []
    run(
        command,
        reports.append,
        log_path=workspace / f"{topic}.log",
        deadline_seconds=DEADLINE_SECONDS,
    )
    return reports


def of(reports: list[Report], event: str) -> list[Report]:
    return [report for report in reports if report["event"] == event]


def test_delayed_messages_come_once_and_in_time(
    cluster: UpCluster, workspace: Path, version: str
) -> None:
    reports = play(cluster, workspace, version, "delay", count=40, expect=40, idle=2)
    assert {report["status"] for report in of(reports, "sent")} == {"SEND_OK"}
    messages = of(reports, "message")
    expected = [f"level-{1 + number % 2}-{number}" for number in range(40)]
    assert Counter(message["body"] for message in messages) == Counter(expected)
    for message in messages:
        level = int(message["body"].split("-")[1])
        assert message["waited"] >= level * 1000, message


def test_failed_messages_are_tried_again_until_they_are_dead(
    cluster: UpCluster, workspace: Path, version: str
) -> None:
    """Two failures and a success for each, but the second one fails for good."""
    reports = play(
        cluster, workspace, version, "retry", count=4, expect=4, idle=3, tries=2, maxtries=3
    )
    tries: dict[str, list[tuple[int, bool]]] = {}
    dead: list[Report] = []
    for message in of(reports, "message"):
        if message["topic"].startswith("%DLQ%"):
            dead.append(message)
        else:
            # The client shows the topic that the message was sent to.
            assert message["seen"] == message["topic"]
            tries.setdefault(message["body"], []).append((message["again"], message["fails"]))
    succeeded = [(0, True), (1, True), (2, False)]
    assert tries == {
        "m0": succeeded,
        "m1": [(0, True), (1, True), (2, True), (3, True)],
        "m2": succeeded,
        "m3": succeeded,
    }
    assert [message["body"] for message in dead] == ["m1"]


def test_transactions_end_as_the_producer_says(
    cluster: UpCluster, workspace: Path, version: str
) -> None:
    reports = play(cluster, workspace, version, "transaction", count=20, expect=10, idle=4)
    assert {report["status"] for report in of(reports, "sent")} == {"SEND_OK"}
    committed = [f"t{number}" for number in range(20) if number % 4 in (0, 2)]
    unknown = {f"t{number}" for number in range(20) if number % 4 in (2, 3)}
    seen = Counter(message["body"] for message in of(reports, "message"))
    assert seen == Counter(committed)
    checked = of(reports, "checked")
    assert {report["body"] for report in checked} == unknown
    assert {report["topic"] for report in checked} == {f"transaction_{version.replace('.', '_')}"}
