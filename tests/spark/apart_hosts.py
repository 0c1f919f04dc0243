"""Hosts whose loopback is their own: each reaches this machine and the others by a bridge.

    this machine   10.98.N.1 brokers, 10.98.N.2 master, 10.98.N.3 driver
                            | ---- bridge ---- |
                     10.98.N.11          10.98.N.12 ...
                    [ a network namespace for each host ]

So brokers at 127.0.0.1 can be reached by all processes here, and not by those on such a host.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final, Self

_IP_S = 60.0
_FIRST_HOST: Final = 11


@functools.cache
def why_no_apart_hosts() -> str:
    """Returns what is missing for some, "" when nothing is."""
    if shutil.which("ip") is None:
        return "no ip is here (Debian: iproute2)"
    for kind in (("bridge",), ("veth", "peer", "name", "b0")):
        words = ["unshare", "--net", "ip", "link", "add", "a0", "type", *kind]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"no links may be made: {done.stderr.strip()}"
    return ""


class ApartHosts:
    """The hosts; use it in a `with` block."""

    def __init__(self, names: Sequence[str]) -> None:
        """Makes nothing yet.

        Args:
            names: of the hosts; every other name is this machine.
        """
        number = os.getpid()
        self._bridge = f"lqb{number}"
        self._namespaces = {name: f"ledgermq-{number}-{name}" for name in names}
        net = f"10.98.{number % 250}"
        # Where the hosts reach what runs on this machine.
        self.machine_address = f"{net}.1"
        self.master_address = f"{net}.2"
        self.driver_address = f"{net}.3"
        self._addresses = {name: f"{net}.{i}" for i, name in enumerate(names, _FIRST_HOST)}

    def address_of(self, name: str) -> str:
        """Returns the address of a host."""
        return self._addresses.get(name, self.machine_address)

    def command(self, name: str) -> tuple[str, ...]:
        """The words that let a command run on a host."""
        namespace = self._namespaces.get(name)
        return () if namespace is None else ("ip", "netns", "exec", namespace)

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        _ip("link", "add", self._bridge, "type", "bridge")
        for address in (self.machine_address, self.master_address, self.driver_address):
            _ip("address", "add", f"{address}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for i, (name, namespace) in enumerate(self._namespaces.items()):
            here = f"{self._bridge}h{i}"
            _ip("netns", "add", namespace)
            _ip("link", "add", here, "type", "veth", "peer", "name", "up0", "netns", namespace)
            _ip("link", "set", here, "master", self._bridge, "up")
            inside = ("-n", namespace)
            _ip(*inside, "address", "add", f"{self._addresses[name]}/24", "dev", "up0")
            _ip(*inside, "link", "set", "up0", "up")
            _ip(*inside, "link", "set", "lo", "up")

    def __exit__(self, *_: object) -> None:
        # With one end of a link goes the other.
        for i, namespace in enumerate(self._namespaces.values()):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("link", "delete", f"{self._bridge}h{i}")
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", namespace)
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "delete", self._bridge)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=_IP_S)
