"""Linger: sends that wait a moment for others, and go as one batch.

Messages of one topic, and of one ordering key or none, that are submitted within `linger_s` become
one request and one record run in one queue. Each keeps its own future, id and offset. A batch goes
when it is full, or when its time is over; it is stored as a whole or not at all. For an ordering
key, which has one request on its way at a time, that means a batch for each round trip in the place
of a message.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from ledgermq.client.config import ProducerConfig
from ledgermq.client.endless import tell_failure
from ledgermq.client.errors import ClientError, ClosedError, SendError
from ledgermq.client.messages import Message, SendResult
from ledgermq.client.send_frame import SendBody
from ledgermq.client.sends import SendRoad

# Batches that wait for room or an answer without a caller who waits, before callers have to.
_GOING_MAX: Final = 64
# Bytes of a message in a batch beside its body and properties.
_HEAD_BYTES: Final = 22


class _Waiting(NamedTuple):
    """One message of a batch."""

    message: Message
    message_id: str
    properties: str
    future: asyncio.Future[SendResult]


class _Batch:
    """What goes together."""

    __slots__ = ("messages", "size_bytes", "timer")

    def __init__(self) -> None:
        self.messages: list[_Waiting] = []
        self.size_bytes = 0
        self.timer: asyncio.TimerHandle | None = None


class Linger:
    """The batches of one producer that are not full yet."""

    def __init__(
        self,
        road: SendRoad,
        body_of: Callable[[list[Message], list[str]], SendBody],
        config: ProducerConfig,
    ) -> None:
        """Holds nothing yet.

        Args:
            road: the way of batches.
            body_of: makes a request of messages and their properties, also of a single one.
            config: how long, and how large.
        """
        self._road = road
        self._body_of = body_of
        self._linger_s = config.linger_s
        self._count_max = config.batch_count_max
        self._bytes_max = config.batch_bytes_max
        # By topic and ordering key; none is empty.
        self._open: dict[tuple[str, str | None], _Batch] = {}
        self._going: set[asyncio.Task[None]] = set()

    def takes(self, message: Message, compress_from_bytes: int) -> bool:
        """Tells whether a message may go with others: not delayed, not large."""
        size = len(message.body)
        is_large = size >= self._bytes_max or 0 < compress_from_bytes <= size
        return not message.delay_level and not is_large

    async def submit(
        self, message: Message, message_id: str, properties: str, key: str | None
    ) -> asyncio.Future[SendResult]:
        """Puts a message into a batch; waits when it is full and there is no room for it."""
        while len(self._going) >= _GOING_MAX:
            await asyncio.wait(self._going, return_when=asyncio.FIRST_COMPLETED)
        place = (message.topic, key)
        # Of characters that take four bytes at most, exact only where that matters.
        size = len(message.body) + 4 * len(properties) + _HEAD_BYTES
        batch = self._open.get(place)
        if batch is not None and batch.size_bytes + size > self._bytes_max:
            self._go(place)
            batch = None
        loop = self._road.loop
        if batch is None:
            batch = self._open[place] = _Batch()
            batch.timer = loop.call_later(self._linger_s, self._go, place)
        future: asyncio.Future[SendResult] = loop.create_future()
        batch.messages.append(_Waiting(message, message_id, properties, future))
        batch.size_bytes += size
        if len(batch.messages) >= self._count_max:
            # Whoever fills a batch waits for its room; not with it: others have messages in it.
            await asyncio.shield(self._go(place))
        return future

    async def go(self, topic: str, key: str | None) -> None:
        """Sends what waits of a topic and key; returns when it has its place on the road."""
        if (topic, key) in self._open:
            await asyncio.shield(self._go((topic, key)))

    async def flush(self) -> None:
        """Sends all that waits; returns when it has its place on the road."""
        for place in list(self._open):
            self._go(place)
        while self._going:
            await asyncio.wait(self._going)

    def abort(self) -> None:
        """Fails all that waits for others."""
        batches, self._open = list(self._open.values()), {}
        for batch in batches:
            if batch.timer is not None:
                batch.timer.cancel()
            _fail(batch, ClosedError("the producer was closed"))
        for task in self._going:
            task.cancel()

    def _go(self, place: tuple[str, str | None]) -> asyncio.Task[None]:
        batch = self._open.pop(place)
        if batch.timer is not None:
            batch.timer.cancel()
        # Tasks begin in their order, so batches of one key keep theirs.
        task = self._road.loop.create_task(self._send(batch, *place))
        self._going.add(task)
        task.add_done_callback(self._going.discard)
        task.add_done_callback(tell_failure)
        return task

    async def _send(self, batch: _Batch, topic: str, key: str | None) -> None:
        """Submits a batch; its messages have an end whatever happens."""
        try:
            messages = [one.message for one in batch.messages]
            body = self._body_of(messages, [one.properties for one in batch.messages])
            ids = ",".join(one.message_id for one in batch.messages)
            sent = await self._road.submit(topic, ids, body, key)
        except ClientError as error:
            _fail(batch, error)
        except BaseException as error:
            closed = ClosedError("the producer was closed")
            closed.__cause__ = error
            _fail(batch, closed)
            raise
        else:
            sent.add_done_callback(lambda done: _settle(batch, done))


def _fail(batch: _Batch, error: ClientError) -> None:
    for one in batch.messages:
        if not one.future.done():
            one.future.set_exception(_failure_of(one.message, error))


def _failure_of(message: Message, error: ClientError) -> SendError:
    if isinstance(error, SendError):
        # It has fields of its own.
        return error
    failure = SendError(
        f"not sent: {error.what}", attempts=0, retriable=error.retriable, broker=error.broker,
        topic=message.topic, queue_id=error.queue_id, code=error.code,
    )  # fmt: skip
    failure.__cause__ = error
    return failure


def _settle(batch: _Batch, sent: asyncio.Future[SendResult]) -> None:
    """Gives each message its part of the outcome of its batch."""
    if sent.cancelled():
        _fail(batch, ClosedError("the producer was closed"))
        return
    error = sent.exception()
    if error is not None:
        failed = error if isinstance(error, ClientError) else ClientError(str(error))
        _fail(batch, failed)
        return
    result = sent.result()
    places = result.offset_message_id.split(",")
    for number, one in enumerate(batch.messages):
        if not one.future.done():
            place = places[number] if len(places) == len(batch.messages) else ""
            one.future.set_result(
                result._replace(
                    message_id=one.message_id,
                    offset_message_id=place,
                    queue_offset=result.queue_offset + number,
                )
            )
