"""One connection to a broker or name server over a plain socket, for processes without a loop.

Requests may be sent ahead of their answers: each answer is found by its number, whatever the order
in which they come. Every wait ends: a socket that is silent for the timeout raises LostError, after
which the connection is closed for good.

The blocking client does not serve here. Its pull makes an object of each message, which alone costs
four times as much as all columns of a row (``bench.bench_columns``). It asks once and waits, where
a task of Spark has many requests on their way; and its event loop lives in another thread, so each
request costs two changes of thread. What both share, frames, commands, signatures and TLS, is the
protocol's.
"""

import socket
from typing import Final, Self

from ledgermq.protocol.codes import LanguageCode
from ledgermq.protocol.command import RemotingCommand, decode, encode
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.framing import FrameDecoder
from ledgermq.protocol.signature import ends_of
from ledgermq.protocol.tcp_times import CLIENT_TIMES, set_tcp_times
from ledgermq.protocol.tls.engine import is_distrust
from ledgermq.spark.access import OPEN_ACCESS, Access
from ledgermq.spark.errors import ClusterError

_CHUNK_BYTES: Final = 1024 * 1024


class LostError(Exception):
    """The other side could not be reached, went away, or did not answer in time."""


class Wire:
    """An open connection; use it in a ``with`` block or close it."""

    def __init__(self, address: str, timeout_s: float, access: Access = OPEN_ACCESS) -> None:
        """Connects.

        Args:
            address: host:port.
            timeout_s: longest wait for the connection and for each answer.
            access: account and TLS.

        Raises:
            LostError: it cannot be made.
            ClusterError: one end does not trust the certificate of the other.
        """
        self.address = address
        self._decoder = FrameDecoder()
        self._answers: dict[int, RemotingCommand] = {}
        self._opaque = 0
        self._credentials = access.credentials()
        context = access.tls_context()
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        try:
            self._socket = socket.create_connection((host, int(port)), timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            set_tcp_times(self._socket, CLIENT_TIMES)
            if context is not None:
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
            self._signed_for = ends_of(address, self._socket.getpeername())
        except (OSError, ValueError) as error:
            self._check_trust(error)
            raise LostError(f"no connection to {address}: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, command: RemotingCommand) -> int:
        """Sends a request and returns the number of its answer.

        Raises:
            LostError: the connection is gone.
        """
        self._opaque += 1
        command.opaque = self._opaque
        command.language = int(LanguageCode.PYTHON)
        if self._credentials is not None:
            command.ext_fields = self._credentials.signed(
                command.ext_fields, command.body, command.code, self._signed_for
            )
        try:
            self._socket.sendall(encode(command))
        except OSError as error:
            raise self._lost(error) from error
        return command.opaque

    def receive(self, opaque: int) -> RemotingCommand:
        """Waits for an answer.

        Raises:
            LostError: the connection is gone, or silent for too long.
            ClusterError: the other side refuses our certificate.
        """
        while (answer := self._answers.pop(opaque, None)) is None:
            try:
                chunk = self._socket.recv(_CHUNK_BYTES)
                if not chunk:
                    raise ConnectionError("it closed the connection")
                for frame in self._decoder.feed(chunk):
                    command = decode(frame)
                    if command.is_response:
                        self._answers[command.opaque] = command
            except (OSError, RemoteProtocolError) as error:
                raise self._lost(error) from error
        return answer

    def request(self, command: RemotingCommand) -> RemotingCommand:
        """Sends a request and returns its answer, whatever its code.

        Raises:
            LostError: no answer.
        """
        return self.receive(self.send(command))

    def close(self) -> None:
        """Closes; safe to call twice."""
        self._socket.close()

    def _check_trust(self, error: Exception) -> None:
        """Raises ClusterError when an error is one of certificates."""
        if is_distrust(error):
            raise ClusterError(f"TLS with {self.address}", str(error)) from error

    def _lost(self, error: Exception) -> LostError:
        self.close()
        self._check_trust(error)
        return LostError(f"no answer from {self.address}: {error}")
