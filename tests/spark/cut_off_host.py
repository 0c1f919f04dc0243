"""A host whose loopback is its own: it reaches this machine by one link, and nothing at 127.0.0.1.

    this machine   10.98.N.1        10.98.N.2   the host
                       | ---- veth ---- |
                    [ network namespace of this process ] [ one of its own ]

So brokers at 127.0.0.1 can be reached by all processes here, and not by those on that host.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
from typing import Self

_IP_S = 60.0


@functools.cache
def why_no_cut_off_host() -> str:
    """Returns what is missing for one, "" when nothing is."""
    if shutil.which("ip") is None:
        return "no ip is here (Debian: iproute2)"
    words = ["unshare", "--net", "ip", "link", "add", "a0", "type", "veth", "peer", "name", "b0"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return f"no links may be made: {done.stderr.strip()}" if done.returncode else ""


class CutOffHost:
    """The host; use it in a `with` block."""

    def __init__(self) -> None:
        """Makes nothing yet."""
        number = os.getpid()
        self._name = f"ledgermq-{number}"
        self._here, self._there = f"lqh{number}", f"lqt{number}"
        # Where this machine and the host reach each other.
        self.machine_address = f"10.98.{number % 250}.1"
        self.address = f"10.98.{number % 250}.2"

    def command(self) -> tuple[str, ...]:
        """The words that let a command run there."""
        return ("ip", "netns", "exec", self._name)

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        _ip("netns", "add", self._name)
        _ip("link", "add", self._here, "type", "veth", "peer", "name", self._there)
        _ip("link", "set", self._there, "netns", self._name)
        _ip("address", "add", f"{self.machine_address}/24", "dev", self._here)
        _ip("link", "set", self._here, "up")
        inside = ("-n", self._name)
        _ip(*inside, "address", "add", f"{self.address}/24", "dev", self._there)
        _ip(*inside, "link", "set", self._there, "up")
        _ip(*inside, "link", "set", "lo", "up")

    def __exit__(self, *_: object) -> None:
        # With one end of the link goes the other.
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "delete", self._here)
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("netns", "delete", self._name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=_IP_S)
