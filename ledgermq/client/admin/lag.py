"""How far groups are behind, and which groups there are."""

from typing import Final

from ledgermq.client.admin.asking import Asking, check_answer, each
from ledgermq.client.admin.results import GroupLag, QueueLag
from ledgermq.client.errors import NotFoundError
from ledgermq.protocol.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    SubscriptionGroupConfig,
    SubscriptionGroupTableBody,
)
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.headers import GetConsumeStatsInBrokerHeader, GetConsumeStatsRequestHeader
from ledgermq.protocol.names import ROUND_TRIP_GROUP

# The group under which brokers let tools read.
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
# Groups that no user made: every broker has them.
_SYSTEM_GROUPS: Final = frozenset(
    (TOOLS_GROUP, "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY")
)
_SYSTEM_PREFIXES: Final = ("CID_RMQ_SYS_", "CID_ONSAPI_", "rmq_sys_")


def is_system_group(group: str) -> bool:
    """Tells whether a group is one that brokers and tools make for themselves."""
    return (
        group in _SYSTEM_GROUPS or group == ROUND_TRIP_GROUP or group.startswith(_SYSTEM_PREFIXES)
    )


async def lag_of(asking: Asking, group: str, topic: str | None = None) -> GroupLag:
    """Returns how far a group is behind.

    Raises:
        NotFoundError: no broker knows the group.
    """
    leaders = await asking.leaders()
    lags = await each(lambda address: stats_of(asking, address, group, topic), leaders.values())
    queues = [queue for one in lags for queue in one.queues]
    if not queues and topic is None and not await _is_known(asking, list(leaders.values()), group):
        raise NotFoundError(f"no broker has a group {group!r}")
    return GroupLag(
        group=group,
        queues=tuple(sorted(queues, key=lambda one: one.queue)),
        rate=sum(one.rate for one in lags),
    )


async def stats_of(asking: Asking, address: str, group: str, topic: str | None = None) -> GroupLag:
    """Returns where a group stands on one broker; no queues where that does not know it."""
    header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
    answer = await asking.ask(address, RequestCode.GET_CONSUME_STATS, header)
    if answer.code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
        return GroupLag(group=group, queues=())
    check_answer(address, answer)
    stats = ConsumeStats.decode(answer.body)
    return GroupLag(group=group, queues=_queue_lags(stats), rate=stats.consume_tps)


def _queue_lags(stats: ConsumeStats) -> tuple[QueueLag, ...]:
    return tuple(
        QueueLag(
            queue=queue,
            end_offset=offsets.broker_offset,
            committed_offset=offsets.consumer_offset,
            consumed_ms=offsets.last_timestamp if offsets.last_timestamp > 0 else None,
        )
        for queue, offsets in sorted(stats.offset_table.items())
    )


async def lags(asking: Asking) -> list[GroupLag]:
    """Returns how far all groups that have offsets are behind, sorted by name."""
    header = GetConsumeStatsInBrokerHeader(is_order=False)
    found: dict[str, list[GroupLag]] = {}
    for address in (await asking.leaders()).values():
        answer = await asking.call(address, RequestCode.GET_BROKER_CONSUME_STATS, header)
        for entry in ConsumeStatsList.decode(answer.body).consume_stats_list:
            for group, stats in entry.items():
                found.setdefault(group, []).extend(
                    GroupLag(group=group, queues=_queue_lags(one), rate=one.consume_tps)
                    for one in stats
                )
    return [
        GroupLag(
            group=group,
            queues=tuple(
                sorted((q for one in parts for q in one.queues), key=lambda one: one.queue)
            ),
            rate=sum(one.rate for one in parts),
        )
        for group, parts in sorted(found.items())
        if not is_system_group(group) and any(one.queues for one in parts)
    ]


async def settings_on(asking: Asking, address: str) -> dict[str, SubscriptionGroupConfig]:
    """Returns the settings of all groups of a broker, by name."""
    answer = await asking.call(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    return SubscriptionGroupTableBody.decode(answer.body).subscription_group_table


async def _is_known(asking: Asking, addresses: list[str], group: str) -> bool:
    tables = await each(lambda address: settings_on(asking, address), addresses)
    return any(group in table for table in tables)
