"""Dead letters: groups that have some, and the letters of one."""

import asyncio
from typing import Final, NamedTuple

from ledgermq.console.absent import missing
from ledgermq.console.browsing import browse
from ledgermq.console.call import Call, matching, ordered, page_of
from ledgermq.console.cluster import ClusterView, Target
from ledgermq.console.shapes import messages as shapes
from ledgermq.console.tally import Tally
from ledgermq.console.topic_figures import queue_ends
from ledgermq.protocol.bodies import MessageQueue, TopicOffset
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.headers import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
)
from ledgermq.protocol.names import DEAD_LETTER_PREFIX

_AGE_S: Final = 10.0
_GROUPS_MAX: Final = 5_000
_READABLE: Final = 4


class _Box(NamedTuple):
    """The dead letters of one group."""

    ends: dict[MessageQueue, TopicOffset]
    readable: bool

    @property
    def messages(self) -> int:
        return sum(max(one.max_offset - one.min_offset, 0) for one in self.ends.values())

    @property
    def newest_ms(self) -> int | None:
        return max((one.last_update_timestamp for one in self.ends.values()), default=0) or None


async def _boxes(view: ClusterView, tally: Tally) -> dict[str, _Box]:
    async def load(tally: Tally) -> dict[str, _Box]:
        topics = (await view.topics()).by_name
        names = sorted(topic for topic in topics if topic.startswith(DEAD_LETTER_PREFIX))

        async def box(topic: str) -> _Box:
            entries = topics[topic]
            targets = await view.leaders(tally, sorted(entries))
            readable = all(entry.config.perm & _READABLE for entry in entries.values())
            return _Box(await queue_ends(view, tally, targets, topic), readable)

        names = names[:_GROUPS_MAX]
        found = await asyncio.gather(*map(box, names))
        return {
            topic.removeprefix(DEAD_LETTER_PREFIX): one
            for topic, one in zip(names, found, strict=True)
        }

    return await view.tallied(tally, "dead_letters", _AGE_S, load)


async def get_dead_letters(call: Call) -> shapes.DeadLetters:
    """Groups with dead letters."""
    query, tally = call.asks(shapes.DeadLettersQuery), Tally()
    boxes = await _boxes(call.cluster, tally)
    names = [
        group for group in matching(boxes, query.filter) if query.empty or boxes[group].messages
    ]
    match query.sort:
        case "name":
            names = ordered(names, str, query.order)
        case "messages":
            names = ordered(names, lambda group: boxes[group].messages, query.order)
        case "newest":
            names = ordered(names, lambda group: boxes[group].newest_ms, query.order)
    rows = await asyncio.gather(
        *(_row(call.cluster, tally, group, boxes[group]) for group in page_of(names, query))
    )
    return shapes.DeadLetters(
        rows=list(rows),
        total=len(names),
        messages=sum(boxes[group].messages for group in names),
        answers=tally.answers(),
    )


async def _row(view: ClusterView, tally: Tally, group: str, box: _Box) -> shapes.DeadLetterRow:
    oldest = await asyncio.gather(
        *(
            _oldest(view, tally, queue)
            for queue, ends in box.ends.items()
            if ends.max_offset > ends.min_offset
        )
    )
    return shapes.DeadLetterRow(
        group=group,
        topic=DEAD_LETTER_PREFIX + group,
        readable=box.readable,
        messages=box.messages,
        oldest_ms=min((one for one in oldest if one is not None), default=None),
        newest_ms=box.newest_ms,
    )


async def _oldest(view: ClusterView, tally: Tally, queue: MessageQueue) -> int | None:
    found = await view.each(
        tally,
        await view.leaders(tally, [queue.broker_name]),
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        GetEarliestMsgStoretimeRequestHeader(topic=queue.topic, queue_id=queue.queue_id),
        read=lambda answer: answer.header(GetEarliestMsgStoretimeResponseHeader).timestamp,
    )
    return found[0][1] if found and found[0][1] > 0 else None


async def browse_dead_letters(call: Call) -> shapes.Browsed:
    """Dead letters of a group, the newest first."""
    view, tally = call.cluster, Tally()
    topic = DEAD_LETTER_PREFIX + call.path["group"]
    entries = (await view.topics()).by_name.get(topic)
    if not entries:
        raise missing("group", call.path["group"])
    targets: list[Target] = await view.leaders(tally, sorted(entries))
    return await browse(view, tally, targets, topic, call.asks(shapes.BrowseQuery))
