"""A group of real processes for a benchmark: ``ledgermq up`` on free ports, stopped at the end."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.up_cluster import Node, UpCluster
from tests.processes import run_ledgermq


@dataclass(frozen=True)
class Running:
    """A started cluster."""

    up: UpCluster
    namesrv: str
    # The stores are below, by the names of the nodes.
    data: Path
    # Seconds from the start of the first process to a serving leader.
    ready_s: float

    def brokers(self) -> list[Node]:
        """The nodes as they are now."""
        return self.up.nodes()

    def leader(self) -> Node:
        """The broker that leads now."""
        return self.up.wait_for_leader()

    def create_topic(self, topic: str, queues: int, *options: str) -> None:
        """Makes a topic on the leader; `options` are more words of the command."""
        words = ("updateTopic", "-n", self.namesrv, "-c", "DefaultCluster", "-t", topic)
        run_ledgermq("admin", *words, "-r", queues, "-w", queues, *options).check_returncode()


@contextlib.contextmanager
def cluster(
    nodes: int = 3,
    settings: tuple[str, ...] = (),
    data: Path | None = None,
    environment: Mapping[str, str] | None = None,
    *,
    console: bool = False,
) -> Iterator[Running]:
    """Runs a cluster and stops it at the end.

    Args:
        nodes: brokers of the group.
        settings: key=value words for the brokers.
        data: an existing directory, which is kept; None for a temporary one.
        environment: variables of the processes besides those of this one.
        console: whether it has a console.
    """
    with contextlib.ExitStack() as ends:
        if data is None:
            folder = ends.enter_context(tempfile.TemporaryDirectory(prefix="ledgermq-bench-"))
            data = Path(folder)
        up = ends.enter_context(UpCluster(data, nodes, settings, environment, console=console))
        yield Running(up, up.name_server, up.data, up.ready_s)


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB, mapped files left out."""
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = next(int(x.split()[1]) for x in status.splitlines() if x.startswith("RssAnon"))
    return kilobytes / 1000


def cpu_seconds(pid: int) -> float:
    """CPU seconds a process has used, user and system, of all its threads, to the nanosecond."""
    # The clock of another process, as clock_getcpuclockid(3) numbers it.
    return time.clock_gettime((~pid << 3) | 2)
