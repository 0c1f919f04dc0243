"""An observer that reads all brokers all the time, each of them directly.

It reads every queue of every broker as it grows. A message that it saw once, on whichever broker,
is at that offset for ever, and before an offset nothing is missing.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Self

from ledgermq.protocol.record import Record
from tests.e2e.wire_client import WireClient
from tests.fault.hosts.cluster import QUEUES, TOPIC, Cluster
from tests.fault.hosts.producer import body_of, number_of
from tests.fault.up_group import NODES

_PAUSE_S = 0.2
_ANSWER_S = 2.0
# A wrong message is often one of many.
_COMPLAINTS_MAX = 20
# Queue and offset.
Place = tuple[int, int]


class Observer:
    """A thread for each broker; use it in a `with` block."""

    def __init__(self, cluster: Cluster) -> None:
        """Nothing is read yet."""
        self._cluster = cluster
        # The number of the message at each place; the threads share it under the lock.
        self.seen: dict[Place, int] = {}
        self.complaints: list[str] = []
        self._lock = threading.Lock()
        # By broker and queue, the next offset; each broker's are written by its own thread.
        self._next = {(node, queue): 0 for node in NODES for queue in range(QUEUES)}
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._read_all, args=(node,), daemon=True) for node in NODES
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def has_reached(self, ends: dict[int, int]) -> bool:
        """Whether each broker has shown each queue up to the given offset."""
        return all(self._next[node, queue] >= end for queue, end in ends.items() for node in NODES)

    def lag(self, ends: dict[int, int]) -> dict[str, int]:
        """By broker, how many messages before the given offsets it has not shown."""
        return {
            node: sum(max(0, end - self._next[node, queue]) for queue, end in ends.items())
            for node in NODES
        }

    def _read_all(self, node: str) -> None:
        """Runs until the end of the block."""
        while not self._is_over.wait(_PAUSE_S):
            # Nobody there, or silent, or it closed: all of that is what a fault does.
            with contextlib.suppress(OSError):
                self._read(node)

    def _read(self, node: str) -> None:
        """Reads over one connection until something goes wrong."""
        with WireClient(self._cluster.address(node), _ANSWER_S) as client:
            while not self._is_over.wait(_PAUSE_S):
                for queue in range(QUEUES):
                    while found := client.pull(TOPIC, queue, self._next[node, queue]):
                        self._take(node, queue, found)

    def _take(self, node: str, queue: int, records: list[Record]) -> None:
        for record in records:
            expected = self._next[node, queue]
            if record.queue_offset != expected:
                self._complain(
                    f"{node} shows offset {record.queue_offset} of queue {queue} at {expected}"
                )
                return
            number = number_of(record.body)
            if record.body != body_of(number):
                self._complain(f"{node}: the body at {expected} of queue {queue} was never sent")
            with self._lock:
                before = self.seen.setdefault((queue, expected), number)
            if before != number:
                self._complain(
                    f"{node} has message {number} at {expected} of queue {queue}, where message"
                    f" {before} was seen"
                )
            self._next[node, queue] = expected + 1

    def _complain(self, text: str) -> None:
        if len(self.complaints) < _COMPLAINTS_MAX and text not in self.complaints:
            self.complaints.append(text)
