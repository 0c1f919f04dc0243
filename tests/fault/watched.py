"""A real Prometheus watches a group that is hurt: what rules and dashboards say of each fault.

python -m tests.fault.watched       as root, with Debian's prometheus; some minutes

Members stop, a follower and a consumer group fall behind, messages are given up, a disk fills. All
expressions of the dashboards are asked while all is well, and those that a fault is about while it
lasts; every alert that it should bring about has to ring and to end, and no other may. Rules look
at seconds instead of minutes, and at small amounts; nothing else of them is changed.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from ledgermq.broker.watching.alerts import rules_file
from ledgermq.broker.watching.dashboards import DASHBOARDS
from ledgermq.client import BURY, ClientError, Message
from ledgermq.client.blocking import Producer, PushConsumer
from tests.e2e.prometheus import Prometheus, prometheus_for
from tests.e2e.up_cluster import Node, UpCluster
from tests.fault.small_disk import SmallDisk
from tests.free_ports import free_ports
from tests.waiting import pause, wait_until

_DISK_BYTES: Final = 256 << 20
_SETTINGS: Final = (
    "mappedFileSizeCommitLog=8388608",
    "mappedFileSizeDLedgerIndex=131072",
    "mappedFileSizeConsumeQueue=20000",
    "maxHashSlotNum=1000",
    "maxIndexNum=4000",
    "cleanResourceInterval=1000",
    "fileReservedTime=72",
    "defaultTopicQueueNums=1",
)
_WAIT_S: Final = 180.0
# What the speed of the machine alone may bring about.
_PACE: Final = {"CommitSlow", "SyncSlow", "PeerSlow", "ReactorSaturated", "LeaderChanges"}
# Text of a rule -> what stands for it here. What passes within minutes rings here, too: with them
# a second's blip of a figure is an alert.
_HASTENED: Final = {
    "[5m]": "[20s]",
    "[10m]": "[20s]",
    "[15m]": "[40s]",
    "offset 15m": "offset 20s",
    "[6h]": "[20s]",
    "> 67108864": "> 1048576",
    "> 300000": "> 3000",
}


def hastened(rules: str) -> str:
    """Our rules, quicker."""
    for text, short in _HASTENED.items():
        rules = rules.replace(text, short)
    return re.sub(r"for: \w+", "for: 1s", rules)


def filled(expr: str) -> str:
    """A panel's expression with what Grafana puts in."""
    for text in ("$__rate_interval", "15m", "1h"):
        expr = expr.replace(f"[{text}]", "[20s]")
    return expr.replace("$cluster", ".*").replace("$broker", ".*")


class Load:
    """A producer that goes on whatever happens, about a hundred messages a second."""

    def __init__(self, name_server: str, topic: str, body_bytes: int = 200) -> None:
        self._name_server, self._topic = name_server, topic
        # The client compresses what can be.
        self._body = os.urandom(body_bytes)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent_count = 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with Producer(self._name_server) as producer:
            while not self._ended.wait(0.01):
                with contextlib.suppress(ClientError):
                    producer.send(Message(self._topic, self._body))
                    self.sent_count += 1


class Watch:
    """What Prometheus is asked, and a line for each answer that was as it should be."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus
        self._panels = {
            panel.title: [filled(expr) for expr, _ in panel.queries]
            for board in DASHBOARDS
            for panel in board.panels
        }

    def ask_panels(self) -> None:
        """Every panel has something to show."""
        for title, exprs in self._panels.items():
            for expr in exprs:
                wait_until(
                    lambda expr=expr: self._prometheus.ask(expr),
                    what=f"{title}: {expr}",
                    deadline_s=_WAIT_S,
                )
        say(f"all {len(self._panels)} panels have something to show")

    def values(self, title: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each line of a panel, of its last expression."""
        found = self._prometheus.ask(self._panels[title][-1])
        return [(one["metric"], float(one["value"][1])) for one in found]

    def panel(self, title: str, holds: Callable[[list[tuple[dict[str, str], float]]], Any]) -> None:
        """Waits until a panel says what it should."""
        wait_until(
            lambda: holds(self.values(title)),
            what=f"panel {title}",
            deadline_s=_WAIT_S,
            detail=lambda: str(self.values(title)),
        )
        say(f"  panel {title}: {sorted({round(value, 3) for _, value in self.values(title)})}")

    def ringing(self) -> set[str]:
        """Alerts that ring."""
        found = self._prometheus.ask('ALERTS{alertstate="firing"}')
        return {one["metric"]["alertname"].removeprefix("LedgerMQ") for one in found}

    def rings(self, *alerts: str, may: tuple[str, ...] = ()) -> None:
        """Waits until these ring; no other does, but for those that may."""
        wanted, allowed = set(alerts), set(alerts) | set(may) | _PACE
        wait_until(
            lambda: wanted <= self.ringing(),
            what=f"alerts {alerts}",
            deadline_s=_WAIT_S,
            detail=lambda: str(self.ringing()),
        )
        others = self.ringing() - allowed
        assert not others, f"{others} ring beside {alerts}"
        say(f"  rings: {', '.join(alerts)}")

    def quiet(self) -> None:
        """Waits until nothing rings."""
        wait_until(
            lambda: not self.ringing() - _PACE,
            what="quiet",
            deadline_s=_WAIT_S,
            detail=lambda: str(self.ringing()),
        )
        say("  quiet")


def say(text: str) -> None:
    """Prints a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def of_leader(cluster: UpCluster) -> tuple[Node, list[Node]]:
    """The leader, and the others."""
    leader = cluster.wait_for_leader()
    return leader, [node for node in cluster.nodes() if node["id"] != leader["id"]]


def well(cluster: UpCluster, watch: Watch) -> None:
    """All is well, and everything happens that a panel is about."""
    say("well")
    names = cluster.name_server
    with (
        Load(names, "orders"),
        PushConsumer(names, "billing", "orders", lambda message: None, start="first"),
        PushConsumer(names, "undertakers", "dead", lambda message: BURY, start="first"),
        Producer(names) as producer,
    ):
        producer.send(Message("orders", b"later", delay_level=5))
        producer.send(Message("dead", b"first"))
        watch.ask_panels()
        watch.panel("Serving groups", lambda rows: [value for _, value in rows] == [1])
        watch.panel("Members there", lambda rows: [value for _, value in rows] == [3])
        watch.panel("Leader", lambda rows: sorted(value for _, value in rows) == [0, 0, 1])
        watch.panel("Messages in", lambda rows: rows and rows[0][1] > 1)
        watch.panel("Messages out", lambda rows: rows and rows[0][1] > 1)
        watch.panel("Followers behind", lambda rows: len(rows) == 2)
        watch.rings("DeadLetters")
        watch.panel("Dead letters", lambda rows: any(value > 0 for _, value in rows))
    # Of consumers that are gone nothing waits, so nobody misses them.
    watch.quiet()


def members_stop(cluster: UpCluster, watch: Watch) -> None:
    say("the leader stops, then a second member")
    leader, _ = of_leader(cluster)
    terms = {value for _, value in watch.values("Term")}
    with Load(cluster.name_server, "orders"):
        cluster.signal(signal.SIGSTOP, leader)
        watch.rings("MemberDown", "QuorumAtRisk", may=("NoConsumers", "LagGrowing", "SendsFail"))
        watch.panel("Serving groups", lambda rows: [value for _, value in rows] == [1])
        watch.panel(
            "Leader",
            lambda rows: (
                [row["member"] for row, value in rows if value] not in ([], [leader["id"]])
            ),
        )
        watch.panel("Term", lambda rows: rows and min(value for _, value in rows) > max(terms))
        watch.panel("Leader changes", lambda rows: any(value > 0 for _, value in rows))
        second = cluster.wait_for_leader(not_pid=leader["pid"])
        cluster.signal(signal.SIGSTOP, second)
        watch.rings(
            "MemberDown", "NoLeader",
            may=("NoConsumers", "LagGrowing", "SendsFail", "QuorumAtRisk"),
        )  # fmt: skip
        watch.panel("Serving groups", lambda rows: [value for _, value in rows] == [0])
        watch.panel("Members there", lambda rows: [value for _, value in rows] == [1])
        cluster.signal(signal.SIGCONT, leader, second)
        cluster.wait_for_all()
    catch_up(cluster, watch)


def catch_up(cluster: UpCluster, watch: Watch) -> None:
    """The group consumes what waits, after which nothing rings."""
    names = cluster.name_server
    with PushConsumer(names, "billing", "orders", lambda message: None, start="first"):
        watch.panel(
            "Lag in messages",
            lambda rows: [value for row, value in rows if row["topic"] == "orders"] == [0],
        )
    watch.quiet()


def follower_falls_behind(cluster: UpCluster, watch: Watch) -> None:
    say("a follower falls behind")
    _, (follower, _) = of_leader(cluster)
    with Load(cluster.name_server, "heavy", 40_000):
        cluster.signal(signal.SIGSTOP, follower)
        watch.rings("FollowerBehind", "MemberDown", "QuorumAtRisk")
        watch.panel(
            "Followers behind",
            lambda rows: any(
                value > 1 << 20 for row, value in rows if row["peer"] == follower["id"]
            ),
        )
        watch.panel("Followers last heard", lambda rows: any(value > 3 for _, value in rows))
    cluster.signal(signal.SIGCONT, follower)
    watch.panel("Followers behind", lambda rows: len(rows) == 2 and not sum(v for _, v in rows))
    watch.quiet()


def consumers_fall_behind(cluster: UpCluster, watch: Watch) -> None:
    say("a consumer group falls behind")
    with Load(cluster.name_server, "orders") as load:
        watch.rings("LagGrowing", "NoConsumers")
    lag = load.sent_count
    say(f"  {lag} messages were sent")
    watch.panel(
        "Lag in messages",
        lambda rows: [v for row, v in rows if row["consumer_group"] == "billing"
                      and row["topic"] == "orders"] == [lag],
    )  # fmt: skip
    watch.panel("Lag of all groups", lambda rows: rows and rows[0][1] >= lag)
    watch.panel("Lag in time", lambda rows: any(value > 3000 for _, value in rows))
    catch_up(cluster, watch)


def disk_fills(cluster: UpCluster, watch: Watch, disks: dict[str, SmallDisk]) -> None:
    say("the leader's disk fills")
    leader, _ = of_leader(cluster)
    ballasts = []
    with Load(cluster.name_server, "disks"):
        for percent in (62, 70, 80, 95):
            for ballast in ballasts:
                ballast.unlink()
            ballasts = [disks[leader["id"]].put_ballast(percent)]
            if percent == 80:
                watch.rings("DiskFullIn24h", may=("NoConsumers", "LagGrowing"))
            pause(3)
        others = ("DiskFullIn24h", "NoLeader", "SendsFail", "NoConsumers", "LagGrowing")
        watch.rings("DiskRefusing", may=others)
        watch.panel(
            "Disk used",
            lambda rows: any(v > 0.9 for row, v in rows if row["member"] == leader["id"]),
        )
        watch.panel("Refused", lambda rows: any(value > 0 for _, value in rows))
        for ballast in ballasts:
            ballast.unlink()
        watch.panel("Disk used", lambda rows: all(value < 0.9 for _, value in rows))
        watch.panel("Refused", lambda rows: not any(value > 0 for _, value in rows))
    watch.quiet()


@contextlib.contextmanager
def small_disks(folder: Path) -> Iterator[dict[str, SmallDisk]]:
    """A disk for each member."""
    with contextlib.ExitStack() as stack:
        found = {}
        for node in ("n0", "n1", "n2"):
            found[node] = SmallDisk(folder / "up" / "data" / node, _DISK_BYTES)
            stack.callback(found[node].unmount)
        yield found


def main() -> int:
    """Runs all faults one after the other; the first answer that is wrong ends it."""
    with tempfile.TemporaryDirectory(prefix="ledgermq-watched-") as name:
        folder = Path(name)
        [first] = free_ports(1, spread=(0, 10, 20))
        settings = [*_SETTINGS, f"httpPort={first}"]
        ports = [first, first + 10, first + 20]
        with (
            small_disks(folder) as disks,
            UpCluster(folder / "up", settings=settings) as cluster,
            prometheus_for(folder / "prometheus", ports, hastened(rules_file())) as prometheus,
        ):
            cluster.wait_for_all()
            watch = Watch(prometheus)
            well(cluster, watch)
            members_stop(cluster, watch)
            follower_falls_behind(cluster, watch)
            consumers_fall_behind(cluster, watch)
            disk_fills(cluster, watch, disks)
    say("every answer was as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
