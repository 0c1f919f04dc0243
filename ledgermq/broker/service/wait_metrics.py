"""Metrics under RocketMQ 5's names of what waits and what it took: delays, transactions, requests.

RocketMQ 5 tells most of them by topic. Of the queue of a level only its messages know their topics,
so delayed messages are told of all topics together.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ledgermq.broker.request_times import SENDS, name_of
from ledgermq.broker.service.ground import Ground
from ledgermq.broker.service.serving import Serving
from ledgermq.broker.waits.delay_outlook import SPANS_S, DelayOutlook
from ledgermq.broker.watching.families import FAMILIES, Family
from ledgermq.broker.watching.page import Point
from ledgermq.broker.watching.ranking import OTHER, most_active
from ledgermq.measures.histogram import Histogram
from ledgermq.protocol.codes import RequestCode

Group = tuple[Family, Iterable[Point]]

_CREATIONS: Final = {
    "rocketmq_topic_create_execution_time_milliseconds": RequestCode.UPDATE_AND_CREATE_TOPIC,
    "rocketmq_consumer_group_create_execution_time_milliseconds": (
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    ),
}


def request_metrics(ground: Ground, serving: Serving) -> Iterator[Group]:
    """Returns what requests took."""
    by_code = {SENDS: serving.proposals.times.sent, **ground.dispatcher.times.by_code}
    rows = [
        (("remoting", name_of(code), "false"), _in_ms(times)) for code, times in by_code.items()
    ]
    yield FAMILIES["rocketmq_rpc_latency_milliseconds"], rows
    for name, code in _CREATIONS.items():
        yield FAMILIES[name], [((), _in_ms(by_code.get(int(code)) or Histogram()))]


def leader_metrics(ground: Ground, serving: Serving) -> Iterator[Group]:
    """Returns what a leader knows of delayed messages and transactions."""
    delays, ends = serving.processors.delays, serving.processors.ends
    offsets = delays.offsets()
    stored, done = sum(end for _, end in offsets.values()), sum(d for d, _ in offsets.values())
    yield FAMILIES["rocketmq_timer_enqueue_total"], [((), stored)]
    yield FAMILIES["rocketmq_timer_dequeue_total"], [((), done)]
    yield FAMILIES["rocketmq_timing_messages"], [((), max(stored - done, 0))]
    outlook = DelayOutlook(ground.config.delay_levels, ground.messages, ground.now_ms())
    yield FAMILIES["rocketmq_timer_dequeue_lag"], _read(outlook.add(offsets), outlook)
    yield FAMILIES["rocketmq_timer_dequeue_latency_milliseconds"], [((), outlook.late_ms)]
    spans = [((str(end_s),), count) for end_s, count in zip(SPANS_S, outlook.spans, strict=True)]
    yield FAMILIES["rocketmq_timer_message_snapshot"], spans
    yield FAMILIES["rocketmq_delay_message_latency_seconds"], [((), delays.waits)]
    for name, counts in (("commit", ends.committed), ("rollback", ends.rolled_back)):
        yield FAMILIES[f"rocketmq_{name}_messages_total"], _by_topic(ground, counts)
    yield FAMILIES["rocketmq_finish_message_latency_milliseconds"], [((), ends.spans)]


def _read(steps: Iterator[None], outlook: DelayOutlook) -> Iterator[Point]:
    """Ends a turn behind each step; the families behind this one find all of it."""
    yield from steps
    yield (), outlook.overdue


def _by_topic(ground: Ground, counts: Mapping[str, int]) -> list[Point]:
    """Topics that are there, the most active ones; the rest comes together."""
    there = {topic: count for topic, count in counts.items() if ground.state.topics.find(topic)}
    shown = most_active(there, ground.config.metric_series_max)
    rows: list[Point] = [((t,), n) for t, n in there.items() if shown is None or t in shown]
    rest = sum(counts.values()) - sum(there[t] for t in there if shown is None or t in shown)
    return [*rows, ((OTHER,), rest)] if rest else rows


def _in_ms(times: Histogram) -> Histogram:
    told = Histogram([bound * 1000 for bound in times.bounds])
    told.counts, told.total = list(times.counts), times.total * 1000
    return told
