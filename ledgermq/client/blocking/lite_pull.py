"""LitePullConsumer without an event loop."""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Self

from ledgermq.client.blocking.twin import Twin
from ledgermq.client.config import ConsumerConfig
from ledgermq.client.lite_pull_consumer import LitePullConsumer as AsyncLitePullConsumer
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.serializers import Serializer
from ledgermq.protocol.bodies import MessageQueue


class LitePullConsumer(Twin[AsyncLitePullConsumer]):
    """See ledgermq.client.LitePullConsumer; use it in a ``with`` block, and poll in one thread."""

    def __init__(
        self,
        name_servers: str,
        group: str,
        *,
        start: str = "last",
        auto_commit: bool = True,
        serializer: Serializer | None = None,
        config: ConsumerConfig | None = None,
    ) -> None:
        """Opens nothing yet; the arguments are those of the asyncio face."""
        super().__init__(
            AsyncLitePullConsumer(
                name_servers,
                group,
                start=start,
                auto_commit=auto_commit,
                serializer=serializer,
                config=config,
            )
        )

    def subscribe(self, topic: str, *, tags: str = "*", sql: str | None = None) -> None:
        """Takes part in a topic: its queues are shared out among the members of the group."""
        self._call(self._twin.subscribe(topic, tags=tags, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        """Gives the queues of a topic to the other members."""
        self._call(self._twin.unsubscribe(topic))

    def assign(
        self, queues: Iterable[MessageQueue], *, tags: str = "*", sql: str | None = None
    ) -> None:
        """Chooses the queues to poll, in place of those before."""
        self._call(self._twin.assign(queues, tags=tags, sql=sql))

    def assignment(self) -> list[MessageQueue]:
        """Returns the queues that are polled now, sorted."""
        return self._call(self._assignment())

    def poll(self, *, count_max: int = 1000, timeout_s: float = 1.0) -> list[ReceivedMessage]:
        """Returns the next messages as soon as there are any; those before count as consumed."""
        return self._call(self._twin.poll(count_max=count_max, timeout_s=timeout_s))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        """Gives the next message, and counts those before as consumed."""
        with contextlib.suppress(StopAsyncIteration):
            return self._call(self._next())
        raise StopIteration

    def acknowledge(self) -> None:
        """Counts all messages that were given as consumed."""
        self._call(self._acknowledge())

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Tells the brokers up to where the group has consumed, and waits for their word."""
        self._call(self._twin.commit(offsets))

    def committed(self, queue: MessageQueue) -> int | None:
        """Returns the committed offset of the group, None when there is none."""
        return self._call(self._twin.committed(queue))

    def position(self, queue: MessageQueue) -> int:
        """Returns the offset of the next message that will be given of a queue."""
        return self._call(self._position(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Makes a queue go on at an offset."""
        self._call(self._twin.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Makes a queue go on at its oldest message."""
        self._call(self._twin.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Makes a queue go on behind its newest message."""
        self._call(self._twin.seek_to_end(queue))

    def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Makes a queue go on at the first message stored at a time (ms since 1970) or later."""
        self._call(self._twin.seek_to_time(queue, timestamp_ms))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Keeps queues back: nothing of them is given until `resume`."""
        self._call(self._pause(list(queues)))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Ends what `pause` began."""
        self._call(self._resume(list(queues)))

    def paused(self) -> list[MessageQueue]:
        """Returns the paused queues, sorted."""
        return self._twin.paused()

    def queues(self, topic: str) -> list[MessageQueue]:
        """Returns the readable queues of a topic, asked for anew."""
        return self._call(self._twin.queues(topic))

    def min_offset(self, queue: MessageQueue) -> int:
        """Returns the offset of the oldest message."""
        return self._call(self._twin.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Returns the offset that the next message will have."""
        return self._call(self._twin.max_offset(queue))

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Returns the offset of the first message stored at a time (ms since 1970) or later."""
        return self._call(self._twin.offset_at(queue, timestamp_ms))

    # What is no coroutine has to run in the thread of the loop all the same.

    async def _assignment(self) -> list[MessageQueue]:
        return self._twin.assignment()

    async def _next(self) -> ReceivedMessage:
        return await self._twin.__anext__()

    async def _acknowledge(self) -> None:
        self._twin.acknowledge()

    async def _position(self, queue: MessageQueue) -> int:
        return self._twin.position(queue)

    async def _pause(self, queues: list[MessageQueue]) -> None:
        self._twin.pause(queues)

    async def _resume(self, queues: list[MessageQueue]) -> None:
        self._twin.resume(queues)
