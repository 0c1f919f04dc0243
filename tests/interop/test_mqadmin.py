"""Apache's mqadmin 4.9.3 against LedgerMQ and against Apache's own broker, side by side.

Each case runs one subcommand on both clusters, which hold the same topic, messages and consumer
group with a live consumer that filters by SQL92. The answers must have the same shape: the same
exceptions or none, and the same headings or keys, which a case finds by a regular expression. The
table subcommand x result is printed.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.interop.builds import java_program
from tests.interop.ledgermq_cluster import LedgerMQCluster
from tests.interop.mqadmin import CLUSTER_NAME, mqadmin_command, prepare_home
from tests.interop.processes import wait_until
from tests.interop.stock_broker import JavaCluster, JavaClusterPlan

TOPIC: Final = "AdminTopic"
GROUP: Final = "admin_watchers"
_MESSAGES: Final = 40
EXPRESSION: Final = "price >= 10 AND price NOT BETWEEN 20 AND 29 AND kind IN ('a')"
_WANTED: Final = {n for n in range(_MESSAGES) if n % 2 == 0 and (10 <= n < 20 or n >= 30)}
# "key : value", "key=value" and "#Heading" at the start of a line.
_KEYS: Final = r"(?m)^\s*([A-Za-z][\w.]*)\s*(?::|=)"
_HEADINGS: Final = r"(?m)^(#.*?)\s*$"


class Tour:
    """The program java/AdminTour.java at work on one cluster."""

    def __init__(self, namesrv: str, log_path: Path) -> None:
        command = [
            *java_program("4.9.3", "AdminTour", pom="broker-pom.xml"),
            namesrv, TOPIC, GROUP, EXPRESSION,
        ]  # fmt: skip
        home = prepare_home()
        command[1:1] = [f"-Drocketmq.home.dir={home}"]
        self._log = log_path.open("w")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def ask(self, *words: str) -> str:
        """Gives one command and returns what it printed."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\t".join(words) + "\n")
        self.process.stdin.flush()
        lines: list[str] = []
        for line in self.process.stdout:
            if line == "END\n":
                return "".join(lines)
            lines.append(line)
        raise AssertionError("the program ended:\n" + "".join(lines[-20:]))

    def stop(self) -> None:
        """Kills the program."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self._log):
            assert pipe is not None
            pipe.close()


@dataclass(frozen=True, slots=True)
class Side:
    """One cluster of the comparison."""

    tour: Tour
    namesrv: str
    broker: str
    broker_name: str
    message_id: str
    unique_id: str
    client_id: str


@dataclass(frozen=True, slots=True)
class Case:
    """One run of one subcommand."""

    name: str
    arguments: Callable[[Side], list[str]]
    # What is compared: everything that this finds, as a set.
    shape: str = _KEYS
    # The subcommand ends its JVM.
    is_alone: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run printed, and its shape."""

    text: str
    shape: frozenset[str]
    errors: frozenset[str]


def _on_cluster(*arguments: str) -> Callable[[Side], list[str]]:
    return lambda side: ["-c", CLUSTER_NAME, *arguments]


def _on_broker(*arguments: str) -> Callable[[Side], list[str]]:
    return lambda side: ["-b", side.broker, *arguments]


def _plain(*arguments: str) -> Callable[[Side], list[str]]:
    return lambda side: list(arguments)


# What only our broker tells, and what only upstream's has: pools of threads and memory.
_OURS_ONLY: Final = frozenset(("ledgerRole", "ledgerTerm", "ledgerLeaderId", "ledgerSelfId"))

CASES: Final = (
    Case("updateTopic", _on_cluster("-t", "Made", "-r", "2", "-w", "2"), r"(create topic) to"),
    Case(
        "updateTopicPerm",
        _on_broker("-t", TOPIC, "-p", "6"),
        r"(error|success|new perm equals to the old one)",
    ),
    Case("updateSubGroup", _on_cluster("-g", "made_group"), r"(create subscription group) to"),
    Case("topicRoute", _plain("-t", TOPIC), r'"(\w+)":'),
    Case("topicStatus", _plain("-t", TOPIC), _HEADINGS),
    Case("topicClusterList", _plain("-t", TOPIC), f"({CLUSTER_NAME})"),
    Case("topicList", _plain("-c"), _HEADINGS),
    Case("brokerStatus", lambda side: ["-b", side.broker], _KEYS),
    Case("clusterList", _plain(), _HEADINGS),
    Case("clusterList", _plain("-m"), _HEADINGS),
    Case("queryMsgById", lambda side: ["-i", side.message_id], _KEYS),
    Case("queryMsgByKey", _plain("-t", TOPIC, "-k", "key7"), _HEADINGS),
    Case("queryMsgByUniqueKey", lambda side: ["-t", TOPIC, "-i", side.unique_id], _KEYS),
    Case(
        "queryMsgByOffset", lambda side: ["-t", TOPIC, "-b", side.broker_name, "-i", "0", "-o", "0"]
    ),
    Case("printMsg", _plain("-t", TOPIC, "-d", "true"), r"(MSGID)"),
    Case(
        "printMsgByQueue",
        lambda side: ["-t", TOPIC, "-a", side.broker_name, "-i", "0", "-p", "true", "-d", "true"],
        r"(MSGID|MESSAGE ID)",
    ),
    Case(
        "consumeMessage",
        lambda side: ["-t", TOPIC, "-g", "admin_reader", "-c", "3"],
        r"(Consume ok)",
    ),
    Case("sendMessage", _plain("-t", TOPIC, "-p", "hello", "-k", "k1"), r"(SEND_OK|#Send Result)"),
    Case(
        "checkMsgSendRT",
        _plain("-t", TOPIC, "-a", "5", "-s", "128"),
        r"(#\w+(?: \w+)?)",
        is_alone=True,
    ),
    Case("brokerConsumeStats", _on_broker(), _HEADINGS),
    Case("producerConnection", _plain("-g", "no_such_group", "-t", TOPIC), r"(not exist)"),
    Case("consumerConnection", _plain("-g", GROUP), r"(?m)^(#\w+|\w+):?"),
    Case("consumerProgress", _plain("-g", GROUP), r"(#[\w ]+?)  |(Consume TPS|Diff Total)"),
    Case("consumerProgress", _plain(), _HEADINGS),
    Case("consumerStatus", lambda side: ["-g", GROUP, "-i", side.client_id], r"(?m)^#(.*?)#"),
    Case("resetOffsetByTime", _plain("-g", GROUP, "-t", TOPIC, "-s", "-1"), _HEADINGS),
    Case("skipAccumulatedMessage", _plain("-g", GROUP, "-t", TOPIC), _HEADINGS),
    Case(
        "cloneGroupOffset",
        _plain("-s", GROUP, "-d", "made_group", "-t", TOPIC, "-o", "true"),
        r"(clone group offset success)",
    ),
    Case("statsAll", _plain("-t", TOPIC), _HEADINGS),
    Case("queryCq", lambda side: ["-t", TOPIC, "-q", "0", "-i", "0", "-c", "3"], r"(=+|idx: \d+)"),
    Case("getBrokerConfig", _on_broker(), r"(?m)^\s*(brokerName|brokerIP1|listenPort)\s*="),
    Case("getConsumerConfig", _plain("-g", "made_group"), _KEYS),
    Case("updateBrokerConfig", _on_broker("-k", "brokerPermission", "-v", "6"), r"(success)"),
    Case("cleanExpiredCQ", _on_broker(), r"(success|failed)"),
    Case("cleanUnusedTopic", _on_broker(), r"(success|failed)"),
    Case("allocateMQ", _plain("-t", TOPIC, "-i", "10.0.0.1,10.0.0.2"), r'"(\w+)":'),
    Case("updateOrderConf", _plain("-t", TOPIC, "-m", "put", "-v", "b:4"), r"(success)"),
    Case("updateKvConfig", _plain("-s", "ns", "-k", "k", "-v", "v"), r"(success)"),
    Case("deleteKvConfig", _plain("-s", "ns", "-k", "k"), r"(success)"),
    Case("wipeWritePerm", lambda side: ["-b", "no-such-broker"], r"(wipe write perm of broker)"),
    Case("getNamesrvConfig", _plain(), r"(?m)^(listenPort|kvConfigPath)\s*="),
    Case("exportMetadata", lambda side: ["-c", CLUSTER_NAME, "-f", "/tmp/export"], r"(success)"),
    Case("deleteTopic", _on_cluster("-t", "Made"), r"(delete topic)"),
    Case("deleteSubGroup", _on_cluster("-g", "made_group"), r"(delete subscription group)"),
)


def _run(side: Side, case: Case) -> Outcome:
    words = [case.name, "-n", side.namesrv, *case.arguments(side)]
    if case.is_alone:
        done = subprocess.run(
            mqadmin_command(*words), capture_output=True, text=True, timeout=60, check=False
        )
        text = done.stdout + done.stderr
    else:
        text = side.tour.ask("run", *words)
    found = {
        re.sub(r"\s+", " ", one if isinstance(one, str) else "".join(one)).strip()
        for one in re.findall(case.shape, text)
    }
    errors = frozenset(re.findall(r"\b\w*(?:Exception|Error)\b|CODE: \d+", text))
    return Outcome(text, frozenset(found) - _OURS_ONLY, errors)


@contextmanager
def _side(namesrv: str, log_path: Path) -> Iterator[Side]:
    for words in (("updateTopic", "-n", namesrv, "-c", CLUSTER_NAME, "-t", TOPIC),):
        subprocess.run(mqadmin_command(*words), capture_output=True, timeout=60, check=True)
    tour = Tour(namesrv, log_path)
    try:
        ids = tour.ask("send", str(_MESSAGES)).split()
        client_id = tour.ask("client").strip()
        listing = tour.ask("run", "clusterList", "-n", namesrv)
        rows = [line.split() for line in listing.splitlines() if line.startswith(CLUSTER_NAME)]
        master = next(row for row in rows if row[2] == "0")
        yield Side(tour, namesrv, master[3], master[1], ids[0], ids[1], client_id)
    finally:
        tour.stop()


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    folder = tmp_path_factory.mktemp("mqadmin")
    switch = "enablePropertyFilter=true"
    java = JavaCluster(folder, JavaClusterPlan(broker_keys={"enablePropertyFilter": "true"}))
    ours = LedgerMQCluster(folder / "ledgermq", settings=(switch,))
    with java, ours:
        with _side(java.namesrv, folder / "stock.log") as stock:
            with _side(ours.namesrv, folder / "ours.log") as side:
                yield stock, side


def _prices(side: Side) -> list[int]:
    return sorted(map(int, side.tour.ask("got").split()))


def test_consumer_with_a_sql_filter_gets_what_it_wants(sides: tuple[Side, Side]) -> None:
    stock, ours = sides
    for side in (stock, ours):
        what = "the consumer has what its expression wants"
        wait_until(lambda one=side: len(_prices(one)) >= len(_WANTED), what, seconds=60)
        assert _prices(side) == sorted(_WANTED)


def test_every_subcommand_has_the_shape_of_the_stock_broker(sides: tuple[Side, Side]) -> None:
    stock, ours = sides
    rows: list[str] = []
    wrong: list[str] = []
    for case in CASES:
        theirs, mine = _run(stock, case), _run(ours, case)
        is_same = theirs.errors == mine.errors and theirs.shape <= mine.shape
        if case.name != "brokerStatus":
            is_same = is_same and theirs.shape == mine.shape
        if not theirs.shape:
            is_same = False
        verdict = "same" if is_same else "DIFFERS"
        rows.append(f"{case.name:<24} {len(theirs.shape):>3} parts  {verdict}")
        if not is_same:
            wrong.append(
                f"{case.name}: stock {sorted(theirs.shape)} {sorted(theirs.errors)},"
                f" ours {sorted(mine.shape)} {sorted(mine.errors)}\n"
                f"--- stock\n{theirs.text[-1500:]}\n--- ours\n{mine.text[-1500:]}"
            )
    print("\n" + "\n".join(rows))
    assert not wrong, "\n\n".join(wrong)
