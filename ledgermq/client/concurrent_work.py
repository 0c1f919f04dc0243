"""ConcurrentWork: messages reach the listener as they come, several at a time.

A message whose listener fails is given back, or counts as consumed where nobody takes it back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from ledgermq.client.endless import keep_going
from ledgermq.client.errors import ClientError
from ledgermq.client.listening import Listening
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.retry import back_off_ms

# What a pull brought, with the queue that it belongs to; None ends the work of whoever takes it.
Arrived: TypeAlias = asyncio.Queue[tuple[ProcessQueue, ReceivedMessage] | None]
# Told when a message need not come again.
Consumed: TypeAlias = Callable[[ProcessQueue, ReceivedMessage], None]
# Makes the broker take a message back; raises ClientError.
GiveBack: TypeAlias = Callable[[ReceivedMessage], Awaitable[None]]

# Messages that a worker consumes before others get their turn of the loop.
_TURN_COUNT: Final = 64
_GIVE_BACK_PAUSE_S: Final = 5.0

_log = logging.getLogger("ledgermq.client")


class ConcurrentWork:
    """Workers that take what arrives."""

    def __init__(
        self,
        listening: Listening,
        arrived: Arrived,
        consumed: Consumed,
        give_back: GiveBack | None,
        worker_count: int,
    ) -> None:
        """Starts nothing yet.

        Args:
            listening: the listener.
            arrived: where messages come from.
            consumed: told of each message that is done.
            give_back: where messages go whose listener failed; None drops them.
            worker_count: calls of the listener that run at the same time.
        """
        self._listening = listening
        self._arrived = arrived
        self._consumed = consumed
        self._give_back = give_back
        self._worker_count = worker_count
        self._workers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begins to consume; needs a running loop."""
        create_task = asyncio.get_running_loop().create_task
        self._workers = [create_task(self._work()) for _ in range(self._worker_count)]

    async def stop(self, timeout_s: float) -> None:
        """Lets the listeners that run end, and cancels those that take too long."""
        for _ in self._workers:
            self._arrived.put_nowait(None)
        try:
            if self._workers:
                await asyncio.wait(self._workers, timeout=timeout_s)
        finally:
            self.abort()

    def abort(self) -> None:
        """Cancels the listeners that run, and waits for nothing."""
        for task in self._workers:
            task.cancel()

    async def _work(self) -> None:
        """Consumes until there is nothing more to come."""
        item: tuple[ProcessQueue, ReceivedMessage] | None = None

        async def consume_all() -> bool:
            nonlocal item
            turns = 0
            # After a failure the message is still there: it is neither consumed nor given back.
            while item is not None or (item := await self._arrived.get()) is not None:
                turns += 1
                if turns % _TURN_COUNT == 0:
                    await asyncio.sleep(0)
                held, message = item
                if not held.is_dropped and await self._consume(held, message):
                    self._consumed(held, message)
                item = None
            return True

        await keep_going("consuming what was pulled", consume_all)

    async def _consume(self, held: ProcessQueue, message: ReceivedMessage) -> bool:
        """Calls the listener; False when the message could neither be consumed nor given back."""
        if await self._listening.consume(message) is None or self._give_back is None:
            return True
        attempts = 0
        while not held.is_dropped:
            attempts += 1
            try:
                await self._give_back(message)
                return True
            except ClientError as error:
                _log.warning("could not give back %r: %s", message, error)
                pause_s = back_off_ms(attempts, 1.0) / 1000
                await asyncio.sleep(pause_s if error.retriable else _GIVE_BACK_PAUSE_S)
        return False
