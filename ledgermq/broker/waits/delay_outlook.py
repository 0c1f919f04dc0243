"""DelayOutlook: how many delayed messages are due in which time, and how late the deliveries are.

Read from the queues of the levels when somebody asks: deliver times stand in their units, in order,
so the end of a span is found by halving.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ledgermq.broker.config.delay_levels import DelayLevels
from ledgermq.broker.waits.delay import DelayQueues
from ledgermq.commitlog import SCHEDULE_TOPIC

# Ends of the spans, from now, in seconds. Source: `TimerMetrics.java` of RocketMQ 5.
SPANS_S: Final = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)


class DelayOutlook:
    """What waits at one moment, added up level by level.

    Attributes:
        overdue: messages whose time is over.
        late_ms: how long that of the first of them is over.
        spans: messages that are due within each of `SPANS_S` and not within the one before it;
            those that are overdue are in the first.
    """

    def __init__(self, levels: DelayLevels, queues: DelayQueues, now_ms: int) -> None:
        """Begins with nothing; `now_ms` is the wall clock."""
        self._levels, self._queues, self._now_ms = levels, queues, now_ms
        self.overdue = 0
        self.late_ms = 0
        self.spans = [0] * len(SPANS_S)

    def add(self, offsets: Mapping[int, tuple[int, int]]) -> Iterator[None]:
        """Adds all levels, a turn for each.

        Args:
            offsets: of a level what was delivered, and the end of its queue.
        """
        for level, (done, end) in offsets.items():
            first = max(done, self._queues.min_offset(SCHEDULE_TOPIC, level - 1))
            if first < end:
                self._add_level(level, first, end)
                yield None

    def _add_level(self, level: int, first: int, end: int) -> None:
        delay_s = self._levels.delays_ms[level - 1] / 1000
        due_ms = self._due_times(level)
        late_ms = self._now_ms - due_ms(first)
        if late_ms > 0:
            self.late_ms = max(self.late_ms, late_ms)
            self.overdue += _count_until(due_ms, first, end, self._now_ms)
        seen = 0
        for number, span_s in enumerate(SPANS_S):
            # Nothing of the level waits longer than its delay.
            count = end - first
            if span_s < delay_s:
                count = _count_until(due_ms, first, end, self._now_ms + span_s * 1000)
            self.spans[number] += count - seen
            seen = count
            if seen == end - first:
                return

    def _due_times(self, level: int) -> Callable[[int], int]:
        def due_ms(offset: int) -> int:
            units = self._queues.queue_units(SCHEDULE_TOPIC, level - 1, offset, 1)
            # One that retention takes meanwhile is due.
            return units[0][2] if units else 0

        return due_ms


def _count_until(due_ms: Callable[[int], int], first: int, end: int, moment_ms: int) -> int:
    """Returns how many from `first` on are due at a moment."""
    return bisect_right(range(first, end), moment_ms, key=due_ms)
