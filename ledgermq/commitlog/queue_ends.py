"""Queue ends in the log: what a member needs that does not have the whole log.

A queue's numbering goes on for ever, but its records leave the log with retention, and a member
that was filled from a later entry on never saw them. Were such a member to lead, it would begin the
queue at 0 again. So each leader writes the ends of all queues into the log: with its first append,
and again with the first one in every segment. Whoever dispatches that record takes over the ends of
queues that it knows less of.

The record is one of an internal topic, with the transaction type "prepared", so that no consume
queue takes it; its body is JSON, {topic: {queue id: next offset}}.
"""

import json
from collections.abc import Mapping
from typing import Final

from ledgermq.commitlog.queues import ConsumeQueues, is_queue_name

QUEUES_TOPIC: Final = "rmq_sys_LEDGERMQ_QUEUES"
# Queues in one record: with the longest topic names it stays far below the limit of a record.
QUEUES_IN_RECORD_MAX: Final = 10_000


def encode_queue_ends(table: Mapping[tuple[str, int], int]) -> list[bytes]:
    """Return the bodies that tell a table of next offsets; none when it is empty."""
    bodies = []
    keys = sorted(table)
    for start in range(0, len(keys), QUEUES_IN_RECORD_MAX):
        topics: dict[str, dict[int, int]] = {}
        for topic, queue_id in keys[start : start + QUEUES_IN_RECORD_MAX]:
            topics.setdefault(topic, {})[queue_id] = table[topic, queue_id]
        bodies.append(json.dumps(topics, separators=(",", ":")).encode("ascii"))
    return bodies


def decode_queue_ends(body: bytes) -> dict[tuple[str, int], int]:
    """Return the table that a body tells; what is malformed in it is left out."""
    table = {}
    try:
        for topic, ends in json.loads(body).items():
            for queue_id, end in ends.items():
                if is_queue_name(topic, int(queue_id)) and isinstance(end, int) and end > 0:
                    table[topic, int(queue_id)] = end
    except (ValueError, AttributeError):
        return {}
    return table


def adopt_queue_ends(queues: ConsumeQueues, body: bytes) -> None:
    """Let queues without any unit go on where the record says that they end."""
    for (topic, queue_id), end in decode_queue_ends(body).items():
        queue = queues.get(topic, queue_id)
        if not queue.has_files and queue.max_offset < end:
            queue.restore(end, end)
