"""Up to where groups have pulled: what tools count as in flight is behind their committed offsets.

Pure. Each member knows the pulls that it answered itself, since its start; as in upstream nothing
of it is stored or replicated: the next pulls tell it again. Source: `ConsumerOffsetManager.java` of
5.3.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final

# Pairs of topic and group; of one more nothing is noted.
_PAIRS_MAX: Final = 1_000_000
# Groups of one look for those that are not known.
_LOOKED_AT_MAX: Final = 10_000


class PullOffsets:
    """Offsets behind the last pull: group, topic, queue -> offset of the next one."""

    def __init__(self, pairs_max: int = _PAIRS_MAX) -> None:
        """Begins empty; `pairs_max` bounds the pairs of topic and group."""
        self._pairs_max = pairs_max
        self._groups: dict[str, dict[str, dict[int, int]]] = {}
        self._pairs = 0

    def of(self, group: str, topic: str) -> dict[int, int]:
        """Returns the offsets by queue id, to be read and written.

        Whoever keeps them asks again after a topic or a group was removed. When there are too many,
        what is written into them is lost.
        """
        topics = self._groups.get(group)
        queues = None if topics is None else topics.get(topic)
        if queues is None:
            queues = {}
            if self._pairs < self._pairs_max:
                self._pairs += 1
                self._groups.setdefault(group, {})[topic] = queues
        return queues

    def find(self, group: str, topic: str, queue_id: int) -> int:
        """Returns the offset behind the last pull, 0 when there was none."""
        return self._groups.get(group, {}).get(topic, {}).get(queue_id, 0)

    def forget_unknown(self, knows_group: Callable[[str], bool]) -> None:
        """Looks at some groups, at others each time, and forgets those that nobody knows: a member
        that does not lead answers pulls of any group.
        """
        for group in list(islice(self._groups, _LOOKED_AT_MAX)):
            topics = self._groups.pop(group)
            if knows_group(group):
                # To the end of the line.
                self._groups[group] = topics
            else:
                self._pairs -= len(topics)

    def remove_group(self, group: str) -> None:
        """Forgets the pulls of a group."""
        self._pairs -= len(self._groups.pop(group, {}))

    def remove_topic(self, topic: str) -> None:
        """Forgets the pulls from a topic."""
        for topics in self._groups.values():
            if topics.pop(topic, None) is not None:
                self._pairs -= 1
