"""Producers without an event loop."""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from ledgermq.client.blocking.handing import HandingProducer
from ledgermq.client.blocking.twin import Twin, waits
from ledgermq.client.config import ProducerConfig
from ledgermq.client.errors import ClientError, ClosedError
from ledgermq.client.messages import Message, SendResult
from ledgermq.client.producer import DEFAULT_GROUP
from ledgermq.client.producer import Producer as AsyncProducer
from ledgermq.client.serializers import Serializer
from ledgermq.client.transactions import Check
from ledgermq.client.transactions import TransactionalProducer as AsyncTransactionalProducer


class Producer(Twin[AsyncProducer]):
    """See ledgermq.client.Producer; use it in a ``with`` block."""

    def __init__(
        self,
        name_servers: str = "127.0.0.1:9876",
        group: str = DEFAULT_GROUP,
        *,
        serializer: Serializer | None = None,
        config: ProducerConfig | None = None,
    ) -> None:
        """Opens nothing yet; the arguments are those of the asyncio face."""
        super().__init__(HandingProducer(name_servers, group, serializer=serializer, config=config))

    send = waits(AsyncProducer.send)
    send_batch = waits(AsyncProducer.send_batch)
    request = waits(AsyncProducer.request)
    reply = waits(AsyncProducer.reply)
    send_one_way = waits(AsyncProducer.send_one_way)

    def flush(self) -> None:
        """Returns when every send has its result or its error."""
        self._call(self._twin.flush())

    def submit(self, message: Message, *, ordering_key: str | None = None) -> Future[SendResult]:
        """Puts a message on its way, and returns as soon as there is room for it."""
        twin, thread = self._twin, self._thread
        if isinstance(twin, HandingProducer) and twin.takes(ordering_key):
            # What cannot be handed over is refused by the call below.
            if thread is not None and not thread.is_foreign:
                thread.check_caller()
                return twin.hand_over(message, thread)
        submit = functools.partial(self._twin.submit, message, ordering_key=ordering_key)
        return self._call(_future(submit))

    def submit_batch(
        self, messages: Sequence[Message], *, ordering_key: str | None = None
    ) -> Future[SendResult]:
        """Puts messages of one topic on their way as one request; see submit and send_batch."""
        submit = functools.partial(self._twin.submit_batch, messages, ordering_key=ordering_key)
        return self._call(_future(submit))


class TransactionalProducer(Twin[AsyncTransactionalProducer]):
    """See ledgermq.client.TransactionalProducer; use it in a ``with`` block."""

    def __init__(
        self,
        name_servers: str,
        group: str,
        check: Check,
        *,
        serializer: Serializer | None = None,
        config: ProducerConfig | None = None,
    ) -> None:
        """Opens nothing yet; the arguments are those of the asyncio face."""
        super().__init__(
            AsyncTransactionalProducer(
                name_servers, group, check, serializer=serializer, config=config
            )
        )

    send_half = waits(AsyncTransactionalProducer.send_half)
    commit = waits(AsyncTransactionalProducer.commit)
    rollback = waits(AsyncTransactionalProducer.rollback)

    @contextlib.contextmanager
    def transaction(self, message: Message) -> Iterator[SendResult]:
        """Sends a half message, and commits it at the end of the block; an exception rolls it back.

        Raises:
            ClientError: as for send_half and commit.
        """
        half = self.send_half(message)
        try:
            yield half
        except BaseException:
            # The reason why the block failed counts, not why the broker could not be told.
            with contextlib.suppress(ClientError):
                self.rollback(half)
            raise
        self.commit(half)


async def _future(
    submit: Callable[[], Coroutine[Any, Any, asyncio.Future[SendResult]]],
) -> Future[SendResult]:
    """Submits, and returns the outcome as other threads can wait for it."""
    outcome: Future[SendResult] = Future()
    outcome.set_running_or_notify_cancel()
    sent = await submit()

    def done(future: asyncio.Future[SendResult]) -> None:
        if future.cancelled():
            outcome.set_exception(ClosedError("the producer was closed"))
        elif (error := future.exception()) is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(future.result())

    sent.add_done_callback(done)
    return outcome
