"""OrderlyWork: the messages of a queue reach the listener one after the other, in their order.

A message whose listener fails is tried again after a pause, and its queue waits for it; other
queues go on. Of a batch, what comes before the first message that is to come again is settled, and
the rest comes again with it. Nothing of a queue is consumed while this member cannot be sure of its
lock.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from itertools import islice
from typing import Final

from ledgermq.client.arrived import Arrived
from ledgermq.client.concurrent_work import Bury, Consumed
from ledgermq.client.endless import keep_going
from ledgermq.client.errors import ClientError
from ledgermq.client.listening import Listening
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.outcome import Kind, Outcome
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.queue_locks import QueueLocks
from ledgermq.client.worker import own_worker, set_worker
from ledgermq.protocol.bodies import MessageQueue

# How often to look whether a lock is valid again.
_LOCK_PAUSE_S: Final = 0.1
# A pause is left within this time when its queue is to go to another member.
_PAUSE_STEP_S: Final = 0.25

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
        bury: Bury,
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
        """Lets the listeners that run end, and cancels those that take too long.

        One that calls this itself ends afterwards.
        """
        self._is_stopping = True
        if self._sorter is not None:
            self._sorter.cancel()
        try:
            if others := [task for task in self._tasks.values() if task is not own_worker()]:
                await asyncio.wait(others, timeout=timeout_s)
        finally:
            self.abort()

    def abort(self) -> None:
        """Cancels the listeners that run, and waits for nothing."""
        self._is_stopping = True
        for task in (self._sorter, *self._tasks.values()):
            if task is not None and task is not own_worker():
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
        set_worker()

        async def consume_all() -> bool:
            while lane and not self._is_stopping:
                # They stay the first until they are done, also after a failure.
                held = lane[0][0]
                first = islice(lane, self._listening.batch_max)
                batch = [message for of, message in first if of is held]
                await self._consume(held, batch)
                for _ in batch:
                    lane.popleft()
            return True

        try:
            await keep_going(f"consuming {queue} in order", consume_all)
        finally:
            del self._lanes[queue], self._tasks[queue]

    async def _consume(self, held: ProcessQueue, batch: list[ReceivedMessage]) -> None:
        """Tries until all messages are done, or their queue was dropped."""
        tries = 0
        while batch and not held.is_dropped and not self._is_stopping:
            if not self._locks.is_valid(held.queue):
                await asyncio.sleep(_LOCK_PAUSE_S)
                continue
            async with self._room:
                if held.is_dropped:
                    return
                outcomes = await self._listening.consume(batch)
            settled = await self._settled(batch, outcomes)
            for message in batch[:settled]:
                self._consumed(held, message)
            batch = batch[settled:]
            if not batch or outcomes is None:
                return
            tries = 1 if settled else tries + 1
            if self._tries_max is not None and tries > self._tries_max:
                if await self._buried(batch[0]):
                    self._consumed(held, batch[0])
                    batch, tries = batch[1:], 0
                    continue
            await self._pause(held, outcomes[settled].delay)

    async def _settled(
        self, batch: list[ReceivedMessage], outcomes: Sequence[Outcome] | None
    ) -> int:
        """Returns how many messages, from the first on, need not come again."""
        if outcomes is None:
            return len(batch)
        for number, (message, outcome) in enumerate(zip(batch, outcomes, strict=True)):
            if outcome.kind is Kind.RETRY:
                return number
            if outcome.kind is Kind.BURY and not await self._buried(message):
                return number
        return len(batch)

    async def _buried(self, message: ReceivedMessage) -> bool:
        """Puts a message among the dead letters; False when that has to be tried again."""
        try:
            await self._bury(message)
        except ClientError as error:
            _log.warning("could not put %r among the dead letters: %s", message, error)
            return False
        return True

    async def _pause(self, held: ProcessQueue, delay: timedelta | None) -> None:
        """Waits before a message is tried again, as long as its queue is this member's."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + (self._pause_s if delay is None else delay.total_seconds())
        while not held.is_dropped and not self._is_stopping:
            left_s = end_s - loop.time()
            if left_s <= 0:
                return
            await asyncio.sleep(min(left_s, _PAUSE_STEP_S))
