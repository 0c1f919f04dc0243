"""Where groups stand: their offsets and those of brokers, and what state that is."""

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from ledgermq.console.absent import missing
from ledgermq.console.answers import read_queues
from ledgermq.console.cluster import ClusterView
from ledgermq.console.shapes.groups import GroupState
from ledgermq.console.tally import Tally
from ledgermq.console.topic_tables import is_system_group
from ledgermq.http.replies import RequestError
from ledgermq.protocol.bodies import (
    ConsumeOffsets,
    ConsumeStats,
    MessageQueue,
    SubscriptionGroupConfig,
)
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.headers import GetConsumeStatsRequestHeader
from ledgermq.protocol.names import RETRY_PREFIX

# A group that is less behind than this keeps up.
_FINE_MS: Final = 10_000
# One that has consumed nothing for so long, with messages waiting, is stuck.
_STUCK_MS: Final = 60_000
# Figures of all groups, which are loaded each minute while somebody looks, each five otherwise.
# Older ones are told with their age while they are loaded anew; nobody waits for them.
_ALL_AGE_S: Final = 90.0
_ALL_OLD_S: Final = 600.0
_GROUPS_MAX: Final = 5_000
# Groups that are asked for at a time.
_TOGETHER: Final = 8
# A group that never consumed from a broker has no figures there.
_NO_FIGURES: Final = frozenset(
    {
        int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        int(ResponseCode.CONSUMER_NOT_ONLINE),
        int(ResponseCode.TOPIC_NOT_EXIST),
    }
)


class QueueStats(NamedTuple):
    """Where a group stands in a queue."""

    queue: MessageQueue
    offsets: ConsumeOffsets

    @property
    def lag(self) -> int:
        """Messages that are left."""
        return max(self.offsets.broker_offset - self.offsets.consumer_offset, 0)

    def age_ms(self, now_ms: int) -> int | None:
        """Age of the last message consumed, where some are left."""
        if not self.lag or self.offsets.last_timestamp <= 0:
            return None
        return max(now_ms - self.offsets.last_timestamp, 0)


class Lag(NamedTuple):
    """How far a group is behind."""

    messages: int
    age_ms: int | None


class GroupFigures(NamedTuple):
    """A group as all brokers together tell it."""

    lag: Lag
    out_per_s: float


def sum_of(queues: Iterable[QueueStats], now_ms: int) -> Lag:
    """Returns the lag of all queues together: the sum, and the oldest."""
    queues = list(queues)
    ages = [age for one in queues if (age := one.age_ms(now_ms)) is not None]
    return Lag(sum(one.lag for one in queues), max(ages, default=None))


async def load_stats(
    view: ClusterView, tally: Tally, group: str, topic: str | None = None
) -> list[QueueStats]:
    """Returns where a group stands, by queue."""
    stats, _ = await load_stats_and_rate(view, tally, group, topic)
    return stats


async def load_stats_and_rate(
    view: ClusterView, tally: Tally, group: str, topic: str | None = None
) -> tuple[list[QueueStats], float]:
    """Returns the same, and how many messages it consumes in a second."""
    found = await view.each(
        tally,
        await view.leaders(tally),
        RequestCode.GET_CONSUME_STATS,
        GetConsumeStatsRequestHeader(consumer_group=group, topic=topic),
        read=lambda answer: read_queues(answer.body, ConsumeStats),
        empty_codes=_NO_FIGURES,
    )
    table = {queue: one for _, stats in found for queue, one in stats.offset_table.items()}
    rows = [QueueStats(queue, offsets) for queue, offsets in sorted(table.items())]
    return rows, sum(stats.consume_tps for _, stats in found)


class AllFigures(NamedTuple):
    """All groups at once."""

    by_group: dict[str, GroupFigures]
    tally: Tally


async def load_all(
    view: ClusterView, now_ms: int, age_max_s: float = _ALL_AGE_S
) -> tuple[AllFigures, float]:
    """Returns the figures of all groups, and their age in seconds.

    Brokers are asked group by group, a few at a time: one request for all groups (317) would keep a
    broker with thousands of them from all else for the better part of a second.
    """

    async def load() -> AllFigures:
        tally, room = Tally(), asyncio.Semaphore(_TOGETHER)
        names = sorted((await view.groups()).by_name, key=is_system_group)[:_GROUPS_MAX]

        async def one(group: str) -> GroupFigures:
            async with room:
                stats, out_per_s = await load_stats_and_rate(view, tally, group)
            return GroupFigures(sum_of(stats, now_ms), out_per_s)

        found = await asyncio.gather(*map(one, names))
        return AllFigures(dict(zip(names, found, strict=True)), tally)

    old_max_s = _ALL_OLD_S if age_max_s else 0.0
    return await view.kept.get_soon("all_figures", age_max_s, old_max_s, load)


def retry_lag(stats: Iterable[QueueStats]) -> int:
    """Returns how many messages wait to be tried again."""
    return sum(one.lag for one in stats if one.queue.topic.startswith(RETRY_PREFIX))


def state_of(
    *, online: int | None, lag: Lag | None, out_per_s: float, differs: bool, outside: int
) -> tuple[GroupState, str]:
    """Returns the state of a group in one word, and why.

    Args:
        online: members; None when unknown.
        lag: None when unknown.
        out_per_s: messages that it consumes.
        differs: members subscribe to different things.
        outside: queues in which its offset lies before the oldest message.
    """
    left = 0 if lag is None else lag.messages
    if online == 0:
        return "offline", f"nobody is online; {left} messages wait"
    if differs:
        return "differs", "members of the group subscribe to different things"
    if outside:
        return "outside", f"in {outside} queues its offset lies before the oldest message"
    if lag is None or online is None:
        return "unknown", "brokers do not tell how it stands"
    age = lag.age_ms or 0
    if not left or (age < _FINE_MS and out_per_s > 0):
        return "fine", "it keeps up"
    if out_per_s <= 0 and age >= _STUCK_MS:
        return "stuck", f"{left} messages wait, members are online, and none is consumed"
    return "behind", f"{left} messages wait"


async def group_config(view: ClusterView, group: str) -> dict[str, SubscriptionGroupConfig]:
    """Returns a group by broker group.

    Raises:
        RequestError: there is no such group.
    """
    table = await view.groups(group)
    found = table.by_name.get(group)
    if found is None and table.tally.is_silent:
        raise RequestError(502, "no broker tells its groups", field="group", value=group)
    if found is None:
        raise missing("group", group)
    return found
