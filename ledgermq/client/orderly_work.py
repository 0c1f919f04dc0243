"""OrderlyWork: the messages of a queue reach the listener one after the other, in their order.

A message whose listener fails is tried again after a pause, and its queue waits for it; other
queues go on. Nothing of a queue is consumed while this member cannot be sure of its lock.
"""

import asyncio
import logging
from collections import deque
from typing import Final

from ledgermq.client.concurrent_work import Arrived, Consumed, GiveBack
from ledgermq.client.endless import keep_going
from ledgermq.client.errors import ClientError
from ledgermq.client.listening import Listening
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.queue_locks import QueueLocks
from ledgermq.protocol.bodies import MessageQueue

# How often to look whether a lock is valid again.
_LOCK_PAUSE_S: Final = 0.1

_log = logging.getLogger("ledgermq.client")


class OrderlyWork:
    """A lane for each queue that has messages.

    Invariant: of one queue one message at a time is with the listener, also when the queue was
    dropped and taken again meanwhile.
    """

    def __init__(
        self,
        listening: Listening,
        arrived: Arrived,
        consumed: Consumed,
        bury: GiveBack,
        locks: QueueLocks,
        *,
        concurrency: int,
        pause_s: float,
        tries_max: int | None,
    ) -> None:
        """Starts nothing yet.

        Args:
            listening: the listener.
            arrived: where messages come from.
            consumed: told of each message that is done.
            bury: puts a message among the dead letters.
            locks: which queues are surely this member's.
            concurrency: queues whose messages are with the listener at the same time.
            pause_s: before a message is tried again.
            tries_max: failures of one message before it is buried; None: never.
        """
        self._listening = listening
        self._arrived = arrived
        self._consumed = consumed
        self._bury = bury
        self._locks = locks
        self._room = asyncio.Semaphore(concurrency)
        self._pause_s = pause_s
        self._tries_max = tries_max
        self._lanes: dict[MessageQueue, deque[tuple[ProcessQueue, ReceivedMessage]]] = {}
        self._tasks: dict[MessageQueue, asyncio.Task[None]] = {}
        self._sorter: asyncio.Task[None] | None = None
        self._is_stopping = False

    def start(self) -> None:
        """Begins to consume; needs a running loop."""
        sorting = keep_going("sorting what was pulled", self._sort)
        self._sorter = asyncio.get_running_loop().create_task(sorting)

    async def stop(self, timeout_s: float) -> None:
        """Lets the listeners that run end, and cancels those that take too long."""
        self._is_stopping = True
        if self._sorter is not None:
            self._sorter.cancel()
        try:
            if self._tasks:
                await asyncio.wait(list(self._tasks.values()), timeout=timeout_s)
        finally:
            self.abort()

    def abort(self) -> None:
        """Cancels the listeners that run, and waits for nothing."""
        self._is_stopping = True
        for task in (self._sorter, *self._tasks.values()):
            if task is not None:
                task.cancel()

    async def settled(self, queue: MessageQueue) -> None:
        """Returns when no message of a queue that was dropped is with the listener."""
        task = self._tasks.get(queue)
        if task is not None:
            await asyncio.wait([task])

    async def _sort(self) -> bool:
        """Puts what arrives into its lane, until there is nothing more to come."""
        while (item := await self._arrived.get()) is not None:
            queue = item[0].queue
            lane = self._lanes.get(queue)
            if lane is None:
                lane = self._lanes[queue] = deque()
                task = asyncio.get_running_loop().create_task(self._run(queue, lane))
                self._tasks[queue] = task
            lane.append(item)
        return True

    async def _run(
        self, queue: MessageQueue, lane: deque[tuple[ProcessQueue, ReceivedMessage]]
    ) -> None:
        """Consumes a lane until it is empty."""

        async def consume_all() -> bool:
            while lane and not self._is_stopping:
                # It stays the first until it is done, also after a failure.
                held, message = lane[0]
                if await self._consume(held, message):
                    self._consumed(held, message)
                lane.popleft()
            return True

        try:
            await keep_going(f"consuming {queue} in order", consume_all)
        finally:
            del self._lanes[queue], self._tasks[queue]

    async def _consume(self, held: ProcessQueue, message: ReceivedMessage) -> bool:
        """Tries until the message is done; False when its queue was dropped before."""
        tries = 0
        while not held.is_dropped and not self._is_stopping:
            if not self._locks.is_valid(held.queue):
                await asyncio.sleep(_LOCK_PAUSE_S)
                continue
            async with self._room:
                if held.is_dropped:
                    return False
                if await self._listening.consume(message) is None:
                    return True
            tries += 1
            if self._tries_max is not None and tries > self._tries_max:
                try:
                    await self._bury(message)
                    return True
                except ClientError as error:
                    _log.warning("could not put %r among the dead letters: %s", message, error)
            await asyncio.sleep(self._pause_s)
        return False
