"""WatchedEndpoint: attempts to connect that end in time, and what became of them.

A first packet that is lost holds an attempt up for as long as TCP waits before it repeats it: a
second, then three, then seven. An attempt that is given up and begun anew sends one at once.

A name may be as hard to look up as its host is to reach, for the same network leads to both, and a
look-up may take seconds longer than that network is away. Whoever knows by other means that it has
reached the right host has every other attempt made to the address that the last connection had.
"""

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.error import ConnectionRefusedError, TimeoutError
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from ledgermq.protocol.transport.turn import Clock, DelayedCall

# Twisted itself would end an attempt so much later.
_SPARE_S: Final = 60.0


class WatchedEndpoint:
    """An endpoint of Twisted with a bound of its own for each attempt; one attempt at a time.

    Attributes:
        failed_after_s: how long the last attempt took, when it failed; 0 when it did not.
    """

    def __init__(
        self,
        reactor: Any,
        host: str,
        port: int,
        *,
        timeout_s: float,
        on_refused: Callable[[], None] | None = None,
        remembers_address: bool = False,
    ) -> None:
        """Begins nothing.

        Args:
            reactor: gives TCP and time.
            host: name or address.
            port: TCP port.
            timeout_s: for one attempt.
            on_refused: called when nobody listens at the address.
            remembers_address: whether the last known address may stand for the name.
        """
        self._reactor = reactor
        self._host = host
        self._port = port
        self._clock: Clock = reactor
        self._remembers_address = remembers_address
        # Where the last connection led, whether the last attempt went there without asking for
        # the name, and attempts in a row that failed.
        self._known_host: str | None = None
        self._is_remembered = False
        self._failed_count = 0
        self._timeout_s = timeout_s
        self._on_refused = on_refused
        self._begun_at = 0.0
        self._is_given_up = False
        self._timer: DelayedCall | None = None
        self.failed_after_s = 0.0

    def connect(self, factory: Factory) -> Deferred[Any]:
        """Begins an attempt; the Deferred is the endpoint's."""
        self._begun_at = self._clock.seconds()
        self.failed_after_s = 0.0
        self._is_given_up = False
        host, known_host = self._host, self._known_host
        self._is_remembered = known_host is not None and self._failed_count % 2 == 1
        if known_host is not None and self._is_remembered:
            host = known_host
        endpoint_class: Any = TCP6ClientEndpoint if ":" in host else TCP4ClientEndpoint
        timeout_s = self._timeout_s + _SPARE_S
        endpoint = endpoint_class(self._reactor, host, self._port, timeout=timeout_s)
        attempt: Deferred[Any] = endpoint.connect(factory)
        # In two steps, between which the reactor looks at its sockets: a process that was held up
        # itself for as long as all this may take finds that it is connected.
        half_s = self._timeout_s / 2
        self._timer = self._clock.callLater(half_s, self._look_again, half_s, attempt)
        attempt.addBoth(self._ended)
        return attempt.addCallbacks(self._reached, self._failed)

    def forget_address(self) -> bool:
        """Forgets the last known address; tells whether the last attempt relied on it."""
        self._known_host = None
        return self._is_remembered

    def _look_again(self, half_s: float, attempt: Deferred[Any]) -> None:
        self._timer = self._clock.callLater(half_s, self._give_up, attempt)

    def _give_up(self, attempt: Deferred[Any]) -> None:
        self._timer = None
        self._is_given_up = True
        attempt.cancel()

    def _ended(self, result: object) -> object:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        return result

    def _reached(self, protocol: Any) -> Any:
        self._failed_count = 0
        if self._remembers_address:
            self._known_host = getattr(protocol.transport.getPeer(), "host", None)
        return protocol

    def _failed(self, failure: Failure) -> Failure:
        self._failed_count += 1
        self.failed_after_s = self._clock.seconds() - self._begun_at
        if self._on_refused is not None and failure.check(ConnectionRefusedError):
            self._on_refused()
        if self._is_given_up:
            return Failure(TimeoutError(string=f"no answer in {self._timeout_s:g} s"))
        return failure
