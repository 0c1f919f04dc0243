"""The same producers and consumers for code without an event loop: scripts, threads, notebooks.

The names are those of the asyncio face, without `await`. Each object runs its asyncio twin on an
event loop in a daemon thread of its own, which begins with the ``with`` block and ends with it;
calls from any number of threads are safe. An object must not be used in a child after a fork.
"""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from ledgermq.client.config import ConsumerConfig, ProducerConfig
from ledgermq.client.errors import ClosedError
from ledgermq.client.messages import Message, ReceivedMessage, SendResult
from ledgermq.client.producer import DEFAULT_GROUP
from ledgermq.client.producer import Producer as AsyncProducer
from ledgermq.client.pull_consumer import PullConsumer as AsyncPullConsumer
from ledgermq.client.push_consumer import Listener
from ledgermq.client.push_consumer import PushConsumer as AsyncPushConsumer
from ledgermq.client.queue_requests import PullResult
from ledgermq.protocol.bodies import MessageQueue

T = TypeVar("T")

# Messages that one visit to the loop's thread brings: the visit costs more than a message.
_VISIT_COUNT: Final = 256


class _LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="ledgermq-client", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine there and returns its result, or raises its error."""
        if self._loop.is_closed():
            coroutine.close()
            raise ClosedError("this client is closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C here must not leave it running there.
            future.cancel()
            raise

    def stop(self) -> None:
        """Ends loop and thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()


class _Twin:
    """What the three classes share: a thread for the time of a `with` block."""

    def __init__(self) -> None:
        self._thread: _LoopThread | None = None

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._thread is None:
            coroutine.close()
            raise ClosedError("not open; use it in a with block")
        return self._thread.call(coroutine)

    def _open(self, coroutine: Coroutine[Any, Any, object]) -> None:
        self._thread = _LoopThread()
        try:
            self._thread.call(coroutine)
        except BaseException:
            self._thread.stop()
            self._thread = None
            raise

    def _close(self, coroutine: Coroutine[Any, Any, None]) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            coroutine.close()
            return
        try:
            thread.call(coroutine)
        finally:
            thread.stop()


class Producer(_Twin):
    """See ledgermq.client.Producer; use it in a ``with`` block."""

    def __init__(
        self,
        name_servers: str = "127.0.0.1:9876",
        group: str = DEFAULT_GROUP,
        *,
        config: ProducerConfig | None = None,
    ) -> None:
        """Opens nothing yet; the arguments are those of the asyncio face."""
        super().__init__()
        self._twin = AsyncProducer(name_servers, group, config=config)

    def __enter__(self) -> Self:
        self._open(self._twin.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close(self._twin.__aexit__(kind, error, trace))

    def close(self) -> None:
        """Closes at once: sends without an answer fail. Safe to call twice."""
        self._close(self._twin.close())

    def flush(self) -> None:
        """Returns when every send has its result or its error."""
        self._call(self._twin.flush())

    def send(self, message: Message, *, ordering_key: str | None = None) -> SendResult:
        """Sends a message and waits until it is acknowledged."""
        return self._call(self._twin.send(message, ordering_key=ordering_key))

    def submit(self, message: Message, *, ordering_key: str | None = None) -> Future[SendResult]:
        """Puts a message on its way, and returns as soon as there is room for it."""
        return self._call(self._submit(message, ordering_key))

    def send_batch(
        self, messages: Sequence[Message], *, ordering_key: str | None = None
    ) -> SendResult:
        """Sends messages of one topic as one request: all are stored in one queue, or none."""
        return self._call(self._twin.send_batch(messages, ordering_key=ordering_key))

    def send_one_way(self, message: Message, *, ordering_key: str | None = None) -> None:
        """Sends a message without asking for an answer."""
        self._call(self._twin.send_one_way(message, ordering_key=ordering_key))

    async def _submit(self, message: Message, ordering_key: str | None) -> Future[SendResult]:
        outcome: Future[SendResult] = Future()
        outcome.set_running_or_notify_cancel()
        sent = await self._twin.submit(message, ordering_key=ordering_key)

        def done(future: asyncio.Future[SendResult]) -> None:
            if future.cancelled():
                outcome.set_exception(ClosedError("the producer was closed"))
            elif (error := future.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(future.result())

        sent.add_done_callback(done)
        return outcome


class PullConsumer(_Twin):
    """See ledgermq.client.PullConsumer; use it in a ``with`` block."""

    def __init__(
        self,
        name_servers: str = "127.0.0.1:9876",
        group: str = "ledgermq_reader",
        *,
        tags: str = "*",
        config: ConsumerConfig | None = None,
    ) -> None:
        """Opens nothing yet; the arguments are those of the asyncio face."""
        super().__init__()
        self._twin = AsyncPullConsumer(name_servers, group, tags=tags, config=config)

    def __enter__(self) -> Self:
        self._open(self._twin.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes at once; nothing is committed. Safe to call twice."""
        self._close(self._twin.close())

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


class PushConsumer(_Twin):
    """See ledgermq.client.PushConsumer; use it in a ``with`` block.

    A plain listener runs in a thread. Iterating gives messages one by one; each counts as consumed
    when the next one is asked for.
    """

    def __init__(
        self,
        topic: str,
        group: str,
        listener: Listener | None = None,
        *,
        name_servers: str = "127.0.0.1:9876",
        tags: str = "*",
        start: str = "last",
        config: ConsumerConfig | None = None,
    ) -> None:
        """Opens nothing yet; the arguments are those of the asyncio face."""
        super().__init__()
        self._twin = AsyncPushConsumer(
            topic,
            group,
            listener,
            name_servers=name_servers,
            tags=tags,
            start=start,
            config=config,
        )

    def __enter__(self) -> Self:
        self._open(self._twin.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stops in order and commits. Safe to call twice."""
        self._close(self._twin.close())

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

    def commit(self) -> None:
        """Tells the brokers now what is consumed."""
        self._call(self._twin.commit())

    async def _next(self) -> ReceivedMessage:
        return await self._twin.__anext__()

    async def _acknowledge(self) -> None:
        self._twin.acknowledge()
