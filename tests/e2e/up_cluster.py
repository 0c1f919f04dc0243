"""A cluster as its users start it, by ``ledgermq up``: real processes that can be killed.

For tests and benchmarks alike. Nothing here knows what the cluster is used for.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypedDict

from tests.free_ports import free_first_port
from tests.processes import LiveProgram
from tests.waiting import wait_until

_READY_S = 90.0
_LOG_LINES = 30


class Node(TypedDict):
    """One broker as the ready file shows it."""

    id: str
    # None while the process is down.
    pid: int | None
    address: str
    # Where the other members of the group reach it.
    dledger: str
    role: str


class _Ready(TypedDict):
    """The ready file."""

    namesrv: str
    console: str | None
    brokers: list[Node]


def port_of(node: Node) -> int:
    """The port that clients connect to."""
    return int(node["address"].rpartition(":")[2])


class UpCluster:
    """A name server and a group; use it in a `with` block, which always stops it.

    `stop` and `start` may follow each other: the data stays, and so do the ports.
    """

    def __init__(
        self,
        folder: Path,
        node_count: int = 3,
        settings: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        *,
        console: bool = False,
    ) -> None:
        """Takes ports; nothing runs yet.

        Args:
            folder: for the data, logs and the ready file; made when it is not there.
            node_count: brokers of the group, three at most.
            settings: key=value words for the brokers.
            environment: variables of the processes besides those of this one.
            console: whether it has a console.
        """
        self.folder = folder
        # Where the nodes keep their stores.
        self.data = folder / "data"
        self.node_count = node_count
        # Seconds from the start of the first process to a leader that served.
        self.ready_s = 0.0
        self._settings = settings
        self._environment = environment
        self._console = console
        self._ready_file = folder / "ready.json"
        self._base_port = free_first_port()
        self._up: LiveProgram | None = None

    @property
    def name_server(self) -> str:
        """Address of the name server."""
        return f"127.0.0.1:{self._base_port + 5}"

    @property
    def up(self) -> LiveProgram:
        """The program that runs the others."""
        assert self._up is not None
        return self._up

    def start(self) -> None:
        """Starts all processes and waits until a leader serves."""
        self.folder.mkdir(parents=True, exist_ok=True)
        words = [
            "up", "--data", self.data, "--nodes", self.node_count,
            "--namesrv-port", self._base_port + 5, "--base-port", self._base_port,
            "--console-port", self._base_port + 7 if self._console else 0,
            "--ready-file", self._ready_file, "--", *self._settings,
        ]  # fmt: skip
        begun_s = time.perf_counter()
        self._up = LiveProgram(words, self.folder / "up.log", self._environment)
        wait_until(self._is_ready, what="a leader that serves", deadline_s=_READY_S)
        self.ready_s = time.perf_counter() - begun_s

    def stop(self) -> int:
        """Stops all processes in order, so that checkpoints are written; returns the exit code."""
        up, self._up = self.up, None
        return up.stop()

    def nodes(self) -> list[Node]:
        """The brokers as the ready file shows them."""
        document: _Ready = json.loads(self._ready_file.read_text())
        return document["brokers"]

    @property
    def console(self) -> str:
        """Address of the console."""
        document: _Ready = json.loads(self._ready_file.read_text())
        assert document["console"] is not None
        return document["console"]

    def find_leader(self, *, not_pid: int | None = None) -> Node | None:
        """The node that leads, None when none or several say so.

        Args:
            not_pid: a process that is left out: it was killed, or stopped and still says so.
        """
        leaders = [
            node
            for node in self.nodes()
            if node["role"] == "LEADER" and node["pid"] not in (None, not_pid)
        ]
        return leaders[0] if len(leaders) == 1 else None

    def wait_for_leader(self, *, not_pid: int | None = None) -> Node:
        """Waits until exactly one node leads, see `find_leader`."""
        leader = wait_until(lambda: self.find_leader(not_pid=not_pid), what="one leader")
        assert leader is not None
        return leader

    def has_all(self) -> bool:
        """Whether one node leads and all others follow."""
        roles = sorted(node["role"] for node in self.nodes() if node["pid"])
        return roles == ["FOLLOWER"] * (self.node_count - 1) + ["LEADER"]

    def wait_for_all(self) -> None:
        """Waits until one node leads and all others follow."""
        wait_until(self.has_all, what="a leader and its followers", deadline_s=_READY_S)

    def kill(self, *nodes: Node) -> None:
        """Kills nodes as a crash would; `ledgermq up` starts them again."""
        self.signal(signal.SIGKILL, *nodes)

    def signal(self, number: signal.Signals, *nodes: Node) -> None:
        """Sends a signal to nodes that are up."""
        for node in nodes:
            assert node["pid"] is not None, f"{node['id']} is down"
            os.kill(node["pid"], number)

    def name_server_pid(self) -> int:
        """Returns the process of the name server."""
        return self.pid_of("namesrv")

    def pid_of(self, command: str) -> int:
        """Returns the process of one of up's programs, by its subcommand."""
        up = self.up.pid
        for pid in Path(f"/proc/{up}/task/{up}/children").read_text().split():
            if command.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return int(pid)
        raise AssertionError(f"{command} does not run")

    def log_text(self, name: str) -> str:
        """The log of a node, or of the name server, over all its lives."""
        return (self.data / "logs" / f"{name}.log").read_text(errors="replace")

    def last_words(self) -> str:
        """The ends of all logs, for the text of a failure."""
        parts = [("up", self._up.lines if self._up is not None else [])]
        for name in ("namesrv", *(f"n{i}" for i in range(self.node_count))):
            with contextlib.suppress(OSError):
                parts.append((name, self.log_text(name).splitlines()))
        return "\n".join("\n".join([f"--- {name}", *lines[-_LOG_LINES:]]) for name, lines in parts)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            error.add_note(self.last_words())
        if self._up is not None:
            self.stop()

    def _is_ready(self) -> bool:
        assert self.up.is_running, self.up.log_text()
        return "ready" in self.up.lines
