"""Offsets of many queues at once: as a mapping inside, as a JSON document outside.

    {"v": 1, "topics": {"Orders": {"broker-a": {"0": 1200, "1": 1187}}}}

The document is what a streaming query keeps in its checkpoint. Its keys are sorted, because Spark
compares two of them as text. A user may leave out the version and write the topics at the top.
Everything here is a pure function.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from ledgermq.client import MessageQueue

VERSION: Final = 1
# The number of the next message to read, or behind the last one, for each queue.
Offsets = Mapping[MessageQueue, int]

FORM: Final = '{"<topic>": {"<broker name>": {"<queue id>": <offset>}}}'


def to_document(offsets: Offsets) -> dict[str, Any]:
    """Returns offsets as a document of plain values, in a fixed order."""
    topics: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        brokers = topics.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return {"v": VERSION, "topics": topics}


def from_document(document: object) -> dict[MessageQueue, int]:
    """Returns the offsets of a document.

    Raises:
        ValueError: it has another form or version; the text says what is wrong.
    """
    topics = document
    if isinstance(document, dict) and isinstance(document.get("v"), int):
        if document["v"] != VERSION:
            raise ValueError(f"offsets of version {document['v']}; this source reads {VERSION}")
        topics = document.get("topics")
    found: dict[MessageQueue, int] = {}
    for topic, brokers in _members(topics):
        for broker_name, queues in _members(brokers):
            for queue_id, offset in _members(queues):
                is_number = isinstance(offset, int) and not isinstance(offset, bool)
                if not queue_id.isdecimal() or not is_number or offset < 0:
                    raise ValueError(f"queue {queue_id!r} has offset {offset!r}; form: {FORM}")
                found[MessageQueue(topic, broker_name, int(queue_id))] = offset
    return found


def _members(value: object) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} stands where an object is expected; form: {FORM}")
    return list(value.items())


def read_offsets(text: str) -> str | dict[MessageQueue, int]:
    """Reads the value of an option: ``earliest``, ``latest`` or a document.

    Raises:
        ValueError: it is none of them.
    """
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    try:
        return from_document(json.loads(text))
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def offsets_of_queues(text: str) -> dict[MessageQueue, int]:
    """Reads the value of an option that is a document.

    Raises:
        ValueError: it is none.
    """
    found = read_offsets(text)
    if isinstance(found, str):
        raise ValueError(text)
    return found


def backlog(start: Offsets, end: Offsets) -> int:
    """Returns how many messages lie between two ends; both name the same queues."""
    return sum(end[queue] - start[queue] for queue in end)


def limited(start: Offsets, end: Offsets, count_max: int) -> dict[MessageQueue, int]:
    """Returns an end with at most so many messages from the start on, shared out by backlog.

    Every queue gets its share rounded down; what is left over goes, one message each, to the
    queues with the largest backlog. So at least one message is read when there is any.

    Args:
        start: where each queue begins.
        end: where it could end; not before its start.
        count_max: 1 or more.
    """
    total = backlog(start, end)
    if total <= count_max:
        return dict(end)
    shares = {queue: (end[queue] - start[queue]) * count_max // total for queue in end}
    left = count_max - sum(shares.values())
    for queue in sorted(end, key=lambda queue: (start[queue] - end[queue], queue)):
        if left == 0:
            break
        if start[queue] + shares[queue] < end[queue]:
            shares[queue] += 1
            left -= 1
    return {queue: start[queue] + shares[queue] for queue in end}
