"""What waits: delayed messages by level, and half messages of transactions."""

import asyncio
from typing import Final

from ledgermq.console.absent import missing
from ledgermq.console.browsing import browse
from ledgermq.console.call import Call
from ledgermq.console.cluster import ClusterView, Target
from ledgermq.console.looks import Look
from ledgermq.console.messages import pull
from ledgermq.console.shapes import messages as shapes
from ledgermq.console.tally import FAILURES, Tally
from ledgermq.console.topic_figures import queue_ends
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.headers import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
)

_DELAYED: Final = "SCHEDULE_TOPIC_XXXX"
_HALF: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
_HALF_GROUP: Final = "CID_RMQ_SYS_TRANS"
# Source: MessageStoreConfig.messageDelayLevel.
_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


async def get_delayed(call: Call) -> shapes.Delayed:
    """What waits, by level."""
    view, tally = call.cluster, Tally()
    looks = await call.sampler.looker.look(call.now_ms)
    tally.add(looks.tally)
    waiting: dict[int, int] = {}
    delivered: dict[int, int] = {}
    names = _LEVELS.split()
    for group, members in sorted(looks.groups.items()):
        leader = next((look for look in members if look.leads), None)
        if leader is None or leader.figures is None:
            continue
        for level, (done, end) in leader.figures.delays.items():
            waiting[level] = waiting.get(level, 0) + max(end - done, 0)
            delivered[level] = delivered.get(level, 0) + done
        settings = await call.sampler.looker.settings(group, members)
        names = settings.get("messageDelayLevel", "").split() or names
    levels = [
        shapes.DelayLevel(
            level=level,
            delay=name,
            delay_ms=_span_ms(name),
            waiting=waiting.get(level, 0),
            delivered=delivered.get(level, 0),
        )
        for level, name in enumerate(names, 1)
    ]
    return shapes.Delayed(levels=levels, half=await _half(view, tally), answers=tally.answers())


def _span_ms(text: str) -> int | None:
    unit = _UNITS_MS.get(text[-1:])
    digits = text[:-1]
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 10
    return int(digits) * unit if unit and is_number else None


async def _half(view: ClusterView, tally: Tally) -> shapes.Half | None:
    begins = await _half_begins(view, tally)
    if begins is None:
        return None
    targets = {target.name: target for target in await view.leaders(tally)}
    ends = await queue_ends(view, tally, list(targets.values()), _HALF)
    waiting, oldest = 0, []
    for queue, its_ends in ends.items():
        begin = max(begins.get((queue.broker_name, queue.queue_id), 0), its_ends.min_offset)
        waiting += max(its_ends.max_offset - begin, 0)
        if begin < its_ends.max_offset:
            moment_ms = await _stored_ms(view, tally, targets[queue.broker_name], queue, begin)
            oldest += [] if moment_ms is None else [moment_ms]
    return shapes.Half(waiting=waiting, oldest_ms=min(oldest, default=None))


async def _stored_ms(
    view: ClusterView, tally: Tally, target: Target, queue: MessageQueue, offset: int
) -> int | None:
    try:
        messages = (await pull(view, target.address, queue, offset, 1)).messages
    except FAILURES as error:
        tally.failed(target.name, target.address, error)
        return None
    return messages[0].store_timestamp_ms if messages else None


async def _half_begins(view: ClusterView, tally: Tally) -> dict[tuple[str, int], int] | None:
    """How far brokers are done with half messages; None where there is no such topic."""
    entries = (await view.topics()).by_name.get(_HALF)
    if not entries:
        return None

    async def ask(target: Target) -> tuple[tuple[str, int], int] | None:
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=_HALF_GROUP, topic=_HALF, queue_id=0
        )
        found = await view.each(
            tally,
            [target],
            RequestCode.QUERY_CONSUMER_OFFSET,
            header,
            read=lambda answer: answer.header(QueryConsumerOffsetResponseHeader).offset,
            empty_codes=frozenset({int(ResponseCode.QUERY_NOT_FOUND)}),
        )
        return ((target.name, 0), max(found[0][1], 0) if found else 0)

    found = await asyncio.gather(*map(ask, await view.leaders(tally, sorted(entries))))
    return dict(one for one in found if one is not None)


async def browse_delayed(call: Call) -> shapes.Browsed:
    """Messages of a level that wait, the newest first."""
    view, tally = call.cluster, Tally()
    level = call.number("level")
    looks = await call.sampler.looker.look(call.now_ms)
    begins = {
        (group, level - 1): leader.figures.delays[level][0]
        for group, members in looks.groups.items()
        for leader in _leaders(members)
        if leader.figures is not None and level in leader.figures.delays
    }
    query = call.asks(shapes.BrowseQuery)
    if _DELAYED not in (await view.topics()).by_name:
        raise missing("level", call.path["level"])
    return await browse(call, tally, await view.leaders(tally), _DELAYED, query, begins)


def _leaders(members: list[Look]) -> list[Look]:
    return [look for look in members if look.leads]


async def browse_half(call: Call) -> shapes.Browsed:
    """Half messages that brokers are not done with, the newest first."""
    view, tally = call.cluster, Tally()
    query = call.asks(shapes.BrowseQuery)
    begins = await _half_begins(view, tally)
    if begins is None:
        return shapes.Browsed(rows=[], total=0, next=None, answers=tally.answers())
    return await browse(call, tally, await view.leaders(tally), _HALF, query, begins)
