"""ClaimsLog: the log of a shared queue as it is read, and the state that it tells.

Where to begin: at the snapshot that the group's offset names; else, when nothing was ever deleted,
at the begin; else at any snapshot that is still there. When there is none, a reset is written: all
before the group's offset of the tasks is done, and nobody works on anything.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from ledgermq.celery.claims import Claims, Event, Given, Snapshot, decode_entry
from ledgermq.client import MessageQueue, PullResult, PullStatus, ReceivedMessage
from ledgermq.protocol.errors import RemoteProtocolError

_RETRY_S: Final = 0.2
# A position beyond the end is kept for so many tries: a new leader may still be applying its log.
_BEYOND_END_TRIES: Final = 50

_log = logging.getLogger("ledgermq.celery")


class Requests(Protocol):
    """What is asked of the brokers."""

    async def pull(
        self, queue: MessageQueue, offset: int, *, suspend_s: float | None = None
    ) -> PullResult: ...

    async def max_offset(self, queue: MessageQueue) -> int: ...

    async def min_offset(self, queue: MessageQueue) -> int: ...

    async def committed(self, queue: MessageQueue) -> int | None: ...

    async def commit(self, queue: MessageQueue, offset: int) -> None: ...


class ClaimsLog:
    """One log, read in its order."""

    def __init__(
        self,
        requests: Requests,
        append: Callable[[bytes], Awaitable[int]],
        tasks: MessageQueue,
        log: MessageQueue,
        *,
        applied: Callable[[Event, Given], None],
        begun_anew: Callable[[], None],
    ) -> None:
        """Reads nothing yet.

        Args:
            requests: to the brokers.
            append: writes a message into the log and returns its offset; raises ClientError.
            tasks: where the messages are.
            log: where the events are.
            applied: told of each event that counts, and what it gave.
            begun_anew: told when the state is not what it was: nobody is known any more.
        """
        self.claims = Claims()
        # Since the last snapshot, and when that was read, on the loop's clock.
        self.event_count = 0
        self.snapshot_s = asyncio.get_running_loop().time()
        self._requests = requests
        self._append = append
        self._tasks = tasks
        self._log = log
        self._applied = applied
        self._begun_anew = begun_anew
        # Offset of the next event; None before the state was loaded.
        self._offset: int | None = None
        self._changed = asyncio.Condition()
        self._loading = asyncio.Lock()
        # True when somebody pulls all the time.
        self.is_followed = False

    async def load(self) -> None:
        """Reads the log up to its end of now; what was read before is not read again."""
        async with self._loading:
            if self._offset is None:
                await self._begin()
            end = await self._requests.max_offset(self._log)
            while not self.is_followed and self._place() < end:
                await self.pull(suspend_s=0.0)
        if self.is_followed:
            async with self._changed:
                await self._changed.wait_for(lambda: self._place() >= end)

    async def pull(self, suspend_s: float) -> None:
        """Reads on, and waits for something to read."""
        result = await self._requests.pull(self._log, self._place(), suspend_s=suspend_s)
        if result.status is PullStatus.OFFSET_ILLEGAL:
            await self._find_place(result)
            return
        for message in result.messages:
            if message.queue_offset >= self._place():
                self._offset = message.queue_offset + 1
                self._read(_entry_of(message))
        if not result.messages:
            self._offset = max(self._place(), result.next_offset)
        async with self._changed:
            self._changed.notify_all()

    async def write_snapshot(self) -> None:
        """Writes the state as it is, and has newcomers begin there."""
        at = await self._append(self.claims.snapshot(self._place()).encode())
        await self._requests.commit(self._log, at)

    def _read(self, entry: Event | Snapshot | None) -> None:
        if isinstance(entry, Event):
            given = self.claims.apply(entry)
            if given is not None:
                self.event_count += 1
                self._applied(entry, given)
        elif isinstance(entry, Snapshot):
            self.event_count, self.snapshot_s = 0, asyncio.get_running_loop().time()
            if entry.is_reset:
                self.claims = Claims.restored(entry)
                self._begun_anew()

    def _place(self) -> int:
        """Offset of the next event."""
        return self._offset or 0

    async def _begin(self) -> None:
        """Finds a state to begin with."""
        least = await self._requests.min_offset(self._log)
        at = await self._requests.committed(self._log)
        if at is not None and at >= least:
            result = await self._requests.pull(self._log, at, suspend_s=0.0)
            if any(self._begin_with(message, least) for message in result.messages[:1]):
                return
        if not least:
            self.claims, self._offset = Claims(), 0
            return
        offset, end = least, await self._requests.max_offset(self._log)
        while offset < end:
            result = await self._requests.pull(self._log, offset, suspend_s=0.0)
            if any(self._begin_with(message, least) for message in result.messages):
                return
            offset = max(offset + 1, result.next_offset)
        await self._reset(end)

    def _begin_with(self, message: ReceivedMessage, least: int) -> bool:
        """Begins with a message when it is a snapshot that is good for that."""
        entry = _entry_of(message)
        if not isinstance(entry, Snapshot) or not (entry.is_reset or entry.log_offset >= least):
            return False
        self.claims = Claims.restored(entry)
        self._offset = message.queue_offset + 1 if entry.is_reset else entry.log_offset
        return True

    async def _reset(self, end: int) -> None:
        done = await self._requests.committed(self._tasks)
        if done is None:
            done = await self._requests.min_offset(self._tasks)
        reset = Snapshot(is_reset=True, log_offset=end, next_offset=done, held=(), owners={})
        at = await self._append(reset.encode())
        await self._requests.commit(self._log, at)
        _log.warning("the log %s has no begin any more; it begins anew", self._log.topic)
        self.claims, self._offset = Claims.restored(reset), at + 1

    async def _find_place(self, result: PullResult) -> None:
        """Goes on when the log does not hold the position."""
        if self._place() >= result.min_offset:
            for _ in range(_BEYOND_END_TRIES):
                await asyncio.sleep(_RETRY_S)
                if await self._requests.max_offset(self._log) >= self._place():
                    return
        _log.warning("the log %s does not hold %d any more", self._log.topic, self._place())
        await self._begin()
        self._begun_anew()


def _entry_of(message: ReceivedMessage) -> Event | Snapshot | None:
    try:
        return decode_entry(message.body)
    except RemoteProtocolError:
        return None
