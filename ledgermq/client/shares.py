"""Which queues of a topic are a member's own: its part among the group's members, or all."""

import asyncio
import contextlib
import random
from typing import NamedTuple, Protocol

from ledgermq.client.allocation import allocate
from ledgermq.client.errors import ClientError, RefusedError, UnreachableError
from ledgermq.client.instance import ClientInstance
from ledgermq.client.routes import TopicRoute
from ledgermq.protocol.bodies import GetConsumerListByGroupResponseBody, MessageQueue
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.headers import GetConsumerListByGroupRequestHeader
from ledgermq.protocol.route import MASTER_ID


class Share(NamedTuple):
    """What is this member's own."""

    queues: frozenset[MessageQueue]
    # True when no other member can have had them.
    is_alone: bool


class Shares(Protocol):
    """Divides topics."""

    async def of(self, route: TopicRoute) -> Share | None:
        """Returns this member's part; None when the brokers do not know the member yet.

        Raises:
            ClientError: no broker of the topic can be asked.
        """


class EveryQueue:
    """All queues are everybody's."""

    async def of(self, route: TopicRoute) -> Share:
        """Returns all readable queues of a topic."""
        return Share(frozenset(route.read_queues), is_alone=True)


class GroupShare:
    """The part of one member of a group."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        # By the brokers that may be asked: topics of one round that have the same share the answer.
        self._asking: dict[frozenset[str], asyncio.Task[list[str]]] = {}

    async def of(self, route: TopicRoute) -> Share | None:
        """Asks a broker for the members and divides the queues among them."""
        try:
            members = await self._members(route)
        except ClientError:
            with contextlib.suppress(ClientError):
                await self._instance.routes.refresh(route.topic)
            raise
        own_id = self._instance.client_id
        if own_id not in members:
            return None
        queues = frozenset(allocate(route.read_queues, members, own_id))
        return Share(queues, is_alone=len(members) == 1)

    async def _members(self, route: TopicRoute) -> list[str]:
        # Any broker of the topic knows all members: they tell all of them that they are there.
        brokers = frozenset(
            by_id.get(MASTER_ID) or next(iter(by_id.values()))
            for by_id in route.addresses.values()
            if by_id
        )
        task = self._asking.get(brokers)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._ask(sorted(brokers)))
            self._asking[brokers] = task
            task.add_done_callback(lambda done: self._asked(brokers, done))
        return await asyncio.shield(task)

    def _asked(self, brokers: frozenset[str], task: asyncio.Task[list[str]]) -> None:
        self._asking.pop(brokers, None)
        if not task.cancelled():
            # Asked for here too, because all who waited for it may have gone.
            task.exception()

    async def _ask(self, addresses: list[str]) -> list[str]:
        header = GetConsumerListByGroupRequestHeader(consumer_group=self._group)
        random.shuffle(addresses)
        failure: ClientError = UnreachableError("no broker", retriable=True)
        for address in addresses:
            command = RemotingCommand.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
            try:
                answer = await self._instance.request(address, command)
                if answer.code == ResponseCode.SUCCESS:
                    body = GetConsumerListByGroupResponseBody.decode(answer.body)
                    return body.consumer_id_list
                failure = RefusedError(answer.code, answer.remark, retriable=True, broker=address)
            except UnreachableError as error:
                failure = error
            except RemoteProtocolError as error:
                failure = UnreachableError(f"unreadable answer: {error}", broker=address)
        raise failure
