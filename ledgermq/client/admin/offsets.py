"""Where a group goes on: preview, reset, copy.

Members that are online are told by their broker and commit what they were told; when nobody is
online, the offsets are written by the admin client.
"""

from datetime import datetime
from typing import Final, Literal, TypeAlias

from ledgermq.client.admin.asking import Asking, each
from ledgermq.client.admin.lag import lag_of, stats_of
from ledgermq.client.admin.results import OffsetChange, QueueLag
from ledgermq.client.errors import ConfigError, NotFoundError, RefusedError
from ledgermq.client.routes import queues_of
from ledgermq.protocol.bodies import MessageQueue, ResetOffsetBody
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.headers import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)

# The oldest message that is kept, the end, the one stored nearest to a time (ms since 1970).
ResetTo: TypeAlias = Literal["first", "last"] | datetime | int
# As brokers take it: stands for the end of each queue.
_END: Final = -1


def timestamp_of(to: ResetTo) -> int:
    """Returns the time that a broker is told; -1 stands for the end.

    Raises:
        ConfigError: it is none of those, or a time without a zone.
    """
    match to:
        case "first":
            return 0
        case "last":
            return _END
        case datetime():
            if to.tzinfo is None:
                raise ConfigError(f"time {to} has no zone: give one, such as timezone.utc")
            return int(to.timestamp() * 1000)
        case int() if 0 <= to < 2**63:
            return to
    raise ConfigError(f"to is {to!r}; allowed: 'first', 'last', a datetime, ms since 1970")


async def preview_reset(
    asking: Asking, group: str, topic: str, to: ResetTo, *, forward: bool
) -> list[OffsetChange]:
    """Returns what a reset would change; nothing is changed.

    Raises:
        NotFoundError: no such topic.
    """
    timestamp_ms = timestamp_of(to)
    addresses = await asking.brokers_of(topic)
    committed = {one.queue: one for one in (await lag_of(asking, group, topic)).queues}

    async def change(queue: MessageQueue) -> OffsetChange:
        wanted = await offset_at(asking, addresses[queue.broker_name], queue, timestamp_ms)
        return _change(committed.get(queue), queue, wanted, forward)

    route = await asking.route(topic)
    queues = queues_of(topic, [(one.broker_name, one.read_queue_nums) for one in route.queue_datas])
    return await each(change, sorted(queues))


def _change(
    known: QueueLag | None, queue: MessageQueue, wanted: int, forward: bool
) -> OffsetChange:
    before = None if known is None else known.committed_offset
    if before is not None and wanted > before and not forward:
        wanted = before
    return OffsetChange(queue=queue, before=before, after=wanted)


async def reset_offsets(
    asking: Asking, group: str, topic: str, to: ResetTo, *, forward: bool
) -> list[OffsetChange]:
    """Makes a group go on elsewhere in a topic.

    Raises:
        NotFoundError: no such topic, or a group without members that never consumed it.
    """
    timestamp_ms = timestamp_of(to)
    before = {
        one.queue: one.committed_offset for one in (await lag_of(asking, group, topic)).queues
    }
    header = ResetOffsetRequestHeader(
        topic=topic, group=group, timestamp=timestamp_ms, is_force=forward
    )
    after: dict[MessageQueue, int] = {}
    for address in (await asking.brokers_of(topic)).values():
        try:
            after |= await _move_members(asking, address, header)
        except RefusedError as error:
            if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            after |= await _write_offsets(asking, group, topic, timestamp_ms, forward)
            break
    return [
        OffsetChange(queue=queue, before=before.get(queue), after=offset)
        for queue, offset in sorted(after.items())
    ]


async def _move_members(
    asking: Asking, address: str, header: ResetOffsetRequestHeader
) -> dict[MessageQueue, int]:
    """Has a broker tell the members of a group where to go on.

    A broker refuses that for a group that has no offset yet in some queue of the topic; such a
    queue gets one first.
    """
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    try:
        answer = await asking.call(address, code, header, topic=header.topic)
    except RefusedError as error:
        if error.code != ResponseCode.SYSTEM_ERROR or "not exist" not in (error.remark or ""):
            raise
        for one in (await stats_of(asking, address, header.group, header.topic)).queues:
            if one.committed_offset == 0:
                wanted = await offset_at(asking, address, one.queue, header.timestamp)
                wanted = _change(one, one.queue, wanted, header.is_force).after
                await commit(asking, address, header.group, one.queue, wanted)
        answer = await asking.call(address, code, header, topic=header.topic)
    return ResetOffsetBody.decode(answer.body).offset_table


async def _write_offsets(
    asking: Asking, group: str, topic: str, timestamp_ms: int, forward: bool
) -> dict[MessageQueue, int]:
    """Sets the offsets of a group without members."""
    table: dict[MessageQueue, int] = {}
    for address in (await asking.brokers_of(topic)).values():
        for one in (await stats_of(asking, address, group)).queues:
            if one.queue.topic == topic:
                wanted = await offset_at(asking, address, one.queue, timestamp_ms)
                table[one.queue] = _change(one, one.queue, wanted, forward).after
                await commit(asking, address, group, one.queue, table[one.queue])
    if not table:
        raise NotFoundError(f"group {group!r} has no offsets of topic {topic!r}", topic=topic)
    return table


async def offset_at(asking: Asking, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
    """Returns the offset of the message stored nearest to a time, which may be one before it.

    Of 0 it is the oldest, of -1 the end.
    """
    topic, queue_id = queue.topic, queue.queue_id
    if timestamp_ms == _END:
        end = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
        answer = await asking.call(address, RequestCode.GET_MAX_OFFSET, end, topic=topic)
        return answer.header(GetMaxOffsetResponseHeader).offset
    if timestamp_ms == 0:
        first = GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id)
        answer = await asking.call(address, RequestCode.GET_MIN_OFFSET, first, topic=topic)
        return max(answer.header(GetMinOffsetResponseHeader).offset, 0)
    moment = SearchOffsetRequestHeader(topic=topic, queue_id=queue_id, timestamp=timestamp_ms)
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    answer = await asking.call(address, code, moment, topic=topic)
    return max(answer.header(SearchOffsetResponseHeader).offset, 0)


async def commit(
    asking: Asking, address: str, group: str, queue: MessageQueue, offset: int
) -> None:
    """Writes the offset of one queue."""
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
    )
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    await asking.call(address, code, header, topic=queue.topic)


async def copy_offsets(
    asking: Asking, from_group: str, to_group: str, topic: str
) -> list[OffsetChange]:
    """Gives a group the offsets of another.

    Raises:
        NotFoundError: the other group has none of the topic.
    """
    before = {
        one.queue: one.committed_offset for one in (await lag_of(asking, to_group, topic)).queues
    }
    changes = []
    for address in (await asking.brokers_of(topic)).values():
        for one in (await stats_of(asking, address, from_group)).queues:
            if one.queue.topic == topic:
                await commit(asking, address, to_group, one.queue, one.committed_offset)
                changes.append(
                    OffsetChange(
                        queue=one.queue, before=before.get(one.queue), after=one.committed_offset
                    )
                )
    if not changes:
        raise NotFoundError(f"group {from_group!r} has no offsets of topic {topic!r}", topic=topic)
    return sorted(changes, key=lambda change: change.queue)
