"""Remote: requests to the name servers and brokers of one set, for one account.

A request has a deadline, an address at most so many requests at a time, and an address that could
not be connected is not tried again for a moment, which grows: a page about a hundred topics must
not wait a hundred times for a broker that is gone, nor long for one that has just been started.
"""

import asyncio
import time
from typing import Final, NamedTuple

from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import ClientError, ConfigError, RefusedError, UnreachableError
from ledgermq.client.instance import ClientInstance
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import LocalProtocolError
from ledgermq.protocol.headers.header import Header

_IN_FLIGHT_MAX: Final = 16
# Who could not be reached is left alone for so long: at first, and after several attempts.
_REST_MIN_S: Final = 0.1
_REST_MAX_S: Final = 2.0
_ADDRESSES_MAX: Final = 1000


class _Rest(NamedTuple):
    # By the loop's clock.
    ends_s: float
    length_s: float
    error: UnreachableError


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
        # Addresses that could not be connected, until they are.
        self._resting: dict[str, _Rest] = {}

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
        rest = self._resting.get(address)
        loop = asyncio.get_running_loop()
        if rest is not None and loop.time() < rest.ends_s:
            raise rest.error
        if len(self._rooms) > _ADDRESSES_MAX:
            self._rooms.clear()
            self._resting.clear()
        room = self._rooms.setdefault(address, asyncio.Semaphore(_IN_FLIGHT_MAX))
        command = RemotingCommand.request(code, header, body)
        wait_s = self.config.request_timeout_s if timeout_s is None else timeout_s
        async with room:
            try:
                answer = await self._instance.connections.request(address, command, wait_s)
            except UnreachableError as error:
                if self._instance.connections.find(address) is None:
                    length_s = _REST_MIN_S if rest is None else min(2 * rest.length_s, _REST_MAX_S)
                    self._resting[address] = _Rest(loop.time() + length_s, length_s, error)
                raise
            except LocalProtocolError as error:
                raise ConfigError(str(error), broker=address) from error
        self._resting.pop(address, None)
        return answer

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
