"""Dead letters that are sent anew, each once, whoever asks for it and however often.

The work itself is the client's (`AdminClient.resend_dead_letters`): a message that was sent anew
names the dead letter that it was, so a second run finds it, also after a crash or from elsewhere.
"""

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
from ledgermq.console.messages import body_of, properties_of, pull, row_of
from ledgermq.console.shapes import actions as shapes
from ledgermq.console.tally import Tally
from ledgermq.console.topic_figures import queue_ends
from ledgermq.http.replies import RequestError
from ledgermq.protocol import properties as names
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.names import DEAD_LETTER_PREFIX

# Messages that a filter looks at.
_LOOKED_MAX: Final = 200_000
_STATES: Final[dict[str, ItemState]] = {
    "resent": "done",
    "already resent": "skipped",
    "already dropped": "skipped",
    "failed": "failed",
    "not found": "failed",
    "not tried": "skipped",
    "unknown": "unknown",
}


async def plan_resend(call: Call, wanted: shapes.ResendDeadLetters) -> Plan:
    """Sends dead letters anew."""
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
        steps = [Step(target=place, after="the topic it comes from") for place in places]
    else:
        steps = await _fitting(view, topic, targets, wanted)
    unique = list({step.target: step for step in steps}.values())
    seconds = len(unique) / wanted.per_s
    return Plan(
        summary=f"send {len(unique)} dead letters of {group} anew, in {seconds:.0f} s",
        object=f"group {group}",
        steps=unique,
        warnings=["those that were sent anew before are left out as they are reached"],
        run_all=partial(_resend, view, group, [step.target for step in unique], wanted.per_s),
    )


async def _fitting(
    view: ClusterView, topic: str, targets: list[Target], wanted: shapes.ResendDeadLetters
) -> list[Step]:
    """Returns a step for each dead letter that fits, the oldest of each queue first."""
    addresses = {target.name: target.address for target in targets}
    found: list[Step] = []
    looked = 0
    for queue, ends in sorted((await queue_ends(view, Tally(), targets, topic)).items()):
        offset = ends.min_offset
        while offset < ends.max_offset and len(found) < wanted.count_max:
            pulled = await pull(view, addresses[queue.broker_name], queue, offset)
            for message in pulled.messages:
                if message.queue_offset < ends.max_offset and _fits(message, wanted):
                    found.append(_step(queue, message))
            looked += len(pulled.messages)
            if looked > _LOOKED_MAX:
                limit = f"{_LOOKED_MAX} dead letters were looked at; choose a smaller range"
                raise RequestError(400, limit, field="messages", limit=_LOOKED_MAX)
            if pulled.next_offset <= offset:
                break
            offset = pulled.next_offset
    return found[: wanted.count_max]


def _step(queue: MessageQueue, message: ReceivedMessage) -> Step:
    row = row_of(message)
    place = f"{queue.broker_name}/{queue.queue_id}/{message.queue_offset}"
    return Step(target=place, before=row.message_id, after=row.origin_topic or "")


def _fits(message: ReceivedMessage, wanted: shapes.ResendDeadLetters) -> bool:
    properties, _ = properties_of(message)
    if names.DROPPED in properties:
        # A note beside the dead letters, none of them.
        return False
    stored_ms = message.store_timestamp_ms
    if wanted.begin_ms is not None and stored_ms < wanted.begin_ms:
        return False
    if wanted.end_ms is not None and stored_ms >= wanted.end_ms:
        return False
    if wanted.tag and properties.get(names.TAGS) != wanted.tag:
        return False
    return not wanted.text or holds(message, wanted.text.encode("utf-8", "surrogatepass"))


def holds(message: ReceivedMessage, text: bytes) -> bool:
    """Tells whether a body holds a text; one that cannot be decompressed does not."""
    try:
        return text in body_of(message)
    except RemoteProtocolError:
        return False


async def _resend(
    view: ClusterView, group: str, places: list[str], per_s: float, tell: Tell
) -> None:
    def told(outcome: DeadLetterOutcome) -> None:
        where = ""
        if outcome.queue is not None:
            queue = outcome.queue
            where = f"{queue.topic}/{queue.broker_name}/{queue.queue_id}/{outcome.queue_offset}"
        reason = outcome.reason or where or outcome.outcome
        tell(outcome.id, _STATES.get(outcome.outcome, "failed"), reason)

    async with AdminClient(view.remote.name_servers, config=view.remote.config) as admin:
        await admin.resend_dead_letters(group, places, rate=per_s, on_outcome=told)
