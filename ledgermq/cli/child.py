"""Child: one process of a development cluster: started, watched, started again when it dies.

It tells its state by JSON lines on its standard output. The pipe to its standard input is never
written: its end tells the child that its cluster died. All runs in the one event loop of
``ledgermq up``, which calls `look` when some process has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final, Protocol

RESTART_DELAY_S: Final = 0.2
RESTART_DELAY_S_MAX: Final = 5.0
# A child that lived this long had started; its next death is a new story.
STEADY_S: Final = 10.0
STOP_PATIENCE_S: Final = 15.0
STARTING: Final = "STARTING"
# What a program says before its last reason.
_COMPLAINT: Final = "ledgermq: "
# Where a line of its log is an error: its event stands behind.
_ERROR: Final = "#error] "
_LOG_TAIL_BYTES: Final = 16_384
_LOG_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
_READ_BYTES: Final = 65_536


class Owner(Protocol):
    """What a child needs of its cluster."""

    is_stopping: bool

    def log_path(self, name: str) -> Path:
        """The log file of a child."""

    def changed(self, child: Child) -> None:
        """A child told a new state."""

    def died(self, child: Child, reason: str, exit_code: int, delay_s: float) -> bool:
        """A child ended without being asked; False when it shall not be started again."""

    def killed(self, child: Child) -> None:
        """A child did not stop in time."""


class Child:
    """One process of the cluster."""

    def __init__(self, cluster: Owner, name: str, words: list[str], address: str) -> None:
        """Starts nothing yet.

        Args:
            cluster: told of every change.
            name: of its lines and its log.
            words: of its command line, behind ``ledgermq``.
            address: where it will listen.
        """
        self.cluster = cluster
        self.name = name
        self.words = words
        self.address = address
        self.role = STARTING
        # Whether it takes messages, and clients find it by the name server.
        self.is_ready = False
        # Where a browser finds it, as it told itself; None of all but a console.
        self.url: str | None = None
        self.started_at = 0.0
        self.deaths = 0
        # Set while the process is asked to stop; done when it is gone.
        self._stopped: asyncio.Future[None] | None = None
        # Where the log of this life begins.
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._partial = b""

    @property
    def pid(self) -> int | None:
        """Process id; None while the process is down."""
        return self._process.pid if self._process is not None else None

    def launch(self) -> None:
        """Starts the process; its log goes to a file in the data directory."""
        if self.cluster.is_stopping:
            return
        loop = asyncio.get_running_loop()
        self.started_at = loop.time()
        log = os.open(self.cluster.log_path(self.name), _LOG_FLAGS, 0o600)
        try:
            self._log_start = os.fstat(log).st_size
            words = [sys.executable, "-m", "ledgermq.cli.main", *self.words]
            self._process = subprocess.Popen(
                words, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        finally:
            os.close(log)
        assert self._process.stdout is not None
        status = self._process.stdout.fileno()
        os.set_blocking(status, False)
        loop.add_reader(status, self._read, status)

    def _read(self, status: int) -> None:
        """Takes what there is; after the end of the stream nothing is waited for."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(status, _READ_BYTES):
                self._take(data)
            asyncio.get_running_loop().remove_reader(status)

    def _take(self, data: bytes) -> None:
        """Status lines of the child: JSON objects."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            if line.startswith(b"{"):
                status = json.loads(line)
                role = status.get("role", self.role)
                self.role = STARTING if role == "UNKNOWN" else role
                self.url = status.get("url", self.url)
                self.is_ready = bool(status.get("serving") and status.get("name_servers"))
                self.cluster.changed(self)

    def look(self) -> None:
        """Starts the process again if it is gone, a little later each time it dies young."""
        process = self._process
        if process is None or process.poll() is None:
            return
        assert process.stdin is not None and process.stdout is not None
        loop = asyncio.get_running_loop()
        self._read(process.stdout.fileno())
        loop.remove_reader(process.stdout.fileno())
        process.stdin.close()
        process.stdout.close()
        self._process = None
        self._partial = b""
        self.role, self.is_ready, self.url = "DOWN", False, None
        if self._stopped is not None:
            self._stopped.set_result(None)
            return
        lived_s = loop.time() - self.started_at
        self.deaths = 1 if lived_s > STEADY_S else self.deaths + 1
        delay_s = min(RESTART_DELAY_S * 2.0 ** min(self.deaths - 1, 10), RESTART_DELAY_S_MAX)
        if self.cluster.died(self, self._reason(process.returncode), process.returncode, delay_s):
            loop.call_later(delay_s, self.launch)

    def _reason(self, exit_code: int) -> str:
        """What the process said at last, or else how it ended."""
        complaints = [line for line in self._last_lines() if line.startswith(_COMPLAINT)]
        if complaints:
            return complaints[-1].removeprefix(_COMPLAINT)
        return signal.Signals(-exit_code).name if exit_code < 0 else f"exit code {exit_code}"

    def trouble(self) -> str | None:
        """Returns the last error that this life's log tells of, None for none."""
        troubles = [line for line in self._last_lines() if _ERROR in line.partition("] ")[0] + "] "]
        return troubles[-1].partition("] ")[2] if troubles else None

    def _last_lines(self) -> list[str]:
        with open(self.cluster.log_path(self.name), "rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - _LOG_TAIL_BYTES))
            return log.read().decode("utf-8", "replace").splitlines()

    async def end(self) -> None:
        """Asks the process to stop and waits for it; kills it when it takes too long."""
        process = self._process
        if process is None:
            return
        self._stopped = asyncio.get_running_loop().create_future()
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(asyncio.shield(self._stopped), STOP_PATIENCE_S)
        except TimeoutError:
            self.cluster.killed(self)
            process.send_signal(signal.SIGKILL)
            await self._stopped
