"""A program of the console command that runs while a test looks at its status lines and its log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.free_ports import free_ports
from tests.waiting import wait_until

LEDGERMQ = (sys.executable, "-m", "ledgermq.cli.main")
# A store that is made in no time.
SMALL_STORE = (
    "mappedFileSizeCommitLog=16777216",
    "mappedFileSizeDLedgerIndex=131072",
    "mappedFileSizeConsumeQueue=20000",
    "maxHashSlotNum=1000",
    "maxIndexNum=4000",
)
STOP_S = 60.0


def run_ledgermq(
    *words: object, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    command = [*LEDGERMQ, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)


class LiveProgram:
    """One process, its status lines as they come, and its log."""

    def __init__(
        self,
        words: Sequence[object],
        log: Path,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = LEDGERMQ,
    ) -> None:
        """Starts it.

        Args:
            words: of its command line.
            log: what it writes to standard error is added to this file.
            environment: variables besides those of this process.
            command: what the words are given to.
        """
        self._log = log
        with open(log, "ab") as errors:
            self._process = subprocess.Popen(
                [*command, *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **(environment or {})},
            )
        # All lines of its standard output, and the last status among them.
        self.lines: list[str] = []
        self.status: dict[str, Any] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith("{"):
                self.status = json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            error.add_note(f"the program's last words:\n{self.log_text()[-4000:]}")
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def resident_mb(self) -> float:
        """Memory that it has, mapped files left out."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        words = next(line for line in lines if line.startswith("RssAnon")).split()
        return int(words[1]) / 1000

    @property
    def address(self) -> str:
        return str(self.status["address"])

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def log_text(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_until_serving(self, deadline_s: float = 90.0) -> Self:
        """Waits until it takes messages."""

        def is_serving() -> bool:
            assert self.is_running, f"ended with {self._process.returncode}"
            return bool(self.status.get("serving"))

        wait_until(is_serving, what="a broker that serves", deadline_s=deadline_s)
        return self

    def wait(self, deadline_s: float = STOP_S) -> int:
        """Returns its exit code when it has ended."""
        return self._process.wait(deadline_s)

    def kill(self) -> None:
        """Ends it with SIGKILL."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Ends it with SIGTERM and returns its exit code."""
        self._process.terminate()
        try:
            code = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        finally:
            self._reader.join(STOP_S)
            assert self._process.stdout is not None
            self._process.stdout.close()
        return code


def broker(
    folder: Path, *settings: str, namesrv: str = "", name: str = "broker-a", log: str = "broker.log"
) -> LiveProgram:
    """Starts a broker that is alone in its group, on free ports; the VIP channel's is free, too."""
    port, ledger_port = free_ports(2, spread=(0, -2))
    words = [
        "broker", "--json", f"listenPort={port}", "brokerIP1=127.0.0.1", f"brokerName={name}",
        f"storePathRootDir={folder / name}", "enableDLegerCommitLog=true", f"dLegerGroup={name}",
        f"dLegerPeers=n0-127.0.0.1:{ledger_port}", "dLegerSelfId=n0", *SMALL_STORE, *settings,
    ]  # fmt: skip
    if namesrv:
        words[1:1] = ["-n", namesrv]
    return LiveProgram(words, folder / log)
