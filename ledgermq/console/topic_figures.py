"""What brokers tell of one topic: what it takes, the ends of its queues, its groups."""

import asyncio
from typing import Final, NamedTuple

from ledgermq.console.answers import check_objects, read_queues
from ledgermq.console.cluster import ClusterView, Target
from ledgermq.console.tally import Tally
from ledgermq.protocol.bodies import BrokerStatsData, GroupList, MessageQueue, TopicOffset
from ledgermq.protocol.bodies import TopicStatsTable as StatsBody
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.command import RemotingCommand
from ledgermq.protocol.headers import (
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)

AGE_S: Final = 5.0
# With so many names of groups for each (`check_objects`): 65,536.
_GROUP_LIST_OBJECTS_MAX: Final = 4096
_NOT_COUNTED: Final = frozenset({int(ResponseCode.SYSTEM_ERROR)})
_NOT_THERE: Final = frozenset({int(ResponseCode.TOPIC_NOT_EXIST)})


class Rates(NamedTuple):
    """What a topic takes."""

    in_per_s: float
    in_bytes_per_s: float
    in_today: int


class Span(NamedTuple):
    """What a topic keeps."""

    messages: int
    last_write_ms: int | None


async def own_names(view: ClusterView) -> frozenset[str]:
    """Returns names whose topics are the system's: of the cluster and its broker groups."""
    return frozenset({view.name, *await view.brokers()})


async def counted(
    view: ClusterView, tally: Tally, targets: list[Target], name: str, key: str
) -> list[BrokerStatsData]:
    """Returns what brokers have counted; one that never counted it says nothing."""
    found = await view.each(
        tally,
        targets,
        RequestCode.VIEW_BROKER_STATS_DATA,
        ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key),
        read=lambda answer: BrokerStatsData.decode(answer.body),
        empty_codes=_NOT_COUNTED,
    )
    return [data for _, data in found]


async def load_rates(
    view: ClusterView, tally: Tally, targets: list[Target], topic: str, age_max_s: float = AGE_S
) -> Rates:
    """Returns what a topic takes."""

    async def load(tally: Tally) -> Rates:
        numbers, sizes = await asyncio.gather(
            counted(view, tally, targets, "TOPIC_PUT_NUMS", topic),
            counted(view, tally, targets, "TOPIC_PUT_SIZE", topic),
        )
        return Rates(
            sum(data.stats_minute.tps for data in numbers),
            sum(data.stats_minute.tps for data in sizes),
            sum(data.stats_day.sum for data in numbers),
        )

    return await view.tallied(tally, ("rates", topic), age_max_s, load)


async def topic_rate(view: ClusterView, topic: str, brokers: list[str]) -> float:
    """Returns how many messages a topic takes in a second."""
    tally = Tally()
    return (await load_rates(view, tally, await view.leaders(tally, brokers), topic)).in_per_s


async def queue_ends(
    view: ClusterView, tally: Tally, targets: list[Target], topic: str
) -> dict[MessageQueue, TopicOffset]:
    """Returns the ends of all queues of a topic."""
    found = await view.each(
        tally,
        targets,
        RequestCode.GET_TOPIC_STATS_INFO,
        GetTopicStatsInfoRequestHeader(topic=topic),
        read=lambda answer: read_queues(answer.body, StatsBody).offset_table,
        empty_codes=_NOT_THERE,
    )
    return {queue: ends for _, table in found for queue, ends in table.items()}


async def load_span(
    view: ClusterView, tally: Tally, targets: list[Target], topic: str, age_max_s: float = AGE_S
) -> Span:
    """Returns how many messages of a topic are kept, and when the last came."""

    async def load(tally: Tally) -> Span:
        table = await queue_ends(view, tally, targets, topic)
        last = max((ends.last_update_timestamp for ends in table.values()), default=0)
        count = sum(max(ends.max_offset - ends.min_offset, 0) for ends in table.values())
        return Span(count, last or None)

    return await view.tallied(tally, ("span", topic), age_max_s, load)


def _read_groups(answer: RemotingCommand) -> list[str]:
    check_objects(answer.body, _GROUP_LIST_OBJECTS_MAX)
    return GroupList.decode(answer.body).group_list


async def load_groups(
    view: ClusterView, tally: Tally, targets: list[Target], topic: str
) -> frozenset[str]:
    """Returns the groups that have offsets of a topic or subscribe to it, up to 5 s old."""

    async def load(tally: Tally) -> frozenset[str]:
        found = await view.each(
            tally,
            targets,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
            QueryTopicConsumeByWhoRequestHeader(topic=topic),
            read=_read_groups,
        )
        return frozenset(group for _, names in found for group in names)

    return await view.tallied(tally, ("groups", topic), AGE_S, load)
