"""Hosts that are network namespaces, joined by the router; what can be done to what joins them.

A host is named by what runs on it. The network of this process is one of them, the observer: no
rule touches its packets, so that it sees a host that nobody else does.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterable
from typing import Self

from tests.fault.hosts.isolation import TUN_DEVICE
from tests.fault.hosts.links import DEAD, Way, Ways, encode_ways

OBSERVER = "observer"
# TUNSETIFF of linux/if_tun.h, and its flags: IP packets, nothing before them.
_TUNSETIFF = 0x400454CA
_IFF_TUN = 0x0001
_IFF_NO_PI = 0x1000
_INTERFACE_REQUEST = struct.Struct("16sH22x")
_NAMES = "/run/netns"
_IP_S = 60.0


class Network:
    """The hosts; use it in a `with` block, in a world of its own (see isolation)."""

    def __init__(self, hosts: Iterable[str]) -> None:
        """Names the hosts; nothing is made yet."""
        self.hosts = tuple(hosts)
        self.addresses = {
            host: f"10.99.0.{number}" for number, host in enumerate((OBSERVER, *self.hosts), 1)
        }
        # Packets that passed and that were dropped, as the router told last.
        self.passed = self.dropped = 0
        self._ways: Ways = {}
        self._devices: dict[str, int] = {}
        self._router: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        os.makedirs(_NAMES, exist_ok=True)
        # Names are files: they are to be ours alone, too.
        _run("mount", "-t", "tmpfs", "tmpfs", _NAMES)
        _run("ip", "link", "set", "lo", "up")
        for host, address in self.addresses.items():
            self._devices[host] = self._make_host(host, address)
        words = [f"{fd}={self.addresses[host]}" for host, fd in self._devices.items()]
        self._router = subprocess.Popen(
            [sys.executable, "-m", "tests.fault.hosts.router", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=list(self._devices.values()),
        )
        self.heal()
        return self

    def __exit__(self, *_: object) -> None:
        if self._router is not None:
            self._router.kill()
            self._router.communicate()
        for fd in self._devices.values():
            os.close(fd)
        for host in self.hosts:
            _run("ip", "netns", "delete", host)
        _run("umount", _NAMES)

    def _make_host(self, host: str, address: str) -> int:
        """Makes its namespace with a device in it; returns the other end of the device."""
        device = os.open(TUN_DEVICE, os.O_RDWR)
        request = _INTERFACE_REQUEST.pack(b"hosts0", _IFF_TUN | _IFF_NO_PI)
        fcntl.ioctl(device, _TUNSETIFF, request)
        inside: tuple[str, ...] = ("ip",)
        name = OBSERVER
        if host == OBSERVER:
            _run("ip", "link", "set", "hosts0", "name", name)
        else:
            name = "hosts0"
            inside = ("ip", "-n", host)
            _run("ip", "netns", "add", host)
            _run("ip", "link", "set", name, "netns", host)
            _run(*inside, "link", "set", "lo", "up")
        _run(*inside, "address", "add", f"{address}/24", "dev", name)
        _run(*inside, "link", "set", name, "up")
        return device

    def command(self, host: str) -> tuple[str, ...]:
        """The words that let a command run on a host."""
        return ("ip", "netns", "exec", host)

    # What is done to it. Each call replaces what was before.

    def cut(self, *hosts: str) -> None:
        """Cuts hosts off from all others."""
        self._obey(self._pairs(DEAD, hosts, self.hosts) | self._pairs(DEAD, self.hosts, hosts))

    def cut_out(self, host: str) -> None:
        """Drops what a host sends; what is sent to it arrives."""
        self._obey(self._pairs(DEAD, (host,), self.hosts))

    def cut_in(self, host: str) -> None:
        """Drops what is sent to a host; what it sends arrives."""
        self._obey(self._pairs(DEAD, self.hosts, (host,)))

    def disturb(self, way: Way) -> None:
        """All packets fare so."""
        self._obey(self._pairs(way, self.hosts, self.hosts))

    def black_out(self) -> None:
        """Nothing arrives anywhere."""
        self.disturb(DEAD)

    def heal(self) -> None:
        """All arrives, at once."""
        self._obey({})

    def look(self) -> None:
        """Asks the router for its counts; the rules stay."""
        self._obey(self._ways)

    def _pairs(self, way: Way, senders: Iterable[str], receivers: Iterable[str]) -> Ways:
        to = [self.addresses[host] for host in receivers]
        return {(self.addresses[host], other): way for host in senders for other in to}

    def _obey(self, ways: Ways) -> None:
        """Returns when the router goes by these rules."""
        assert self._router is not None
        self._ways = ways
        assert self._router.stdin is not None and self._router.stdout is not None
        self._router.stdin.write(json.dumps(encode_ways(ways)) + "\n")
        self._router.stdin.flush()
        self.passed, self.dropped = map(int, self._router.stdout.readline().split())


def _run(*words: str) -> None:
    """Runs a command that must work."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=_IP_S)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr.strip()}"
