"""Topics and consumer groups as one document: written, and made so again here or elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeVar

import msgspec

from ledgermq.console.actions.groups import put_group_step, text_of_group
from ledgermq.console.actions.plan import Plan, Step
from ledgermq.console.actions.topics import (
    check_new_name,
    header_of,
    put_topic_step,
    text_of_topic,
    writers_of,
)
from ledgermq.console.call import Call
from ledgermq.console.cluster import ClusterView
from ledgermq.console.shapes import actions as shapes
from ledgermq.console.shapes.definitions import Definitions, GroupDefinition, TopicDefinition
from ledgermq.console.topic_figures import own_names
from ledgermq.console.topic_tables import TopicEntry, is_system_group, kind_of
from ledgermq.http.replies import RequestError
from ledgermq.protocol.bodies import SubscriptionGroupConfig

_OF_BROKERS: Final = frozenset({"system", "retry", "dead_letter"})
# Topics and groups in a document of an account that is no admin.
_NO_ADMIN_MAX: Final = 500
_One = TypeVar("_One", TopicDefinition, GroupDefinition)
_Config = TypeVar("_Config")


async def get_definitions(call: Call) -> Definitions:
    """Topics and consumer groups of a cluster, those that brokers have alike told once.

    Raises:
        RequestError: 409 a broker group did not answer, so that the document would lack something.
    """
    view = call.cluster
    topics, groups, own = await view.topics(), await view.groups(), await own_names(view)
    for tally in (topics.tally, groups.tally):
        if silent := tally.answers().silent:
            who = ", ".join(f"{one.who}: {one.reason}" for one in silent)
            raise RequestError(409, f"not all brokers answered: {who}", code="partial")
    return Definitions(
        topics=[
            one
            for name, by_broker in sorted(topics.by_name.items())
            if kind_of(name, next(iter(by_broker.values())), own) not in _OF_BROKERS
            for one in _alike(by_broker, partial(_of_topic, name))
        ],
        groups=[
            one
            for name, found in sorted(groups.by_name.items())
            if not is_system_group(name)
            for one in _alike(found, _of_group)
        ],
    )


def _alike(by_broker: Mapping[str, _Config], define: Callable[[_Config], _One]) -> Iterable[_One]:
    """Yields a definition for each kind of settings, with the broker groups that have these."""
    kinds: list[tuple[_One, list[str]]] = []
    for broker, config in sorted(by_broker.items()):
        one = define(config)
        same = next((brokers for kind, brokers in kinds if kind == one), None)
        if same is None:
            kinds.append((one, [broker]))
        else:
            same.append(broker)
    return [msgspec.structs.replace(kind, brokers=brokers) for kind, brokers in kinds]


def _of_topic(topic: str, entry: TopicEntry) -> TopicDefinition:
    one = entry.config
    return TopicDefinition(
        topic=topic,
        brokers=[],
        read_queues=one.read_queue_nums,
        write_queues=one.write_queue_nums,
        perm=one.perm,
        order=one.order,
        message_type=entry.message_type,
    )


def _of_group(one: SubscriptionGroupConfig) -> GroupDefinition:
    return GroupDefinition(
        group=one.group_name,
        brokers=[],
        consume_enabled=one.consume_enable,
        from_min_enabled=one.consume_from_min_enable,
        broadcast_enabled=one.consume_broadcast_enable,
        retry_queues=one.retry_queue_nums,
        retry_max=one.retry_max_times,
        notify_members=one.notify_consumer_ids_changed_enable,
    )


async def plan_import(call: Call, wanted: shapes.ImportDefinitions) -> Plan:
    """Makes topics and consumer groups as a document has them: only what differs is an item."""
    told = wanted.definitions
    count = len(told.topics) + len(told.groups)
    if count > _NO_ADMIN_MAX and not call.sees_all:
        # Brokers refuse each of them.
        message = f"this defines {count}; who is no admin imports {_NO_ADMIN_MAX} at most"
        raise RequestError(403, message, field="definitions", value=count, limit=_NO_ADMIN_MAX)
    plan = Plan(
        summary="",
        object="definitions",
        warnings=["what is here and not in the document stays as it is"],
    )
    made, targets = 0, set()
    for steps in (_topic_steps(call, told.topics), _group_steps(call, told.groups)):
        async for step in steps:
            if step.target in targets:
                message = f"the document has {step.target} more than once"
                raise RequestError(400, message, field="definitions", value=step.target)
            targets.add(step.target)
            if step.before != step.after:
                plan.add(step)
                made += not step.before
    plan.summary = (
        f"import {len(told.topics)} topics and {len(told.groups)} consumer groups:"
        f" {made} to create, {len(plan.steps) - made} to change"
    )
    return plan


async def _topic_steps(call: Call, wanted: list[TopicDefinition]) -> AsyncIterator[Step]:
    view = call.cluster
    there = (await view.topics()).by_name
    own = await own_names(view)
    for one in wanted:
        # Of ten thousand: all others have their turn.
        await asyncio.sleep(0)
        if one.topic not in there:
            check_new_name(one.topic, "topic")
        if kind_of(one.topic, None, own) in _OF_BROKERS:
            message = f"{one.topic} is a topic of the system, or of a consumer group"
            raise RequestError(400, message, field="definitions", value=one.topic)
        for target in await writers_of(view, one.brokers):
            entry = there.get(one.topic, {}).get(target.name)
            kind = f"+message.type={one.message_type}" if one.message_type and not entry else None
            header = header_of(
                one.topic, one.read_queues, one.write_queues, one.perm, one.order,
                entry.config.topic_sys_flag if entry else 0, kind,
            )  # fmt: skip
            step = put_topic_step(view, target.name, text_of_topic(entry), header)
            step.target = f"{target.name}: topic {one.topic}"
            step.look = partial(_look_at_topic, view, one.topic, target.name)
            yield step


async def _look_at_topic(view: ClusterView, topic: str, broker: str) -> str:
    """A table of thousands is not asked for anew before each of them: it is 5 s old at most."""
    return text_of_topic((await view.topics()).by_name.get(topic, {}).get(broker))


async def _look_at_group(view: ClusterView, group: str, broker: str) -> str:
    return text_of_group((await view.groups()).by_name.get(group, {}).get(broker))


async def _group_steps(call: Call, wanted: list[GroupDefinition]) -> AsyncIterator[Step]:
    view = call.cluster
    groups = (await view.groups()).by_name
    for one in wanted:
        await asyncio.sleep(0)
        if one.group not in groups:
            check_new_name(one.group, "group")
        if is_system_group(one.group):
            message = f"{one.group} is a group of the system"
            raise RequestError(400, message, field="definitions", value=one.group)
        for target in await writers_of(view, one.brokers):
            there = groups.get(one.group, {}).get(target.name)
            body = SubscriptionGroupConfig(
                group_name=one.group,
                consume_enable=one.consume_enabled,
                consume_from_min_enable=one.from_min_enabled,
                consume_broadcast_enable=one.broadcast_enabled,
                retry_queue_nums=one.retry_queues,
                retry_max_times=one.retry_max,
                notify_consumer_ids_changed_enable=one.notify_members,
            )
            step = put_group_step(view, target.name, there, body)
            step.target = f"{target.name}: group {one.group}"
            step.look = partial(_look_at_group, view, one.group, target.name)
            yield step
