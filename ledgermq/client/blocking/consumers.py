"""Consumers without an event loop."""

import contextlib
import queue
import signal
import threading
from collections.abc import Iterable, Iterator
from typing import Final, Protocol, Self, TypeVar

from ledgermq.client.blocking.twin import Face, Twin, runs, waits
from ledgermq.client.config import ConsumerConfig, Mode, Start
from ledgermq.client.lite_pull_consumer import LitePullConsumer as AsyncLitePullConsumer
from ledgermq.client.messages import ReceivedMessage
from ledgermq.client.pull_consumer import PullConsumer as AsyncPullConsumer
from ledgermq.client.push_consumer import Listener
from ledgermq.client.push_consumer import PushConsumer as AsyncPushConsumer
from ledgermq.client.serializers import Serializer
from ledgermq.client.signals import ENDING
from ledgermq.client.telling import OnQueues
from ledgermq.client.topics import Topics
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

    queues = waits(AsyncPullConsumer.queues)
    pull = waits(AsyncPullConsumer.pull)
    min_offset = waits(AsyncPullConsumer.min_offset)
    max_offset = waits(AsyncPullConsumer.max_offset)
    offset_at = waits(AsyncPullConsumer.offset_at)
    committed = waits(AsyncPullConsumer.committed)
    commit = waits(AsyncPullConsumer.commit)
    assign = waits(AsyncPullConsumer.assign)
    seek = waits(AsyncPullConsumer.seek)
    poll = waits(AsyncPullConsumer.poll)

    def position(self, queue: MessageQueue) -> int:
        """Returns the offset of the next message that poll will hand out from a queue."""
        return self._twin.position(queue)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Gives the messages of the assigned queues, for ever."""
        while True:
            yield from self.poll(count_max=_VISIT_COUNT, timeout_s=60.0)


class _Given(Face, Protocol):
    """An asyncio consumer that is iterated."""

    async def __anext__(self) -> ReceivedMessage: ...


G = TypeVar("G", bound=_Given)


class _Iterated(Twin[G]):
    """Gives messages one by one."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        """Gives the next message, and counts those before as consumed."""
        with contextlib.suppress(StopAsyncIteration):
            return self._call(self._next())
        raise StopIteration

    async def _next(self) -> ReceivedMessage:
        return await self._twin.__anext__()


class PushConsumer(_Iterated[AsyncPushConsumer]):
    """See ledgermq.client.PushConsumer; use it in a ``with`` block.

    A plain listener runs in a thread. Iterating gives messages one by one; each counts as consumed
    when the next one is asked for.
    """

    def __init__(
        self,
        name_servers: str,
        group: str,
        topic: Topics,
        listener: Listener | None = None,
        *,
        tags: str = "*",
        sql: str | None = None,
        start: Start = "last",
        mode: Mode = "concurrent",
        batch_max: int | None = None,
        on_assigned: OnQueues | None = None,
        on_revoked: OnQueues | None = None,
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
                batch_max=batch_max,
                on_assigned=on_assigned,
                on_revoked=on_revoked,
                serializer=serializer,
                config=config,
            )
        )

    acknowledge = runs(AsyncPushConsumer.acknowledge)
    retry = waits(AsyncPushConsumer.retry)
    bury = waits(AsyncPushConsumer.bury)
    commit = waits(AsyncPushConsumer.commit)

    def run(self, *, signals: Iterable[signal.Signals] = ENDING) -> None:
        """Consumes until the program is asked to end (SIGTERM, Ctrl-C), and closes in order.

        See the asyncio face. Signals are taken in the main thread only; in another one it runs
        until the consumer is closed. What ends the loop, as a listener's sys.exit(), is raised.
        """
        if self._thread is None:
            try:
                self.__enter__()
            except KeyboardInterrupt:
                # Nothing is consumed yet.
                return
        thread = self._thread
        # A handler may run between any two steps of what waits, and an Event is not made for that.
        told: queue.SimpleQueue[None] = queue.SimpleQueue()

        def tell(*_: object) -> None:
            told.put(None)

        before = {}
        if threading.current_thread() is threading.main_thread():
            for number in signals:
                before[number] = signal.signal(number, tell)
        try:
            self._when_closed(tell)
            if thread is not None:
                thread.when_failed(tell)
            told.get()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self.close()
        if thread is not None and thread.failure is not None:
            raise thread.failure

    def queues(self) -> list[MessageQueue]:
        """Returns the queues of its topics that this member has now, sorted."""
        return self._twin.queues()

    @property
    def topics(self) -> list[str]:
        """The topics that it consumes now, sorted; a pattern may find others later."""
        return self._twin.topics

    @property
    def pending_bytes(self) -> int:
        """Bytes of the messages that are pulled and not consumed, as they came."""
        return self._twin.pending_bytes

    @property
    def client_id(self) -> str:
        """The name under which brokers know this member."""
        return self._twin.client_id

    @property
    def pending_count(self) -> int:
        """Messages that are pulled and not consumed."""
        return self._twin.pending_count


class LitePullConsumer(_Iterated[AsyncLitePullConsumer]):
    """See ledgermq.client.LitePullConsumer; use it in a ``with`` block, and poll in one thread."""

    def __init__(
        self,
        name_servers: str,
        group: str,
        *,
        start: Start = "last",
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

    subscribe = waits(AsyncLitePullConsumer.subscribe)
    unsubscribe = waits(AsyncLitePullConsumer.unsubscribe)
    assign = waits(AsyncLitePullConsumer.assign)
    assignment = runs(AsyncLitePullConsumer.assignment)
    poll = waits(AsyncLitePullConsumer.poll)
    acknowledge = runs(AsyncLitePullConsumer.acknowledge)
    commit = waits(AsyncLitePullConsumer.commit)
    committed = waits(AsyncLitePullConsumer.committed)
    position = runs(AsyncLitePullConsumer.position)
    seek = waits(AsyncLitePullConsumer.seek)
    seek_to_begin = waits(AsyncLitePullConsumer.seek_to_begin)
    seek_to_end = waits(AsyncLitePullConsumer.seek_to_end)
    seek_to_time = waits(AsyncLitePullConsumer.seek_to_time)
    pause = runs(AsyncLitePullConsumer.pause)
    resume = runs(AsyncLitePullConsumer.resume)
    queues = waits(AsyncLitePullConsumer.queues)
    min_offset = waits(AsyncLitePullConsumer.min_offset)
    max_offset = waits(AsyncLitePullConsumer.max_offset)
    offset_at = waits(AsyncLitePullConsumer.offset_at)

    def paused(self) -> list[MessageQueue]:
        """Returns the paused queues, sorted."""
        return self._twin.paused()
