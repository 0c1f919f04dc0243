"""What is due in which time, read from queues of delayed messages."""

from collections.abc import Sequence

from ledgermq.broker.config.delay_levels import DelayLevels
from ledgermq.broker.waits.delay_outlook import SPANS_S, DelayOutlook

LEVELS = DelayLevels.parse("1s 10s 10m 2h")
NOW_MS = 1_000_000_000


class Queues:
    """Deliver times of each level, in order; a look at each is counted."""

    def __init__(self, due_in_s: dict[int, list[float]]) -> None:
        self._due_in_s = due_in_s
        self.looks = 0

    def min_offset(self, topic: str, queue_id: int) -> int:
        return 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        return len(self._due_in_s.get(queue_id + 1, ()))

    def queue_units(
        self, topic: str, queue_id: int, offset: int, count_max: int
    ) -> Sequence[tuple[int, int, int]]:
        self.looks += 1
        due_in_s = self._due_in_s[queue_id + 1][offset : offset + count_max]
        return [(0, 0, NOW_MS + int(one * 1000)) for one in due_in_s]

    def record_at(self, physical_offset: int) -> bytes | None:
        return None


def outlook(queues: Queues, offsets: dict[int, tuple[int, int]]) -> DelayOutlook:
    found = DelayOutlook(LEVELS, queues, NOW_MS)
    assert len(list(found.add(offsets))) == sum(done < end for done, end in offsets.values())
    return found


def test_what_waits_is_in_the_span_in_which_it_is_due() -> None:
    queues = Queues({2: [1, 4, 5, 9], 3: [30, 200, 599], 4: [10, 7000]})
    found = outlook(queues, {2: (0, 4), 3: (0, 3), 4: (0, 2)})
    assert dict(zip(SPANS_S, found.spans, strict=True)) == {
        5: 3, 60: 3, 300: 1, 900: 1, 3600: 0, 14_400: 1, 28_800: 0, 86_400: 0,
    }  # fmt: skip
    assert (found.overdue, found.late_ms) == (0, 0)


def test_what_was_delivered_is_left_out_and_what_is_late_is_told() -> None:
    queues = Queues({1: [-9, -3, -2, 0.5], 3: [-7, 100]})
    found = outlook(queues, {1: (1, 4), 2: (0, 0), 3: (0, 2)})
    assert (found.overdue, found.late_ms) == (3, 7000)
    assert sum(found.spans) == 5 and found.spans[0] == 4


def test_many_messages_take_few_looks() -> None:
    queues = Queues({4: [number / 100 for number in range(700_000)]})
    found = outlook(queues, {4: (0, 700_000)})
    assert sum(found.spans) == 700_000 and found.spans[1] == 5500
    assert queues.looks < 200
