"""Topics: a page of the list, one topic, its queues and its groups.

Names, kinds and numbers of queues come with one request to each broker group; all else is asked for
the rows that are shown, and only when a column wants it.
"""

import asyncio
from typing import Final

from ledgermq.client.errors import RefusedError
from ledgermq.console.absent import missing
from ledgermq.console.call import Call, matching, ordered, page_of, words_of
from ledgermq.console.cluster import ClusterView, Target
from ledgermq.console.group_figures import load_stats, sum_of
from ledgermq.console.shapes import topics as shapes
from ledgermq.console.shapes.elements import ListQuery
from ledgermq.console.tally import FAILURES, Tally
from ledgermq.console.topic_figures import (
    AGE_S,
    counted,
    load_groups,
    load_rates,
    load_span,
    own_names,
    queue_ends,
)
from ledgermq.console.topic_tables import TopicEntry, kind_of
from ledgermq.http.replies import RequestError
from ledgermq.protocol.bodies import MessageQueue, TopicOffset
from ledgermq.protocol.codes import RequestCode, ResponseCode
from ledgermq.protocol.group_keys import group_key
from ledgermq.protocol.headers import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
)

_KINDS: Final[tuple[shapes.TopicKind, ...]] = (
    "normal", "fifo", "delay", "transaction", "mixed", "retry", "dead_letter", "system",
)  # fmt: skip
_HIDDEN: Final = frozenset({"retry", "dead_letter", "system"})
_COLUMNS: Final = frozenset({"rates", "span", "groups"})
# An order that has to ask about each topic asks about so many.
_ASKED_MAX: Final = 2_000
_QUEUES_MAX: Final = 2_000
# Queues whose oldest message is asked for.
_OLDEST_MAX: Final = 200
_ASKING_SORTS: Final = {"in_per_s": "rates", "last_write": "span", "messages": "span"}
# Figures by which all topics are sorted may be so old, so that a list that is shown sorted does not
# keep brokers busy; of so many topics at a time they are asked.
_SORTED_AGE_S: Final = 30.0
_TOGETHER: Final = 16
_NOT_THERE: Final = frozenset({int(ResponseCode.TOPIC_NOT_EXIST)})


async def get_topics(call: Call) -> shapes.Topics:
    """A page of topics."""
    query = call.asks(shapes.TopicsQuery)
    wanted = words_of(query.kinds, "kinds", _KINDS)
    columns = words_of(query.columns, "columns", _COLUMNS)
    table = await call.cluster.topics()
    own = await own_names(call.cluster)
    rows: list[shapes.TopicRow] = []
    counts: dict[str, int] = dict.fromkeys(_KINDS, 0)
    for topic, entries in table.by_name.items():
        kind = kind_of(topic, next(iter(entries.values())), own)
        counts[kind] += 1
        if kind in wanted or (not wanted and kind not in _HIDDEN):
            rows.append(_row(topic, kind, entries))
    fitting = set(matching((row.topic for row in rows), query.filter))
    rows = sorted((row for row in rows if row.topic in fitting), key=lambda row: row.topic)
    tally = Tally()
    asking = _ASKING_SORTS.get(query.sort)
    if asking is not None:
        if len(rows) > _ASKED_MAX:
            message = f"{len(rows)} topics fit; this order takes at most {_ASKED_MAX}, filter more"
            raise RequestError(400, message, field="sort", value=query.sort, limit=_ASKED_MAX)
        rows = await _filled(call.cluster, tally, rows, frozenset({asking}), _SORTED_AGE_S)
    rows = _sorted(rows, query)
    shown = await _filled(call.cluster, tally, list(page_of(rows, query)), columns)
    answers = tally if columns or asking else table.tally
    return shapes.Topics(rows=shown, total=len(rows), kinds=counts, answers=answers.answers())


def _row(topic: str, kind: shapes.TopicKind, entries: dict[str, TopicEntry]) -> shapes.TopicRow:
    configs = [entry.config for entry in entries.values()]
    perms = {config.perm for config in configs}
    return shapes.TopicRow(
        topic=topic,
        kind=kind,
        brokers=sorted(entries),
        read_queues=sum(config.read_queue_nums for config in configs),
        write_queues=sum(config.write_queue_nums for config in configs),
        perm=perms.pop() if len(perms) == 1 else 0,
        order=any(config.order for config in configs),
        in_per_s=None,
        in_bytes_per_s=None,
        messages=None,
        last_write_ms=None,
        groups=None,
    )


def _sorted(rows: list[shapes.TopicRow], query: shapes.TopicsQuery) -> list[shapes.TopicRow]:
    match query.sort:
        case "name":
            return ordered(rows, lambda row: row.topic, query.order)
        case "kind":
            return ordered(rows, lambda row: row.kind, query.order)
        case "queues":
            return ordered(rows, lambda row: row.read_queues, query.order)
        case "in_per_s":
            return ordered(rows, lambda row: row.in_per_s, query.order)
        case "last_write":
            return ordered(rows, lambda row: row.last_write_ms, query.order)
        case "messages":
            return ordered(rows, lambda row: row.messages, query.order)


async def _filled(
    view: ClusterView,
    tally: Tally,
    rows: list[shapes.TopicRow],
    columns: frozenset[str],
    age_s: float = AGE_S,
) -> list[shapes.TopicRow]:
    """Returns the rows with what columns want, up to `age_s` old."""
    room = asyncio.Semaphore(_TOGETHER)

    async def fill(row: shapes.TopicRow) -> shapes.TopicRow:
        targets, topic = await view.leaders(tally, row.brokers), row.topic
        async with room:
            rates, span, groups = await asyncio.gather(
                load_rates(view, tally, targets, topic, age_s)
                if "rates" in columns
                else _nothing(),
                load_span(view, tally, targets, topic, age_s) if "span" in columns else _nothing(),
                load_groups(view, tally, targets, topic) if "groups" in columns else _nothing(),
            )
        return shapes.TopicRow(
            topic=row.topic,
            kind=row.kind,
            brokers=row.brokers,
            read_queues=row.read_queues,
            write_queues=row.write_queues,
            perm=row.perm,
            order=row.order,
            in_per_s=row.in_per_s if rates is None else rates.in_per_s,
            in_bytes_per_s=row.in_bytes_per_s if rates is None else rates.in_bytes_per_s,
            messages=row.messages if span is None else span.messages,
            last_write_ms=row.last_write_ms if span is None else span.last_write_ms,
            groups=row.groups if groups is None else len(groups),
        )

    return list(await asyncio.gather(*map(fill, rows))) if columns else rows


async def _nothing() -> None:
    return None


async def entries_of(view: ClusterView, topic: str) -> dict[str, TopicEntry]:
    """Returns a topic by broker group.

    Raises:
        RequestError: there is no such topic, or not all brokers say so.
    """
    table = await view.topics(topic)
    entries = table.by_name.get(topic)
    if entries is None and table.tally.is_silent:
        raise RequestError(502, "no broker tells its topics", field="topic", value=topic)
    if entries is None:
        raise missing("topic", topic)
    return entries


async def get_topic(call: Call) -> shapes.Topic:
    """One topic."""
    view, topic, tally = call.cluster, call.path["topic"], Tally()
    entries = await entries_of(view, topic)
    targets = await view.leaders(tally, sorted(entries))
    rates, span, (route, order_conf) = await asyncio.gather(
        load_rates(view, tally, targets, topic),
        load_span(view, tally, targets, topic),
        _route(view, tally, topic),
    )
    config = [
        shapes.TopicConfig(
            broker=broker,
            read_queues=entry.config.read_queue_nums,
            write_queues=entry.config.write_queue_nums,
            perm=entry.config.perm,
            order=entry.config.order,
            filter_type=entry.config.topic_filter_type,
            sys_flag=entry.config.topic_sys_flag,
        )
        for broker, entry in sorted(entries.items())
    ]
    kinds = {(one.read_queues, one.write_queues, one.perm, one.order) for one in config}
    return shapes.Topic(
        topic=topic,
        kind=kind_of(topic, next(iter(entries.values())), await own_names(view)),
        config=config,
        differs=len(kinds) > 1,
        route=route,
        in_per_s=rates.in_per_s,
        in_bytes_per_s=rates.in_bytes_per_s,
        in_today=rates.in_today,
        messages=span.messages,
        last_write_ms=span.last_write_ms,
        order_conf=order_conf,
        answers=tally.answers(),
    )


async def _route(
    view: ClusterView, tally: Tally, topic: str
) -> tuple[list[shapes.RouteRow], str | None]:
    try:
        data = await view.route(topic)
    except FAILURES as error:
        if not (isinstance(error, RefusedError) and error.code in _NOT_THERE):
            tally.failed("name server", view.remote.name_servers, error)
        return [], None
    addresses = {broker.broker_name: broker.broker_addrs for broker in data.broker_datas}
    rows = [
        shapes.RouteRow(
            broker=queues.broker_name,
            read_queues=queues.read_queue_nums,
            write_queues=queues.write_queue_nums,
            perm=queues.perm,
            addresses={
                str(number): address
                for number, address in sorted(addresses.get(queues.broker_name, {}).items())
            },
        )
        for queues in sorted(data.queue_datas, key=lambda one: one.broker_name)
    ]
    return rows, data.order_topic_conf or None


async def get_topic_queues(call: Call) -> shapes.TopicQueues:
    """The queues of a topic."""
    view, topic, tally = call.cluster, call.path["topic"], Tally()
    entries = await entries_of(view, topic)
    targets = await view.leaders(tally, sorted(entries))
    table = await queue_ends(view, tally, targets, topic)
    addresses = {target.name: target.address for target in targets}
    shown = sorted(table.items())[:_QUEUES_MAX]

    async def row(number: int, queue: MessageQueue, ends: TopicOffset) -> shapes.QueueRow:
        count = max(ends.max_offset - ends.min_offset, 0)
        oldest = None
        if count and number < _OLDEST_MAX and queue.broker_name in addresses:
            target = Target(queue.broker_name, addresses[queue.broker_name])
            oldest = await _oldest(view, tally, target, queue)
        return shapes.QueueRow(
            broker=queue.broker_name,
            queue=queue.queue_id,
            min_offset=ends.min_offset,
            max_offset=ends.max_offset,
            messages=count,
            oldest_ms=oldest,
            last_write_ms=ends.last_update_timestamp or None,
        )

    rows = await asyncio.gather(
        *(row(number, queue, ends) for number, (queue, ends) in enumerate(shown))
    )
    mean = sum(one.messages for one in rows) / len(rows) if rows else 0.0
    skew = max(one.messages for one in rows) / mean if mean else None
    return shapes.TopicQueues(rows=rows, total=len(table), skew=skew, answers=tally.answers())


async def _oldest(
    view: ClusterView, tally: Tally, target: Target, queue: MessageQueue
) -> int | None:
    found = await view.each(
        tally,
        [target],
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        GetEarliestMsgStoretimeRequestHeader(topic=queue.topic, queue_id=queue.queue_id),
        read=lambda answer: answer.header(GetEarliestMsgStoretimeResponseHeader).timestamp,
    )
    return found[0][1] if found and found[0][1] > 0 else None


async def get_topic_groups(call: Call) -> shapes.TopicGroups:
    """A page of the groups of a topic."""
    view, topic, tally = call.cluster, call.path["topic"], Tally()
    query = call.asks(ListQuery)
    entries = await entries_of(view, topic)
    targets = await view.leaders(tally, sorted(entries))
    names = ordered(
        matching(await load_groups(view, tally, targets, topic), query.filter), str, query.order
    )

    async def row(group: str) -> shapes.TopicGroupRow:
        stats, counts = await asyncio.gather(
            load_stats(view, tally, group, topic),
            counted(view, tally, targets, "GROUP_GET_NUMS", group_key(topic, group)),
        )
        queues = [one for one in stats if one.queue.topic == topic]
        lag = sum_of(queues, call.now_ms)
        return shapes.TopicGroupRow(
            group=group,
            lag_messages=lag.messages if queues else None,
            lag_ms=lag.age_ms,
            out_per_s=sum(data.stats_minute.tps for data in counts),
        )

    rows = await asyncio.gather(*map(row, page_of(names, query)))
    return shapes.TopicGroups(rows=rows, total=len(names), answers=tally.answers())
