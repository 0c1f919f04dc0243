"""Inbox: messages that are pulled and wait to be asked for, by queue.

Queues take turns, so that a full one does not hold the others up. What a paused queue has waits
until it is resumed. No I/O.
"""

import asyncio
from collections import deque
from typing import TypeAlias

from ledgermq.client.errors import ClientError
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.protocol.bodies import MessageQueue

# A message, and the queue it belongs to.
Item: TypeAlias = tuple[ProcessQueue, ReceivedMessage]


class Inbox:
    """What one consumer has pulled.

    Invariant: messages of one queue come out in the order in which they were put in.
    """

    def __init__(self) -> None:
        # In the order of their turns; none is empty.
        self._lanes: dict[MessageQueue, deque[Item]] = {}
        self._paused: set[MessageQueue] = set()
        self._failure: ClientError | None = None
        self._is_closed = False
        self._news = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        """True when nothing comes any more."""
        return self._is_closed

    def put_all(self, process_queue: ProcessQueue, messages: list[ReceivedMessage], /) -> None:
        """Takes what a pull brought."""
        if not messages:
            return
        queue = process_queue.queue
        lane = self._lanes.get(queue)
        if lane is None:
            lane = self._lanes[queue] = deque()
        lane.extend((process_queue, message) for message in messages)
        self._news.set()

    def fail(self, error: ClientError) -> None:
        """Takes a failure that whoever waits is to see, once."""
        self._failure = error
        self._news.set()

    def close(self) -> None:
        """Ends the waiting."""
        self._is_closed = True
        self._news.set()

    def pause(self, queue: MessageQueue) -> None:
        """Keeps back what comes of a queue."""
        self._paused.add(queue)

    def resume(self, queue: MessageQueue) -> None:
        """Lets out what comes of a queue; one that is not paused stays as it is."""
        self._paused.discard(queue)
        self._news.set()

    def paused(self) -> list[MessageQueue]:
        """Returns the paused queues, sorted."""
        return sorted(self._paused)

    def clear(self, queue: MessageQueue) -> None:
        """Drops all that there is of a queue."""
        self._lanes.pop(queue, None)

    def forget(self, queue: MessageQueue) -> None:
        """Drops all that there is of a queue, and that it was paused."""
        self._lanes.pop(queue, None)
        self._paused.discard(queue)

    def forget_dropped(self) -> None:
        """Drops the messages of queues that were dropped."""
        for queue, lane in list(self._lanes.items()):
            kept = deque(item for item in lane if not item[0].is_dropped)
            if kept:
                self._lanes[queue] = kept
            else:
                del self._lanes[queue]

    def take(self, count_max: int) -> list[Item]:
        """Returns what may come out now; messages of queues that were dropped are left out.

        Raises:
            ClientError: a pull has failed and is not retriable.
        """
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        taken: list[Item] = []
        for queue in [queue for queue in self._lanes if queue not in self._paused]:
            lane = self._lanes.pop(queue)
            while lane and len(taken) < count_max:
                item = lane.popleft()
                if not item[0].is_dropped:
                    taken.append(item)
            if lane:
                # Behind the others.
                self._lanes[queue] = lane
            if len(taken) == count_max:
                break
        return taken

    async def news(self) -> None:
        """Returns when there may be something to take, a failure, or the end."""
        while not self._is_closed and self._failure is None:
            if any(queue not in self._paused for queue in self._lanes):
                return
            self._news.clear()
            await self._news.wait()
