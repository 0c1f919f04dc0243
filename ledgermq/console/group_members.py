"""Members of consumer groups, as brokers know them."""

import asyncio
from typing import Final, NamedTuple

from ledgermq.console.answers import NAMES_MAX, check_objects
from ledgermq.console.cluster import ClusterView
from ledgermq.console.tally import Tally
from ledgermq.console.topic_tables import is_system_group
from ledgermq.protocol.bodies import ClientConnection, ConsumerConnection
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import GetConsumerConnectionListRequestHeader

_AGE_S: Final = 5.0
_ALL_AGE_S: Final = 30.0
# Groups that are asked for their members when all are wanted.
_GROUPS_MAX: Final = 5_000
_NOBODY: Final = frozenset(
    {
        int(ResponseCode.CONSUMER_NOT_ONLINE),
        int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    }
)


class Members(NamedTuple):
    """The members of a group."""

    # By client id: what its first broker says, and the names of all that know it.
    clients: dict[str, tuple[ClientConnection, list[str]]]
    # What each broker group says; empty when nobody is online.
    connections: dict[str, ConsumerConnection]

    @property
    def first(self) -> ConsumerConnection | None:
        """What one broker says of the group."""
        return next(iter(self.connections.values()), None)


def _read_members(answer: RemotingCommand) -> ConsumerConnection:
    check_objects(answer.body, NAMES_MAX)
    return ConsumerConnection.decode(answer.body)


async def load_members(
    view: ClusterView, tally: Tally, group: str, age_max_s: float = _AGE_S
) -> Members:
    """Returns the members of a group."""

    async def load(tally: Tally) -> Members:
        found = await view.each(
            tally,
            await view.leaders(tally),
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            GetConsumerConnectionListRequestHeader(consumer_group=group),
            read=_read_members,
            empty_codes=_NOBODY,
        )
        clients: dict[str, tuple[ClientConnection, list[str]]] = {}
        for target, told in found:
            for client in told.connection_set:
                clients.setdefault(client.client_id, (client, []))[1].append(target.name)
        return Members(clients, {target.name: told for target, told in found})

    return await view.tallied(tally, ("members", group), age_max_s, load)


class AllMembers(NamedTuple):
    """The members of all groups."""

    by_group: dict[str, Members]
    # Groups there are.
    groups: int
    tally: Tally


async def load_all_members(view: ClusterView) -> tuple[AllMembers, float]:
    """Returns the members of all groups, and the age of that in seconds; at most 30."""

    async def load() -> AllMembers:
        tally = Tally()
        names = sorted((await view.groups()).by_name)
        names.sort(key=is_system_group)
        asked = names[:_GROUPS_MAX]
        found = await asyncio.gather(
            *(load_members(view, tally, group, _ALL_AGE_S) for group in asked)
        )
        return AllMembers(dict(zip(asked, found, strict=True)), len(names), tally)

    return await view.load("all_members", _ALL_AGE_S, load)


def subscriptions_differ(members: Members) -> bool:
    """Tells whether brokers have been told different subscriptions of one group.

    Each broker keeps the subscription of who told last, so a group whose members want different
    things mostly shows different ones.
    """
    told = {
        frozenset(
            (topic, data.sub_string, data.expression_type)
            for topic, data in connection.subscription_table.items()
        )
        for connection in members.connections.values()
    }
    return len(told) > 1
