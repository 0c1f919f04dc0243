"""Metrics of topics and groups, of a leader: counts, lag, clients, each with a bound on its series.

Lag is the end of each queue less the committed offset, from tables in memory. The age of what a
group is behind by needs a look at the log, so it is asked for groups that are behind only, and told
again for some seconds.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from ledgermq.broker.service.ground import Ground
from ledgermq.broker.service.serving import Serving
from ledgermq.broker.watching.families import FAMILIES, Family
from ledgermq.broker.watching.page import Point
from ledgermq.broker.watching.ranking import OTHER, most_active
from ledgermq.protocol.codes import LanguageCode
from ledgermq.protocol.group_keys import split_group_key
from ledgermq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ledgermq.state import names

Group = tuple[Family, Iterable[Point]]

# Ages are told again for so long; so many are looked for in one page.
_AGE_S: Final = 5.0
_AGES_MAX: Final = 500
# After so many pairs of topic and group that give no point, the turn ends all the same.
# Apache's versions are numbered; 5.3 is 477.
_VERSION_MAX: Final = 1023
_PAIRS_PART: Final = 400


class TopicMetrics:
    """Reads the tables of one broker; for composition only."""

    def __init__(self, ground: Ground) -> None:
        """Binds the parts."""
        self._ground = ground
        # By topic@group: when it was looked for, and the store time of the first message behind.
        self._ages: dict[str, tuple[float, int]] = {}

    def groups(self, serving: Serving) -> Iterator[Group]:
        """Returns the families with their points."""
        statistics = serving.processors.statistics
        statistics.catch_up()
        yield from self._puts(statistics.puts)
        yield from self._gets(statistics.gets)
        yield from self._lags(statistics.gets)
        yield FAMILIES["rocketmq_send_to_dlq_messages_total"], self._dead_letters()
        yield from self._clients()

    def _is_system(self, topic: str) -> str:
        return _flag(names.is_system_topic(topic))

    def _puts(self, puts: Mapping[str, list[int]]) -> Iterator[Group]:
        """Retry topics and dead letters are as many as groups: each kind is one series."""
        config = self._ground.config
        activity = {
            topic: counter[0]
            for topic, counter in puts.items()
            if not topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
        }
        shown = most_active(activity, config.metric_series_max)

        def key(topic: str) -> tuple[str, ...]:
            if topic.startswith(RETRY_PREFIX):
                return "_retry", "normal", "false"
            if topic.startswith(DEAD_LETTER_PREFIX):
                return "_dlq", "normal", "false"
            if shown is not None and topic not in shown:
                return OTHER, "normal", "false"
            found = self._ground.state.topics.find(topic)
            kind = (found.message_type if found is not None else None) or "normal"
            return topic, kind.lower(), self._is_system(topic)

        for place, name in ((0, "messages"), (1, "throughput")):
            # Parts of a page are turns apart: what is walked must not change meanwhile.
            numbers = ((key(topic), counter[place]) for topic, counter in list(puts.items()))
            yield FAMILIES[f"rocketmq_{name}_in_total"], _summed(numbers)

    def _pair_key(self, shown: frozenset[str] | None) -> Callable[[str], tuple[str, ...]]:
        def key(pair: str) -> tuple[str, ...]:
            if shown is not None and pair not in shown:
                return OTHER, OTHER, "false", "false"
            topic, group = split_group_key(pair)
            return topic, group, _flag(topic.startswith(RETRY_PREFIX)), self._is_system(topic)

        return key

    def _gets(self, gets: Mapping[str, list[int]]) -> Iterator[Group]:
        activity = {pair: counter[0] for pair, counter in gets.items()}
        key = self._pair_key(most_active(activity, self._ground.config.metric_series_max))
        for place, name in ((0, "messages"), (1, "throughput")):
            numbers = ((key(pair), counter[place]) for pair, counter in list(gets.items()))
            yield FAMILIES[f"rocketmq_{name}_out_total"], _summed(numbers)

    def _lags(self, gets: Mapping[str, list[int]]) -> Iterator[Group]:
        offsets = self._ground.state.offsets.all()
        activity = {pair: gets[pair][0] if pair in gets else 0 for pair in offsets}
        key = self._pair_key(most_active(activity, self._ground.config.metric_series_max))
        lags: dict[tuple[str, ...], int] = {}
        behind: list[str] = []
        yield FAMILIES["rocketmq_consumer_lag_messages"], self._sum_lags(key, lags, behind)
        ready = ((labels, lag) for labels, lag in lags.items())
        yield FAMILIES["rocketmq_consumer_ready_messages"], ready
        yield FAMILIES["rocketmq_consumer_lag_latency_milliseconds"], self._latencies(key, behind)

    def _sum_lags(
        self,
        key: Callable[[str], tuple[str, ...]],
        lags: dict[tuple[str, ...], int],
        behind: list[str],
    ) -> Iterator[Point]:
        """Fills both, and returns the points: pairs of others come together at the end."""
        for number, (pair, committed) in enumerate(list(self._ground.state.offsets.all().items())):
            if number % _PAIRS_PART == _PAIRS_PART - 1:
                yield None
            lag = self._lag_of(pair, committed)
            if lag is None:
                continue
            labels = key(pair)
            lags[labels] = lags.get(labels, 0) + lag
            if labels[0] != OTHER:
                if lag:
                    behind.append(pair)
                yield labels, lag
        for labels, lag in lags.items():
            if labels[0] == OTHER:
                yield labels, lag

    def _lag_of(self, pair: str, committed: Mapping[int, int]) -> int | None:
        topic = self._ground.state.topics.find(split_group_key(pair)[0])
        if topic is None:
            return None
        max_offset, name = self._ground.messages.max_offset, topic.name
        return sum(
            max(max_offset(name, queue_id) - committed.get(queue_id, 0), 0)
            for queue_id in range(topic.read_queue_count)
        )

    def _latencies(
        self, key: Callable[[str], tuple[str, ...]], behind: list[str]
    ) -> Iterator[Point]:
        now_s, now_ms, looks = self._ground.clock_ms() / 1000, self._ground.now_ms(), 0
        ages = {pair: self._ages[pair] for pair in behind if pair in self._ages}
        self._ages = ages
        for pair in behind:
            known = ages.get(pair)
            if known is None or now_s - known[0] > _AGE_S:
                looks += 1
                if looks > _AGES_MAX:
                    continue
                known = ages[pair] = now_s, self.oldest_ms(pair)
                yield None
            if known[1]:
                yield key(pair), max(now_ms - known[1], 0)

    def oldest_ms(self, pair: str) -> int:
        """Returns the store time of the first message that a group has not consumed, 0 for none."""
        topic, _ = split_group_key(pair)
        found, messages = self._ground.state.topics.find(topic), self._ground.messages
        committed = self._ground.state.offsets.of_key(pair)
        times = []
        for queue_id in range(0 if found is None else found.read_queue_count):
            offset = max(committed.get(queue_id, 0), messages.min_offset(topic, queue_id))
            if offset < messages.max_offset(topic, queue_id):
                times.append(messages.store_time(topic, queue_id, offset) or 0)
        return min(times, default=0)

    def _dead_letters(self) -> Iterator[Point]:
        messages, limit = self._ground.messages, self._ground.config.metric_series_max
        rest = 0
        dead = [topic for topic in messages.topics() if topic.startswith(DEAD_LETTER_PREFIX)]
        for number, topic in enumerate(dead):
            count = sum(messages.max_offset(topic, queue) for queue in messages.queues(topic))
            if number >= limit:
                rest += count
            elif count:
                yield (topic.removeprefix(DEAD_LETTER_PREFIX), topic, "false"), count
        if rest:
            yield (OTHER, OTHER, "false"), rest

    def _clients(self) -> Iterator[Group]:
        clients = self._ground.clients
        producers: Counter[tuple[str, ...]] = Counter()
        for number, group in enumerate(clients.producer_group_names):
            if number % _PAIRS_PART == _PAIRS_PART - 1:
                yield FAMILIES["rocketmq_producer_connections"], [None]
            for client in clients.producers_of(group):
                version = version_of(client.version)
                producers[language_of(client.language), version, "remoting"] += 1
        yield FAMILIES["rocketmq_producer_connections"], list(producers.items())
        consumers: Counter[tuple[str, ...]] = Counter()
        limit = self._ground.config.metric_series_max
        for number, name in enumerate(clients.consumer_group_names):
            found = clients.find_group(name)
            if number % _PAIRS_PART == _PAIRS_PART - 1:
                yield FAMILIES["rocketmq_consumer_connections"], [None]
            if found is None:
                continue
            shown = name if number < limit else OTHER
            for client in found.members.values():
                consumers[
                    shown,
                    language_of(client.language),
                    version_of(client.version),
                    "pull" if found.consume_type == "CONSUME_ACTIVELY" else "push",
                    "remoting",
                    "false",
                ] += 1
        yield FAMILIES["rocketmq_consumer_connections"], list(consumers.items())


def language_of(number: int) -> str:
    """Returns the name of a client's language, in small letters."""
    try:
        return LanguageCode(number).name.lower()
    except ValueError:
        return "other"


def version_of(number: int) -> str:
    """Returns the number of a client's version: a client that says another one in each heart beat
    would make series without end.
    """
    return str(number) if 0 <= number <= _VERSION_MAX else OTHER


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _summed(numbers: Iterable[tuple[tuple[str, ...], int]]) -> Iterator[Point]:
    """Points with the same labels become one, at the end; those that cannot be are told at once."""
    sums: dict[tuple[str, ...], int] = {}
    for labels, number in numbers:
        if labels[0].startswith("_"):
            sums[labels] = sums.get(labels, 0) + number
        else:
            yield labels, number
    yield from sums.items()
