"""ConcurrentWork: messages reach the listener as they come, several at a time.

A message whose listener fails is given back, or counts as consumed where nobody takes it back. One
that is to come again there comes from here: it stays pulled, and not consumed, until then.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, Protocol, TypeAlias

from ledgermq.client.arrived import Arrived, Item
from ledgermq.client.endless import keep_going
from ledgermq.client.errors import ClientError
from ledgermq.client.listening import Listening
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.outcome import Kind, Outcome
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.retry import back_off_ms
from ledgermq.client.worker import own_worker, set_worker

# Told when a message need not come again.
Consumed: TypeAlias = Callable[[ProcessQueue, ReceivedMessage], None]
# Puts a message among the dead letters; raises ClientError.
Bury: TypeAlias = Callable[[ReceivedMessage], Awaitable[None]]


class GiveBack(Protocol):
    """Makes the broker take a message back; raises ClientError."""

    async def __call__(self, message: ReceivedMessage, delay: timedelta | None = None) -> None:
        """Without a delay it comes again after a longer one each time."""


# Messages that a worker consumes before others get their turn of the loop.
_TURN_COUNT: Final = 64
# Before a message comes again from here that its broker does not take back, as in Java.
_GIVE_BACK_PAUSE: Final = timedelta(seconds=5)
# Before a message comes again from here, when its listener did not say.
_AGAIN: Final = timedelta(seconds=10)

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
        *,
        bury: Bury | None = None,
    ) -> None:
        """Starts nothing yet.

        Args:
            listening: the listener.
            arrived: where messages come from.
            consumed: told of each message that is done.
            give_back: where messages go whose listener failed; None drops them.
            worker_count: calls of the listener that run at the same time.
            bury: where messages go that the listener gives up; None drops them.
        """
        self._listening = listening
        self._arrived = arrived
        self._consumed = consumed
        self._give_back = give_back
        self._bury = bury
        self._worker_count = worker_count
        # Messages that come again from here.
        self._again: set[asyncio.TimerHandle] = set()
        self._workers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begins to consume; needs a running loop."""
        create_task = asyncio.get_running_loop().create_task
        self._workers = [create_task(self._work()) for _ in range(self._worker_count)]

    async def stop(self, timeout_s: float) -> None:
        """Lets the listeners that run end, and cancels those that take too long.

        One that calls this itself ends afterwards.
        """
        for _ in self._workers:
            self._arrived.put_nowait(None)
        try:
            if others := [task for task in self._workers if task is not own_worker()]:
                await asyncio.wait(others, timeout=timeout_s)
        finally:
            self.abort()

    def abort(self) -> None:
        """Cancels the listeners that run, and waits for nothing."""
        for task in self._workers:
            if task is not own_worker():
                task.cancel()
        for timer in self._again:
            timer.cancel()

    async def _work(self) -> None:
        """Consumes until there is nothing more to come."""
        set_worker()
        turn = self._one_by_one() if self._listening.batch_max == 1 else self._in_batches()
        await keep_going("consuming what was pulled", turn)

    def _one_by_one(self) -> Callable[[], Awaitable[bool]]:
        """Returns what consumes until the end; called again after a failure."""
        item: Item | None = None
        arrived, waiting = self._arrived, self._arrived.items

        async def consume_all() -> bool:
            nonlocal item
            turns = 0
            while True:
                # After a failure the message is still there: neither consumed nor given back.
                if item is None:
                    item = waiting.popleft() if waiting else await arrived.get()
                    if item is None:
                        return True
                turns += 1
                if turns % _TURN_COUNT == 0:
                    await asyncio.sleep(0)
                held, message = item
                if not held.is_dropped:
                    outcome = await self._listening.consume_one(message)
                    if outcome is None:
                        self._consumed(held, message)
                    else:
                        await self._settle(item, outcome)
                item = None

        return consume_all

    def _in_batches(self) -> Callable[[], Awaitable[bool]]:
        """Does as _one_by_one, for a listener that takes batches."""
        items: list[Item] = []
        is_last = False

        async def consume_all() -> bool:
            nonlocal items, is_last
            turns = 0
            while items or not is_last:
                if not items:
                    item = await self._arrived.get()
                    if item is None:
                        break
                    items = [item]
                    is_last = self._gather(items)
                turns += 1
                if turns % _TURN_COUNT == 0:
                    await asyncio.sleep(0)
                await self._consume(items)
                items = []
            return True

        return consume_all

    def _gather(self, items: list[Item]) -> bool:
        """Adds what is there already, up to a batch; True when that was the last of all."""
        while len(items) < self._listening.batch_max and not self._arrived.empty():
            item = self._arrived.get_nowait()
            if item is None:
                return True
            items.append(item)
        return False

    async def _consume(self, items: list[Item]) -> None:
        """Calls the listener, and does with each message what that says."""
        items = [item for item in items if not item[0].is_dropped]
        if not items:
            return
        outcomes = await self._listening.consume([message for _, message in items])
        if outcomes is None:
            for held, message in items:
                self._consumed(held, message)
            return
        for item, outcome in zip(items, outcomes, strict=True):
            await self._settle(item, outcome)

    async def _settle(self, item: Item, outcome: Outcome) -> None:
        """Does with a message what its outcome says; unless that can be done it comes again."""
        held, message = item
        if outcome.kind is Kind.RETRY:
            if self._give_back is None and outcome.error is None:
                self._have_again(item, _AGAIN if outcome.delay is None else outcome.delay)
                return
            if self._give_back is not None and not await self._gave_back(item, outcome.delay):
                return
        elif outcome.kind is Kind.BURY and self._bury is not None:
            if not await self._told(item, self._bury):
                return
        self._consumed(held, message)

    def _have_again(self, item: Item, delay: timedelta) -> None:
        def come() -> None:
            self._again.discard(timer)
            self._arrived.put_nowait(item)

        timer = asyncio.get_running_loop().call_later(delay.total_seconds(), come)
        self._again.add(timer)

    async def _gave_back(self, item: Item, delay: timedelta | None) -> bool:
        give_back = self._give_back
        assert give_back is not None
        if delay is None:
            return await self._told(item, give_back)
        return await self._told(item, lambda message: give_back(message, delay))

    async def _told(self, item: Item, tell: Bury) -> bool:
        """Tells the broker about a message until it listens.

        Returns:
            False when its queue is dropped, or the broker refuses for good: then the message comes
            again from here, and keeps no worker until then.
        """
        held, message = item
        attempts = 0
        while not held.is_dropped:
            attempts += 1
            try:
                await tell(message)
                return True
            except ClientError as error:
                _log.warning("could not give back %r: %s", message, error)
                if not error.retriable:
                    self._have_again(item, _GIVE_BACK_PAUSE)
                    return False
                await asyncio.sleep(back_off_ms(attempts, 1.0) / 1000)
        return False
