"""Hooks: what wants to know of every send and every delivery of a client, such as OpenTelemetry.

Hooks may change what is sent and stand around a call; metrics are told afterwards, how many and how
long. They are called on the event loop, so they must be quick, and they must not raise: what
metrics raise, or hooks behind a listener or about what is given to whoever polls, is told in the
log, once or once in a while, and changes nothing.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from ledgermq.client.endless import loudness
from ledgermq.client.messages import Message, ReceivedMessage, SendResult

_SENT: Final = "hooks failed on a send that is over"

_log = logging.getLogger("ledgermq.client")


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


class Metrics(Protocol):
    """Figures of sends and deliveries; times are seconds."""

    def sent(self, topic: str, group: str, count: int, seconds: float, error: str, /) -> None:
        """A send has ended: of one message, or of a batch.

        The time begins when the program gives it, and waiting for room counts. The error is the
        name of its class, empty when it is acknowledged.
        """

    def consumed(self, topic: str, group: str, seconds: float, outcome: str, /) -> None:
        """A listener has been called with a message.

        The time is that of the call, for each message of a batch. The outcome is "done", "retry",
        "bury", or "error" when the listener raised.
        """


class GuardedMetrics:
    """Metrics whose failures are told once: what they are told of has happened."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._has_failed = False

    def sent(self, topic: str, group: str, count: int, seconds: float, error: str, /) -> None:
        """Tells of a send."""
        try:
            self._metrics.sent(topic, group, count, seconds, error)
        except Exception:
            self._tell(group)

    def consumed(self, topic: str, group: str, seconds: float, outcome: str, /) -> None:
        """Tells of a delivery."""
        try:
            self._metrics.consumed(topic, group, seconds, outcome)
        except Exception:
            self._tell(group)

    def _tell(self, group: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            _log.warning("metrics of %s failed; this is told once", group, exc_info=True)


def guarded(metrics: Metrics | None) -> Metrics | None:
    """Returns metrics that do not raise."""
    return None if metrics is None else GuardedMetrics(metrics)


def received(hooks: Hooks, messages: Sequence[ReceivedMessage], group: str) -> None:
    """Tells hooks of messages that are being given away: they count as given, so they must get
    there whatever the hooks raise.
    """
    try:
        hooks.receive(messages, group)
    except Exception:
        level = loudness(f"hooks of {group} failed")
        _log.log(level, "hooks of %s failed on what is received", group, exc_info=True)


def measure(
    metrics: Metrics, sent: asyncio.Future[SendResult], topic: str, group: str, begun_s: float
) -> None:
    """Has metrics told of a send when it ends.

    Args:
        metrics: told.
        sent: its outcome.
        topic: where to.
        group: of the producer.
        begun_s: when the program gave it, on the loop's clock.
    """
    loop = sent.get_loop()

    def done(future: asyncio.Future[SendResult]) -> None:
        error = "CancelledError"
        count = 1
        if not future.cancelled():
            failure = future.exception()
            error = "" if failure is None else type(failure).__name__
            if failure is None:
                count = future.result().message_id.count(",") + 1
        metrics.sent(topic, group, count, loop.time() - begun_s, error)

    sent.add_done_callback(done)


def tell_acknowledged(sending: Sending, result: SendResult | None) -> None:
    """Tells that a message is stored, or sent; what the hooks raise does not undo that."""
    try:
        sending.acknowledged(result)
    except Exception:
        _log.log(loudness(_SENT), "%s", _SENT, exc_info=True)


def tell_failed(sending: Sending, failure: BaseException) -> None:
    """Tells that a send has failed; what the hooks raise does not hide why."""
    try:
        sending.failed(failure)
    except Exception:
        _log.log(loudness(_SENT), "%s", _SENT, exc_info=True)


async def followed(
    sending: Sending, submitted: Coroutine[Any, Any, asyncio.Future[SendResult]]
) -> asyncio.Future[SendResult]:
    """Submits, and tells what becomes of it."""

    def done(future: asyncio.Future[SendResult]) -> None:
        if future.cancelled():
            tell_failed(sending, asyncio.CancelledError())
        elif (error := future.exception()) is not None:
            tell_failed(sending, error)
        else:
            tell_acknowledged(sending, future.result())

    try:
        sent = await submitted
    except BaseException as error:
        tell_failed(sending, error)
        raise
    sent.add_done_callback(done)
    return sent
