"""ConsumeQueues: all queues of a store, by topic and queue id.

    consumequeue/<topic>/<queue id>/<segment>

A topic's name is a folder's name, so what a record calls a topic is looked at before it becomes a
path: `is_queue_name` admits what upstream's check of topics admits.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from ledgermq.commitlog.consume_queue import ConsumeQueue
from ledgermq.commitlog.derived_files import DerivedFiles
from ledgermq.commitlog.layout import QUEUE_UNIT_BYTES
from ledgermq.dledger.store.filesystem import FileSystem
from ledgermq.protocol.record import TOPIC_BYTES_MAX

# Source: TopicValidator.java.
_TOPIC: Final = re.compile(rf"[%|a-zA-Z0-9_-]{{1,{TOPIC_BYTES_MAX}}}")


def is_queue_name(topic: str, queue_id: int) -> bool:
    """Tell whether a topic and a queue id may name a queue."""
    return queue_id >= 0 and _TOPIC.fullmatch(topic) is not None


class ConsumeQueues:
    """The queues, made when they are first named."""

    def __init__(
        self, file_system: FileSystem, directory: str, files: DerivedFiles, segment_bytes: int
    ) -> None:
        """Bind the folder; nothing is read before `load`.

        Args:
            segment_bytes: wanted size of a segment; whole units are made of it.
        """
        self._file_system = file_system
        self._directory = directory
        self._files = files
        self._segment_bytes = -(-segment_bytes // QUEUE_UNIT_BYTES) * QUEUE_UNIT_BYTES
        self._topics: dict[str, dict[int, ConsumeQueue]] = {}

    def __iter__(self) -> Iterator[ConsumeQueue]:
        """Yield every queue, ordered by topic and id."""
        for topic in sorted(self._topics):
            queues = self._topics[topic]
            for queue_id in sorted(queues):
                yield queues[queue_id]

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue, or None when no record of it was ever dispatched here."""
        return self._topics.get(topic, {}).get(queue_id)

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return a queue, made now when it is new; its files are made with its first unit."""
        queues = self._topics.setdefault(topic, {})
        queue = queues.get(queue_id)
        if queue is None:
            assert is_queue_name(topic, queue_id), (topic, queue_id)
            directory = f"{self._directory}/{topic}/{queue_id}"
            queue = ConsumeQueue(topic, queue_id, directory, self._files, self._segment_bytes)
            queues[queue_id] = queue
        return queue

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        """Return the queues of a topic, ordered by id."""
        queues = self._topics.get(topic, {})
        return [queues[queue_id] for queue_id in sorted(queues)]

    def topics(self) -> list[str]:
        """Return the topics that have a queue, sorted."""
        return sorted(self._topics)

    def bounds(self) -> list[tuple[str, int, int, int]]:
        """Return topic, queue id, min and max offset of each queue that has had a message."""
        return [
            (queue.topic, queue.queue_id, queue.min_offset, queue.max_offset)
            for queue in self
            if queue.max_offset
        ]

    def offsets_of(self, paths: Iterable[str]) -> dict[tuple[str, int], int]:
        """Return the first offset of those of these files that are a queue's, the lowest of each.

        Knows no more than names do: any thread may ask.
        """
        found: dict[tuple[str, int], int] = {}
        folder = f"{self._directory}/"
        for path in paths:
            if path.startswith(folder):
                topic, queue_name, name = path.removeprefix(folder).split("/")
                queue = (topic, int(queue_name))
                offset = int(name) // QUEUE_UNIT_BYTES
                found[queue] = min(offset, found.get(queue, offset))
        return found

    def load(self) -> None:
        """Take up all folders that are named as a queue is; each queue must be restored then."""
        for topic in self._file_system.names(self._directory):
            for name in self._file_system.names(f"{self._directory}/{topic}"):
                if name.isdecimal() and name.isascii() and is_queue_name(topic, int(name)):
                    names = self._file_system.names(f"{self._directory}/{topic}/{name}")
                    self.get(topic, int(name)).load(self._whole(topic, name, names))

    def _whole(self, topic: str, queue_name: str, names: list[str]) -> list[str]:
        """Return the names of files of the right size; others are removed, as they hold nothing."""
        whole = []
        directory = f"{self._directory}/{topic}/{queue_name}"
        for name in names:
            path = f"{directory}/{name}"
            if self._file_system.size_bytes(path) == self._segment_bytes:
                whole.append(name)
            else:
                self._file_system.remove(path)
        return whole
