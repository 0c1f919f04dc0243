"""Removals: topics and groups whose pairs are gone at once, and dropped piece by piece. Pure.

A topic may have offsets of hundreds of thousands of groups: dropping them takes half a second, on
all members at the same time, for they apply the same command. So a removal only notes that it
happened, which hides the pairs, and their memory is freed a little in each of the next turns.

Removals are numbered. A pair that is written while its topic or group is being removed gets the
number of the last removal before it. So a pair is gone exactly when the removal of its topic or of
its group has a greater number than the pair has.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from ledgermq.protocol.group_keys import SEPARATOR, split_group_key


class _Removal(NamedTuple):
    # "topic@" or "@group".
    name: str
    number: int
    # Its pairs that are not dropped yet, and perhaps some that were written later.
    keys: Iterator[str]


class Removals:
    """Removals whose pairs are not all dropped.

    Attributes:
        numbers: of the last removal of each topic ("topic@") and group ("@group") that is not
            finished; empty while nothing is hidden.

    Invariant: the pairs that a removal hides are among the keys of it that are left.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._count = 0
        # Of pairs that were written while they could be hidden: the last removal before that.
        self._written: dict[str, int] = {}
        self._waiting: deque[_Removal] = deque()

    def begin_topic(self, topic: str, keys: Iterator[str]) -> None:
        """Hides all pairs of a topic."""
        self._begin(topic + SEPARATOR, keys)

    def begin_group(self, group: str, keys: Iterator[str]) -> None:
        """Hides all pairs of a group."""
        self._begin(SEPARATOR + group, keys)

    def _begin(self, name: str, keys: Iterator[str]) -> None:
        self._count += 1
        self.numbers[name] = self._count
        self._waiting.append(_Removal(name, self._count, keys))

    def hides(self, key: str) -> bool:
        """Tells whether a pair, which the table still has, is gone."""
        topic, group = split_group_key(key)
        number = max(self.numbers.get(topic + SEPARATOR, 0), self.numbers.get(SEPARATOR + group, 0))
        return self._written.get(key, 0) < number

    def note_written(self, key: str) -> None:
        """Notes that a pair is written now; the table has dropped it, where it was hidden."""
        self._written[key] = self._count

    def take(self, count: int) -> Iterator[str]:
        """Yields the hidden pairs among the next `count` keys; the caller drops each at once."""
        while count and self._waiting:
            removal = self._waiting[0]
            key = next(removal.keys, None)
            if key is None:
                self._waiting.popleft()
                if self.numbers[removal.name] == removal.number:
                    del self.numbers[removal.name]
                if not self.numbers:
                    self._written.clear()
                continue
            count -= 1
            if self.hides(key):
                yield key
