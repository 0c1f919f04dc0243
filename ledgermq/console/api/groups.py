"""Consumer groups: a page of the list, one group, where it stands in its queues, its members."""

import asyncio
from typing import Any, Final

from ledgermq.console.api.running import owners_of
from ledgermq.console.call import Call, matching, ordered, page_of, words_of
from ledgermq.console.cluster import ClusterView
from ledgermq.console.group_figures import (
    Lag,
    QueueStats,
    group_config,
    load_all,
    load_stats_and_rate,
    retry_lag,
    state_of,
    sum_of,
)
from ledgermq.console.group_members import (
    Members,
    load_all_members,
    load_members,
    subscriptions_differ,
)
from ledgermq.console.history import STEP_S
from ledgermq.console.shapes import groups as shapes
from ledgermq.console.shapes.brokers import History
from ledgermq.console.tally import Tally
from ledgermq.console.topic_figures import queue_ends
from ledgermq.console.topic_tables import is_system_group
from ledgermq.console.versions import version_name
from ledgermq.protocol.bodies import SubscriptionGroupConfig
from ledgermq.protocol.heartbeat import ConsumeType
from ledgermq.protocol.names import DEAD_LETTER_PREFIX

_COLUMNS: Final = frozenset({"lag", "clients", "dead_letters"})
_MODES: Final = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}
_CLIENTS_MAX: Final = 2_000
_HOUR_MS: Final = 3_600_000


async def get_consumer_groups(call: Call) -> shapes.ConsumerGroups:
    """A page of consumer groups."""
    query = call.asks(shapes.GroupsQuery)
    columns = words_of(query.columns, "columns", _COLUMNS)
    view = call.cluster
    table = await view.groups()
    names = sorted(matching(table.by_name, query.filter))
    rows = [_empty_row(group) for group in names]
    age_s: float | None = None
    answers = table.tally
    if query.sort != "name" or query.state:
        all_figures, age_s = await load_all(view, call.now_ms)
        answers = all_figures.tally
        figures = all_figures.by_group
        everybody = (await load_all_members(view))[0].by_group if query.state else {}
        rows = [
            _rough_row(
                group,
                figures[group].lag if group in figures else Lag(0, None),
                figures[group].out_per_s if group in figures else 0.0,
                everybody.get(group),
            )
            for group in names
        ]
        rows = [row for row in rows if query.state in ("", row.state)]
    rows = _sorted(rows, query)
    tally = Tally()
    shown = await asyncio.gather(
        *(_filled(call, tally, row, columns) for row in page_of(rows, query))
    )
    told = tally if columns else answers
    return shapes.ConsumerGroups(rows=shown, total=len(rows), age_s=age_s, answers=told.answers())


def _sorted(rows: list[shapes.GroupRow], query: shapes.GroupsQuery) -> list[shapes.GroupRow]:
    match query.sort:
        case "name":
            return ordered(rows, lambda row: row.group, query.order)
        case "lag_messages":
            return ordered(rows, lambda row: row.lag_messages, query.order)
        case "lag_ms":
            return ordered(rows, lambda row: row.lag_ms, query.order)
        case "out_per_s":
            return ordered(rows, lambda row: row.out_per_s, query.order)


def _empty_row(group: str) -> shapes.GroupRow:
    return shapes.GroupRow(
        group=group,
        state="unknown",
        is_system=is_system_group(group),
        lag_messages=None,
        lag_ms=None,
        out_per_s=None,
        online=None,
        mode=None,
        model=None,
        retry_messages=None,
        dead_letters=None,
    )


def _rough_row(group: str, lag: Lag, out_per_s: float, members: Members | None) -> shapes.GroupRow:
    """What all groups are judged by at once."""
    online = None if members is None else len(members.clients)
    differs = members is not None and subscriptions_differ(members)
    state, _ = state_of(online=online, lag=lag, out_per_s=out_per_s, differs=differs, outside=0)
    return shapes.GroupRow(
        group=group,
        state=state,
        is_system=is_system_group(group),
        lag_messages=lag.messages,
        lag_ms=lag.age_ms,
        out_per_s=out_per_s,
        online=online,
        mode=None,
        model=None,
        retry_messages=None,
        dead_letters=None,
    )


async def _filled(
    call: Call, tally: Tally, row: shapes.GroupRow, columns: frozenset[str]
) -> shapes.GroupRow:
    if not columns:
        return row
    view = call.cluster
    figures, members, dead = await asyncio.gather(
        load_stats_and_rate(view, tally, row.group) if "lag" in columns else _nothing(),
        load_members(view, tally, row.group) if "clients" in columns else _nothing(),
        dead_letters_of(view, tally, row.group) if "dead_letters" in columns else _nothing(),
    )
    lag = None if figures is None else sum_of(figures[0], call.now_ms)
    online = None if members is None else len(members.clients)
    out_per_s = row.out_per_s if figures is None else figures[1]
    state, _ = state_of(
        online=online,
        lag=lag,
        out_per_s=out_per_s or 0.0,
        differs=members is not None and subscriptions_differ(members),
        outside=0,
    )
    first = None if members is None else members.first
    return shapes.GroupRow(
        group=row.group,
        state=state,
        is_system=row.is_system,
        lag_messages=row.lag_messages if lag is None else lag.messages,
        lag_ms=row.lag_ms if lag is None else lag.age_ms,
        out_per_s=out_per_s,
        online=row.online if online is None else online,
        mode=None if first is None else _MODES.get(first.consume_type),
        model=None if first is None else first.message_model.lower(),
        retry_messages=None if figures is None else retry_lag(figures[0]),
        dead_letters=dead,
    )


async def _nothing() -> None:
    return None


async def dead_letters_of(view: ClusterView, tally: Tally, group: str) -> int:
    """Returns how many dead letters a group has."""
    topic = DEAD_LETTER_PREFIX + group
    entries = (await view.topics()).by_name.get(topic)
    if not entries:
        return 0
    table = await queue_ends(view, tally, await view.leaders(tally, sorted(entries)), topic)
    return sum(max(ends.max_offset - ends.min_offset, 0) for ends in table.values())


async def get_consumer_group(call: Call) -> shapes.ConsumerGroup:
    """One consumer group."""
    view, group, tally = call.cluster, call.path["group"], Tally()
    config = await group_config(view, group)
    (stats, out_per_s), members, dead = await asyncio.gather(
        load_stats_and_rate(view, tally, group),
        load_members(view, tally, group),
        dead_letters_of(view, tally, group),
    )
    lag = sum_of(stats, call.now_ms)
    state, text = state_of(
        online=len(members.clients),
        lag=lag,
        out_per_s=out_per_s,
        differs=subscriptions_differ(members),
        outside=await _outside(view, tally, stats),
    )
    if tally.is_whole:
        view.lags.add(group, call.now_ms, lag.messages, lag.age_ms)
    configs = [_config(broker, one) for broker, one in sorted(config.items())]
    first = members.first
    return shapes.ConsumerGroup(
        group=group,
        state=state,
        state_text=text,
        config=configs,
        differs=len({_settings(one) for one in configs}) > 1,
        online=len(members.clients),
        mode=None if first is None else _MODES.get(first.consume_type),
        model=None if first is None else first.message_model.lower(),
        from_where=None if first is None else str(first.consume_from_where),
        subscriptions=_subscriptions(members),
        lag_messages=lag.messages,
        lag_ms=lag.age_ms,
        out_per_s=out_per_s,
        retry_messages=retry_lag(stats),
        dead_letters=dead,
        timeline=view.timeline.of_group(group, members.clients, call.now_ms),
        answers=tally.answers(),
    )


async def get_group_history(call: Call) -> History:
    """How far a group was behind in the last hour."""
    view, group = call.cluster, call.path["group"]
    await group_config(view, group)
    series = view.lags.read(group, call.now_ms - _HOUR_MS)
    return History(series=series, step_s=STEP_S, longer=call.terms.longer_history)


async def _outside(view: ClusterView, tally: Tally, stats: list[QueueStats]) -> int:
    """Returns in how many queues what the group wants next is gone."""
    late = {one.queue.topic for one in stats if one.lag}
    if not late:
        return 0
    targets = await view.leaders(tally)
    tables = await asyncio.gather(
        *(queue_ends(view, tally, targets, topic) for topic in sorted(late)[:20])
    )
    ends = {queue: end for table in tables for queue, end in table.items()}
    return sum(
        one.queue in ends and one.offsets.consumer_offset < ends[one.queue].min_offset
        for one in stats
        if one.lag
    )


def _config(broker: str, one: SubscriptionGroupConfig) -> shapes.GroupConfig:
    return shapes.GroupConfig(
        broker=broker,
        consume_enabled=one.consume_enable,
        from_min_enabled=one.consume_from_min_enable,
        broadcast_enabled=one.consume_broadcast_enable,
        retry_queues=one.retry_queue_nums,
        retry_max=one.retry_max_times,
        notify_members=one.notify_consumer_ids_changed_enable,
    )


def _settings(one: shapes.GroupConfig) -> tuple[Any, ...]:
    return (
        one.consume_enabled, one.from_min_enabled, one.broadcast_enabled, one.retry_queues,
        one.retry_max, one.notify_members,
    )  # fmt: skip


def _subscriptions(members: Members) -> list[shapes.Subscription]:
    found = {
        (topic, data.expression_type or "TAG", data.sub_string)
        for connection in members.connections.values()
        for topic, data in connection.subscription_table.items()
    }
    return [
        shapes.Subscription(topic=topic, kind=kind, expression=text)
        for topic, kind, text in sorted(found)
    ]


async def get_group_queues(call: Call) -> shapes.GroupQueues:
    """A page of the queues of a group."""
    view, group, tally = call.cluster, call.path["group"], Tally()
    query = call.asks(shapes.GroupQueuesQuery)
    await group_config(view, group)
    stats, _ = await load_stats_and_rate(view, tally, group)
    fitting = set(matching({one.queue.topic for one in stats}, query.filter))
    stats = [one for one in stats if one.queue.topic in fitting]
    match query.sort:
        case "queue":
            stats = ordered(stats, lambda one: one.queue, query.order)
        case "lag_messages":
            stats = ordered(stats, lambda one: one.lag, query.order)
        case "lag_ms":
            stats = ordered(stats, lambda one: one.age_ms(call.now_ms), query.order)
    owners = await owners_of(view, tally, group) if query.owners else {}
    rows = [
        shapes.GroupQueueRow(
            topic=one.queue.topic,
            broker=one.queue.broker_name,
            queue=one.queue.queue_id,
            max_offset=one.offsets.broker_offset,
            committed=one.offsets.consumer_offset,
            lag_messages=one.lag,
            lag_ms=one.age_ms(call.now_ms),
            in_flight=_in_flight(one),
            owner=owners.get(one.queue),
        )
        for one in page_of(stats, query)
    ]
    return shapes.GroupQueues(rows=rows, total=len(stats), answers=tally.answers())


def _in_flight(one: QueueStats) -> int | None:
    pulled = one.offsets.pull_offset
    return None if pulled is None else max(pulled - one.offsets.consumer_offset, 0)


async def get_group_clients(call: Call) -> shapes.GroupClients:
    """The members of a group."""
    view, group, tally = call.cluster, call.path["group"], Tally()
    await group_config(view, group)
    members = await load_members(view, tally, group)
    rows = [
        shapes.GroupClient(
            client_id=client.client_id,
            address=client.client_addr,
            language=client.language,
            version=version_name(client.version),
            brokers=sorted(brokers),
        )
        for _, (client, brokers) in sorted(members.clients.items())[:_CLIENTS_MAX]
    ]
    return shapes.GroupClients(rows=rows, total=len(members.clients), answers=tally.answers())
