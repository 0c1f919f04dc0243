"""Consumers without an event loop."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Final, Self

from ledgermq.client.blocking.twin import Twin
from ledgermq.client.config import ConsumerConfig
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.pull_consumer import PullConsumer as AsyncPullConsumer
from ledgermq.client.push_consumer import Listener
from ledgermq.client.push_consumer import PushConsumer as AsyncPushConsumer
from ledgermq.client.queue_requests import PullResult
from ledgermq.client.serializers import Serializer
from ledgermq.protocol.bodies import MessageQueue

# Messages that one visit to the loop's thread brings: the visit costs more than a message.
_VISIT_COUNT: Final = 256


class PullConsumer(Twin[AsyncPullConsumer]):
    """See ledgermq.client.PullConsumer; use it in a ``with`` block."""

    def __init__(
        self,
        name_servers: str = "127.0.0.1:9876",
        group: str = "ledgermq_reader",
        *,
        tags: str = "*",
        sql: str | None = None,
        serializer: Serializer | None = None,
        config: ConsumerConfig | None = None,
    ) -> None:
        """Opens nothing yet; the arguments are those of the asyncio face."""
        super().__init__(
            AsyncPullConsumer(
                name_servers, group, tags=tags, sql=sql, serializer=serializer, config=config
            )
        )

    def queues(self, topic: str) -> list[MessageQueue]:
        """Returns the readable queues of a topic, asked for anew."""
        return self._call(self._twin.queues(topic))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        count_max: int | None = None,
        suspend_s: float = 0.0,
    ) -> PullResult:
        """Asks once for messages from an offset on."""
        return self._call(self._twin.pull(queue, offset, count_max=count_max, suspend_s=suspend_s))

    def min_offset(self, queue: MessageQueue) -> int:
        """Returns the offset of the oldest message."""
        return self._call(self._twin.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Returns the offset that the next message will have."""
        return self._call(self._twin.max_offset(queue))

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Returns the offset of the first message stored at a time (ms since 1970) or later."""
        return self._call(self._twin.offset_at(queue, timestamp_ms))

    def committed(self, queue: MessageQueue) -> int | None:
        """Returns the committed offset of the group, None when there is none."""
        return self._call(self._twin.committed(queue))

    def commit(self, queue: MessageQueue, offset: int | None = None) -> None:
        """Commits an offset for the group; None commits the position of an assigned queue."""
        self._call(self._twin.commit(queue, offset))

    def assign(self, queues: Iterable[MessageQueue], *, start: str = "committed") -> None:
        """Chooses the queues that poll reads, in place of those before."""
        self._call(self._twin.assign(queues, start=start))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Makes poll go on at an offset of an assigned queue."""
        self._call(self._twin.seek(queue, offset))

    def position(self, queue: MessageQueue) -> int:
        """Returns the offset of the next message that poll will hand out from a queue."""
        return self._twin.position(queue)

    def poll(self, *, count_max: int = 1000, timeout_s: float = 1.0) -> list[ReceivedMessage]:
        """Returns the next messages of the assigned queues, as soon as there are any."""
        return self._call(self._twin.poll(count_max=count_max, timeout_s=timeout_s))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Gives the messages of the assigned queues, for ever."""
        while True:
            yield from self.poll(count_max=_VISIT_COUNT, timeout_s=60.0)


class PushConsumer(Twin[AsyncPushConsumer]):
    """See ledgermq.client.PushConsumer; use it in a ``with`` block.

    A plain listener runs in a thread. Iterating gives messages one by one; each counts as consumed
    when the next one is asked for.
    """

    def __init__(
        self,
        name_servers: str,
        group: str,
        topic: str,
        listener: Listener | None = None,
        *,
        tags: str = "*",
        sql: str | None = None,
        start: str = "last",
        mode: str = "concurrent",
        serializer: Serializer | None = None,
        config: ConsumerConfig | None = None,
    ) -> None:
        """Opens nothing yet; the arguments are those of the asyncio face."""
        super().__init__(
            AsyncPushConsumer(
                name_servers,
                group,
                topic,
                listener,
                tags=tags,
                sql=sql,
                start=start,
                mode=mode,
                serializer=serializer,
                config=config,
            )
        )

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        """Gives the next message, and counts the one before as consumed."""
        with contextlib.suppress(StopAsyncIteration):
            return self._call(self._next())
        raise StopIteration

    def acknowledge(self) -> None:
        """Counts the message that iteration gave last as consumed."""
        self._call(self._acknowledge())

    def queues(self) -> list[MessageQueue]:
        """Returns the queues of the topic that this member has now, sorted."""
        return self._twin.queues()

    @property
    def client_id(self) -> str:
        """The name under which brokers know this member."""
        return self._twin.client_id

    @property
    def pending_count(self) -> int:
        """Messages that are pulled and not consumed."""
        return self._twin.pending_count

    def commit(self) -> None:
        """Tells the brokers now what is consumed."""
        self._call(self._twin.commit())

    async def _next(self) -> ReceivedMessage:
        return await self._twin.__anext__()

    async def _acknowledge(self) -> None:
        self._twin.acknowledge()
