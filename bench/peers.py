"""The groups that are measured beside each other: three members each, LedgerMQ's and Apache's.

Both run as processes on this machine, with a name server of their own.
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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.cluster import cluster, cpu_seconds, resident_mb
from ledgermq.cli.remote import AdminError, Remote
from tests.interop.mqadmin import CLUSTER_NAME
from tests.interop.stock_broker import JavaCluster, JavaClusterPlan

MEMBERS = 3
OURS = "LedgerMQ"
PAUSE = threading.Event()
# What its own guide recommends for a group, and heaps that three brokers on one machine can have.
JAVA_KEYS = {
    "enableBatchPush": "true",
    "mappedFileSizeCommitLog": str(1 << 30),
    "autoCreateTopicEnable": "true",
}


@dataclass(frozen=True)
class Peer:
    """A running group."""

    name: str
    namesrv: str
    # Of each member: where it serves, and its process.
    members: dict[str, int]
    # Seconds from the first process to a leader that serves.
    start_s: float

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

    def cpu_seconds(self) -> float:
        """Processor time of all members so far."""
        return sum(cpu_seconds(pid) for pid in self.members.values())

    def resident_mb(self) -> float:
        """Memory of the member that leads, mapped files left out."""
        return resident_mb(self.members[self.leader()])

    def kill_leader(self) -> None:
        """``kill -9``."""
        os.kill(self.members[self.leader()], signal.SIGKILL)


@contextlib.contextmanager
def ours(*settings: str) -> Iterator[Peer]:
    """A group of LedgerMQ."""
    with cluster(MEMBERS, settings) as running:
        members = {str(b["address"]): int(str(b["pid"])) for b in running.brokers()}
        yield Peer(OURS, running.namesrv, members, running.ready_s)


@contextlib.contextmanager
def java(version: str, heap_mb: int) -> Iterator[Peer]:
    """A group of Apache RocketMQ with DLedger, of a release on Maven Central."""
    options = (f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m")
    plan = JavaClusterPlan(
        version=version, dledger_members=MEMBERS, broker_keys=JAVA_KEYS, jvm_options=options
    )
    with tempfile.TemporaryDirectory(prefix="ledgermq-peer-") as folder:
        stock = JavaCluster(Path(folder), plan)
        begun = time.perf_counter()
        with stock:
            start_s = time.perf_counter() - begun
            members = {
                f"127.0.0.1:{stock.broker_ports[i]}": pid for i, pid in stock.broker_pids.items()
            }
            yield Peer(f"RocketMQ {version}", stock.namesrv, members, start_s)
