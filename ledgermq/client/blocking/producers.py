"""Producers without an event loop."""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from ledgermq.client.blocking.twin import Twin
from ledgermq.client.config import ProducerConfig
from ledgermq.client.errors import ClientError, ClosedError
from ledgermq.client.messages import Message, ReceivedMessage, SendResult
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
        super().__init__(AsyncProducer(name_servers, group, serializer=serializer, config=config))

    def flush(self) -> None:
        """Returns when every send has its result or its error."""
        self._call(self._twin.flush())

    def send(self, message: Message, *, ordering_key: str | None = None) -> SendResult:
        """Sends a message and waits until it is acknowledged."""
        return self._call(self._twin.send(message, ordering_key=ordering_key))

    def submit(self, message: Message, *, ordering_key: str | None = None) -> Future[SendResult]:
        """Puts a message on its way, and returns as soon as there is room for it."""
        return self._call(_future(self._twin.submit(message, ordering_key=ordering_key)))

    def send_batch(
        self, messages: Sequence[Message], *, ordering_key: str | None = None
    ) -> SendResult:
        """Sends messages of one topic as one request: all are stored in one queue, or none."""
        return self._call(self._twin.send_batch(messages, ordering_key=ordering_key))

    def submit_batch(
        self, messages: Sequence[Message], *, ordering_key: str | None = None
    ) -> Future[SendResult]:
        """Puts messages of one topic on their way as one request; see submit and send_batch."""
        return self._call(_future(self._twin.submit_batch(messages, ordering_key=ordering_key)))

    def request(
        self,
        message: Message,
        *,
        timeout_s: float = 3.0,
        ordering_key: str | None = None,
    ) -> ReceivedMessage:
        """Sends a message, and returns the reply of whoever consumes it."""
        return self._call(
            self._twin.request(message, timeout_s=timeout_s, ordering_key=ordering_key)
        )

    def reply(
        self,
        request: ReceivedMessage,
        body: Any,
        *,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Answers a message that was sent with `request`."""
        self._call(self._twin.reply(request, body, properties=properties))

    def send_one_way(self, message: Message, *, ordering_key: str | None = None) -> None:
        """Sends a message without asking for an answer."""
        self._call(self._twin.send_one_way(message, ordering_key=ordering_key))


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

    def send_half(self, message: Message) -> SendResult:
        """Stores a message where no consumer sees it."""
        return self._call(self._twin.send_half(message))

    def commit(self, half: SendResult) -> None:
        """Makes a message visible to consumers."""
        self._call(self._twin.commit(half))

    def rollback(self, half: SendResult) -> None:
        """Forgets a message."""
        self._call(self._twin.rollback(half))

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


async def _future(submitted: Coroutine[Any, Any, asyncio.Future[SendResult]]) -> Future[SendResult]:
    """Submits, and returns the outcome as other threads can wait for it."""
    outcome: Future[SendResult] = Future()
    outcome.set_running_or_notify_cancel()
    sent = await submitted

    def done(future: asyncio.Future[SendResult]) -> None:
        if future.cancelled():
            outcome.set_exception(ClosedError("the producer was closed"))
        elif (error := future.exception()) is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(future.result())

    sent.add_done_callback(done)
    return outcome
