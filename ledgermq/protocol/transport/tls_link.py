"""TlsLink: TLS between a TCP connection and its protocol; a server finds out by itself.

    TCP transport <-> TlsLink <-> CommandProtocol, or that of another port

A server waits for the first byte: a handshake begins TLS, anything else is a plain connection,
which is refused or handed to the inner protocol for good, with nothing in between any more. A
client begins TLS at once. What is sent before the handshake ended waits here.
"""

from collections.abc import Iterable
from typing import Any, Final
from typing import Protocol as TypingProtocol

from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.tcp import Connection
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from ledgermq.protocol.networks import network_of
from ledgermq.protocol.tcp_times import TcpTimes, set_tcp_times
from ledgermq.protocol.tls.contexts import ServerTls
from ledgermq.protocol.tls.engine import HANDSHAKE_BYTE, TlsEngine, TlsError

# Bytes that may wait for the end of a handshake.
_WAITING_BYTES_MAX: Final = 8 << 20
# Reads in a row that complete no record: its 16 KiB, and a handshake, come in fewer packets.
_EMPTY_READS_MAX: Final = 64

_log = Logger()


class Inner(TypingProtocol):
    """What is needed of the protocol inside."""

    @property
    def peer(self) -> str: ...

    def makeConnection(self, transport: Any) -> None: ...

    def use(self, transport: Any) -> None: ...

    def dataReceived(self, data: bytes) -> None: ...

    def connectionLost(self, reason: Failure = connectionDone) -> None: ...

    def close(self, reason: str) -> None: ...


@implementer(IPushProducer)
class TlsLink(Protocol):
    """The protocol of a TCP transport, and the transport of the inner protocol."""

    def __init__(
        self, inner: Inner, *, server: ServerTls | None = None, engine: TlsEngine | None = None
    ) -> None:
        """Waits for its transport.

        Args:
            inner: the protocol that reads and writes plaintext.
            server: how to answer clients; None for the client's end.
            engine: of the client's end.
        """
        self._inner = inner
        self._server = server
        self._engine = engine
        # Plaintext that waits for the end of the handshake.
        self._waiting = bytearray()
        # Twisted's interface of a transport lacks most of what is used here.
        self._link: Any = None
        self._has_producer = False
        # Reads since there was plaintext.
        self._empty_reads_count = 0
        # True when nothing more is decrypted or encrypted.
        self._has_failed = False

    # The protocol of the TCP transport.

    def connectionMade(self) -> None:
        """Lets the inner protocol begin."""
        self._link = self.transport
        self._link.setTcpNoDelay(True)
        self._inner.makeConnection(self)
        self._send()

    def dataReceived(self, data: bytes) -> None:
        """Decrypts, after the first byte told whether there is anything to decrypt."""
        if self._has_failed:
            return
        if self._engine is None:
            assert self._server is not None
            if data[0] != HANDSHAKE_BYTE:
                self._plain(data)
                return
            self._engine = TlsEngine(self._server.context, is_server=True)
        try:
            plaintext = self._engine.receive(data)
            if self._engine.is_open and self._waiting:
                self._engine.write(bytes(self._waiting))
                self._waiting.clear()
        except TlsError as error:
            self._fail(error)
            return
        self._send()
        self._empty_reads_count += 1
        if plaintext:
            self._empty_reads_count = 0
            self._inner.dataReceived(plaintext)
        elif self._empty_reads_count >= _EMPTY_READS_MAX:
            self._fail(TlsError(f"no record in {_EMPTY_READS_MAX} reads"))
            return
        if self._engine.is_ended:
            self._inner.close("ended by the peer")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Passes the news on, and lets go of what TLS needs, 60 KB: it is free at once where
        nothing but the collector of cycles would find it, which comes after many connections.
        """
        self._inner.connectionLost(reason)
        self._has_failed = True
        self._engine = None
        self._waiting.clear()

    def _plain(self, data: bytes) -> None:
        assert self._server is not None
        if self._server.refuses_plain:
            self._warn("plain connection, TLS is enforced")
            self._has_failed = True
            self._inner.close("plain connection, TLS is enforced")
            return
        self._link.protocol = self._inner
        self._inner.use(self._link)
        self._inner.dataReceived(data)

    def _fail(self, error: TlsError) -> None:
        self._warn(f"TLS: {error}")
        self._send()
        self._waiting.clear()
        self._engine = None
        self._has_failed = True
        self._inner.close(f"TLS: {error}")

    def _warn(self, reason: str) -> None:
        """Each connection has a port of its own: of one address these lines are equal."""
        peer = self._inner.peer
        _log.warn(
            "closing {peer}: {reason}",
            peer=peer,
            reason=reason,
            repeats_as=f"closing {network_of(peer.rpartition(':')[0])}: {reason}",
        )

    def _send(self) -> None:
        if self._engine is not None and (ciphertext := self._engine.take()):
            self._link.write(ciphertext)

    # The transport of the inner protocol.

    @property
    def certificate_names(self) -> tuple[str, ...]:
        """Names in the peer's verified certificate; empty without one."""
        return self._engine.certificate_names() if self._engine is not None else ()

    @property
    def binding(self) -> str:
        """What ties a proof to this connection (`TlsEngine.binding`)."""
        return self._engine.binding() if self._engine is not None else ""

    @property
    def disconnecting(self) -> bool:
        """True when the connection is about to be closed: a protocol of lines reads no more."""
        return bool(getattr(self._link, "disconnecting", False))

    def set_tcp_times(self, times: TcpTimes) -> None:
        """Gives the socket its times, where there is one."""
        if isinstance(self._link, Connection):
            set_tcp_times(self._link.getHandle(), times)

    def limit_reads(self, bytes_max: int) -> None:
        """Reads no more at a time."""
        self._link.bufferSize = bytes_max

    def write(self, data: bytes) -> None:
        """Encrypts and sends, now or after the handshake."""
        engine = self._engine
        if engine is None or not engine.is_open:
            self._waiting += data
            if len(self._waiting) > _WAITING_BYTES_MAX:
                self.abortConnection()
            return
        try:
            engine.write(data)
        except TlsError as error:
            self._fail(error)
        else:
            self._send()

    def writeSequence(self, parts: Iterable[bytes]) -> None:
        """Encrypts and sends all parts as one."""
        self.write(b"".join(parts))

    def loseConnection(self) -> None:
        """Closes when what was written has gone."""
        if self._engine is not None and not self._has_producer:
            self._engine.end()
            self._send()
        self._link.loseConnection()

    def abortConnection(self) -> None:
        """Closes at once."""
        self._link.abortConnection()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Asks the producer for more when the ciphertext has gone."""
        self._has_producer = True
        self._link.registerProducer(producer, streaming)

    def unregisterProducer(self) -> None:
        """Ends that."""
        self._has_producer = False
        self._link.unregisterProducer()

    def pauseProducing(self) -> None:
        """Reads nothing more."""
        self._link.pauseProducing()

    def stopProducing(self) -> None:
        """Ends the connection: nobody reads what comes."""
        self._link.loseConnection()

    def resumeProducing(self) -> None:
        """Reads again."""
        self._link.resumeProducing()

    def getPeer(self) -> Any:
        """Address of the other end."""
        return self._link.getPeer()

    def getHost(self) -> Any:
        """Address of this end."""
        return self._link.getHost()
