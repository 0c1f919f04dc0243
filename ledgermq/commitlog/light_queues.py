"""Light queues: a message that is stored once, and stands in more queues than its own.

    INNER_MULTI_DISPATCH       %LMQ%a,%LMQ%b    queues, named by the sender
    INNER_MULTI_QUEUE_OFFSET   17,3             the message's offset in each, written by the leader

A light queue is the consume queue 0 of a topic whose name begins with %LMQ%; nobody has to make it.
Its offsets are given out with those of the message's own queue and stand in the record. So
dispatch makes the same units everywhere and whenever it runs, whatever a member's settings are:
they decide only whether a leader gives out offsets. For the same reason nobody but the leader
writes the second property: a message whose sender made it up loses it (by the broker, when it
comes), and so does a copy of a message.

A message is in its light queues once it is in its real topic: not while it waits there for its
time or the end of its transaction, and not again when a consumer gives it back.
Source: MultiDispatch.java, ConsumeQueue.multiDispatchLmqQueue of 4.9.3; 4.9.8 for a ledger.
"""

from collections.abc import Sequence
from typing import Final

from ledgermq.commitlog.config import SCHEDULE_TOPIC
from ledgermq.commitlog.queues import ConsumeQueues, is_queue_name
from ledgermq.protocol.names import DEAD_LETTER_PREFIX, LIGHT_QUEUE_PREFIX, RETRY_PREFIX
from ledgermq.protocol.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    find_property,
)

# What both properties begin with: the quick look at a message that names none.
MULTI_MARK: Final = b"INNER_MULTI_"
# A light queue has one queue id.
LIGHT_QUEUE_ID: Final = 0
# Before the offsets in a property block; decimal digits of one of them with its comma.
OFFSETS_BYTES: Final = len(f"\x02{INNER_MULTI_QUEUE_OFFSET}\x01")
OFFSET_DIGITS_MAX: Final = 20

_SEPARATOR: Final = ","
_DISPATCH: Final = INNER_MULTI_DISPATCH.encode()
_OFFSETS: Final = INNER_MULTI_QUEUE_OFFSET.encode()
_OFFSETS_MARK: Final = _OFFSETS + b"\x01"
# Topics of messages that wait, and of copies.
_NOT_FROM: Final = (
    RETRY_PREFIX,
    DEAD_LETTER_PREFIX,
    SCHEDULE_TOPIC,
    "RMQ_SYS_TRANS_",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "rmq_sys_",
)
# No file is named by a larger one: its first byte has to fit in 63 bits.
_OFFSET_MAX: Final = 2**58


def is_light_queue(topic: str) -> bool:
    """Tell whether a topic is the name of a light queue."""
    return topic.startswith(LIGHT_QUEUE_PREFIX) and is_queue_name(topic, LIGHT_QUEUE_ID)


def named_queues(text: str) -> list[str] | None:
    """Return the names in a value of INNER_MULTI_DISPATCH, None when one is no light queue's."""
    names = text.split(_SEPARATOR)
    return names if all(map(is_light_queue, names)) else None


def count_light_queues(queues: ConsumeQueues) -> int:
    """Return how many light queues there are, without those that hold nothing any more."""
    return sum(
        1
        for topic in queues.topics()
        if is_light_queue(topic)
        and any(queue.has_files or not queue.max_offset for queue in queues.of_topic(topic))
    )


def wanted_queues(topic: str, properties: bytes) -> list[str]:
    """Return the light queues that a message has to be put into, as its sender wrote them."""
    value = find_property(properties, _DISPATCH)
    if not value or topic.startswith(_NOT_FROM):
        return []
    return named_queues(value.decode("utf-8", "replace")) or []


def without_offsets(properties: bytes) -> bytes:
    """Return a property block without offsets in light queues."""
    if _OFFSETS_MARK not in properties:
        return properties
    elements = properties.split(b"\x02")
    return b"\x02".join([e for e in elements if not e.startswith(_OFFSETS_MARK)])


def with_offsets(properties: bytes, offsets: Sequence[int]) -> bytes:
    """Return a property block with the offsets in the light queues that it names."""
    separator = b"" if properties.endswith(b"\x02") else b"\x02"
    numbers = _SEPARATOR.join(map(str, offsets)).encode()
    return properties + separator + _OFFSETS_MARK + numbers


def light_places(topic: str, queue_id: int, properties: bytes) -> list[tuple[str, int]]:
    """Return where a record stands besides its own queue: light queue and offset of each.

    Args:
        topic: of the record.
        queue_id: of the record.
        properties: of the record; nothing in them can be trusted.
    """
    names = wanted_queues(topic, properties)
    numbers = find_property(properties, _OFFSETS).decode("utf-8", "replace").split(_SEPARATOR)
    if not names or len(names) != len(numbers):
        return []
    places: dict[str, int] = {}
    for name, number in zip(names, numbers, strict=True):
        if not (number.isascii() and number.isdecimal() and len(number) < OFFSET_DIGITS_MAX):
            return []
        if (name, LIGHT_QUEUE_ID) != (topic, queue_id) and int(number) < _OFFSET_MAX:
            places.setdefault(name, int(number))
    return list(places.items())
