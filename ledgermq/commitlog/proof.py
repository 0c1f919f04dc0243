"""Proof: whether the bytes behind a unit of a consume queue are the message that it names.

    entry   36 chainCrc, 4 bodyCrc            (both 0: a Java leader wrote it, nothing to compare)
    record  12 queue id, 20 queue offset, 28 physical offset, of the record itself
            8 CRC-32 of its body: all there is to compare in a plain log

In a light queue the place stands in the record's properties instead (`light_queues.py`).
The entry's checksum covers the whole record, and the record says where it belongs; so a flipped bit
in the log and one in the queue are told apart. `LogReader` looks at this for every message it
reads.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from ledgermq.commitlog.errors import DamagedFileError
from ledgermq.commitlog.light_queues import is_light_queue, light_places
from ledgermq.dledger.entry import HEAD_BYTES
from ledgermq.protocol.checksum import crc32c
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.record import body_is_intact, decode_record, decode_record_head

# Of an entry with its record: chain crc, body crc, queue id, queue offset, physical offset.
PROOF: Final = Struct(">36xII16xi4xqq")
# Size of the entry, in its head.
_SIZE: Final = Struct(">4xi")
assert PROOF.size == HEAD_BYTES + 36

# Told of damage, once it is found; the reader raises it, too.
OnDamage = Callable[[DamagedFileError], None]


def plain_damage_of(
    record: bytes,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    size_bytes: int,
    topic: str,
) -> DamagedFileError | None:
    """Returns what is wrong with a record of a plain log, None when it is the one that is meant.

    Args:
        record: as it was read, perhaps cut short.
        queue_id, queue_offset, physical_offset, size_bytes, topic: as the unit says.
    """
    try:
        found = decode_record(record)
    except RemoteProtocolError as error:
        what = f"unit {queue_offset} of {topic}-{queue_id}"
        expected = f"a record of {size_bytes} bytes at {physical_offset}"
        return DamagedFileError("consume queue", what, expected, str(error))
    place = (found.physical_offset, found.queue_id, found.queue_offset, found.size_bytes)
    wanted = (physical_offset, queue_id, queue_offset, size_bytes)
    if place[::3] == wanted[::3] and stands_also_in(record, topic, queue_offset):
        place = wanted
    if not body_is_intact(found) and (place[0] == wanted[0] or place[1:3] == wanted[1:3]):
        what = f"record at {physical_offset}"
        return DamagedFileError("log", what, f"CRC {found.body_crc:08x}", "another one")
    if place != wanted:
        what = f"unit {queue_offset} of {topic}-{queue_id}"
        return DamagedFileError("consume queue", what, f"a record {wanted}", f"{place}")
    return None


def stands_also_in(record: bytes, topic: str, queue_offset: int) -> bool:
    """Tells whether a record says that it has a place in a light queue besides its own queue."""
    if not is_light_queue(topic):
        return False
    try:
        head = decode_record_head(record)
    except RemoteProtocolError:
        return False
    own_topic = head.topic.decode("utf-8", "replace")
    return (topic, queue_offset) in light_places(own_topic, head.queue_id, head.properties)


def is_light_entry(raw: bytes, topic: str, queue_offset: int, physical_offset: int) -> bool:
    """Tells whether an entry is whole, and has its place in a light queue besides its own queue.

    Args:
        raw: the entry's head and record.
        topic, queue_offset: of the unit.
        physical_offset: where the unit says that the record is.
    """
    chain_crc, body_crc, _, _, at = PROOF.unpack_from(raw)
    record = raw[HEAD_BYTES:]
    is_whole = crc32c(record) == body_crc or not (chain_crc or body_crc)
    return is_whole and at == physical_offset and stands_also_in(record, topic, queue_offset)


def damage_of(
    raw: bytes, queue_id: int, queue_offset: int, physical_offset: int, topic: str
) -> DamagedFileError:
    """Returns what is wrong with a message that could not be proven.

    Args:
        raw: the entry's head and record as they were read, perhaps cut short.
        queue_id, queue_offset, topic: where the unit stands that led here.
        physical_offset: where the unit says that the record is.
    """
    if len(raw) >= PROOF.size and _SIZE.unpack_from(raw) == (len(raw),):
        _, body_crc, at_queue, at_offset, at = PROOF.unpack_from(raw)
        found = crc32c(raw[HEAD_BYTES:])
        if found != body_crc and (
            at == physical_offset or (at_queue, at_offset) == (queue_id, queue_offset)
        ):
            what = f"record at {physical_offset}"
            return DamagedFileError("log", what, f"checksum {body_crc:08x}", f"{found:08x}")
    return DamagedFileError(
        "consume queue",
        f"unit {queue_offset} of {topic}-{queue_id}",
        "the place of that message",
        f"{physical_offset}, where it is not",
    )
