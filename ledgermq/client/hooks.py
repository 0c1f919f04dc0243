"""Hooks: what wants to know of every send and every delivery of a client, such as OpenTelemetry.

They are called on the event loop, so they must be quick, and they must not raise.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ledgermq.client.messages import Message, ReceivedMessage, SendResult


class Sending(Protocol):
    """One send; exactly one of the two methods is called, once."""

    # What is to be sent in place of what the program gave.
    messages: list[Message]

    def acknowledged(self, result: SendResult | None, /) -> None:
        """It is stored; None of one that nobody answers."""

    def failed(self, error: BaseException, /) -> None:
        """It was not acknowledged."""


class Hooks(Protocol):
    """All that can be known."""

    def send(self, messages: Sequence[Message], group: str, /) -> Sending:
        """A send begins; several messages are one batch."""

    def consume(self, message: ReceivedMessage, group: str, /) -> AbstractContextManager[None]:
        """A listener is called with a message inside of what is returned."""

    def receive(self, messages: Sequence[ReceivedMessage], group: str, /) -> None:
        """Messages are given to whoever polls or iterates."""


async def followed(
    sending: Sending, submitted: Coroutine[Any, Any, asyncio.Future[SendResult]]
) -> asyncio.Future[SendResult]:
    """Submits, and tells what becomes of it."""

    def done(future: asyncio.Future[SendResult]) -> None:
        if future.cancelled():
            sending.failed(asyncio.CancelledError())
        elif (error := future.exception()) is not None:
            sending.failed(error)
        else:
            sending.acknowledged(future.result())

    try:
        sent = await submitted
    except BaseException as error:
        sending.failed(error)
        raise
    sent.add_done_callback(done)
    return sent
