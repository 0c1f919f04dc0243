"""The page under the names of Apache's exporter; see watching/exporter_families.py."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping

from ledgermq.broker.service.ground import Ground
from ledgermq.broker.service.serving import Serving
from ledgermq.broker.watching.exporter_families import (
    CAPACITIES,
    EXPORTER_FAMILIES,
    RUNTIME,
    number_at,
)
from ledgermq.broker.watching.families import Family
from ledgermq.broker.watching.page import Point
from ledgermq.protocol.group_keys import split_group_key
from ledgermq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX

Group = tuple[Family, Iterable[Point]]

# After so many rows without a point, the turn of the reactor ends all the same.
_ROWS_PART = 400
# Addresses of a group's clients that its label names.
_ADDRESSES_MAX = 10


class ExporterMetrics:
    """Reads the parts of one broker; for composition only."""

    def __init__(
        self, ground: Ground, serving: Callable[[], Serving | None], oldest_ms: Callable[[str], int]
    ) -> None:
        """Binds the parts; `oldest_ms` tells the store time of what a group has to consume."""
        self._ground, self._serving, self._oldest_ms = ground, serving, oldest_ms

    def groups(self) -> Iterator[Group]:
        """Returns all families that are served at the moment, with their points."""
        serving = self._serving()
        if serving is None:
            return
        yield from self._runtime(serving)
        if not self._ground.leadership.is_serving:
            return
        yield from self._broker(serving)
        yield from self._rates(serving)
        yield from self._topics()
        yield from self._pairs()
        yield from self._clients()

    def _runtime(self, serving: Serving) -> Iterator[Group]:
        config, table = self._ground.config, serving.processors.runtime_table()
        address = f"{config.address_host}:{serving.port}"
        labels = (
            config.cluster_name, address, address, table["brokerVersionDesc"],
            table["bootTimestamp"], table["brokerVersion"],
        )  # fmt: skip
        for name, (key, place) in RUNTIME.items():
            number = number_at(table.get(key, ""), place)
            if number is not None:
                yield _family(f"brokeruntime_{name}"), [(labels, number)]
        disk = os.statvfs(config.store_root)
        sizes = (disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)
        for name, size in zip(CAPACITIES, sizes, strict=True):
            yield _family(f"brokeruntime_{name}"), [(labels, size)]

    def _broker(self, serving: Serving) -> Iterator[Group]:
        config, rates = self._ground.config, self._ground.rates
        labels = (config.cluster_name, f"{config.address_host}:{serving.port}", config.broker_name)
        view = serving.member.view()
        behind = 0 if view is None else max((one.behind_bytes for one in view.followers), default=0)
        yield _family("broker_tps"), [(labels, rates.per_second("put", 60))]
        yield _family("broker_qps"), [(labels, rates.per_second("transferred", 60))]
        yield _family("broker_commitlog_diff"), [(labels, behind)]

    def _rates(self, serving: Serving) -> Iterator[Group]:
        statistics, now_ms = serving.processors.statistics, int(self._ground.clock_ms())
        for place, name in ((0, "producer_tps"), (1, "producer_message_size")):
            rows = statistics.minute_rates("put", now_ms)
            yield _family(name), self._by(rows, place, self._topic_labels)
        for place, name in (
            (0, "consumer_tps"),
            (1, "consumer_message_size"),
            (0, "group_consume_tps"),
        ):
            rows = statistics.minute_rates("get", now_ms)
            yield _family(name), self._by(rows, place, self._pair_labels)
        rows = statistics.minute_rates("back", now_ms)
        yield _family("send_back_nums"), self._by(rows, 0, self._pair_labels)

    def _by(
        self,
        rows: Iterable[tuple[str, float, float]],
        place: int,
        labels: Callable[[str], tuple[str, ...]],
    ) -> Iterator[Point]:
        for number, (key, *rates) in enumerate(rows):
            if number >= self._ground.config.metric_series_max:
                return
            yield labels(key), rates[place]

    def _topic_labels(self, topic: str) -> tuple[str, ...]:
        return self._ground.config.cluster_name, self._ground.config.broker_name, topic

    def _pair_labels(self, pair: str) -> tuple[str, ...]:
        topic, group = split_group_key(pair)
        return *self._topic_labels(topic), group

    def _topics(self) -> Iterator[Group]:
        for name, prefix in (
            ("producer_offset", ""),
            ("topic_retry_offset", RETRY_PREFIX),
            ("topic_dlq_offset", DEAD_LETTER_PREFIX),
        ):
            yield _family(name), self._ends(prefix, is_by_group=name == "topic_dlq_offset")

    def _ends(self, prefix: str, *, is_by_group: bool) -> Iterator[Point]:
        messages, count = self._ground.messages, 0
        for number, topic in enumerate(messages.topics()):
            if number % _ROWS_PART == _ROWS_PART - 1:
                yield None
            own = next((p for p in (RETRY_PREFIX, DEAD_LETTER_PREFIX) if topic.startswith(p)), "")
            if own != prefix:
                continue
            count += 1
            if count > self._ground.config.metric_series_max:
                return
            end = sum(messages.max_offset(topic, queue) for queue in messages.queues(topic))
            yield self._topic_labels(topic.removeprefix(prefix) if is_by_group else topic), end

    def _pairs(self) -> Iterator[Group]:
        for name, prefix in (
            ("group_diff", ""),
            ("group_retrydiff", RETRY_PREFIX),
            ("group_dlqdiff", DEAD_LETTER_PREFIX),
        ):
            yield _family(name), self._each_pair(prefix, self._diff)
        yield _family("consumer_offset"), self._each_pair(None, self._end)
        yield _family("group_consume_total_offset"), self._each_pair(None, self._committed)
        yield _family("group_get_latency_by_storetime"), self._each_pair(None, self._age)

    def _each_pair(
        self, prefix: str | None, point: Callable[[str, Mapping[int, int]], Point]
    ) -> Iterator[Point]:
        """Points of all pairs of topic and group; with a prefix, of its topics or of all others."""
        pairs = list(self._ground.state.offsets.all().items())
        for number, (pair, committed) in enumerate(pairs[: self._ground.config.metric_series_max]):
            # An age may need a look at the disk: one in a turn.
            if number % _ROWS_PART == _ROWS_PART - 1 or point == self._age:
                yield None
            own = next((p for p in (RETRY_PREFIX, DEAD_LETTER_PREFIX) if pair.startswith(p)), "")
            is_there = self._ground.state.topics.find(split_group_key(pair)[0]) is not None
            if is_there and prefix in (None, own):
                yield point(pair, committed)

    def _diff(self, pair: str, committed: Mapping[int, int]) -> Point:
        topic, group = split_group_key(pair)
        live = self._ground.clients.find_group(group)
        model = "CLUSTERING" if live is None else live.message_model
        online = 0 if live is None else len(live.members)
        max_offset = self._ground.messages.max_offset
        lag = sum(max(max_offset(topic, queue) - offset, 0) for queue, offset in committed.items())
        return (group, topic, str(online), model), lag

    def _end(self, pair: str, committed: Mapping[int, int]) -> Point:
        topic, max_offset = split_group_key(pair)[0], self._ground.messages.max_offset
        return self._pair_labels(pair), sum(max_offset(topic, queue) for queue in committed)

    def _committed(self, pair: str, committed: Mapping[int, int]) -> Point:
        return self._pair_labels(pair), sum(committed.values())

    def _age(self, pair: str, committed: Mapping[int, int]) -> Point:
        oldest_ms = self._oldest_ms(pair)
        age_ms = max(self._ground.now_ms() - oldest_ms, 0) if oldest_ms else 0
        return self._pair_labels(pair), age_ms

    def _clients(self) -> Iterator[Group]:
        config, clients = self._ground.config, self._ground.clients
        limit = config.metric_series_max
        producers: list[Point] = [
            ((config.cluster_name, config.broker_name, name), len(clients.producers_of(name)))
            for name in clients.producer_group_names[:limit]
        ]
        yield _family("producer_count"), producers
        local = f"{config.address_host}:{config.listen_port}"
        yield _family("group_count"), self._group_counts(local, limit)

    def _group_counts(self, local: str, limit: int) -> Iterator[Point]:
        for name in self._ground.clients.consumer_group_names[:limit]:
            group = self._ground.clients.find_group(name)
            if group is not None:
                addresses = [client.address for client in group.members.values()]
                yield (",".join(addresses[:_ADDRESSES_MAX]), local, name), len(addresses)


def _family(name: str) -> Family:
    return EXPORTER_FAMILIES[f"rocketmq_{name}"]
