"""A development cluster, started by ``ledgermq up`` for a test, whose nodes can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.free_ports import free_first_port
from tests.waiting import wait_until

_STOP_S = 30.0


class UpCluster:
    """A name server and a group; use it in a `with` block, which always stops it."""

    def __init__(self, folder: Path, node_count: int = 3, settings: Sequence[str] = ()) -> None:
        self._folder = folder
        self._node_count = node_count
        self._settings = settings
        self._ready_file = folder / "ready.json"
        self._log = folder / "up.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def name_server(self) -> str:
        """Address of the name server."""
        return str(self._document()["namesrv"])

    @property
    def data(self) -> Path:
        """Where the nodes keep their stores."""
        return self._folder / "data"

    def brokers(self) -> list[dict[str, Any]]:
        """The nodes as the ready file shows them."""
        nodes: list[dict[str, Any]] = self._document()["brokers"]
        return nodes

    def leader(self) -> dict[str, Any] | None:
        """The node that leads, None when none or several say so."""
        leaders = [node for node in self.brokers() if node["role"] == "LEADER" and node["pid"]]
        return leaders[0] if len(leaders) == 1 else None

    def kill(self, node: dict[str, Any]) -> None:
        """Kills a node as a crash would; `ledgermq up` starts it again."""
        os.kill(node["pid"], signal.SIGKILL)

    def name_server_pid(self) -> int:
        """The process of the name server; `ledgermq up` starts it again when it ends."""
        assert self._process is not None
        up = self._process.pid
        for pid in Path(f"/proc/{up}/task/{up}/children").read_text().split():
            if b"namesrv" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return int(pid)
        raise AssertionError("the name server does not run")

    def __enter__(self) -> Self:
        base_port = free_first_port()
        words = [
            sys.executable, "-m", "ledgermq.cli.main", "up", "--data", str(self._folder / "data"),
            "--nodes", str(self._node_count), "--namesrv-port", str(base_port + 5),
            "--base-port", str(base_port), "--ready-file", str(self._ready_file),
            "--", *self._settings,
        ]  # fmt: skip
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            wait_until(lambda: self._is_ready(), what="a leader that serves", deadline_s=60.0)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        return self._ready_file.exists()

    def _document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._ready_file.read_text())
        return document

    def _stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
