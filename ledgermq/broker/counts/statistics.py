"""What this broker counted since its start: messages put and got, by topic and group.

Pure: time is passed in. A counter only grows; looks at it are kept each ten seconds, ten minutes
and hour, and a question compares the counter now with the oldest look of its span. A counter that
did not grow for a day is dropped. Source: `BrokerStatsManager.java`, `StatsItem.java`.

    counter   0 messages, 1 bytes, 2 messages that came together with others
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from ledgermq.protocol.bodies import BrokerStatsData, BrokerStatsItem
from ledgermq.protocol.group_keys import group_key

# Of one kind; what comes later is not counted.
COUNTERS_MAX: Final = 50_000
SAMPLE_MS: Final = 10_000
# Samples between two looks of a span, and looks that are kept.
_MINUTE: Final = (1, 7)
_HOUR: Final = (60, 7)
_DAY: Final = (360, 25)

Counter = list[int]


class _Spans:
    """The looks at one counter, oldest first: time in ms, messages, bytes, requests."""

    __slots__ = ("day", "hour", "minute")

    def __init__(self) -> None:
        self.minute: deque[tuple[int, int, int, int]] = deque(maxlen=_MINUTE[1])
        self.hour: deque[tuple[int, int, int, int]] = deque(maxlen=_HOUR[1])
        self.day: deque[tuple[int, int, int, int]] = deque(maxlen=_DAY[1])


class Statistics:
    """All counters of one broker.

    Attributes:
        puts: by topic; senders count in it without a call for each message. What they count apart
            (`count_from`) is in it after `catch_up`.
        gets: by topic@group.
        send_backs: by topic@group.
    """

    def __init__(self, cluster_name: str, now_ms: int) -> None:
        """Begins at zero; `now_ms` is monotonic here and everywhere below."""
        self._cluster_name = cluster_name
        self.puts: dict[str, Counter] = {}
        self.gets: dict[str, Counter] = {}
        self.send_backs: dict[str, Counter] = {}
        self._broker_puts: Counter = [0, 0, 0]
        self._broker_gets: Counter = [0, 0, 0]
        # What dropped counters had counted: the totals of the broker go on from there.
        self._dropped: dict[str, Counter] = {"put": [0, 0, 0], "get": [0, 0, 0]}
        self._spans: dict[tuple[str, str], _Spans] = {}
        self._start_ms = now_ms
        self._samples_count = 0
        self._take_counts: Callable[[], Iterable[tuple[str, int, int]]] = tuple

    def count_from(self, take_counts: Callable[[], Iterable[tuple[str, int, int]]]) -> None:
        """Has somebody asked for what he counted apart, whenever counters are looked at.

        Args:
            take_counts: returns topic, messages and bytes of what was put since it was called last.
        """
        self._take_counts = take_counts

    def catch_up(self) -> None:
        """Adds what was counted apart."""
        for topic, messages, size_bytes in self._take_counts():
            if messages:
                counter = self.put_counter(topic)
                counter[0] += messages
                counter[1] += size_bytes

    def put_counter(self, topic: str) -> Counter:
        """Returns the counter of a topic; one that nobody reads when there are too many."""
        return _counter(self.puts, topic)

    def got(self, topic: str, group: str, count: int, size_bytes: int) -> None:
        """Counts what one pull found."""
        counter = _counter(self.gets, group_key(topic, group))
        counter[0] += count
        counter[1] += size_bytes
        counter[2] += count - 1

    def sent_back(self, topic: str, group: str) -> None:
        """Counts a message that a consumer gave back."""
        _counter(self.send_backs, group_key(topic, group))[0] += 1

    def sample(self, now_ms: int) -> None:
        """Looks at all counters; called once in SAMPLE_MS."""
        self._samples_count += 1
        self.catch_up()
        self._add_up()
        count = self._samples_count
        for kind, counters in self._kinds().items():
            for key, counter in list(counters.items()):
                spans = self._spans.get((kind, key))
                if spans is None:
                    spans = self._spans[kind, key] = _Spans()
                    # It was not there at the last look.
                    _look(spans.minute, now_ms - SAMPLE_MS, [0, 0, 0])
                    _look(spans.hour, now_ms - SAMPLE_MS, [0, 0, 0])
                    _look(spans.day, now_ms - SAMPLE_MS, [0, 0, 0])
                _look(spans.minute, now_ms, counter)
                if count % _HOUR[0] == 0:
                    _look(spans.hour, now_ms, counter)
                if count % _DAY[0] == 0:
                    _look(spans.day, now_ms, counter)
                    if len(spans.day) == _DAY[1] and spans.day[0][1] == counter[0]:
                        self._drop(kind, key, counters)

    def view(self, name: str, key: str, now_ms: int) -> BrokerStatsData | None:
        """Returns the numbers of one counter by upstream's name; None when there is none."""
        self.catch_up()
        kind, is_size = _NAMES.get(name, ("", False))
        if kind in ("broker put", "broker get"):
            self._add_up()
        counter = self._kinds().get(kind, {}).get(key)
        if counter is None:
            return None
        spans = self._spans.get((kind, key)) or _Spans()
        start = (self._start_ms, 0, 0, 0)
        items = []
        for looks in (spans.minute, spans.hour, spans.day):
            first = looks[0] if looks else start
            sum_ = counter[1] - first[2] if is_size else counter[0] - first[1]
            times = counter[0] - counter[2] - first[3]
            span_ms = max(now_ms - first[0], 1)
            items.append(BrokerStatsItem(sum_, sum_ * 1000 / span_ms, sum_ / max(times, 1)))
        return BrokerStatsData(*items)

    def minute_rates(self, kind: str, now_ms: int) -> Iterator[tuple[str, float, float]]:
        """Returns each counter of a kind with its messages and bytes a second of the last minute.

        Args:
            kind: put, get or back.
            now_ms: monotonic.
        """
        self.catch_up()
        for key, counter in list(self._kinds()[kind].items()):
            spans = self._spans.get((kind, key))
            first = spans.minute[0] if spans and spans.minute else (self._start_ms, 0, 0, 0)
            span_s = max(now_ms - first[0], 1) / 1000
            yield key, (counter[0] - first[1]) / span_s, (counter[1] - first[2]) / span_s

    def get_rate(self, topic: str, group: str, now_ms: int) -> float:
        """Returns the messages a second that a group got of a topic in the last minute."""
        data = self.view("GROUP_GET_NUMS", group_key(topic, group), now_ms)
        return 0.0 if data is None else data.stats_minute.tps

    def _kinds(self) -> Mapping[str, dict[str, Counter]]:
        cluster = self._cluster_name
        return {
            "put": self.puts,
            "get": self.gets,
            "back": self.send_backs,
            "broker put": {cluster: self._broker_puts},
            "broker get": {cluster: self._broker_gets},
        }

    def _drop(self, kind: str, key: str, counters: dict[str, Counter]) -> None:
        counter = counters.pop(key)
        del self._spans[kind, key]
        for place, number in enumerate(counter):
            if kind in self._dropped:
                self._dropped[kind][place] += number

    def _add_up(self) -> None:
        """Brings the counters of the whole broker up to date."""
        for kind, total, counters in (
            ("put", self._broker_puts, self.puts),
            ("get", self._broker_gets, self.gets),
        ):
            for place in range(3):
                now = sum(counter[place] for counter in counters.values())
                total[place] = self._dropped[kind][place] + now


# Upstream's name -> our kind, and whether bytes are meant.
_NAMES: Final = {
    "TOPIC_PUT_NUMS": ("put", False),
    "TOPIC_PUT_SIZE": ("put", True),
    "GROUP_GET_NUMS": ("get", False),
    "GROUP_GET_SIZE": ("get", True),
    "SNDBCK_PUT_NUMS": ("back", False),
    "BROKER_PUT_NUMS": ("broker put", False),
    "BROKER_GET_NUMS": ("broker get", False),
}


def _counter(counters: dict[str, Counter], key: str) -> Counter:
    counter = counters.get(key)
    if counter is None:
        counter = [0, 0, 0]
        if len(counters) < COUNTERS_MAX:
            counters[key] = counter
    return counter


def _look(looks: deque[tuple[int, int, int, int]], now_ms: int, counter: Counter) -> None:
    looks.append((now_ms, counter[0], counter[1], counter[0] - counter[2]))
