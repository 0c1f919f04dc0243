"""Child processes of the suite: started in their own group, logged to a file, always stopped.

Nothing here knows RocketMQ. A process that must be awaited is awaited by a condition with a
deadline; nothing sleeps blindly.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"

_POLL_SECONDS: Final = 0.05
_STOP_SECONDS: Final = 15.0
_NEVER: Final = threading.Event()


class WaitTimeoutError(AssertionError):
    """A condition did not come true before its deadline."""

    def __init__(self, what: str, seconds: float, detail: str = "") -> None:
        self.what = what
        self.seconds = seconds
        super().__init__(
            f"{what} did not happen within {seconds:g} s{': ' if detail else ''}{detail}"
        )


def pause(seconds: float) -> None:
    """Let `seconds` pass between two looks at a condition."""
    _NEVER.wait(seconds)


def wait_until(
    condition: Callable[[], bool],
    what: str,
    *,
    seconds: float,
    detail: Callable[[], str] = lambda: "",
) -> float:
    """Poll `condition` until it holds; returns the seconds that took.

    Raises:
        WaitTimeoutError: the deadline passed; `detail()` is added to its text.
    """
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > seconds:
            raise WaitTimeoutError(what, seconds, detail())
        pause(_POLL_SECONDS)
    return time.monotonic() - begin


def is_listening(port: int) -> bool:
    """Tell whether something accepts connections on this loopback port."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=0.5):
            return True
    except OSError:
        return False


class ChildProcess:
    """One process in its own process group, its output in `log_path`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log_path: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log_path = log_path
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id; also the id of its group."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """True until the process has ended."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code, None while it runs."""
        return self._process.poll()

    def log_tail(self, lines: int = 25) -> str:
        """Return the last lines of its log, for the text of a failure."""
        text = self.log_path.read_text(errors="replace").splitlines()
        return "\n".join(text[-lines:])

    def kill(self) -> None:
        """End it at once (SIGKILL to the whole group)."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        """End it by SIGTERM, by SIGKILL when that takes too long; returns the exit code."""
        self._signal(signal.SIGTERM)
        try:
            return self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()
        finally:
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return
