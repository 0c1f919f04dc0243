"""One connection for each address, opened when it is asked for."""

import asyncio
import contextlib
import errno
import logging
import os
from collections.abc import Callable
from typing import Final, TypeAlias

from ledgermq.client.config import ClientConfig
from ledgermq.client.connection import Connection, OnRequest, Question
from ledgermq.client.endless import is_own_end, loudness
from ledgermq.client.errors import ClosedError, UnreachableError
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.tls.engine import is_distrust

_log = logging.getLogger("ledgermq.client")

# An address that takes no connection for so long is told of.
_SPEAK_S: Final = 1.0
# How long a client that closes waits for the good-byes of its peers.
_TLS_END_S: Final = 1.0

# Of a connection that was tried and not made.
_TOLD_BY_NUMBER: Final = frozenset(
    {errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ETIMEDOUT}
)

# Gets a new connection before anyone else uses it.
OnConnected: TypeAlias = Callable[[Connection], None]


class Connections:
    """The open connections of a client, by address."""

    def __init__(
        self,
        config: ClientConfig,
        on_request: OnRequest,
        on_connected: OnConnected,
        question: Question,
        on_doubt: Callable[[Connection], None],
    ) -> None:
        """Opens nothing yet.

        Args:
            config: how long to wait for a connection, how to sign and to encrypt.
            on_request: gets the requests of servers.
            on_connected: gets each new connection; what it writes is what the server reads first.
            question: asks a server that is silent whether it lives.
            on_doubt: told of one that has not answered that yet, again and again.
        """
        self._config = config
        self._question = question
        self._on_doubt = on_doubt
        self._tls = config.tls
        self._on_request = on_request
        self._on_connected = on_connected
        self._open: dict[str, Connection] = {}
        self._opening: dict[str, asyncio.Task[Connection]] = {}
        # All that were opened and are not lost, also those that are being closed.
        self._living: set[Connection] = set()
        # Set when the last of them is lost, while that is waited for.
        self._last_lost: asyncio.Future[None] | None = None
        self._is_closed = False
        # Addresses to which no connection could be made, with the time of the first try.
        self._failing: dict[str, float] = {}

    @property
    def is_closed(self) -> bool:
        """True when nothing can be opened any more."""
        return self._is_closed

    def find(self, address: str) -> Connection | None:
        """Returns the connection to an address when it is open."""
        return self._open.get(address)

    async def open(self, address: str) -> Connection:
        """Returns the connection to an address; those who ask at the same time share one.

        Raises:
            UnreachableError: it cannot be made.
            ClosedError: the client is closed.
        """
        found = self._open.get(address)
        if found is not None:
            return found
        if self._is_closed:
            raise ClosedError("this client is closed", broker=address)
        task = self._opening.get(address)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._connect(address))
            self._opening[address] = task
            task.add_done_callback(lambda done: self._connected(address, done))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if is_own_end(error):
                raise
            # The client was closed while the connection was being made.
            raise ClosedError("this client is closed", broker=address) from error

    async def request(
        self, address: str, command: RemotingCommand, timeout_s: float
    ) -> RemotingCommand:
        """Sends a request to an address and returns its answer, whatever its code.

        Raises:
            UnreachableError: no connection, or no answer in time.
        """
        return await (await self.open(address)).request(command, timeout_s)

    async def close(self) -> None:
        """Closes all connections and ends what is being opened."""
        opening = list(self._opening.values())
        self.abort()
        if opening:
            await asyncio.wait(opening)
        if self._tls is not None and self._living:
            # Both ends say good-bye in TLS.
            self._last_lost = asyncio.get_running_loop().create_future()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._last_lost, _TLS_END_S)
            for connection in list(self._living):
                connection.abort()
        # One turn of the loop lets the transports close their sockets.
        await asyncio.sleep(0)

    def abort(self) -> None:
        """Closes all connections, and waits for nothing."""
        self._is_closed = True
        for task in self._opening.values():
            task.cancel()
        for connection in list(self._open.values()):
            connection.close()

    async def _connect(self, address: str) -> Connection:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()

        def make() -> Connection:
            return Connection(
                address,
                loop,
                self._on_request,
                self._lost,
                self._on_doubt,
                question=self._question,
                silence_max_s=self._config.silence_max_s,
                credentials=self._config.credentials,
            )

        self._failing.setdefault(address, loop.time())
        speaking = loop.call_later(
            _SPEAK_S, self._speak, address, f"nobody answers, for {_SPEAK_S:g} s"
        )
        try:
            async with asyncio.timeout(self._config.connect_timeout_s):
                _, connection = await loop.create_connection(
                    make, host.strip("[]"), int(port), ssl=self._tls
                )
        except TimeoutError as error:
            reason = f"no connection in {self._config.connect_timeout_s:g} s"
            raise UnreachableError(reason, retriable=True, broker=address) from error
        except (OSError, ValueError) as error:
            reason, retriable = f"no connection: {_words(error)}", not is_distrust(error)
            if loop.time() - self._failing[address] >= _SPEAK_S:
                self._speak(address, _words(error))
            raise UnreachableError(reason, retriable=retriable, broker=address) from error
        finally:
            speaking.cancel()
        self._failing.pop(address, None)
        self._living.add(connection)
        self._open[address] = connection
        self._on_connected(connection)
        return connection

    def _speak(self, address: str, reason: str) -> None:
        """Tells that there is no connection: the address may be wrong."""
        level = loudness(f"no connection to {address}")
        _log.log(level, "no connection to %s: %s; it is tried again", address, reason)

    def _connected(self, address: str, task: asyncio.Task[Connection]) -> None:
        self._opening.pop(address, None)
        with contextlib.suppress(asyncio.CancelledError):
            # Asked for here too, because all who waited for it may have gone.
            task.exception()

    def _lost(self, connection: Connection) -> None:
        if self._open.get(connection.address) is connection:
            del self._open[connection.address]
        self._living.discard(connection)
        if self._last_lost is not None and not self._living and not self._last_lost.done():
            self._last_lost.set_result(None)


def _words(error: Exception) -> str:
    """Returns why there is no connection, in the system's words: asyncio says little of a refusal,
    and repeats the address."""
    if isinstance(error, OSError) and error.errno in _TOLD_BY_NUMBER:
        return os.strerror(error.errno)
    return str(error)
