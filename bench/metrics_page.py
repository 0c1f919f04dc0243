"""What a page of metrics costs: 2,000 topics, 1,600 groups, ten thousand series and more.

Prints series, the reactor's time for the whole page, and for its longest part, which is what a send
may wait for. The tables are real, the queues' ends are made up: no disk is asked.
"""

import time
from types import SimpleNamespace
from typing import Any, Final

from ledgermq.broker.clients.client_table import ClientTable
from ledgermq.broker.service.topic_metrics import TopicMetrics
from ledgermq.broker.watching.page import write_page
from ledgermq.state.consumer_offsets import ConsumerOffsetTable
from ledgermq.state.topics import TopicConfig, TopicTable

_TOPICS: Final = 2000
_GROUPS: Final = 1600
_QUEUES: Final = 4
_ROUNDS: Final = 7
_COMMON: Final = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}


def make_metrics() -> tuple[TopicMetrics, Any]:
    """Returns the source of a broker with these topics and groups, half of which are behind."""
    topics = TopicTable(_TOPICS)
    offsets = ConsumerOffsetTable(_GROUPS)
    puts: dict[str, list[int]] = {}
    gets: dict[str, list[int]] = {}
    for number in range(_TOPICS):
        name = f"orders-{number}"
        topics.put(TopicConfig(name, _QUEUES, _QUEUES), 0)
        puts[name] = [number * 1000, number * 1_000_000, 0]
    for number in range(_GROUPS):
        pair = f"orders-{number}@billing-{number}"
        gets[pair] = [number * 990, number * 990_000, 0]
        offsets.put({pair: dict.fromkeys(range(_QUEUES), 1000 - number % 2)})
    ground = SimpleNamespace(
        config=SimpleNamespace(metric_series_max=10_000),
        state=SimpleNamespace(topics=topics, offsets=offsets),
        messages=SimpleNamespace(
            max_offset=lambda topic, queue_id: 1000,
            min_offset=lambda topic, queue_id: 0,
            store_time=lambda topic, queue_id, offset: 1,
            topics=list,
        ),
        clients=ClientTable(),
        clock_ms=lambda: time.monotonic() * 1000,
        now_ms=lambda: time.time_ns() // 1_000_000,
    )
    statistics = SimpleNamespace(puts=puts, gets=gets, catch_up=lambda: None)
    serving = SimpleNamespace(processors=SimpleNamespace(statistics=statistics))
    made: Any = ground
    return TopicMetrics(made), serving


def measure(metrics: TopicMetrics, serving: Any) -> tuple[int, int, float, float]:
    """Returns series, bytes, ms of the page and ms of its longest part."""
    series = size = 0
    total_s = longest_s = 0.0
    parts = write_page(metrics.groups(serving), _COMMON)
    while True:
        begun = time.thread_time()
        part = next(parts, None)
        took_s = time.thread_time() - begun
        total_s, longest_s = total_s + took_s, max(longest_s, took_s)
        if part is None:
            return series, size, total_s * 1000, longest_s * 1000
        size += len(part)
        series += sum(1 for line in part.splitlines() if not line.startswith(b"#"))


def main() -> None:
    """Measures and prints."""
    metrics, serving = make_metrics()
    measure(metrics, serving)
    rounds = [measure(metrics, serving) for _ in range(_ROUNDS)]
    series, size, _, _ = rounds[0]
    total_ms, longest_ms = min(row[2] for row in rounds), min(row[3] for row in rounds)
    for_ten_thousand = total_ms * 10_000 / series
    print(
        f"page of metrics: {series:,} series, {size / 1e6:.1f} MB: {total_ms:.1f} ms of the reactor"
        f" ({for_ten_thousand:.1f} ms for 10,000), longest part {longest_ms:.2f} ms"
    )


if __name__ == "__main__":
    main()
