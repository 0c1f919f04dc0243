"""Asking: single requests of a tool to name servers and brokers, each with a deadline.

A refusal becomes RefusedError with the address that gave it, no answer UnreachableError.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import (
    ConfigError,
    NameServerError,
    NotFoundError,
    RefusedError,
    UnreachableError,
)
from ledgermq.client.instance import ClientInstance
from ledgermq.client.retry import ROUTE_CODES, is_access_refused
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import GetRouteInfoRequestHeader
from ledgermq.protocol.headers.header import Header
from ledgermq.protocol.route import MASTER_ID, BrokerData, ClusterInfo, TopicRouteData

_PASSING_CODES: Final = (
    ROUTE_CODES | {int(ResponseCode.SYSTEM_BUSY), int(ResponseCode.FLOW_CONTROL)}
) - {int(ResponseCode.TOPIC_NOT_EXIST), int(ResponseCode.NO_PERMISSION)}
# Requests of one call that are under way at the same time.
_TOGETHER_MAX: Final = 16

T = TypeVar("T")
R = TypeVar("R")


def check_answer(address: str, answer: RemotingCommand, topic: str | None = None) -> None:
    """Takes an answer that is SUCCESS.

    Raises:
        RefusedError: it is another one.
    """
    if answer.code != ResponseCode.SUCCESS:
        retriable = answer.code in _PASSING_CODES
        if is_access_refused(answer.code, answer.remark):
            retriable = False
        raise RefusedError(
            answer.code, answer.remark, retriable=retriable, broker=address, topic=topic
        )


async def each(work: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R]:
    """Does something with each item, some of them at the same time; returns what came, in order."""
    room = asyncio.Semaphore(_TOGETHER_MAX)

    async def one(item: T) -> R:
        async with room:
            return await work(item)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(item)) for item in items]
    return [task.result() for task in tasks]


class Asking:
    """Requests of one admin client."""

    def __init__(self, name_servers: str, config: ClientConfig) -> None:
        """Opens nothing yet.

        Raises:
            ConfigError: an address is wrong, or there is a namespace.
        """
        if config.namespace:
            raise ConfigError(
                f"namespace is {config.namespace!r}: an admin client takes names as they are on the"
                f" wire, such as {config.namespace}%orders; give no namespace"
            )
        self.instance = ClientInstance(name_servers, config)
        # Groups whose dead letters are being worked on.
        self.busy_groups: set[str] = set()

    async def call(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        topic: str | None = None,
    ) -> RemotingCommand:
        """Asks a broker or name server and returns its answer, which is SUCCESS.

        Raises:
            UnreachableError: no connection, or no answer in time.
            RefusedError: it answered with an error.
        """
        answer = await self.ask(address, code, header, body)
        check_answer(address, answer, topic)
        return answer

    async def ask(
        self, address: str, code: int, header: Header | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Asks a broker or name server and returns its answer, whatever its code.

        Raises:
            UnreachableError: no connection, or no answer in time.
        """
        command = RemotingCommand.request(code, header, body)
        return await self.instance.request(address, command)

    async def ask_name_server(self, code: int, header: Header | None = None) -> RemotingCommand:
        """Asks the first name server that answers, and returns its answer, which is SUCCESS.

        Raises:
            NameServerError: none of them answers.
            RefusedError: it answered with an error.
        """
        servers = self.instance.name_servers
        try:
            answer = await servers.request(RemotingCommand.request(code, header))
        except UnreachableError as error:
            raise NameServerError(
                f"no name server answers, the last: {error.what}",
                retriable=error.retriable,
                broker=error.broker,
            ) from error
        check_answer(";".join(servers.addresses), answer)
        return answer

    async def clusters(self) -> ClusterInfo:
        """Returns all clusters and brokers."""
        answer = await self.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterInfo.decode(answer.body)

    async def leaders(self, cluster: str | None = None) -> dict[str, str]:
        """Returns the addresses that take writes, by broker name.

        Args:
            cluster: of this cluster only.

        Raises:
            NotFoundError: no such cluster, or no broker has a leader now.
        """
        info = await self.clusters()
        table = info.cluster_addr_table
        if cluster is not None and cluster not in table:
            known = ", ".join(sorted(table)) or "none"
            raise NotFoundError(f"no cluster {cluster!r}; known: {known}")
        names = {n for c in table if cluster in (None, c) for n in table[c]}
        leaders = {
            name: address
            for name in sorted(names & info.broker_addr_table.keys())
            if (address := info.broker_addr_table[name].broker_addrs.get(MASTER_ID))
        }
        if not leaders:
            where = f"cluster {cluster!r}" if cluster else "the name server's list"
            raise NotFoundError(f"no broker of {where} has a leader now", retriable=True)
        return leaders

    async def route(self, topic: str) -> TopicRouteData:
        """Returns the brokers and queues of a topic.

        Raises:
            NotFoundError: no name server knows the topic.
        """
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        try:
            answer = await self.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        except RefusedError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            raise NotFoundError(
                f"no topic {topic!r}", topic=topic, code=error.code, broker=error.broker
            ) from error
        return TopicRouteData.decode(answer.body)

    async def brokers_of(self, topic: str) -> dict[str, str]:
        """Returns whom to ask about a topic: by broker name its leader, or any where none leads."""
        brokers = (await self.route(topic)).broker_datas
        return {data.broker_name: one_address(data) for data in brokers if data.broker_addrs}


def one_address(broker: BrokerData) -> str:
    """Returns the leader's address, or another one while there is none."""
    return broker.broker_addrs.get(MASTER_ID) or min(broker.broker_addrs.values())
