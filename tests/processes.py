"""Programs that run while a test looks at their status lines and their logs; always stopped."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.free_ports import free_ports
from tests.waiting import wait_until

LOOPBACK = "127.0.0.1"
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
# The state of such a socket in /proc/net/tcp.
_LISTENS = "0A"
_TAKEN = re.compile(r"Couldn't listen on \S*?:([0-9]+): .*in use")


def run_ledgermq(
    *words: object, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    command = [*LEDGERMQ, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)


def is_listening(port: int) -> bool:
    """Tells whether something accepts connections on this port of loopback."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=0.5):
            return True
    except OSError:
        return False


def listening_ports(pid: int) -> set[int]:
    """The TCP ports at which a process listens, by what Linux tells of it."""
    return _ports_of(pid, states=(_LISTENS,))


def resident_mb(pid: int | None) -> float:
    """Memory that a process has, mapped files left out, by what Linux tells of it."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    words = next(line for line in lines if line.startswith("RssAnon")).split()
    return int(words[1]) / 1000


def _ports_of(pid: int, states: Sequence[str] | None) -> set[int]:
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        # A file may be closed before it is looked at; a port stays.
        with contextlib.suppress(FileNotFoundError):
            found.add(str(link.readlink()))
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if (states is None or words[3] in states) and f"socket:[{words[9]}]" in found:
                ports.add(int(words[1].rpartition(":")[2], 16))
    return ports


def who_has(port: int) -> list[str]:
    """The processes that listen at a port, or are connected from there, as far as may be seen."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if port in _ports_of(int(folder.name), states=None):
                words = (folder / "cmdline").read_text().replace("\0", " ")
                found.append(f"process {folder.name}, {words[:300]}")
    return found


class ChildProcess:
    """One process and its log."""

    def __init__(
        self,
        command: Sequence[object],
        log: Path,
        environment: Mapping[str, str] | None = None,
        *,
        folder: Path | None = None,
        is_heard: bool = False,
    ) -> None:
        """Starts it.

        Args:
            command: with all words.
            log: what it writes is added to this file.
            environment: variables besides those of this process.
            folder: in which it runs.
            is_heard: whether its standard output does not go into the log.
        """
        self._log = log
        with open(log, "ab") as errors:
            self._process = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if is_heard else errors,
                stderr=errors,
                text=True,
                env={**os.environ, **(environment or {})},
                cwd=folder,
            )

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
    def is_running(self) -> bool:
        return self._process.poll() is None

    def log_text(self) -> str:
        return self._log.read_text(errors="replace")

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
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


class LiveProgram(ChildProcess):
    """A program of the console command, and its status lines as they come."""

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
        super().__init__([*command, *words], log, environment, is_heard=True)
        self.words = tuple(map(str, words))
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
        if taken := _TAKEN.findall(self.log_text()[-2000:]):
            with open(self._log, "a") as log:
                log.write(f"port {taken[-1]} has: {'; '.join(who_has(int(taken[-1])))}\n")

    @property
    def resident_mb(self) -> float:
        """Memory that it has, mapped files left out."""
        return resident_mb(self.pid)

    @property
    def address(self) -> str:
        return str(self.status["address"])

    def wait_until(self, word: str, deadline_s: float = 90.0) -> Self:
        """Waits until a word of its status is true, or there."""

        def is_told() -> bool:
            assert self.is_running, f"ended with {self._process.returncode}"
            return bool(self.status.get(word))

        wait_until(is_told, what=f"a status with {word}", deadline_s=deadline_s)
        return self

    def wait_until_serving(self, deadline_s: float = 90.0) -> Self:
        """Waits until it takes messages."""
        return self.wait_until("serving", deadline_s)

    def stop(self) -> int:
        """Ends it with SIGTERM and returns its exit code."""
        try:
            return super().stop()
        finally:
            self._reader.join(STOP_S)
            assert self._process.stdout is not None
            self._process.stdout.close()


class Programs:
    """Programs by their names; leaving `with` stops all, and a failure shows their last words."""

    def __init__(self) -> None:
        self.programs: dict[str, LiveProgram] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.ExitStack() as stack:
            for name, program in self.programs.items():
                if isinstance(error, Exception):
                    error.add_note(f"{name}: {program.status}\n{program.log_text()[-3000:]}")
                stack.callback(program.stop)


@contextlib.contextmanager
def name_server(folder: Path, *settings: str) -> Iterator[str]:
    """Runs a name server on a free port; gives its address."""
    words = [
        "namesrv", "--json", "-p", "0", f"bindAddress={LOOPBACK}",
        f"kvConfigPath={folder / 'kvConfig.json'}", *settings,
    ]  # fmt: skip
    with LiveProgram(words, folder / "namesrv.log") as program:
        yield program.wait_until("address").address


def broker(
    folder: Path,
    *settings: str,
    namesrv: str = "",
    name: str = "broker-a",
    log: str = "broker.log",
    command: Sequence[str] = LEDGERMQ,
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
    return LiveProgram(words, folder / log, command=command)
