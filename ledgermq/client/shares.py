"""Which queues of a topic are a member's own: its part among the group's members, or all."""

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

    async def of(self, route: TopicRoute) -> Share | None:
        """Asks a broker for the members and divides the queues among them."""
        members = await self._members(route)
        own_id = self._instance.client_id
        if own_id not in members:
            return None
        queues = frozenset(allocate(route.read_queues, members, own_id))
        return Share(queues, is_alone=len(members) == 1)

    async def _members(self, route: TopicRoute) -> list[str]:
        header = GetConsumerListByGroupRequestHeader(consumer_group=self._group)
        # Any broker of the topic knows all members: they tell all of them that they are there.
        addresses = [
            by_id.get(MASTER_ID) or next(iter(by_id.values()))
            for by_id in route.addresses.values()
            if by_id
        ]
        random.shuffle(addresses)
        failure: ClientError = UnreachableError("no broker", retriable=True, topic=route.topic)
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
        with contextlib.suppress(ClientError):
            await self._instance.routes.refresh(route.topic)
        raise failure
