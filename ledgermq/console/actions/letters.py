"""Dead letters that are sent anew or dropped, each once, whoever asks for it and however often.

The work itself is the client's (`AdminClient.resend_dead_letters`, `drop_dead_letters`): a message
that was sent anew names the dead letter that it was, and so does the note of one that was dropped;
a second run finds it, also after a crash or from elsewhere.
"""

import asyncio
from functools import partial
from typing import Final

from ledgermq.client.admin.admin_client import AdminClient
from ledgermq.client.admin.results import DeadLetterOutcome
from ledgermq.client.messages import ReceivedMessage
from ledgermq.console.absent import missing
from ledgermq.console.actions.plan import ItemState, Plan, Step, Tell
from ledgermq.console.actions.topics import writers_of
from ledgermq.console.call import Call
from ledgermq.console.cluster import ClusterView, Target
from ledgermq.console.letters import done_before
from ledgermq.console.messages import properties_of, pull, row_of
from ledgermq.console.shapes import actions as shapes
from ledgermq.console.tally import Tally
from ledgermq.console.topic_figures import queue_ends
from ledgermq.http.replies import RequestError
from ledgermq.protocol import properties as names
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.names import DEAD_LETTER_PREFIX

# Messages that a filter looks at.
_LOOKED_MAX: Final = 200_000
_PER_S_MIN: Final = 0.1
_Wanted = shapes.ResendDeadLetters | shapes.DropDeadLetters
_STATES: Final[dict[str, ItemState]] = {
    "resent": "done",
    "dropped": "done",
    "already resent": "skipped",
    "already dropped": "skipped",
    "failed": "failed",
    "not found": "failed",
    "not tried": "skipped",
    "unknown": "unknown",
}


async def plan_resend(call: Call, wanted: shapes.ResendDeadLetters) -> Plan:
    """Sends dead letters anew."""
    if wanted.per_s < _PER_S_MIN:
        # It would hold one of few places for as long as its session lasts.
        message = f"per_s is {wanted.per_s:g}, allowed are {_PER_S_MIN:g} and more"
        raise RequestError(400, message, field="per_s", value=wanted.per_s, limit=_PER_S_MIN)
    steps = await _chosen(call, wanted, "the topic it comes from")
    seconds = len(steps) / wanted.per_s
    plan = Plan(
        summary=f"send {len(steps)} dead letters of {wanted.group} anew, in {seconds:.0f} s",
        object=f"group {wanted.group}",
        warnings=["those that were sent anew before are left out as they are reached"],
        run_all=partial(_work, call.cluster, wanted, [step.target for step in steps]),
    )
    await plan.extend(steps)
    return plan


async def plan_drop(call: Call, wanted: shapes.DropDeadLetters) -> Plan:
    """Notes that dead letters are dealt with."""
    steps = await _chosen(call, wanted, "dropped")
    for step in steps:
        step.after = "dropped"
    plan = Plan(
        summary=f"drop {len(steps)} dead letters of {wanted.group}",
        object=f"group {wanted.group}",
        warnings=["a letter that is dropped is sent to nobody, unless somebody chooses it again"],
        run_all=partial(_work, call.cluster, wanted, [step.target for step in steps]),
    )
    await plan.extend(steps)
    return plan


async def _chosen(call: Call, wanted: _Wanted, after: str) -> list[Step]:
    """Returns a step for each dead letter that is named, or fits."""
    view, group = call.cluster, wanted.group
    topic = DEAD_LETTER_PREFIX + group
    entries = (await view.topics()).by_name.get(topic)
    if not entries:
        raise missing("group", group)
    targets = await writers_of(view, sorted(entries))
    if wanted.messages:
        if wanted.begin_ms or wanted.end_ms or wanted.tag or wanted.text:
            message = "give places or a filter, not both"
            raise RequestError(400, message, field="messages")
        places = [f"{one.broker}/{one.queue}/{one.offset}" for one in wanted.messages]
        return [Step(target=place, after=after) for place in dict.fromkeys(places)]
    async with call.searches.scans.turn(call.account):
        return await _fitting(call, topic, targets, wanted)


async def _fitting(call: Call, topic: str, targets: list[Target], wanted: _Wanted) -> list[Step]:
    """Returns a step for each dead letter that fits and is not dropped, the oldest first.

    What says that a letter is dropped lies behind it in its queue: each queue is read to its end.
    """
    view = call.cluster
    addresses = {target.name: target.address for target in targets}
    found: dict[str, Step] = {}
    dropped: set[str] = set()
    looked = 0
    for queue, ends in sorted((await queue_ends(view, Tally(), targets, topic)).items()):
        address = addresses[queue.broker_name]
        offset = max(ends.min_offset, await done_before(view, address, queue))
        while offset < ends.max_offset:
            pulled = await pull(view, address, queue, offset)
            for message in pulled.messages:
                await asyncio.sleep(0)
                note = properties_of(message)[0].get(names.DROPPED)
                if note is not None:
                    dropped.add(note)
                elif message.queue_offset < ends.max_offset and await _fits(call, message, wanted):
                    step = _step(queue, message)
                    found[step.target] = step
            looked += len(pulled.messages)
            if looked > _LOOKED_MAX:
                limit = f"{_LOOKED_MAX} dead letters were looked at; choose single ones"
                raise RequestError(400, limit, field="messages", limit=_LOOKED_MAX)
            if pulled.next_offset <= offset:
                break
            offset = pulled.next_offset
    steps = [step for place, step in found.items() if place not in dropped]
    return steps[: wanted.count_max]


def _step(queue: MessageQueue, message: ReceivedMessage) -> Step:
    row = row_of(message)
    place = f"{queue.broker_name}/{queue.queue_id}/{message.queue_offset}"
    return Step(target=place, before=row.message_id, after=row.origin_topic or "")


async def _fits(call: Call, message: ReceivedMessage, wanted: _Wanted) -> bool:
    properties, _ = properties_of(message)
    stored_ms = message.store_timestamp_ms
    if wanted.begin_ms is not None and stored_ms < wanted.begin_ms:
        return False
    if wanted.end_ms is not None and stored_ms >= wanted.end_ms:
        return False
    if wanted.tag and properties.get(names.TAGS) != wanted.tag:
        return False
    bodies = call.searches.bodies
    return not wanted.text or await bodies.has_text(call.account, message, wanted.text)


async def _work(view: ClusterView, wanted: _Wanted, places: list[str], tell: Tell) -> None:
    def told(outcome: DeadLetterOutcome) -> None:
        where = ""
        if outcome.queue is not None and outcome.outcome == "resent":
            queue = outcome.queue
            where = f"{queue.topic}/{queue.broker_name}/{queue.queue_id}/{outcome.queue_offset}"
        reason = outcome.reason or where or outcome.outcome
        tell(outcome.id, _STATES.get(outcome.outcome, "failed"), reason)

    async with AdminClient(view.remote.name_servers, config=view.remote.config) as admin:
        is_drop = isinstance(wanted, shapes.DropDeadLetters)
        work = admin.drop_dead_letters if is_drop else admin.resend_dead_letters
        await work(wanted.group, places, rate=wanted.per_s, on_outcome=told)
