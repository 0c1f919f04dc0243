"""Queue ends in the log: what a member needs that does not have the whole log.

A queue's numbering goes on for ever, but its records leave the log with retention, and a member
that was filled from a later entry on never saw them. Were such a member to lead, it would begin the
queue at 0 again. So each leader writes the ends of all queues into the log: with its first append,
and again with the first one in every segment. Whoever dispatches such a record takes over the ends
of queues that it knows less of.

The records are of an internal topic, with the transaction type "prepared", so that no consume
queue takes them. A body is JSON, {"part": i, "parts": n, "ends": {topic: {queue id: next offset}}};
the ends are told when the last part is there.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ledgermq.commitlog.encoding import OWN_TOPIC_PREFIX
from ledgermq.commitlog.queues import ConsumeQueues, is_queue_name

QUEUES_TOPIC: Final = OWN_TOPIC_PREFIX + "QUEUES"
# Ends in one record: the smallest segment has room for it several times.
BODY_BYTES_MAX: Final = 16 << 10
# What one end takes besides the name of its topic, which may stand there once for each.
_END_BYTES: Final = 48


def encode_queue_ends(table: Mapping[tuple[str, int], int]) -> list[bytes]:
    """Return the bodies that tell a table of next offsets; none when it is empty."""
    parts = list(_cut(table))
    return [
        json.dumps(
            {"part": number, "parts": len(parts), "ends": ends}, separators=(",", ":")
        ).encode("ascii")
        for number, ends in enumerate(parts)
    ]


def _cut(table: Mapping[tuple[str, int], int]) -> Iterator[dict[str, dict[int, int]]]:
    topics: dict[str, dict[int, int]] = {}
    size = 0
    for topic, queue_id in sorted(table):
        size += _END_BYTES + (0 if topic in topics else len(topic))
        if topics and size > BODY_BYTES_MAX:
            yield topics
            topics, size = {}, _END_BYTES + len(topic)
        topics.setdefault(topic, {})[queue_id] = table[topic, queue_id]
    if topics:
        yield topics


def decode_queue_ends(body: bytes) -> dict[tuple[str, int], int]:
    """Return the table that a body tells; what is malformed in it is left out."""
    table = {}
    try:
        for topic, ends in _document(body)["ends"].items():
            for queue_id, end in ends.items():
                if is_queue_name(topic, int(queue_id)) and isinstance(end, int) and end > 0:
                    table[topic, int(queue_id)] = end
    except (ValueError, AttributeError, KeyError):
        return {}
    return table


def _document(body: bytes) -> dict[str, Any]:
    document = json.loads(body)
    return document if isinstance(document, dict) else {}


def adopt_queue_ends(queues: ConsumeQueues, table: Mapping[tuple[str, int], int]) -> None:
    """Let queues without any unit go on where the table says that they end."""
    for (topic, queue_id), end in table.items():
        queue = queues.get(topic, queue_id)
        if not queue.has_files and queue.max_offset < end:
            queue.restore(end, end)


class ToldEnds:
    """Where in the log the ends were told last, as a whole."""

    def __init__(self) -> None:
        # Of the first record; -1 while they were never told.
        self.index = -1
        # Of those under way: how many parts came, of how many, and the index of the first.
        self._came, self._first = 0, -1
        self._parts: object = 0

    def note(self, body: bytes, index: int) -> None:
        """Note a record; one that is malformed, or does not go on, tells nothing."""
        try:
            document = _document(body)
        except ValueError:
            return
        part, parts = document.get("part"), document.get("parts")
        if part == 0:
            self._came, self._parts, self._first = 0, parts, index
        if (part, parts) != (self._came, self._parts):
            self._came, self._parts, self._first = 0, 0, -1
            return
        self._came += 1
        if self._came == parts:
            self.index = self._first
