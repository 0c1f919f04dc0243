"""Remote: requests to the name servers and brokers of one set, for one account.

A request has a deadline, an address at most so many requests at a time, and an address that could
not be connected is not tried again for a moment: a page about a hundred topics must not wait a
hundred times for a broker that is gone.
"""

import asyncio
import time
from typing import Final

from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import ClientError, ConfigError, RefusedError, UnreachableError
from ledgermq.client.instance import ClientInstance
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import LocalProtocolError
from ledgermq.protocol.headers.header import Header

_IN_FLIGHT_MAX: Final = 16
# Who could not be reached is left alone for so long.
_REST_S: Final = 2.0
_ADDRESSES_MAX: Final = 1000


class Remote:
    """One client of a cluster's servers."""

    def __init__(self, name_servers: str, config: ClientConfig) -> None:
        """Opens nothing yet.

        Args:
            name_servers: ``host:port;host:port``, which know the same brokers.
            config: credentials, TLS and times.

        Raises:
            ConfigError: the addresses are wrong.
        """
        self.name_servers = name_servers
        self.config = config
        self._instance = ClientInstance(name_servers, config)
        self._rooms: dict[str, asyncio.Semaphore] = {}
        # Address -> when it may be tried again, by the loop's clock, and what it met.
        self._resting: dict[str, tuple[float, UnreachableError]] = {}

    @property
    def name_server_addresses(self) -> tuple[str, ...]:
        """Addresses of the name servers."""
        return self._instance.name_servers.addresses

    def new_message_id(self) -> str:
        """Returns the id of a message that is to be sent."""
        return self._instance.unique_ids.create(time.time_ns() // 1_000_000)

    async def close(self) -> None:
        """Closes all connections."""
        await self._instance.connections.close()

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        timeout_s: float | None = None,
    ) -> RemotingCommand:
        """Sends one request and returns its answer, whatever its code.

        Raises:
            UnreachableError: no connection, or no answer in time.
            ConfigError: the request cannot be written: a value is too long.
        """
        resting = self._resting.get(address)
        loop = asyncio.get_running_loop()
        if resting is not None:
            if loop.time() < resting[0]:
                raise resting[1]
            del self._resting[address]
        if len(self._rooms) > _ADDRESSES_MAX:
            self._rooms.clear()
        room = self._rooms.setdefault(address, asyncio.Semaphore(_IN_FLIGHT_MAX))
        command = RemotingCommand.request(code, header, body)
        wait_s = self.config.request_timeout_s if timeout_s is None else timeout_s
        async with room:
            try:
                return await self._instance.connections.request(address, command, wait_s)
            except UnreachableError as error:
                if self._instance.connections.find(address) is None:
                    self._resting[address] = (loop.time() + _REST_S, error)
                raise
            except LocalProtocolError as error:
                raise ConfigError(str(error), broker=address) from error

    async def call(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        timeout_s: float | None = None,
    ) -> RemotingCommand:
        """The same, for a request that must succeed.

        Raises:
            UnreachableError, ConfigError: as for ask.
            RefusedError: the answer is not SUCCESS.
        """
        answer = await self.ask(address, code, header, body, timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedError(answer.code, answer.remark, broker=address)
        return answer

    async def call_name_server(
        self, code: int, header: Header | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Asks the name servers one by one until one answers.

        Raises:
            UnreachableError: none of them answers.
            RefusedError: it answered with an error.
        """
        failure: ClientError | None = None
        for address in self.name_server_addresses:
            try:
                return await self.call(address, code, header, body)
            except UnreachableError as error:
                failure = error
        assert failure is not None
        raise failure
