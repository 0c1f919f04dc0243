"""Browsing: messages of a topic, the newest first, a part at a time; a cursor tells where to go on.

A cursor holds for each queue the offset before which the next part ends, so that what comes in
meanwhile moves nothing.
"""

import asyncio
import base64
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from ledgermq.client.messages import ReceivedMessage
from ledgermq.console.call import Call
from ledgermq.console.cluster import ClusterView, Target
from ledgermq.console.messages import pull, row_of
from ledgermq.console.shapes import messages as shapes
from ledgermq.console.tally import FAILURES, Tally
from ledgermq.console.topic_figures import queue_ends
from ledgermq.http.replies import RequestError
from ledgermq.protocol.bodies import MessageQueue

_QUEUES_MAX: Final = 64
# Of one queue: a part that brokers cut into many is read no further.
_PULLS_MAX: Final = 20
# Queues that are read at the same time: an answer has 256 KiB, or one message.
_AT_ONCE: Final = 4
# Of a cursor: whoever asks may have made it up.
_PLACES_MAX: Final = 16_384

# Broker, queue, and the first offset of the part before.
Place = tuple[str, int, int]


async def browse(
    call: Call,
    tally: Tally,
    targets: list[Target],
    topic: str,
    query: shapes.BrowseQuery,
    begins: Mapping[tuple[str, int], int] | None = None,
    keep: Callable[[ReceivedMessage], bool] = lambda _: True,
) -> shapes.Browsed:
    """Returns a part of the messages of a topic.

    Args:
        call: of the viewer; a few are served at the same time.
        tally, targets: whom to ask.
        topic: its name.
        query: where to go on, and how many.
        begins: by broker and queue, the first offset that counts; None: all, and else those alone.
        keep: tells which messages are shown; others are counted, and passed over.

    Raises:
        RequestError: the cursor is none of ours.
    """
    befores = read_cursor(query.cursor)
    async with call.reading.turn(call.account):
        return await _browse(
            call.cluster, tally, targets, topic, query.limit, befores, begins, keep
        )


async def _browse(
    view: ClusterView,
    tally: Tally,
    targets: list[Target],
    topic: str,
    limit: int,
    befores: Mapping[tuple[str, int], int],
    begins: Mapping[tuple[str, int], int] | None,
    keep: Callable[[ReceivedMessage], bool],
) -> shapes.Browsed:
    addresses = {target.name: target.address for target in targets}
    ranges: list[tuple[MessageQueue, int, int]] = []
    total = 0
    ends = await queue_ends(view, tally, targets, topic)
    for queue, its_ends in sorted(ends.items())[:_QUEUES_MAX]:
        place = (queue.broker_name, queue.queue_id)
        if begins is not None and place not in begins:
            continue
        begin = max(its_ends.min_offset, 0 if begins is None else begins[place])
        total += max(its_ends.max_offset - begin, 0)
        ranges.append((queue, begin, min(befores.get(place, its_ends.max_offset), 2**62)))

    room = asyncio.Semaphore(_AT_ONCE)

    async def read(queue: MessageQueue, begin: int, end: int) -> list[shapes.MessageRow]:
        first = max(begin, end - limit)
        try:
            async with room:
                return await _read(view, addresses[queue.broker_name], queue, first, end, keep)
        except FAILURES as error:
            tally.failed(queue.broker_name, addresses[queue.broker_name], error)
            return []

    found = await asyncio.gather(*(read(*one) for one in ranges))
    rows = [row for part in found for row in part]
    rows.sort(key=lambda row: (-row.stored_ms, row.broker, row.queue, -row.offset))
    shown = rows[:limit]
    rest: list[Place] = []
    for (queue, begin, end), part in zip(ranges, found, strict=True):
        place = (queue.broker_name, queue.queue_id)
        mine = [row.offset for row in shown if (row.broker, row.queue) == place]
        floor = max(begin, end - limit)
        # What lies in the part and was not to be had (a hole) is not asked for again.
        before = min(mine) if mine else end if part else floor
        if before > begin:
            rest.append((queue.broker_name, queue.queue_id, before))
    return shapes.Browsed(
        rows=shown,
        total=total,
        next=write_cursor(rest) if rest else None,
        answers=tally.answers(),
    )


async def _read(
    view: ClusterView,
    address: str,
    queue: MessageQueue,
    begin: int,
    end: int,
    keep: Callable[[ReceivedMessage], bool],
) -> list[shapes.MessageRow]:
    """Returns the rows of a queue's part; their messages, with bodies, are not kept."""
    found: list[shapes.MessageRow] = []
    offset = begin
    for _ in range(_PULLS_MAX):
        if offset >= end:
            break
        pulled = await pull(view, address, queue, offset, min(end - offset, 32))
        found += [
            row_of(one) for one in pulled.messages if begin <= one.queue_offset < end and keep(one)
        ]
        if pulled.next_offset <= offset:
            break
        offset = pulled.next_offset
    return found


def write_cursor(places: list[Place]) -> str:
    """Returns a cursor, which `read_cursor` reads."""
    return base64.urlsafe_b64encode(msgspec.json.encode(places)).decode()


def read_cursor(text: str) -> dict[tuple[str, int], int]:
    """Returns the offset by broker and queue; nothing of an empty cursor.

    Raises:
        RequestError: it is none of ours.
    """
    if not text:
        return {}
    try:
        places = msgspec.json.decode(base64.urlsafe_b64decode(text.encode()), type=list[Place])
    except (msgspec.MsgspecError, ValueError) as error:
        raise RequestError(400, "this cursor is none of ours", field="cursor") from error
    if len(places) > _PLACES_MAX:
        message = f"this cursor has {len(places)} queues, {_PLACES_MAX} are allowed"
        raise RequestError(400, message, field="cursor", limit=_PLACES_MAX)
    return {(broker, queue): max(before, 0) for broker, queue, before in places}
