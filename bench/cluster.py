"""A group of real processes for a benchmark: ``ledgermq up`` on free ports, stopped at the end."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

READY_S = 60.0
LEDGER_PORT_STEP = 30_000


@dataclass(frozen=True)
class Running:
    """A started cluster."""

    namesrv: str
    # The ready file: brokers with id, pid, address, role.
    ready_file: Path
    data: Path
    # Seconds from the start of the first process to a serving leader.
    ready_s: float

    def brokers(self) -> list[dict[str, object]]:
        """What the ready file says now."""
        document = json.loads(self.ready_file.read_text())
        brokers: list[dict[str, object]] = document["brokers"]
        return brokers

    def leader(self) -> dict[str, object]:
        """The broker that leads now."""
        return next(broker for broker in self.brokers() if broker["role"] == "LEADER")

    def create_topic(self, topic: str, queues: int) -> None:
        """Makes a topic on the leader."""
        words = ["admin", "updateTopic", "-n", self.namesrv, "-c", "DefaultCluster", "-t", topic]
        subprocess.run(
            [
                sys.executable,
                "-m",
                "ledgermq.cli.main",
                *words,
                "-r",
                str(queues),
                "-w",
                str(queues),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )


def _free_first_port(nodes: int) -> int:
    """A port p so that p + 10 * i and p + 10 * i + 30000 are free for all nodes."""
    for base in range(20_000 + os.getpid() % 5_000, 32_000, 101):
        ports = [base + 10 * i + step for i in range(nodes) for step in (0, LEDGER_PORT_STEP)]
        with contextlib.ExitStack() as probes:
            try:
                for port in ports:
                    probe = probes.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return base
    raise RuntimeError("no free ports")


@contextlib.contextmanager
def cluster(
    nodes: int = 3,
    settings: tuple[str, ...] = (),
    data: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    """Runs a cluster and stops it at the end.

    Args:
        nodes: brokers of the group.
        settings: key=value words for the brokers.
        data: an existing directory, which is kept; None for a temporary one.
        environment: variables of the processes besides those of this one.
    """
    with contextlib.ExitStack() as ends:
        if data is None:
            folder = ends.enter_context(tempfile.TemporaryDirectory(prefix="ledgermq-bench-"))
            data = Path(folder)
        ready_file = data / "ready.json"
        base = _free_first_port(nodes)
        start = time.perf_counter()
        words = [
            "up", "--nodes", str(nodes), "--data", str(data / "store"), "--base-port", str(base),
            "--namesrv-port", str(base + 7), "--ready-file", str(ready_file), "--", *settings,
        ]  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, "-m", "ledgermq.cli.main", *words],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.strip() == "ready":
                    break
                if time.perf_counter() - start > READY_S:
                    raise RuntimeError("the cluster does not become ready")
            else:
                raise RuntimeError(f"the cluster ended: exit code {process.wait()}")
            ready_s = time.perf_counter() - start
            namesrv = json.loads(ready_file.read_text())["namesrv"]
            yield Running(namesrv, ready_file, data / "store", ready_s)
        finally:
            process.terminate()
            process.wait(30)


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB, mapped files left out."""
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = next(int(x.split()[1]) for x in status.splitlines() if x.startswith("RssAnon"))
    return kilobytes / 1000


def cpu_seconds(pid: int) -> float:
    """CPU seconds a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
