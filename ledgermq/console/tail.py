"""The live tail of a topic: what came since the last look, newest first, within a budget.

A look costs one request to each broker group and one for each queue that has news. It keeps no
state: the cursor tells how far each queue was. What came faster than the budget allows is passed
over and counted, so a busy topic costs no more than a quiet one, and the newest is always there.
"""

import asyncio
from typing import Final, NamedTuple

from ledgermq.client.messages import ReceivedMessage
from ledgermq.console.absent import missing
from ledgermq.console.browsing import read_cursor, write_cursor
from ledgermq.console.call import Call
from ledgermq.console.cluster import ClusterView
from ledgermq.console.messages import pull, row_of
from ledgermq.console.shapes import messages as shapes
from ledgermq.console.tally import FAILURES, Tally
from ledgermq.console.topic_figures import queue_ends
from ledgermq.protocol.bodies import MessageQueue

# Of one look: queues that are read; others have their turn with the next one.
QUEUES_MAX: Final = 64
# Of the bodies of one look. A broker gives at most 256 KiB at once, or one message.
BYTES_MAX: Final = 1024 * 1024
_AT_ONCE: Final = 8


class _News(NamedTuple):
    """A queue with messages that were not looked at."""

    queue: MessageQueue
    address: str
    # The first that is read, and the first that was not there yet.
    begin: int
    end: int


async def look_at_tail(call: Call) -> shapes.Tail:
    """What came to a topic since the look that the cursor is from; the first one finds nothing."""
    async with call.reading.turn(call.account):
        return await _look(call)


async def _look(call: Call) -> shapes.Tail:
    view, tally, query = call.cluster, Tally(), call.body
    assert isinstance(query, shapes.TailRequest)
    topic = call.path["topic"]
    seen = read_cursor(query.cursor)
    entries = (await view.topics()).by_name.get(topic)
    if not entries:
        raise missing("topic", topic)
    targets = await view.leaders(tally, sorted(entries))
    ends = await queue_ends(view, tally, targets, topic)
    addresses = {target.name: target.address for target in targets}
    # A queue that is not in the cursor begins here: its broker was silent, or it is new.
    places = {
        (queue.broker_name, queue.queue_id): min(
            seen.get((queue.broker_name, queue.queue_id), its_ends.max_offset), its_ends.max_offset
        )
        for queue, its_ends in ends.items()
    }
    # Who did not answer keeps its place.
    places = {place: offset for place, offset in seen.items() if place not in places} | places
    fresh = [
        (queue, max(places[queue.broker_name, queue.queue_id], its_ends.min_offset), its_ends)
        for queue, its_ends in sorted(ends.items())
        if places[queue.broker_name, queue.queue_id] < its_ends.max_offset
    ][:QUEUES_MAX]
    share = max(query.limit // max(len(fresh), 1), 1)
    passed = 0
    news = []
    for queue, offset, its_ends in fresh:
        begin = max(offset, its_ends.max_offset - share)
        passed += begin - offset
        places[queue.broker_name, queue.queue_id] = its_ends.max_offset
        news.append(_News(queue, addresses[queue.broker_name], begin, its_ends.max_offset))
    messages, unread = await _read(view, tally, news, query.tag)
    fitting = []
    for one in messages:
        if not query.text or await call.searches.bodies.has_text(call.account, one, query.text):
            fitting.append(one)
    fitting.sort(key=lambda one: (-one.store_timestamp_ms, one.queue, -one.queue_offset))
    return shapes.Tail(
        rows=[row_of(one) for one in fitting[: query.limit]],
        cursor=write_cursor([(*place, offset) for place, offset in sorted(places.items())]),
        passed=passed + unread,
        read_bytes=sum(len(one.record.body) for one in messages),
        answers=tally.answers(),
    )


async def _read(
    view: ClusterView, tally: Tally, news: list[_News], tag: str
) -> tuple[list[ReceivedMessage], int]:
    """Returns the messages of queues, and how many were left because the bytes are used up."""
    room = asyncio.Semaphore(_AT_ONCE)
    found: list[ReceivedMessage] = []
    used = left = 0

    async def read(one: _News) -> None:
        nonlocal used, left
        offset = one.begin
        async with room:
            while offset < one.end:
                if used >= BYTES_MAX:
                    left += one.end - offset
                    return
                count = min(one.end - offset, 32)
                try:
                    pulled = await pull(view, one.address, one.queue, offset, count, tag or "*")
                except FAILURES as error:
                    tally.failed(one.queue.broker_name, one.address, error)
                    left += one.end - offset
                    return
                for message in pulled.messages:
                    if offset <= message.queue_offset < one.end:
                        used += len(message.record.body)
                        found.append(message)
                if pulled.next_offset <= offset:
                    return
                offset = pulled.next_offset

    await asyncio.gather(*(read(one) for one in news))
    return found, left
