"""The groups that are measured beside each other: LedgerMQ's and Apache's, three members or one.

All run as processes on this machine, each group with a name server of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.cluster import cluster, cpu_seconds, resident_mb
from bench.warmth import JVM_WINDOWS_MIN, WINDOWS_MIN
from ledgermq.cli.remote import AdminError, Remote
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.headers import GetMaxOffsetRequestHeader
from ledgermq.protocol.route import KVTable
from tests.interop.mqadmin import CLUSTER_NAME
from tests.interop.stock_broker import JavaCluster, JavaClusterPlan

ROOT = Path(__file__).resolve().parent.parent
MEMBERS = 3
OURS = "LedgerMQ"
PURE = "LedgerMQ, pure Python"
BEFORE = "LedgerMQ, the other checkout"
# A member with this variable uses no compiled part.
PURE_ENVIRONMENT = {"LEDGERMQ_PURE": "1"}
PAUSE = threading.Event()
# What its own guide recommends for a group, and what was quickest of what it lets one choose:
# entries pushed in batches, the lock and the count of threads for sends that it takes by itself.
JAVA_KEYS = {
    "enableBatchPush": "true",
    "sendMessageThreadPoolNums": str(min(os.cpu_count() or 1, 4)),
    "useReentrantLockWhenPutMessage": "true",
    "mappedFileSizeCommitLog": str(1 << 30),
    "autoCreateTopicEnable": "true",
}
# The collector that costs three JVMs on few cores least.
JAVA_OPTIONS = ("-XX:+UseParallelGC",)


@dataclass(frozen=True)
class Peer:
    """A running group."""

    name: str
    namesrv: str
    # Of each member: where it serves, and its process.
    members: dict[str, int]
    # Seconds from the first process to a leader that serves.
    start_s: float
    # Directory of all members' files.
    folder: Path
    # So many windows of load at least, before it may count as warm.
    warm_windows: int = WINDOWS_MIN

    def leader(self) -> str:
        """The address of the member that leads now, as the name server knows it."""
        deadline = time.perf_counter() + 60
        while True:
            with contextlib.suppress(AdminError), Remote(self.namesrv) as remote:
                return remote.masters(CLUSTER_NAME)[0]
            if time.perf_counter() > deadline:
                raise RuntimeError(f"{self.name} has no leader")
            PAUSE.wait(0.05)

    def create_topic(self, topic: str, queues: int) -> None:
        """Makes a topic on the leader."""
        words = ["admin", "updateTopic", "-n", self.namesrv, "-b", self.leader(), "-t", topic]
        words += ["-r", str(queues), "-w", str(queues)]
        subprocess.run(
            [sys.executable, "-m", "ledgermq.cli.main", *words],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def message_count(self, topic: str, queues: int) -> int:
        """How many messages a topic has had."""
        leader, count = self.leader(), 0
        with Remote(self.namesrv) as remote:
            for queue_id in range(queues):
                header = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
                answer = remote.call(leader, RequestCode.GET_MAX_OFFSET, header)
                count += int((answer.ext_fields or {})["offset"])
        return count

    def pulled_count(self) -> int:
        """How many messages the leader has given to consumers so far."""
        with Remote(self.namesrv) as remote:
            answer = remote.call(self.leader(), RequestCode.GET_BROKER_RUNTIME_INFO)
        return int(KVTable.decode(answer.body).table["msgGetTotalTodayNow"])

    def cpu_seconds(self) -> float:
        """Processor time of all members so far."""
        return sum(cpu_seconds(pid) for pid in self.members.values())

    def resident_mb(self) -> float:
        """Memory of the member that leads, mapped files left out."""
        return resident_mb(self.members[self.leader()])

    def kill_leader(self) -> None:
        """``kill -9``."""
        os.kill(self.members[self.leader()], signal.SIGKILL)


def check_checkout(pid: int, checkout: Path) -> None:
    """Looks whether a process runs the compiled parts of a checkout.

    Raises:
        RuntimeError: it runs those of another one, or none.
    """
    package = f"{checkout.resolve()}/ledgermq/"
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    paths = {line.split()[-1] for line in maps if line.endswith(".so")}
    compiled = {path for path in paths if "/ledgermq/" in path}
    if not compiled or any(not path.startswith(package) for path in compiled):
        found = sorted(compiled)[:1] or "the uncompiled sources"
        raise RuntimeError(f"a broker of {checkout} runs {found}: build that checkout's kernel")


@contextlib.contextmanager
def ours(
    *settings: str,
    members: int = MEMBERS,
    name: str = OURS,
    checkout: Path = ROOT,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Peer]:
    """A group of LedgerMQ, compiled but for PURE_ENVIRONMENT.

    Raises:
        RuntimeError: a member runs what it was not asked to run.
    """
    # Without the second one, `python -m` looks into the working directory first.
    where = {"PYTHONPATH": str(checkout.resolve()), "PYTHONSAFEPATH": "1"}
    environment = where | dict(environment or {})
    with cluster(members, settings, environment=environment) as running:
        pids = {str(b["address"]): int(str(b["pid"])) for b in running.brokers()}
        if not environment.keys() & PURE_ENVIRONMENT.keys():
            for pid in pids.values():
                check_checkout(pid, checkout)
        yield Peer(name, running.namesrv, pids, running.ready_s, running.data)


@contextlib.contextmanager
def java(
    version: str,
    heap_mb: int,
    *,
    members: int = MEMBERS,
    keys: Mapping[str, str] | None = None,
) -> Iterator[Peer]:
    """A group of Apache RocketMQ, of a release on Maven Central.

    Args:
        version: the release.
        heap_mb: of each broker.
        members: of the DLedger group; 0 for one broker without DLedger.
        keys: further lines of the brokers' configuration.
    """
    heap = (f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m")
    plan = JavaClusterPlan(
        version=version,
        dledger_members=members,
        broker_keys={**JAVA_KEYS, **(keys or {})},
        jvm_options=(*heap, *JAVA_OPTIONS),
    )
    with tempfile.TemporaryDirectory(prefix="ledgermq-peer-") as folder:
        stock = JavaCluster(Path(folder), plan)
        begun = time.perf_counter()
        with stock:
            start_s = time.perf_counter() - begun
            pids = {
                f"127.0.0.1:{stock.broker_ports[i]}": pid for i, pid in stock.broker_pids.items()
            }
            yield Peer(
                java_name(version), stock.namesrv, pids, start_s, stock.directory, JVM_WINDOWS_MIN
            )


def java_name(version: str) -> str:
    """What the tables call a group of a release."""
    return f"RocketMQ {version}"
