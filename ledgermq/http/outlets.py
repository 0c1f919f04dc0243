"""Bodies that are written bit by bit: parts made one a turn, and streams; both with back-pressure.

A transport that has much to send pauses its producer. Then no more parts are made, and what a
stream writes is kept up to a bound. A client that reads nothing for a while loses its connection.
"""

from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from zope.interface import implementer

from ledgermq.http.limits import Limits
from ledgermq.http.replies import Stream

_log = Logger()


@implementer(IPushProducer)
class _Producer:
    """What both have in common: it is paused, goes on, and ends once."""

    def __init__(self, exchange: Any, reactor: Any, limits: Limits) -> None:
        self._exchange, self._reactor, self._limits = exchange, reactor, limits
        self._is_paused, self.has_ended = False, False
        self._stalled: Any = None
        exchange.registerProducer(self, True)

    def pauseProducing(self) -> None:
        self._is_paused = True
        if self._stalled is None and not self.has_ended:
            self._stalled = self._reactor.callLater(self._limits.stall_s, self._give_up)

    def resumeProducing(self) -> None:
        self._is_paused = False
        self._no_longer_stalled()
        if not self.has_ended:
            self._go_on()

    def stopProducing(self) -> None:
        self.lost()

    def lost(self) -> None:
        """The connection is gone."""
        if not self.has_ended:
            self._end()

    def _go_on(self) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        self.has_ended = True
        self._no_longer_stalled()

    def _finish(self) -> None:
        """Ends the reply well."""
        self._end()
        self._exchange.unregisterProducer()
        self._exchange.finish()

    def _give_up(self) -> None:
        self._stalled = None
        self._abort()

    def _abort(self) -> None:
        """Ends the connection: the client must not take what it has for the whole."""
        if not self.has_ended:
            self._end()
            self._exchange.abort()

    def _no_longer_stalled(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


class PartsOutlet(_Producer):
    """Writes the parts of an iterator, one in each turn of the reactor."""

    def __init__(self, exchange: Any, reactor: Any, limits: Limits, parts: Iterator[bytes]) -> None:
        super().__init__(exchange, reactor, limits)
        self._parts = parts
        self._call: Any = None
        self._next()

    def _go_on(self) -> None:
        if self._call is None:
            self._call = self._reactor.callLater(0, self._next)

    def _next(self) -> None:
        self._call = None
        if self._is_paused or self.has_ended:
            return
        try:
            part = next(self._parts, None)
        except Exception:
            # The status is sent already: only a broken connection can tell.
            _log.failure("a reply broke off")
            self._abort()
            return
        if part is None:
            self._finish()
            return
        self._exchange.write(part)
        if not self._is_paused:
            self._go_on()

    def _end(self) -> None:
        super()._end()
        if self._call is not None:
            self._call.cancel()
            self._call = None
        close: Callable[[], None] = getattr(self._parts, "close", lambda: None)
        close()


class StreamOutlet(_Producer):
    """Where a stream writes to."""

    def __init__(self, exchange: Any, reactor: Any, limits: Limits, stream: Stream) -> None:
        super().__init__(exchange, reactor, limits)
        self._stream = stream
        # What came while the transport was paused.
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        stream.opened(self)

    def write(self, data: bytes) -> bool:
        if self.has_ended:
            return False
        if not self._is_paused:
            self._exchange.write(data)
            return True
        self._unsent_bytes += len(data)
        if self._unsent_bytes > self._limits.unsent_bytes_max:
            self._abort()
            return False
        self._unsent.append(data)
        return True

    def close(self) -> None:
        if not self.has_ended:
            self._finish()

    def _go_on(self) -> None:
        data = b"".join(self._unsent)
        self._unsent.clear()
        self._unsent_bytes = 0
        if data:
            self._exchange.write(data)

    def _end(self) -> None:
        super()._end()
        self._unsent.clear()
        self._stream.closed()
