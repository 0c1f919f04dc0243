"""What a member of a consumer group tells about itself, through a broker that knows it (307)."""

import asyncio
from typing import Final

from ledgermq.console.absent import missing
from ledgermq.console.call import Call
from ledgermq.console.cluster import ClusterView, Target
from ledgermq.console.group_figures import group_config
from ledgermq.console.group_members import load_members
from ledgermq.console.shapes import groups as shapes
from ledgermq.console.tally import FAILURES, Tally, reason_of
from ledgermq.http.replies import RequestError
from ledgermq.protocol.bodies import MessageQueue
from ledgermq.protocol.codes import RequestCode
from ledgermq.protocol.headers import GetConsumerRunningInfoRequestHeader
from ledgermq.protocol.running_info import ConsumerRunningInfo

_STACKS_CHARS_MAX: Final = 1024 * 1024
# Members that are asked which queues they have.
_OWNERS_MAX: Final = 20
# The member has to answer the broker in time.
_TIMEOUT_S: Final = 10.0
_LIST_MAX: Final = 2_000


async def get_running(call: Call) -> shapes.Running:
    """What a member tells about itself."""
    view, client_id = call.cluster, call.path["client"]
    query, tally = call.asks(shapes.RunningQuery), Tally()
    await group_config(view, call.path["group"])
    members = await load_members(view, tally, call.path["group"])
    if client_id not in members.clients:
        raise missing("client", client_id)
    brokers = members.clients[client_id][1]
    target = (await view.leaders(tally, brokers))[0]
    try:
        told = await _ask(view, target, call.path["group"], client_id, query.stacks)
    except FAILURES as error:
        message = f"it does not tell: {reason_of(error)}"
        raise RequestError(502, message, field="client", value=client_id) from error
    return _shape(client_id, told)


async def _ask(
    view: ClusterView, target: Target, group: str, client_id: str, stacks: bool
) -> ConsumerRunningInfo:
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group=group, client_id=client_id, jstack_enable=stacks
    )
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    answer = await view.remote.call(target.address, code, header, timeout_s=_TIMEOUT_S)
    return ConsumerRunningInfo.decode(answer.body)


def _shape(client_id: str, told: ConsumerRunningInfo) -> shapes.Running:
    queues = [
        shapes.RunningQueue(
            topic=queue.topic,
            broker=queue.broker_name,
            queue=queue.queue_id,
            committed=one.commit_offset,
            cached=one.cached_msg_count,
            cached_mib=one.cached_msg_size_in_mib,
            locked=one.locked,
            dropped=one.droped,
            last_pull_ms=one.last_pull_timestamp or None,
            last_consume_ms=one.last_consume_timestamp or None,
        )
        for queue, one in sorted(told.mq_table.items())[:_LIST_MAX]
    ]
    topics = [
        shapes.RunningTopic(
            topic=topic,
            consume_ms=one.consume_rt,
            ok_per_s=one.consume_ok_tps,
            failed_per_s=one.consume_failed_tps,
            failed_last_hour=one.consume_failed_msgs,
        )
        for topic, one in sorted(told.status_table.items())[:_LIST_MAX]
    ]
    stacks = told.jstack
    return shapes.Running(
        client_id=client_id,
        properties=told.properties,
        queues=queues,
        topics=topics,
        stacks=None if stacks is None else stacks[:_STACKS_CHARS_MAX],
        stacks_cut=stacks is not None and len(stacks) > _STACKS_CHARS_MAX,
    )


async def owners_of(view: ClusterView, tally: Tally, group: str) -> dict[MessageQueue, str]:
    """Returns which member has which queue, as they say themselves; at most 20 are asked."""
    members = await load_members(view, tally, group)

    async def ask(client_id: str, brokers: list[str]) -> list[tuple[MessageQueue, str]]:
        target = (await view.leaders(tally, brokers))[0]
        try:
            told = await _ask(view, target, group, client_id, False)
        except FAILURES:
            # It is shown among the members; its queues have no owner then.
            return []
        return [(queue, client_id) for queue, one in told.mq_table.items() if not one.droped]

    asked = sorted(members.clients.items())[:_OWNERS_MAX]
    found = await asyncio.gather(*(ask(name, brokers) for name, (_, brokers) in asked))
    return dict(pair for pairs in found for pair in pairs)
