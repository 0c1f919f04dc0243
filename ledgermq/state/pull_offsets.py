"""Up to where groups have pulled: what tools count as in flight is behind their committed offsets.

Pure. Each member knows the pulls that it answered itself, since its start; as in upstream nothing
of it is stored or replicated: the next pulls tell it again. Source: `ConsumerOffsetManager.java` of
5.3.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

# Pairs of topic and group; of one more nothing is noted.
_PAIRS_MAX: Final = 1_000_000
# Groups of one look for those that are not known.
_LOOKED_AT_MAX: Final = 10_000
# Groups that are gone through at once when a topic is removed.
_AT_ONCE_MAX: Final = 1000


class _Removal(NamedTuple):
    # Counts removals.
    number: int
    # Groups looked at, ever, when all that were there at the removal have been.
    looked_at: int


class PullOffsets:
    """Offsets behind the last pull: group, topic, queue -> offset of the next one."""

    def __init__(self, pairs_max: int = _PAIRS_MAX) -> None:
        """Begins empty; `pairs_max` bounds the pairs of topic and group."""
        self._pairs_max = pairs_max
        self._groups: dict[str, dict[str, dict[int, int]]] = {}
        self._pairs = 0
        # Topics that are removed, until all groups have been looked at; and of pairs of such topics
        # that are noted again how many removals there were before.
        self._removed: dict[str, _Removal] = {}
        self._renewed: dict[tuple[str, str], int] = {}
        self._removal_count = self._looked_at = 0

    def of(self, group: str, topic: str) -> dict[int, int]:
        """Returns the offsets by queue id, to be read and written.

        Whoever keeps them asks again after a topic or a group was removed. When there are too many,
        what is written into them is lost.
        """
        topics = self._groups.get(group)
        queues = None if topics is None else topics.get(topic)
        if self._removed and topic in self._removed:
            if topics is not None and queues is not None and self._is_gone(group, topic):
                queues = topics[topic] = {}
            self._renewed[group, topic] = self._removal_count
        if queues is None:
            queues = {}
            if self._pairs < self._pairs_max:
                self._pairs += 1
                self._groups.setdefault(group, {})[topic] = queues
        return queues

    def find(self, group: str, topic: str, queue_id: int) -> int:
        """Returns the offset behind the last pull, 0 when there was none."""
        if self._removed and self._is_gone(group, topic):
            return 0
        return self._groups.get(group, {}).get(topic, {}).get(queue_id, 0)

    def _is_gone(self, group: str, topic: str) -> bool:
        """Tells whether the topic of a pair was removed since the pair was noted."""
        removal = self._removed.get(topic)
        return removal is not None and self._renewed.get((group, topic), 0) < removal.number

    def forget_unknown(self, knows_group: Callable[[str], bool]) -> None:
        """Looks at some groups, at others each time, and forgets those that nobody knows: a member
        that does not lead answers pulls of any group. Frees what is left of removed topics.
        """
        some = list(islice(self._groups, _LOOKED_AT_MAX))
        for group in some:
            topics = self._groups.pop(group)
            for topic in topics.keys() & self._removed.keys():
                if self._is_gone(group, topic):
                    del topics[topic]
                    self._pairs -= 1
            if knows_group(group):
                # To the end of the line.
                self._groups[group] = topics
            else:
                self._pairs -= len(topics)
        self._looked_at += len(some)
        for topic, removal in list(self._removed.items()):
            if self._looked_at >= removal.looked_at or not some:
                del self._removed[topic]
        if not self._removed:
            self._renewed.clear()

    def remove_group(self, group: str) -> None:
        """Forgets the pulls of a group."""
        self._pairs -= len(self._groups.pop(group, {}))

    def remove_topic(self, topic: str) -> None:
        """Forgets the pulls from a topic; where there are many groups, `forget_unknown` frees the
        memory.
        """
        if len(self._groups) <= _AT_ONCE_MAX:
            for topics in self._groups.values():
                if topics.pop(topic, None) is not None:
                    self._pairs -= 1
        else:
            self._removal_count += 1
            end = self._looked_at + len(self._groups)
            self._removed[topic] = _Removal(self._removal_count, end)
