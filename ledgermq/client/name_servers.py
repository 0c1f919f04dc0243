"""NameServers: one of several is used as long as it answers, then the next."""

from ledgermq.client.connections import Connections
from ledgermq.client.errors import NameServerError, UnreachableError
from ledgermq.protocol.codes import ResponseCode
from ledgermq.protocol.command import RemotingCommand


class NameServers:
    """The name servers of a client."""

    def __init__(
        self, addresses: tuple[str, ...], connections: Connections, timeout_s: float
    ) -> None:
        self.addresses = addresses
        self._connections = connections
        self._timeout_s = timeout_s
        self._used = 0

    async def request(self, command: RemotingCommand) -> RemotingCommand:
        """Asks the first name server that answers.

        Returns:
            Its answer, whatever its code.

        Raises:
            UnreachableError: none of them answers; the last failure that may pass, or the last.
            NameServerError: who answers is no name server.
        """
        failure: UnreachableError | NameServerError | None = None
        for _ in self.addresses:
            address = self.addresses[self._used]
            try:
                answer = await self._connections.request(address, command, self._timeout_s)
                if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    return answer
                raise NameServerError(
                    f"{address} is no name server, but perhaps a broker: it does not know request"
                    f" {command.code}",
                    broker=address,
                )
            except (UnreachableError, NameServerError) as error:
                if failure is None or error.retriable or not failure.retriable:
                    failure = error
                # Unless another caller has moved on already.
                if self.addresses[self._used] == address:
                    self._used = (self._used + 1) % len(self.addresses)
        assert failure is not None
        raise failure
