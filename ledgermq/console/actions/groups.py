"""Changes of consumer groups: settings, deletion, and where they go on."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

from ledgermq.client.errors import RefusedError
from ledgermq.console.absent import missing
from ledgermq.console.actions.plan import Plan, Step, Tell
from ledgermq.console.actions.topics import (
    check_new_name,
    delete_step,
    name_server_steps,
    writer_of,
    writers_of,
)
from ledgermq.console.answers import read_queues
from ledgermq.console.call import Call
from ledgermq.console.cluster import ClusterView
from ledgermq.console.group_figures import load_stats
from ledgermq.console.group_members import load_members
from ledgermq.console.shapes import actions as shapes
from ledgermq.console.tally import Tally, reason_of
from ledgermq.console.topic_figures import queue_ends
from ledgermq.http.replies import RequestError
from ledgermq.protocol.bodies import (
    MessageQueue,
    ResetOffsetBody,
    SubscriptionGroupConfig,
    TopicOffset,
)
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.headers import (
    DeleteSubscriptionGroupRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from ledgermq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX

# As brokers take it: stands for the end of each queue.
_END: Final = -1


def text_of_group(one: SubscriptionGroupConfig | None) -> str:
    """Returns a group of one broker group as a line; empty when it is not there."""
    if one is None:
        return ""
    switches = [
        name
        for name, is_on in (
            ("consumes", one.consume_enable),
            ("from the oldest", one.consume_from_min_enable),
            ("broadcasts", one.consume_broadcast_enable),
            ("members are told", one.notify_consumer_ids_changed_enable),
        )
        if is_on
    ]
    retries = f"{one.retry_max_times} retries in {one.retry_queue_nums} queues"
    return ", ".join([*switches, retries])


async def _look(view: ClusterView, group: str, broker: str) -> str:
    view.kept.drop("groups")
    return text_of_group((await view.groups()).by_name.get(group, {}).get(broker))


async def plan_create_group(call: Call, wanted: shapes.CreateGroup) -> Plan:
    """Creates or changes a consumer group."""
    view, group = call.cluster, wanted.group
    there = (await view.groups()).by_name.get(group, {})
    if not there:
        check_new_name(group, "group")
    body = SubscriptionGroupConfig(
        group_name=group,
        consume_enable=wanted.consume_enabled,
        consume_from_min_enable=wanted.from_min_enabled,
        consume_broadcast_enable=wanted.broadcast_enabled,
        retry_queue_nums=wanted.retry_queues,
        retry_max_times=wanted.retry_max,
        notify_consumer_ids_changed_enable=wanted.notify_members,
    )
    steps = [
        put_group_step(view, target.name, there.get(target.name), body)
        for target in await writers_of(view, wanted.brokers)
    ]
    verb = "change" if there else "create"
    return Plan(
        summary=f"{verb} consumer group {group}",
        object=f"group {group}",
        steps=[one for one in steps if one.before != one.after],
    )


def put_group_step(
    view: ClusterView,
    broker: str,
    there: SubscriptionGroupConfig | None,
    wanted: SubscriptionGroupConfig,
) -> Step:
    """Makes a consumer group of a broker group as it should be; `there` is what it is."""

    async def run() -> str:
        address = await writer_of(view, broker)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await view.remote.call(address, code, body=wanted.encode())
        return ""

    return Step(
        target=broker,
        before=text_of_group(there),
        after=text_of_group(wanted),
        run=run,
        look=partial(_look, view, wanted.group_name, broker),
    )


async def plan_delete_group(call: Call, wanted: shapes.DeleteGroup) -> Plan:
    """Deletes a consumer group."""
    view, group = call.cluster, wanted.group
    there = (await view.groups(group)).by_name.get(group)
    if not there:
        raise missing("group", group)

    def step(broker: str) -> Step:
        async def run() -> str:
            header = DeleteSubscriptionGroupRequestHeader(
                group_name=group, remove_offset=wanted.offsets
            )
            address = await writer_of(view, broker)
            await view.remote.call(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
            return ""

        return Step(
            target=broker,
            before=text_of_group(there[broker]),
            run=run,
            look=partial(_look, view, group, broker),
        )

    tally = Tally()
    steps = [step(broker) for broker in sorted(there)]
    if wanted.topics:
        topics = (await view.topics()).by_name
        for topic in (RETRY_PREFIX + group, DEAD_LETTER_PREFIX + group):
            if topic in topics:
                steps += [delete_step(view, topic, broker) for broker in sorted(topics[topic])]
                steps += name_server_steps(view, topic)
    members = await load_members(view, tally, group)
    warnings = [f"{len(members.clients)} members are online"] if members.clients else []
    if wanted.offsets:
        warnings.append("how far it has consumed is forgotten")
    return Plan(
        summary=f"delete consumer group {group}",
        object=f"group {group}",
        steps=steps,
        warnings=warnings,
    )


def _queue_text(queue: MessageQueue) -> str:
    return f"{queue.broker_name}/{queue.queue_id}"


class _Reset:
    """One reset: what it wants of each queue."""

    def __init__(self, call: Call, wanted: shapes.ResetOffset) -> None:
        self.view, self.wanted = call.cluster, wanted

    async def ends(self) -> dict[MessageQueue, TopicOffset]:
        """Returns the ends of the queues that are meant."""
        wanted = self.wanted
        tally = Tally()
        entries = (await self.view.topics(wanted.topic)).by_name.get(wanted.topic)
        if not entries:
            raise missing("topic", wanted.topic)
        targets = await writers_of(self.view, sorted(entries))
        table = await queue_ends(self.view, tally, targets, wanted.topic)
        answers = tally.answers()
        if answers.silent:
            reasons = "; ".join(f"{one.who}: {one.reason}" for one in answers.silent)
            raise RequestError(502, f"not all brokers answer: {reasons}", code="unreachable")
        return {
            queue: ends
            for queue, ends in sorted(table.items())
            if wanted.broker in ("", queue.broker_name) and wanted.queue in (None, queue.queue_id)
        }

    async def offset(self, queue: MessageQueue, ends: TopicOffset, committed: int) -> int:
        """Returns where the group is to go on in a queue."""
        value = self.wanted.value or 0
        match self.wanted.to:
            case "earliest":
                return ends.min_offset
            case "latest":
                return ends.max_offset
            case "offset":
                return min(max(value, ends.min_offset), ends.max_offset)
            case "shift":
                return min(max(committed + value, ends.min_offset), ends.max_offset)
            case "time":
                header = SearchOffsetRequestHeader(
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    timestamp=self.wanted.moment_ms or 0,
                )
                address = await writer_of_kept(self.view, queue.broker_name)
                code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
                answer = await self.view.remote.call(address, code, header)
                return max(answer.header(SearchOffsetResponseHeader).offset, 0)

    @property
    def timestamp_ms(self) -> int:
        """What a broker tells the members of a group."""
        match self.wanted.to:
            case "earliest":
                return 0
            case "latest":
                return _END
        return self.wanted.moment_ms or 0


async def writer_of_kept(view: ClusterView, broker: str) -> str:
    """Returns who takes changes, as it was a moment ago."""
    return (await writers_of(view, [broker]))[0].address


async def plan_reset_offset(call: Call, wanted: shapes.ResetOffset) -> Plan:
    """Makes a group go on elsewhere."""
    view, group = call.cluster, wanted.group
    if wanted.to == "time" and wanted.moment_ms is None:
        raise RequestError(400, "moment_ms is missing", field="moment_ms")
    if wanted.to in ("offset", "shift") and wanted.value is None:
        raise RequestError(400, "value is missing", field="value")
    if group not in (await view.groups(group)).by_name:
        raise missing("group", group)
    reset, tally = _Reset(call, wanted), Tally()
    ends = await reset.ends()
    stats = await load_stats(view, tally, group, wanted.topic)
    committed = {one.queue: one.offsets.consumer_offset for one in stats}
    view.kept.drop(("members", group))
    members = await load_members(view, tally, group)
    is_whole = not wanted.broker and wanted.queue is None
    if members.clients and (wanted.to in ("offset", "shift") or not is_whole):
        message = (
            f"{len(members.clients)} members are online, and brokers tell members a time only, for"
            " all queues: stop them first, or choose time, earliest or latest"
        )
        raise RequestError(409, message, code="online", field="to", value=wanted.to)
    steps, back, forth = [], 0, 0
    for queue, its_ends in ends.items():
        before = committed.get(queue)
        after = await reset.offset(queue, its_ends, before or 0)
        back += max((before or 0) - after, 0)
        forth += max(after - (before or 0), 0)
        step = Step(
            target=_queue_text(queue),
            before="" if before is None else str(before),
            after=str(after),
        )
        if not members.clients:
            step.run = partial(_commit, view, group, queue, after)
            step.look = partial(_committed, view, group, queue, step.before)
        steps.append(step)
    warnings = [f"{back} messages are delivered again"] if back else []
    warnings += [f"{forth} messages are left out"] if forth else []
    plan = Plan(
        summary=f"make {group} go on in {wanted.topic} at {_words_of(wanted)}",
        object=f"group {group}",
        steps=steps,
        warnings=warnings,
    )
    if members.clients:
        plan.warnings.append(f"{len(members.clients)} members are online and are told")
        header = ResetOffsetRequestHeader(
            topic=wanted.topic, group=group, timestamp=reset.timestamp_ms, is_force=True
        )
        names = sorted({queue.broker_name for queue in ends})
        plan.run_all = partial(_tell_members, view, names, header, list(ends))
    return plan


def _words_of(wanted: shapes.ResetOffset) -> str:
    if wanted.to == "time":
        return f"the messages of {wanted.moment_ms} ms"
    return wanted.to if wanted.value is None else f"{wanted.to} {wanted.value}"


async def _commit(view: ClusterView, group: str, queue: MessageQueue, offset: int) -> str:
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
    )
    address = await writer_of(view, queue.broker_name)
    await view.remote.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
    now = await _committed(view, group, queue, "")
    return "" if now == str(offset) else f"read back: {now or 'nothing'}"


async def _committed(view: ClusterView, group: str, queue: MessageQueue, before: str) -> str:
    """Returns the offset of a group in a queue.

    Args:
        before: of the preview; what was nothing there may be told as the oldest offset here.
    """
    header = QueryConsumerOffsetRequestHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id
    )
    address = await writer_of(view, queue.broker_name)
    answer = await view.remote.ask(address, RequestCode.QUERY_CONSUMER_OFFSET, header)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return before if before in ("", "0") else ""
    if answer.code != ResponseCode.SUCCESS:
        raise RefusedError(answer.code, answer.remark, broker=address)
    offset = answer.header(QueryConsumerOffsetResponseHeader).offset
    return before if offset <= 0 and before in ("", "0") else str(offset)


async def _tell_members(
    view: ClusterView,
    brokers: list[str],
    header: ResetOffsetRequestHeader,
    queues: list[MessageQueue],
    tell: Tell,
) -> None:
    """Has each broker tell the members of the group where to go on."""
    for broker in brokers:
        mine = [queue for queue in queues if queue.broker_name == broker]
        try:
            address = await writer_of(view, broker)
            code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
            answer = await view.remote.call(address, code, header)
            body = await asyncio.to_thread(read_queues, answer.body, ResetOffsetBody)
            table: Mapping[MessageQueue, int] = body.offset_table
        except (RefusedError, RequestError) as error:
            reason = error.message if isinstance(error, RequestError) else reason_of(error)
            for queue in mine:
                tell(_queue_text(queue), "failed", reason)
            continue
        for queue in mine:
            if queue in table:
                tell(_queue_text(queue), "done", f"told to go on at {table[queue]}")
            else:
                tell(_queue_text(queue), "skipped", "the broker did not name this queue")


async def plan_clone_offsets(call: Call, wanted: shapes.CloneOffsets) -> Plan:
    """Gives a group the offsets of another."""
    view, tally = call.cluster, Tally()
    for group in (wanted.group, wanted.target):
        if group not in (await view.groups(group)).by_name:
            raise missing("group", group)
    stats = await load_stats(view, tally, wanted.group, wanted.topic)
    own = await load_stats(view, tally, wanted.target, wanted.topic)
    committed = {one.queue: one.offsets.consumer_offset for one in own}
    members = await load_members(view, tally, wanted.target)
    steps = []
    for one in stats:
        if one.queue.topic == wanted.topic:
            before = str(committed[one.queue]) if one.queue in committed else ""
            after = one.offsets.consumer_offset
            steps.append(
                Step(
                    target=_queue_text(one.queue),
                    before=before,
                    after=str(after),
                    run=partial(_commit, view, wanted.target, one.queue, after),
                    look=partial(_committed, view, wanted.target, one.queue, before),
                )
            )
    warnings = []
    if members.clients:
        count = len(members.clients)
        warnings.append(f"{count} members of {wanted.target} are online and go on where they are")
    return Plan(
        summary=f"give {wanted.target} the offsets of {wanted.group} in {wanted.topic}",
        object=f"group {wanted.target}",
        steps=steps,
        warnings=warnings,
    )
