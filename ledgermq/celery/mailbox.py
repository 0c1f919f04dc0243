"""Mailbox: a queue that ends with its process, such as the replies to a remote control command.

It is no topic of its own, but a place in the topic of mail, to which all exchanges write that have
such queues: it begins where that topic ended when the queue was declared, brokers leave out what
bears other tags, and what is not bound for it is dropped here. Nothing of it remains when the
process dies. Messages are not shared: two processes that declare one such queue both get all.
"""

import asyncio
import logging
from collections import deque
from typing import Final, Protocol

from ledgermq.celery.bindings import DIRECT, Binding
from ledgermq.celery.foreign import read_object
from ledgermq.celery.lane import Taker
from ledgermq.celery.names import mail_tag
from ledgermq.client import ClientError, MessageQueue, PullResult, PullStatus, ReceivedMessage
from ledgermq.client.endless import keep_going
from ledgermq.client.subscription import Expression, expression_of
from ledgermq.protocol.errors import RemoteProtocolError

_RETRY_S: Final = 0.2
# As for a lane: a new leader may still be applying its log.
_BEYOND_END_TRIES: Final = 50

_log = logging.getLogger("ledgermq.celery")


class Requests(Protocol):
    """What a mailbox asks of the brokers."""

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        expression: Expression,
        suspend_s: float | None = None,
    ) -> PullResult: ...


class Mailbox:
    """One queue of this process."""

    def __init__(self, requests: Requests, mail: MessageQueue, name: str, offset: int) -> None:
        """Begins at an offset of the topic of mail; what is sent to its name alone is for it."""
        self.name = name
        self._requests = requests
        self._mail = mail
        self._offset = offset
        # How often in a row a broker said that it does not have the offset.
        self._misplaced = 0
        self._bindings = [Binding("", DIRECT, name)]
        self._takers: list[Taker] = []
        self._waiting: deque[tuple[ReceivedMessage, int]] = deque()
        self._wake = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    def bind(self, binding: Binding) -> None:
        """Gets what an exchange has for this queue, from now on."""
        if binding not in self._bindings:
            self._bindings.append(binding)
            self._restart()

    def unbind(self, binding: Binding) -> None:
        """Gets no more of it."""
        if binding in self._bindings:
            self._bindings.remove(binding)
            self._restart()

    def add(self, taker: Taker) -> None:
        """Gives messages to somebody from now on."""
        self._takers.append(taker)
        self._deal()
        if self._reading is None:
            self._restart()
        self._wake.set()

    def remove(self, taker: Taker) -> None:
        """Gives nothing more to somebody."""
        if taker in self._takers:
            self._takers.remove(taker)

    def nudge(self) -> None:
        """Somebody has room again."""
        self._deal()
        self._wake.set()

    def done(self, message: ReceivedMessage) -> None:
        """Nothing has to be told."""

    def put_back(
        self, message: ReceivedMessage, times: int, *, has_ended_worker: bool = False
    ) -> None:
        """A message was not wanted after all; it comes again, unless the queue ends, too."""
        self._waiting.appendleft((message, times))
        self.nudge()

    async def get(self) -> tuple[ReceivedMessage, int] | None:
        """Returns the next message and how often it was given, None when there is none now."""
        if not self._waiting:
            await self._fill()
        return self._waiting.popleft() if self._waiting else None

    async def size(self) -> int:
        """Returns how many messages are here."""
        await self._fill()
        return len(self._waiting)

    async def purge(self) -> int:
        """Removes what is here, and returns how much that was."""
        count = await self.size()
        self._waiting.clear()
        return count

    async def stop(self, timeout_s: float) -> None:
        """Ends at once."""
        self._takers.clear()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
            self._reading = None

    def _restart(self) -> None:
        """Reads on with the tags of now."""
        if self._reading is not None:
            self._reading.cancel()
        if self._takers:
            reading = keep_going(f"reading the mail of {self.name}", self._read)
            self._reading = asyncio.get_running_loop().create_task(reading)

    async def _fill(self) -> None:
        """Reads what there is, when nobody reads anyway."""
        while not self._takers and await self._pull(suspend_s=0.0):
            pass

    async def _read(self) -> None:
        while True:
            self._deal()
            if self._waiting or not any(taker.room() > 0 for taker in self._takers):
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                await self._pull(suspend_s=15.0)
            except ClientError as error:
                _log.info("no mail for %s: %s", self.name, error)
                await asyncio.sleep(_RETRY_S)

    async def _pull(self, suspend_s: float) -> bool:
        """Pulls once; False when there was nothing new."""
        tags = {mail_tag(one.exchange, one.kind, one.routing_key) for one in self._bindings}
        result = await self._requests.pull(
            self._mail,
            self._offset,
            expression=expression_of(" || ".join(sorted(tags)), None),
            suspend_s=suspend_s,
        )
        if result.status is PullStatus.OFFSET_ILLEGAL:
            await self._find_place(result)
            return False
        self._misplaced = 0
        for message in result.messages:
            if message.queue_offset >= self._offset and self._is_mine(message):
                self._waiting.append((message, 1))
        self._offset = max(self._offset, result.next_offset)
        self._deal()
        return result.status is not PullStatus.NO_NEW_MESSAGE

    async def _find_place(self, result: PullResult) -> None:
        if self._offset < result.min_offset:
            self._offset = result.min_offset
            return
        self._misplaced += 1
        if self._misplaced > _BEYOND_END_TRIES:
            self._offset, self._misplaced = result.max_offset, 0
        await asyncio.sleep(_RETRY_S)

    def _is_mine(self, message: ReceivedMessage) -> bool:
        try:
            info = read_object(message.body)["properties"]["delivery_info"]
            exchange, key = info["exchange"] or "", info["routing_key"] or ""
        except (ValueError, KeyError, TypeError, RemoteProtocolError):
            return False
        if not isinstance(exchange, str) or not isinstance(key, str):
            return False
        return any(one.wants(exchange, key) for one in self._bindings)

    def _deal(self) -> None:
        for taker in self._takers:
            while self._waiting and taker.room() > 0:
                taker.reserve(1)
                taker.give(*self._waiting.popleft())
