"""Several name servers, of which none answers: what is said, and whether to try again."""

import asyncio
from typing import Any

import pytest

from ledgermq.client.errors import UnreachableError
from ledgermq.client.name_servers import NameServers


class NoConnections:
    """Connections that fail, each in its way."""

    def __init__(self, retriable: dict[str, bool]) -> None:
        self._retriable = retriable

    async def request(self, address: str, command: Any, timeout_s: float) -> Any:
        raise UnreachableError("gone", retriable=self._retriable[address], broker=address)


@pytest.mark.parametrize(
    ("retriable", "told"),
    [
        ({"a:1": True, "b:1": True}, "b:1"),
        # A certificate that is not trusted stays so; the other may only be away.
        ({"a:1": True, "b:1": False}, "a:1"),
        ({"a:1": False, "b:1": True}, "b:1"),
        ({"a:1": False, "b:1": False}, "b:1"),
    ],
)
def test_a_failure_that_may_pass_is_told(retriable: dict[str, bool], told: str) -> None:
    connections: Any = NoConnections(retriable)
    servers = NameServers(tuple(retriable), connections, 1.0)
    command: Any = None
    with pytest.raises(UnreachableError) as caught:
        asyncio.run(servers.request(command))
    assert (caught.value.broker, caught.value.retriable) == (told, any(retriable.values()))
