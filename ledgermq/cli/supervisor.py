"""What a service manager is told of a program: that it is ready, how it is, that it turns.

The protocol of systemd's `Type=notify`: datagrams of `KEY=value` lines to the socket that
NOTIFY_SOCKET names; without that variable nothing is sent. A manager that is gone, or whose socket
is full, is no concern of a broker.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from typing import Final

_STATUS_MAX: Final = 500


class Supervisor:
    """The one that started this process, if any did."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Reads where it listens, and how often it wants to hear that this process turns."""
        path = environment.get("NOTIFY_SOCKET", "")
        # A first @ is a name without a file.
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self.watchdog_s = _watchdog_s(environment) if path else None

    def tell_status(self, text: str) -> None:
        """Tells how this program is, in one line."""
        line = text.replace("\n", " ")[:_STATUS_MAX]
        self._send(f"STATUS={line}")

    def tell_starting(self, text: str, wait_s: float) -> None:
        """Tells what the start is doing, and that the next word of it comes within `wait_s`."""
        self.tell_status(text)
        self._send(f"EXTEND_TIMEOUT_USEC={int(wait_s * 1e6)}")

    def tell_ready(self) -> None:
        """Tells that the start is over."""
        self._send("READY=1")

    def tell_stopping(self) -> None:
        """Tells that the stop has begun."""
        self._send("STOPPING=1")

    def tell_turning(self) -> None:
        """Tells that the reactor turns; due each half of `watchdog_s`."""
        self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
        ):
            sender.setblocking(False)
            sender.sendto(text.encode(), self._address)


def _watchdog_s(environment: Mapping[str, str]) -> float | None:
    """Returns after how much silence this process is ended; None when it is not watched."""
    try:
        microseconds = int(environment.get("WATCHDOG_USEC", "0"))
        is_meant = int(environment.get("WATCHDOG_PID", os.getpid())) == os.getpid()
    except ValueError:
        return None
    return microseconds / 1e6 if microseconds > 0 and is_meant else None
