"""Dead letters: groups that have some, and the letters of one."""

import asyncio
from typing import Final, NamedTuple

from ledgermq.client.messages import ReceivedMessage
from ledgermq.console.absent import missing
from ledgermq.console.browsing import browse
from ledgermq.console.call import Call, matching, ordered, page_of, words_of
from ledgermq.console.cluster import ClusterView, Target
from ledgermq.console.letters import done_before, with_states
from ledgermq.console.messages import properties_of
from ledgermq.console.shapes import messages as shapes
from ledgermq.console.tally import FAILURES, Tally
from ledgermq.console.topic_figures import queue_ends
from ledgermq.protocol import properties as names
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
        boxes = sorted(topic for topic in topics if topic.startswith(DEAD_LETTER_PREFIX))

        async def box(topic: str) -> _Box:
            entries = topics[topic]
            targets = await view.leaders(tally, sorted(entries))
            readable = all(entry.config.perm & _READABLE for entry in entries.values())
            return _Box(await queue_ends(view, tally, targets, topic), readable)

        boxes = boxes[:_GROUPS_MAX]
        found = await asyncio.gather(*map(box, boxes))
        return {
            topic.removeprefix(DEAD_LETTER_PREFIX): one
            for topic, one in zip(boxes, found, strict=True)
        }

    return await view.tallied(tally, "dead_letters", _AGE_S, load)


async def get_dead_letters(call: Call) -> shapes.DeadLetters:
    """Groups with dead letters."""
    query, tally = call.asks(shapes.DeadLettersQuery), Tally()
    boxes = await _boxes(call.cluster, tally)
    groups = [
        group for group in matching(boxes, query.filter) if query.empty or boxes[group].messages
    ]
    match query.sort:
        case "name":
            groups = ordered(groups, str, query.order)
        case "messages":
            groups = ordered(groups, lambda group: boxes[group].messages, query.order)
        case "newest":
            groups = ordered(groups, lambda group: boxes[group].newest_ms, query.order)
    rows = await asyncio.gather(
        *(_row(call.cluster, tally, group, boxes[group]) for group in page_of(groups, query))
    )
    return shapes.DeadLetters(
        rows=list(rows),
        total=len(groups),
        messages=sum(boxes[group].messages for group in groups),
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


async def browse_dead_letters(call: Call) -> shapes.Letters:
    """Dead letters of a group, the newest first."""
    view, tally, query = call.cluster, Tally(), call.asks(shapes.LettersQuery)
    group = call.path["group"]
    topic = DEAD_LETTER_PREFIX + group
    columns = words_of(query.columns, "columns", ("state",))
    entries = (await view.topics()).by_name.get(topic)
    if not entries:
        raise missing("group", group)
    targets: list[Target] = await view.leaders(tally, sorted(entries))
    found = await browse(call, tally, targets, topic, query, keep=_is_letter)
    waiting = await _waiting(view, targets, await queue_ends(view, tally, targets, topic))
    return shapes.Letters(
        rows=await with_states(view, group, found.rows, ask="state" in columns),
        total=found.total,
        waiting_max=waiting,
        next=found.next,
        answers=tally.answers(),
    )


def _is_letter(message: ReceivedMessage) -> bool:
    """Tells a dead letter from the note that one is dropped."""
    return names.DROPPED not in properties_of(message)[0]


async def _waiting(
    view: ClusterView, targets: list[Target], ends: dict[MessageQueue, TopicOffset]
) -> int:
    """Returns how many letters are not known to be dealt with; all where a broker does not say."""
    addresses = {target.name: target.address for target in targets}

    async def count(queue: MessageQueue, its_ends: TopicOffset) -> int:
        try:
            done = await done_before(view, addresses[queue.broker_name], queue)
        except FAILURES:
            done = 0
        return max(its_ends.max_offset - max(its_ends.min_offset, done), 0)

    return sum(await asyncio.gather(*(count(*one) for one in ends.items())))
