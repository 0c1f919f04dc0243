"""Changes of topics, and single messages that are sent."""

import unicodedata
from functools import partial
from typing import Final

from ledgermq.console.absent import missing
from ledgermq.console.actions.plan import Plan, SkippedError, Step
from ledgermq.console.call import Call
from ledgermq.console.cluster import ClusterView, Target
from ledgermq.console.messages import find_message, text_of_place
from ledgermq.console.sending import (
    copied_properties,
    new_properties,
    send_once,
    text_of_properties,
)
from ledgermq.console.shapes import actions as shapes
from ledgermq.console.tally import Tally
from ledgermq.console.topic_figures import load_groups, load_span, own_names
from ledgermq.console.topic_tables import TopicEntry, kind_of
from ledgermq.http.replies import RequestError
from ledgermq.protocol import sysflag
from ledgermq.protocol.bodies import ConsumeMessageDirectlyResult
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    CreateTopicRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    DeleteTopicRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from ledgermq.protocol.names import DEFAULT_TOPIC

# Controls, formats (those that turn the direction of writing), surrogates, ends of lines.
_NOT_IN_NAMES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_KEPT_FLAGS: Final = sysflag.COMPRESSED | sysflag.COMPRESSION_MASK
_DELIVER_S: Final = 30.0
_BROKERS_MAX: Final = 1000
# Half messages whose producers did not answer for too long.
_PUT_ASIDE: Final = "TRANS_CHECK_MAX_TIME_TOPIC"


async def writers_of(view: ClusterView, names: list[str]) -> list[Target]:
    """Returns who takes changes.

    Raises:
        RequestError: a broker group is not known, or has no leader, or there are too many.
    """
    if len(names) > _BROKERS_MAX:
        message = f"this names {len(names)} broker groups, {_BROKERS_MAX} are allowed"
        raise RequestError(400, message, field="brokers", limit=_BROKERS_MAX)
    names = list(dict.fromkeys(names))
    brokers = await view.brokers()
    for name in names:
        if name not in brokers:
            raise missing("broker", name)
    found, without = await view.writers(names)
    if without:
        message = f"no leader now: {', '.join(without)}"
        raise RequestError(409, message, code="no_leader", field="broker", value=without)
    return found


async def writer_of(view: ClusterView, name: str) -> str:
    """Returns the address of who takes changes of a broker group at this moment."""
    view.kept.drop("brokers")
    return (await writers_of(view, [name]))[0].address


def text_of_topic(entry: TopicEntry | None) -> str:
    """Returns a topic of one broker group as a line; empty when it is not there."""
    if entry is None:
        return ""
    one = entry.config
    order = ", ordered" if one.order else ""
    return f"{one.read_queue_nums} read, {one.write_queue_nums} write, perm {one.perm}{order}"


async def _look(view: ClusterView, topic: str, broker: str) -> str:
    view.kept.drop("topics")
    return text_of_topic((await view.topics()).by_name.get(topic, {}).get(broker))


def check_new_name(name: str, field: str) -> None:
    """Refuses what a name of something new has nowhere: control characters, what is invisible or
    turns the direction of writing, line ends; brokers tell what else is not allowed.

    Raises:
        RequestError: the name has some.
    """
    if not name.isprintable() and any(
        unicodedata.category(one) in _NOT_IN_NAMES for one in set(name)
    ):
        message = f"the name of a {field} has no control characters, nor any that are invisible"
        raise RequestError(400, message, field=field, value=name)


async def plan_create_topic(call: Call, wanted: shapes.CreateTopic) -> Plan:
    """Creates a topic."""
    check_new_name(wanted.topic, "topic")
    view = call.cluster
    targets = await writers_of(view, wanted.brokers)
    there = (await view.topics()).by_name.get(wanted.topic, {})
    taken = sorted(set(there) & {target.name for target in targets})
    if taken:
        message = f"{', '.join(taken)} has topic {wanted.topic!r} already; change it there"
        raise RequestError(409, message, code="exists", field="topic", value=wanted.topic)
    attributes = f"+message.type={wanted.message_type}" if wanted.message_type else None
    header = header_of(
        wanted.topic,
        wanted.read_queues,
        wanted.write_queues,
        wanted.perm,
        wanted.order,
        0,
        attributes,
    )
    return Plan(
        summary=f"create topic {wanted.topic} on {len(targets)} broker groups",
        object=f"topic {wanted.topic}",
        steps=[put_topic_step(view, target.name, "", header) for target in targets],
    )


def header_of(
    topic: str,
    read_queues: int,
    write_queues: int,
    perm: int,
    order: bool,
    sys_flag: int,
    attributes: str | None,
) -> CreateTopicRequestHeader:
    """Returns what makes a topic as it should be."""
    return CreateTopicRequestHeader(
        topic=topic,
        default_topic=DEFAULT_TOPIC,
        read_queue_nums=read_queues,
        write_queue_nums=write_queues,
        perm=perm,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=sys_flag,
        order=order,
        attributes=attributes,
    )


def put_topic_step(
    view: ClusterView, broker: str, before: str, header: CreateTopicRequestHeader
) -> Step:
    """Makes a topic of a broker group as it should be; `before` is the text of what is there."""

    async def run() -> str:
        address = await writer_of(view, broker)
        await view.remote.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        return ""

    order = ", ordered" if header.order else ""
    after = f"{header.read_queue_nums} read, {header.write_queue_nums} write"
    return Step(
        target=broker,
        before=before,
        after=f"{after}, perm {header.perm}{order}",
        run=run,
        look=partial(_look, view, header.topic, broker),
    )


async def _entries(call: Call, topic: str) -> dict[str, TopicEntry]:
    """Returns a topic that may be changed.

    Raises:
        RequestError: it is not there, or is the system's.
    """
    entries = (await call.cluster.topics(topic)).by_name.get(topic)
    if not entries:
        raise missing("topic", topic)
    kind = kind_of(topic, next(iter(entries.values())), await own_names(call.cluster))
    if kind == "system":
        message = f"{topic} is a topic of the system"
        raise RequestError(409, message, code="system", field="topic", value=topic)
    return entries


async def plan_update_topic(call: Call, wanted: shapes.UpdateTopic) -> Plan:
    """Changes a topic."""
    entries = await _entries(call, wanted.topic)
    steps, warnings = [], []
    for broker in dict.fromkeys(wanted.brokers) or sorted(entries):
        entry = entries.get(broker)
        if entry is None:
            raise missing("broker", broker)
        one = entry.config
        header = header_of(
            wanted.topic,
            one.read_queue_nums if wanted.read_queues is None else wanted.read_queues,
            one.write_queue_nums if wanted.write_queues is None else wanted.write_queues,
            one.perm if wanted.perm is None else wanted.perm,
            one.order if wanted.order is None else wanted.order,
            one.topic_sys_flag,
            None,
        )
        step = put_topic_step(call.cluster, broker, text_of_topic(entry), header)
        if step.before != step.after:
            steps.append(step)
        if header.read_queue_nums < one.read_queue_nums:
            lost = one.read_queue_nums - header.read_queue_nums
            warnings.append(f"{lost} queues of {broker} are read no more: what is in them stays")
    summary = f"change topic {wanted.topic}"
    return Plan(summary=summary, object=f"topic {wanted.topic}", steps=steps, warnings=warnings)


async def plan_delete_topic(call: Call, wanted: shapes.DeleteTopic) -> Plan:
    """Deletes a topic."""
    view, topic = call.cluster, wanted.topic
    entries = await _entries(call, topic)
    tally = Tally()
    targets = await writers_of(view, sorted(entries))
    span = await load_span(view, tally, targets, topic)
    groups = await load_groups(view, tally, targets, topic)
    warnings = [f"{span.messages} messages are lost"] if span.messages else []
    if groups:
        warnings.append(f"{len(groups)} groups consume it: {', '.join(sorted(groups)[:10])}")
    summary = f"delete topic {topic} with its messages"
    steps = [delete_step(view, topic, target.name) for target in targets]
    steps += name_server_steps(view, topic)
    return Plan(summary=summary, object=f"topic {topic}", steps=steps, warnings=warnings)


def delete_step(view: ClusterView, topic: str, broker: str) -> Step:
    """Deletes a topic at a broker group."""

    async def run() -> str:
        header = DeleteTopicRequestHeader(topic=topic)
        address = await writer_of(view, broker)
        await view.remote.call(address, RequestCode.DELETE_TOPIC_IN_BROKER, header)
        return ""

    return Step(target=f"{broker}: {topic}", before=topic, run=run)


def name_server_steps(view: ClusterView, topic: str) -> list[Step]:
    """Forgets a topic at all name servers."""

    def step(address: str) -> Step:
        async def run() -> str:
            header = DeleteTopicFromNamesrvRequestHeader(topic=topic)
            await view.remote.call(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
            return ""

        return Step(target=f"name server {address}: {topic}", before=topic, run=run)

    return [step(address) for address in view.remote.name_server_addresses]


async def plan_send_message(call: Call, wanted: shapes.SendMessage) -> Plan:
    """Sends one message."""
    view, topic = call.cluster, wanted.topic
    await _entries(call, topic)
    properties = new_properties(wanted.properties, wanted.keys, wanted.tags, wanted.delay_level)
    # It is kept until somebody confirms it: what cannot be sent is refused now.
    size = len(text_of_properties(properties))
    body = wanted.body.encode("utf-8", "surrogatepass")

    async def run() -> str:
        return await send_once(view, topic, body, properties)

    step = Step(target=topic, after=f"{len(body)} bytes", run=run)
    summary = f"send a message of {len(body)} bytes to {topic}"
    held = len(body) + size
    return Plan(summary=summary, object=f"topic {topic}", steps=[step], held_bytes=held)


async def plan_resend_message(call: Call, wanted: shapes.ResendMessage) -> Plan:
    """Sends a copy of a message."""
    view, place = call.cluster, wanted.message
    await _entries(call, wanted.target)
    async with call.reading.turn(call.account):
        found = await find_message(view, wanted.topic, place.broker, place.queue, place.offset)
    where = text_of_place(wanted.topic, place.broker, place.queue, place.offset)

    async def run() -> str:
        flags = found.record.sys_flag & _KEPT_FLAGS
        body = bytes(found.record.body)
        return await send_once(
            view, wanted.target, body, copied_properties(found), flags, found.record.flag
        )

    step = Step(target=where, before=found.topic, after=wanted.target, run=run)
    summary, held = f"send a copy of {where} to {wanted.target}", found.record.size_bytes
    return Plan(summary=summary, object=where, steps=[step], held_bytes=held)


async def plan_deliver_message(call: Call, wanted: shapes.DeliverMessage) -> Plan:
    """Has one member of a group consume a message now."""
    view, place = call.cluster, wanted.message
    async with call.reading.turn(call.account):
        found = await find_message(view, wanted.topic, place.broker, place.queue, place.offset)
    where = text_of_place(wanted.topic, place.broker, place.queue, place.offset)
    message_id = found.offset_message_id

    async def run() -> str:
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group=wanted.group,
            client_id=wanted.client_id,
            msg_id=message_id,
        )
        address = await writer_of(view, place.broker)
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        answer = await view.remote.call(address, code, header, timeout_s=_DELIVER_S)
        told = ConsumeMessageDirectlyResult.decode(answer.body)
        text = f"{told.consume_result} in {told.spent_time_mills} ms"
        if told.consume_result not in ("CR_SUCCESS", "CR_COMMIT"):
            raise SkippedError(f"the client answered {text}: {told.remark or 'no remark'}")
        return text

    step = Step(target=where, after=wanted.client_id, run=run)
    summary = f"have {wanted.client_id} of {wanted.group} consume {where} now"
    warning = "its offsets do not move: the message may be delivered once more"
    return Plan(summary=summary, object=where, steps=[step], warnings=[warning])


async def plan_resume_check(call: Call, wanted: shapes.ResumeCheck) -> Plan:
    """Has a producer group asked again about a half message that was put aside."""
    view, place = call.cluster, wanted.message
    async with call.reading.turn(call.account):
        found = await find_message(view, _PUT_ASIDE, place.broker, place.queue, place.offset)
    where = text_of_place(_PUT_ASIDE, place.broker, place.queue, place.offset)
    message_id = found.offset_message_id

    async def run() -> str:
        header = ResumeCheckHalfMessageRequestHeader(msg_id=message_id)
        address = await writer_of(view, place.broker)
        await view.remote.call(address, RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
        return ""

    step = Step(target=where, after="waits for its end again", run=run)
    summary = f"have the producers of {where} asked again"
    warning = "the copy stays here: to have them asked twice may store the message twice"
    return Plan(summary=summary, object=where, steps=[step], warnings=[warning])
