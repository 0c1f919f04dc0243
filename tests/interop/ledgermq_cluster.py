"""LedgerMQ as its users start it: `ledgermq up`, real processes on loopback, killed when asked."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.free_ports import free_first_port

from .mqadmin import make_topic
from .processes import LOOPBACK, ChildProcess, wait_until

CLUSTER_NAME: Final = "DefaultCluster"
LEDGERMQ: Final = (sys.executable, "-m", "ledgermq.cli.main")

_READY_SECONDS: Final = 60.0


@dataclass(slots=True, frozen=True, kw_only=True)
class Node:
    """One broker as the ready file shows it."""

    id: str
    pid: int | None
    address: str
    role: str

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return int(self.address.rpartition(":")[2])


class LedgerMQCluster:
    """A running development cluster; use it in a `with` block, which always stops it.

    `stop` and `start` may follow each other: the data stays, and so do the ports.
    """

    def __init__(
        self, directory: Path, *, node_count: int = 3, settings: tuple[str, ...] = ()
    ) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.node_count = node_count
        self.cluster_name = CLUSTER_NAME
        self._settings = settings
        self._ready_file = directory / "ready.json"
        self.base_port = free_first_port()
        self.namesrv_port = self.base_port + 5
        self._up: ChildProcess | None = None

    @property
    def namesrv(self) -> str:
        """The name server's address as clients want it."""
        return f"{LOOPBACK}:{self.namesrv_port}"

    def start(self) -> None:
        """Start all processes and wait until a leader serves."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._ready_file.unlink(missing_ok=True)
        self._up = ChildProcess(
            "ledgermq-up",
            [
                *LEDGERMQ, "up", "--nodes", str(self.node_count), "--data", str(self.data),
                "--namesrv-port", str(self.namesrv_port), "--base-port", str(self.base_port),
                "--ready-file", str(self._ready_file), "--", *self._settings,
            ],
            log_path=self.directory / "up.log",
        )  # fmt: skip
        wait_until(
            self._has_leader, "a leader serves", seconds=_READY_SECONDS, detail=self.last_words
        )

    def stop(self) -> None:
        """Stop all processes in order, so that checkpoints are written; kill what hangs."""
        if self._up is not None:
            self._up.stop()
            self._up = None

    def nodes(self) -> list[Node]:
        """Return the brokers as the ready file shows them now."""
        document = json.loads(self._ready_file.read_text())
        return [
            Node(id=one["id"], pid=one["pid"], address=one["address"], role=one["role"])
            for one in document["brokers"]
        ]

    def find_leader(self) -> Node | None:
        """Return the broker that says it leads, None when none or several do."""
        leaders = [node for node in self.nodes() if node.role.upper() == "LEADER" and node.pid]
        return leaders[0] if len(leaders) == 1 else None

    def wait_for_leader(self, seconds: float = 60.0) -> Node:
        """Wait until exactly one broker leads, and return it."""
        found: list[Node] = []

        def look() -> bool:
            leader = self.find_leader()
            found[:] = [leader] if leader else []
            return bool(found)

        wait_until(look, "one leader", seconds=seconds, detail=self.last_words)
        return found[0]

    def wait_for_all(self, seconds: float = 90.0) -> None:
        """Wait until one broker leads and all others follow."""

        def is_complete() -> bool:
            roles = sorted(node.role.upper() for node in self.nodes() if node.pid)
            return roles == ["FOLLOWER"] * (self.node_count - 1) + ["LEADER"]

        wait_until(is_complete, "every node is back", seconds=seconds, detail=self.last_words)

    def kill(self, *nodes: Node) -> None:
        """Kill these brokers at once; `up` starts them again."""
        for node in nodes:
            assert node.pid is not None, f"{node.id} is down already"
            os.kill(node.pid, signal.SIGKILL)

    def make_topic(self, topic: str, queues: int) -> None:
        """Create a topic with the stock mqadmin and wait until the name server knows it."""
        make_topic(self.namesrv, topic, queues)

    def verify_logs(self) -> subprocess.CompletedProcess[str]:
        """Run `ledgermq log verify` over all stores."""
        stores = [str(self.data / f"n{i}") for i in range(self.node_count)]
        return subprocess.run(
            [*LEDGERMQ, "log", "verify", *stores],
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip

    def last_words(self) -> str:
        """Return the ends of all logs, for the text of a failure."""
        parts = [self._up.log_tail()] if self._up else []
        for path in sorted((self.data / "logs").glob("*.log")):
            tail = "\n".join(path.read_text(errors="replace").splitlines()[-12:])
            parts.append(f"--- {path.name}\n{tail}")
        return "\n".join(parts)

    def remove_data(self) -> None:
        """Delete the stores; logs stay."""
        for store in self.data.glob("n[0-9]"):
            shutil.rmtree(store, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _has_leader(self) -> bool:
        if self._up is not None and not self._up.is_running:
            raise AssertionError(
                f"ledgermq up ended with {self._up.exit_code}:\n{self.last_words()}"
            )
        return self._ready_file.exists() and self.find_leader() is not None
