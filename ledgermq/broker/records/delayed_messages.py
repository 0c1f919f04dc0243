"""Delayed messages as records: as they wait in the queue of their level, and as they are delivered.

A message that waits has its real topic and queue as properties. Pure. Source:
`ScheduleMessageService.java`.
"""

from typing import Final, NamedTuple

from ledgermq.broker.records.record_copies import copy_of
from ledgermq.commitlog import SCHEDULE_TOPIC, AppendMessage
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.properties import (
    DELAY_TIME_LEVEL,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    decode_any_properties,
    encode_any_properties,
)
from ledgermq.protocol.record import decode_record
from ledgermq.state import names

_QUEUE_ID_MAX: Final = 2**31 - 1


_QUEUE_ID_DIGITS_MAX: Final = 10


# Topics that no delivery may go to: it would wait again, or pass for something else.
_INTERNAL_TOPICS: Final = (SCHEDULE_TOPIC, names.HALF_TOPIC, names.HALF_DONE_TOPIC)


_INTERNAL_PREFIX: Final = "rmq_sys_LEDGERMQ_"


class Target(NamedTuple):
    """Where a message really goes."""

    topic: str
    queue_id: int


def delivered_message(raw: bytes) -> AppendMessage | None:
    """Returns a delayed record as the message that is delivered: the same, in its real topic.

    The properties stay as they are, with delay level and real topic in them.

    Returns:
        None when the record does not name a place for it.
    """
    try:
        record = decode_record(raw)
        target = target_of(decode_any_properties(record.properties))
    except RemoteProtocolError:
        return None
    if target is None:
        return None
    return copy_of(record)._replace(topic=target.topic, queue_id=target.queue_id)


def waiting_message(message: AppendMessage, level: int) -> AppendMessage:
    """Returns a message as it waits for its delivery.

    Args:
        message: with its real topic and queue.
        level: delay level, from 1 on.
    """
    properties = decode_any_properties(message.properties)
    properties[DELAY_TIME_LEVEL] = str(level)
    properties[REAL_TOPIC] = message.topic
    properties[REAL_QUEUE_ID] = str(message.queue_id)
    return message._replace(
        topic=SCHEDULE_TOPIC,
        queue_id=level - 1,
        properties=encode_any_properties(properties),
    )


def target_of(properties: dict[str, str]) -> Target | None:
    """Returns the real topic and queue that a waiting message names, None when it names none."""
    topic, queue_id = properties.get(REAL_TOPIC, ""), properties.get(REAL_QUEUE_ID, "")
    if not topic or topic in _INTERNAL_TOPICS or topic.startswith(_INTERNAL_PREFIX):
        return None
    # Bytes that are no UTF-8 name no topic, and could not be written as one.
    if any("\ud800" <= char <= "\udfff" for char in topic):
        return None
    if not (queue_id.isascii() and queue_id.isdecimal()) or len(queue_id) > _QUEUE_ID_DIGITS_MAX:
        return None
    if int(queue_id) > _QUEUE_ID_MAX:
        return None
    return Target(topic, int(queue_id))
