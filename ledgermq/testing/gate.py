"""Gate: stands between one connection and the protocol of a node, and can be shut.

While it is shut, nothing passes: what the node sends waits here, and from the socket nothing is
read, so that the peer notices what it would notice of a stopped process or of a cut cable: silence,
and at some time a full socket. Opened again, everything goes on in its order; nothing is lost, as
TCP would have sent it again.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.python.failure import Failure


class Gate:
    """The protocol of the real transport, and the transport of the node's protocol.

    Attributes:
        protocol: of the node; TLS is known to exchange it on a connection without TLS.
    """

    def __init__(
        self,
        protocol: Any,
        *,
        is_open: bool,
        soon: Callable[[Callable[[], None]], object],
        on_lost: Callable[["Gate"], object],
    ) -> None:
        """Waits for its transport.

        Args:
            is_open: whether it begins open.
            soon: has the node call a function in its next turn.
            on_lost: told when the connection is gone.
        """
        self.protocol = protocol
        self._is_open = is_open
        self._soon = soon
        self._on_lost = on_lost
        self._transport: Any = None
        # What the connection told while it was shut.
        self._events: deque[Callable[[], None]] = deque()
        # What the node sent meanwhile.
        self._unsent: list[bytes] = []
        # How the node ended the connection meanwhile.
        self._ending: Callable[[], None] | None = None
        # Nothing more reaches the node: it has died, or has left the connection.
        self._is_left = False
        self._is_reading_paused = False

    def set_open(self, is_open: bool) -> None:
        """Opens or shuts it."""
        if is_open == self._is_open:
            return
        self._is_open = is_open
        if self._transport is None:
            return
        if not is_open:
            self._transport.pauseProducing()
            return
        unsent, self._unsent = self._unsent, []
        for data in unsent:
            self._transport.write(data)
        if self._ending is not None:
            self._ending()
            return
        while self._events and self._is_open and not self._is_left:
            self._events.popleft()()
        if self._is_open and not self._is_reading_paused:
            self._transport.resumeProducing()

    def kill(self) -> None:
        """Ends the connection; the node, which is dead, hears nothing of it."""
        self._is_left = True
        self._events.clear()
        if self._transport is not None:
            self._transport.abortConnection()

    # The protocol of the real transport.

    def makeConnection(self, transport: Any) -> None:
        """The connection is there."""
        self._transport = transport
        if self._is_left:
            transport.abortConnection()
            return
        transport.setTcpNoDelay(True)
        if not self._is_open:
            transport.pauseProducing()
        self._tell(lambda: self.protocol.makeConnection(self))

    def dataReceived(self, data: bytes) -> None:
        """Bytes came."""
        self._tell(lambda: self.protocol.dataReceived(data))

    def connectionLost(self, reason: Failure) -> None:
        """The connection is gone."""
        self._on_lost(self)
        self._tell(lambda: self.protocol.connectionLost(reason))

    def _tell(self, event: Callable[[], None]) -> None:
        if self._is_left:
            return
        if self._is_open and not self._events:
            event()
        else:
            self._events.append(event)

    # The transport of the node's protocol.

    def write(self, data: bytes) -> None:
        """Sends, now or when it is opened."""
        if self._is_open:
            self._transport.write(data)
        else:
            self._unsent.append(data)

    def loseConnection(self) -> None:
        """Ends the connection when all was sent."""
        if self._is_open:
            self._transport.loseConnection()
        else:
            self._leave(self._transport.loseConnection, ConnectionDone())

    def abortConnection(self) -> None:
        """Ends the connection at once."""
        if self._is_open:
            self._transport.abortConnection()
        else:
            self._unsent.clear()
            self._leave(self._transport.abortConnection, ConnectionAborted())

    def _leave(self, ending: Callable[[], None], reason: Exception) -> None:
        """For the node the connection is over; the peer hears of it when this is opened."""
        self._ending = ending
        if self._is_left:
            return
        self._is_left = True
        self._events.clear()
        self._soon(partial(self.protocol.connectionLost, Failure(reason)))

    def pauseProducing(self) -> None:
        """Reads nothing more."""
        self._is_reading_paused = True
        self._transport.pauseProducing()

    def resumeProducing(self) -> None:
        """Reads again."""
        self._is_reading_paused = False
        if self._is_open:
            self._transport.resumeProducing()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Asks the producer for more when the socket takes more."""
        self._transport.registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:
        """Ends that."""
        self._transport.unregisterProducer()

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Whether small pieces are sent at once; they are in any case."""

    def getPeer(self) -> Any:
        """Address of the other end."""
        return self._transport.getPeer()

    def getHost(self) -> Any:
        """Address of this end."""
        return self._transport.getHost()
