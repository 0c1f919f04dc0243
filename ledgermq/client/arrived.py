"""Arrived: what a push consumer has pulled, in order, for whoever consumes it.

It has no bound of its own: what is pulled of each queue is bounded by the owner of the queues. What
belongs to a queue that was given up is forgotten, for nothing counts it any more: a listener that
hangs while queues come and go would keep more and more of it.
"""

import asyncio
from collections import deque
from itertools import islice
from typing import TypeAlias

from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.process_queue import ProcessQueue

# A message that was pulled, with its queue.
Item: TypeAlias = tuple[ProcessQueue, ReceivedMessage]


class Arrived(asyncio.Queue[Item | None]):
    """Items, the oldest first; None ends the work of whoever takes it."""

    def _init(self, maxsize: int) -> None:
        super()._init(maxsize)
        # May be taken from directly, from the left: nobody ever waits to put something in.
        self.items: deque[Item | None] = deque()
        # How many wait for something.
        self._waiting_count = 0

    def qsize(self) -> int:
        """Returns how many items there are."""
        return len(self.items)

    def empty(self) -> bool:
        """Tells whether there is none."""
        return not self.items

    def _get(self) -> Item | None:
        return self.items.popleft()

    def _put(self, item: Item | None) -> None:
        self.items.append(item)

    async def get(self) -> Item | None:
        """Takes the oldest item; waits for one while there is none."""
        self._waiting_count += 1
        try:
            return await super().get()
        finally:
            self._waiting_count -= 1

    def put_all(self, process_queue: ProcessQueue, messages: list[ReceivedMessage], /) -> None:
        """Takes what a pull brought, and wakes those who wait, as far as there is work for them."""
        items = ((process_queue, message) for message in messages)
        for item in islice(items, self._waiting_count):
            self.put_nowait(item)
        self.items.extend(items)

    def forget_dropped(self) -> None:
        """Drops the messages of queues that were dropped."""
        kept = [item for item in self.items if item is None or not item[0].is_dropped]
        self.items.clear()
        self.items.extend(kept)
