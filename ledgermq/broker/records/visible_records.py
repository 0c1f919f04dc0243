"""VisibleRecords: the one way from a place in the log, as a client names it, to a message.

Whoever answers a request that names a record asks here, and the guard asks here, too: what the one
sees the other sees. Visible is what has a place in a consume queue of a topic that consumers read.
The ledger holds more: the broker's state with the rules of access control in it, records that open
a leader's term, half messages and their ends. To clients those places are empty, and nothing tells
them from places where no record begins.

Half messages have look-ups of their own, for the requests that end or resume a transaction.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from ledgermq.broker.records.delayed_messages import target_of
from ledgermq.broker.records.half_messages import HalfMessage, half_from
from ledgermq.commitlog import SCHEDULE_TOPIC, TERM_TOPIC
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.message_id import decode_offset_id
from ledgermq.protocol.properties import decode_any_properties
from ledgermq.protocol.record import Record, decode_record
from ledgermq.protocol.sysflag import is_queued
from ledgermq.state import names

# What stands there is the broker's own, or not yet a message.
HIDDEN_TOPICS: Final = frozenset(
    (
        names.STATE_TOPIC,
        TERM_TOPIC,
        names.HALF_TOPIC,
        names.HALF_DONE_TOPIC,
        names.HALF_EXPIRED_TOPIC,
    )
)


class Records(Protocol):
    """What is needed of a message store."""

    def record_at(self, physical_offset: int) -> bytes | None: ...


class VisibleRecord(NamedTuple):
    """A message that its place names."""

    # As it stands in the log.
    raw: bytes
    record: Record
    # Whose readers may see it: the topic it stands in, and the one it waits for.
    topics: tuple[str, ...]


class VisibleRecords:
    """Finds messages by the places that clients name."""

    def __init__(self, store: Records) -> None:
        """Binds the store."""
        self._store = store

    def find(self, physical_offset: int) -> VisibleRecord | None:
        """Returns the message at a place; None when no record that clients may see begins there,
        and when it cannot be read.
        """
        raw = self._store.record_at(physical_offset)
        return None if raw is None else visible(bytes(raw))

    def find_by_id(self, offset_message_id: str) -> VisibleRecord | None:
        """Returns the message with an offset message id; None as for `find`.

        Raises:
            RemoteProtocolError: that is no such id.
        """
        return self.find(decode_offset_id(offset_message_id).physical_offset)

    def find_half(self, physical_offset: int) -> HalfMessage | None:
        """Returns the half message at a place; None when none that can be committed is there."""
        raw = self._store.record_at(physical_offset)
        return None if raw is None else half_from(raw)

    def find_set_aside(self, offset_message_id: str) -> Record | None:
        """Returns the half message with an offset message id that was put aside; None when there
        is none.

        Raises:
            RemoteProtocolError: that is no such id.
        """
        raw = self._store.record_at(decode_offset_id(offset_message_id).physical_offset)
        record = None if raw is None else _read(raw)
        return record if record is not None and record.topic == names.HALF_EXPIRED_TOPIC else None


def visible(raw: bytes) -> VisibleRecord | None:
    """Returns a stored record as what clients may see of it; None when that is nothing."""
    record = _read(raw)
    if record is None or record.topic in HIDDEN_TOPICS or not is_queued(record.sys_flag):
        return None
    if record.topic != SCHEDULE_TOPIC:
        return VisibleRecord(raw, record, (record.topic,))
    target = target_of(decode_any_properties(record.properties))
    # A message that waits for nothing known is nobody's.
    return None if target is None else VisibleRecord(raw, record, (record.topic, target.topic))


def visible_parts(raws: Sequence[bytes]) -> list[bytes]:
    """Returns those of some stored records that clients may see, in their order."""
    return [raw for raw in raws if visible(raw) is not None]


def _read(raw: bytes) -> Record | None:
    try:
        return decode_record(raw)
    except RemoteProtocolError:
        return None
