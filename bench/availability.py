"""Senders that never rest, and the longest time in which none of their messages was taken.

Each sender has one message on the wire and asks one member after the other until one takes it, so
what is seen is the group as a client sees it that learns of a new leader at once: a gap is the time
without a leader that acknowledges.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Sequence
from typing import Self

from bench.cluster import Running
from bench.load import build_frames
from tests import senders as threads

TOPIC = "AvailabilityTopic"
QUEUES = 4
BODY_BYTES = 1024
SENDERS = 4
ANSWER_S = 2.0
RETRY_S = 0.002
_LENGTH = struct.Struct(">i")


class Senders(threads.Senders):
    """Used in a `with` block, which ends them; times are those of `time.perf_counter`."""

    def __init__(
        self,
        addresses: Sequence[str],
        count: int = SENDERS,
        body_bytes: int = BODY_BYTES,
        retry_s: float = RETRY_S,
    ) -> None:
        """Begins to send to the members of a group, which has the topic.

        Args:
            addresses: of the members.
            count: senders.
            body_bytes: of each message.
            retry_s: pause after a member that did not take a message.
        """
        frames = build_frames(TOPIC, QUEUES, body_bytes)
        self._frames = [itertools.cycle(frames[number::count]) for number in range(count)]
        # When each message was acknowledged; in order but for the threads' races.
        self.taken_at: list[float] = []
        super().__init__(addresses, count, answer_s=ANSWER_S, retry_s=retry_s)

    def __enter__(self) -> Self:
        self.wait_for_more(100)
        return self

    @property
    def taken_count(self) -> int:
        return len(self.taken_at)

    def rest(self, seconds: float) -> None:
        """Lets the senders go on for a while."""
        self.is_over.wait(seconds)

    def longest_gap_ms(self, begin: float, end: float) -> float:
        """The longest time between two acknowledgements that touches `begin` to `end`."""
        times = sorted(self.taken_at)
        gaps = [b - a for a, b in itertools.pairwise(times) if b > begin and a < end]
        return max(gaps, default=0.0) * 1000

    def send_to(self, address: str, sender: int) -> None:
        host, port = address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=ANSWER_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            reader = connection.makefile("rb")
            while not self.is_over.is_set():
                connection.sendall(next(self._frames[sender]))
                size = reader.read(_LENGTH.size)
                if len(size) < _LENGTH.size:
                    return
                if b'"code":0,' not in reader.read(_LENGTH.unpack(size)[0]):
                    return
                self.taken_at.append(time.perf_counter())


def senders_of(running: Running) -> Senders:
    """Makes the topic and begins to send to every member."""
    running.create_topic(TOPIC, QUEUES)
    return Senders([str(broker["address"]) for broker in running.brokers()])


def spread(values: list[float]) -> str:
    """Median, 99th percentile and maximum, in ms."""
    ordered = sorted(values)
    if not ordered:
        return "none"
    p50, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * part))] for part in (0.5, 0.99))
    return f"p50 {p50:.0f} ms, p99 {p99:.0f} ms, longest {ordered[-1]:.0f} ms of {len(ordered)}"
