"""The router between the hosts: it forwards IP packets by rules that may change at any time.

    python -m tests.fault.hosts.router FD=ADDRESS ...

Each file descriptor is that of a TUN device, whose other end is the network of one host. A line of
JSON on standard input (see links.encode_ways; hosts are named by their addresses) replaces all
rules, and is answered with a line that tells how many packets passed and were dropped so far. The
end of standard input ends the router.
"""

import heapq
import itertools
import json
import os
import random
import select
import socket
import sys
import time

from tests.fault.hosts.links import WHOLE, Ways, decode_ways, draw_delay

PACKET_BYTES_MAX = 65_536
# Packets taken from one host before the next has its turn.
_TURN_PACKETS = 64
# What is under way at most; a router drops what it has no room for.
_DELAYED_MAX = 50_000
_NICE = -10


class Router:
    """The loop."""

    def __init__(self, devices: dict[int, str]) -> None:
        """Takes the devices: the address of the host behind each file descriptor."""
        self._hosts = {fd: socket.inet_aton(address) for fd, address in devices.items()}
        self._devices = {host: fd for fd, host in self._hosts.items()}
        self._names = {socket.inet_aton(address): address for address in devices.values()}
        self._ways: Ways = {}
        self._rng = random.Random(0)
        self._order = itertools.count()
        # Time of arrival, order, device, packet.
        self._delayed: list[tuple[float, int, int, bytes]] = []
        self._passed = self._dropped = 0
        self._input = sys.stdin.buffer.raw  # type: ignore[attr-defined]
        self._partial = b""

    def run(self) -> None:
        """Forwards until standard input ends."""
        poll = select.epoll()
        poll.register(self._input.fileno(), select.EPOLLIN)
        for fd in self._hosts:
            os.set_blocking(fd, False)
            poll.register(fd, select.EPOLLIN)
        while True:
            wait_s = max(0.0, self._delayed[0][0] - time.monotonic()) if self._delayed else None
            for fd, _ in poll.poll(wait_s):
                if fd in self._hosts:
                    self._take(fd)
                elif not self._obey():
                    return
            self._deliver_delayed()

    def _take(self, fd: int) -> None:
        sender = self._names[self._hosts[fd]]
        for _ in range(_TURN_PACKETS):
            try:
                packet = os.read(fd, PACKET_BYTES_MAX)
            except BlockingIOError:
                return
            target = self._devices.get(packet[16:20])
            if target is None or packet[0] >> 4 != 4:
                # Multicast, or the next version of IP.
                continue
            way = self._ways.get((sender, self._names[packet[16:20]]), WHOLE)
            delay_s = draw_delay(way, self._rng)
            if delay_s is None or len(self._delayed) >= _DELAYED_MAX:
                self._dropped += 1
            elif delay_s:
                due_s = time.monotonic() + delay_s
                heapq.heappush(self._delayed, (due_s, next(self._order), target, packet))
            else:
                self._deliver(target, packet)

    def _deliver_delayed(self) -> None:
        now_s = time.monotonic()
        while self._delayed and self._delayed[0][0] <= now_s:
            _, _, target, packet = heapq.heappop(self._delayed)
            self._deliver(target, packet)

    def _deliver(self, target: int, packet: bytes) -> None:
        try:
            os.write(target, packet)
            self._passed += 1
        except OSError:
            # The host has no room for it; its sender will send again.
            self._dropped += 1

    def _obey(self) -> bool:
        """Takes what came on standard input; False at its end."""
        data = self._input.read(PACKET_BYTES_MAX)
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._ways = decode_ways(json.loads(line))
            sys.stdout.write(f"{self._passed} {self._dropped}\n")
            sys.stdout.flush()
        return bool(data)


def main(words: list[str]) -> int:
    """Runs until standard input ends."""
    # What is measured is the brokers and not how long the router waits for a processor.
    os.nice(_NICE)
    pairs = [word.split("=") for word in words]
    Router({int(fd): address for fd, address in pairs}).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
