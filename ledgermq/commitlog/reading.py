"""Reading messages: by queue offset for pulls, by time, by key, by place. Committed data only.

Everything here is bounded by what dispatch has passed: a unit exists only for a committed record,
and a look-up by place is checked against the dispatched position and against the record's own
claim to stand there.
Source: DefaultMessageStore.getMessage, ConsumeQueue.getOffsetInQueueByTime, queryMessage of 4.9.3.
"""

from collections.abc import Callable
from enum import Enum
from struct import Struct
from struct import error as StructError
from typing import Final, Generic, NamedTuple, TypeVar

from ledgermq.commitlog.config import StoreConfig
from ledgermq.commitlog.consume_queue import ConsumeQueue
from ledgermq.commitlog.dispatch import Dispatcher
from ledgermq.commitlog.errors import DamagedFileError
from ledgermq.commitlog.key_index import KeyIndex
from ledgermq.commitlog.layout import QUEUE_UNIT, QUEUE_UNIT_BYTES
from ledgermq.commitlog.proof import PROOF, OnDamage, damage_of, is_light_entry, plain_damage_of
from ledgermq.commitlog.queues import ConsumeQueues
from ledgermq.dledger.entry import HEAD_BYTES
from ledgermq.dledger.storage import LedgerStore
from ledgermq.dledger.store.segment import Segment
from ledgermq.protocol.checksum import crc32c
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.record import decode_record_head

# Bytes of the data log: absolute position and size; fewer or LookupError where it does not reach.
ReadAt = Callable[[int, int], bytes]
# The segment of the ledger's data log that holds a position; IndexError when none does.
SegmentAt = Callable[[int], Segment]
# Whether a consumer wants records with this tags code.
TagsMatcher = Callable[[int], bool]

# Units looked at by one read at least, however few records are wanted; more when a matcher may pass
# over most of them.
_READ_UNITS_MIN: Final = 64
_SCANNED_UNITS_MIN: Final = 800
_SIZE: Final = Struct(">i")
# Of a record, so that all that proves it is there.
_PROVEN_BYTES_MIN: Final = PROOF.size - HEAD_BYTES
_NO_BYTES: Final = memoryview(b"")
_QUERY_ROUNDS: Final = 3

# What records are given as: copies, or views of the log.
Records = TypeVar("Records", bytes, memoryview)


class GetMessageStatus(Enum):
    """How a read ended; names and meaning as upstream's."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class GetMessageResult(NamedTuple, Generic[Records]):
    """What a read found."""

    status: GetMessageStatus
    # Where the next read should begin.
    next_begin_offset: int
    min_offset: int
    max_offset: int
    # Whole records in queue order.
    parts: list[Records]
    message_count: int
    # Sum of the parts.
    bytes: int
    # How far behind the end of the log the last unit that was looked at lies, bytes.
    behind_bytes: int


class QueryResult(NamedTuple):
    """Records that may have a key, oldest first."""

    parts: list[bytes]
    # Store time and place of the last record in the index.
    last_update_timestamp: int
    last_update_physical_offset: int


class LogReader:
    """Reads what was dispatched."""

    def __init__(
        self,
        store: LedgerStore,
        read_at: ReadAt,
        dispatcher: Dispatcher,
        queues: ConsumeQueues,
        key_index: KeyIndex,
        config: StoreConfig,
        *,
        segment_at: SegmentAt,
        plain_end: int = 0,
    ) -> None:
        self._store = store
        self._read_at = read_at
        self._segment_at = segment_at
        self._dispatcher = dispatcher
        self._queues = queues
        self._key_index = key_index
        self._config = config
        # Told before damage is raised; whoever runs the store repairs it.
        self.on_damage: OnDamage = lambda damage: None
        self._memory_bytes = config.machine_memory_bytes * config.memory_ratio_percent // 100
        # Records below have no head in front of them: they stand in a plain log.
        self._plain_end = plain_end

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        matcher: TagsMatcher | None,
    ) -> GetMessageResult[bytes]:
        """Return records of a queue from `offset` on, or why there are none."""
        lent = self.lend_message(topic, queue_id, offset, count_max, matcher)
        return GetMessageResult(*lent[:4], [bytes(part) for part in lent.parts], *lent[5:])

    def lend_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        matcher: TagsMatcher | None,
    ) -> GetMessageResult[memoryview]:
        """Return the same as views of the log, which are good for this turn of the reactor."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return _nothing(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low, high = queue.min_offset, queue.max_offset
        if high == 0:
            return _nothing(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
        if offset < low:
            return _nothing(GetMessageStatus.OFFSET_TOO_SMALL, low, low, high)
        if offset == high:
            return _nothing(GetMessageStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        if offset > high:
            return _nothing(GetMessageStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
        scanned_min = _READ_UNITS_MIN if matcher is None else _SCANNED_UNITS_MIN
        units = queue.units(offset, max(scanned_min, count_max))
        if not units:
            return _nothing(GetMessageStatus.OFFSET_FOUND_NULL, high, low, high)
        return self._scan(units, queue, offset, count_max, matcher)

    def _scan(
        self,
        units: bytes,
        queue: ConsumeQueue,
        offset: int,
        count_max: int,
        matcher: TagsMatcher | None,
    ) -> GetMessageResult[memoryview]:
        end_position = self._dispatcher.dispatched_position
        disk_before = end_position - self._memory_bytes
        in_memory, on_disk = self._limits(count_max)
        first_position, queue_id = self._store.first_position, queue.queue_id
        unpack = PROOF.unpack_from
        parts: list[memoryview] = []
        count = found_bytes = physical_offset = 0
        next_offset = offset
        status = GetMessageStatus.NO_MATCHED_MESSAGE
        plain_end = self._plain_end
        # The queue has no unit that points below: there a bit of one has flipped.
        removed_before = lowest = self._first_place(queue.dropped_position)
        first_place = first_position + (first_position >= plain_end)
        # The segment that the last record stood in, and its places.
        buffer, segment_begin, segment_end = _NO_BYTES, 0, 0
        # Not a call more in the loop than it takes: this is the way of every message.
        for physical_offset, size_bytes, tags_code in QUEUE_UNIT.iter_unpack(units):
            if physical_offset < removed_before:
                if physical_offset < lowest:
                    raise self._not_proven(b"", queue, next_offset, physical_offset)
                next_offset += 1
                continue
            if count:
                # One record passes whatever its size; limits count from the second on.
                bytes_max, count_max = on_disk if physical_offset < disk_before else in_memory
                if count >= count_max or found_bytes + size_bytes > bytes_max:
                    break
            if matcher is not None and not matcher(tags_code):
                next_offset += 1
                continue
            if size_bytes > 0 and physical_offset < first_place:
                if not parts:
                    status = GetMessageStatus.MESSAGE_WAS_REMOVING
                removed_before = self._next_segment(physical_offset)
                next_offset += 1
                continue
            if physical_offset < plain_end:
                plain = self._plain_record(queue, next_offset, physical_offset, size_bytes)
                record = memoryview(plain)
            else:
                if not segment_begin <= physical_offset < segment_end:
                    buffer, segment_begin = self._segment(queue, next_offset, physical_offset)
                    segment_end = segment_begin + len(buffer)
                place = physical_offset - segment_begin
                record = buffer[place : place + size_bytes]
                if (
                    len(record) != size_bytes
                    or size_bytes < _PROVEN_BYTES_MIN
                    or place < HEAD_BYTES
                ):
                    raise self._not_proven(b"", queue, next_offset, physical_offset)
                chain_crc, body_crc, at_queue, at_offset, at = unpack(buffer, place - HEAD_BYTES)
                if (
                    at != physical_offset
                    or at_offset != next_offset
                    or at_queue != queue_id
                    or (crc32c(record) != body_crc and (chain_crc or body_crc))
                ):
                    raw = bytes(buffer[place - HEAD_BYTES : place + size_bytes])
                    if not is_light_entry(raw, queue.topic, next_offset, physical_offset):
                        raise self._not_proven(raw, queue, next_offset, physical_offset)
            parts.append(record)
            count += 1
            next_offset += 1
            found_bytes += size_bytes
            removed_before = lowest
        if parts:
            status = GetMessageStatus.FOUND
        low, high, behind = queue.min_offset, queue.max_offset, end_position - physical_offset
        return GetMessageResult(status, next_offset, low, high, parts, count, found_bytes, behind)

    def _segment(
        self, queue: ConsumeQueue, queue_offset: int, physical_offset: int
    ) -> tuple[memoryview, int]:
        """Returns the segment that a record stands in and where it begins."""
        try:
            segment = self._segment_at(physical_offset)
        except IndexError:
            raise self._not_proven(b"", queue, queue_offset, physical_offset) from None
        return segment.buffer, segment.start_offset

    def _limits(self, count_max: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Returns bytes and records of one answer: of those in memory, and of those on disk."""
        config = self._config
        return (
            (config.memory_bytes_max, min(config.memory_count_max, count_max)),
            (config.disk_bytes_max, min(config.disk_count_max, count_max)),
        )

    def _first_place(self, position: int) -> int:
        """Where the record of what begins at `position` stands."""
        return position if position < self._plain_end else position + HEAD_BYTES

    def _plain_record(
        self, queue: ConsumeQueue, queue_offset: int, physical_offset: int, size_bytes: int
    ) -> bytes:
        """Returns a record of a plain log, once it is proven to be the one that a unit names."""
        try:
            record = self._read_at(physical_offset, size_bytes)
        except IndexError:
            record = b""
        damage = plain_damage_of(
            record, queue.queue_id, queue_offset, physical_offset, size_bytes, queue.topic
        )
        if damage is not None:
            self.on_damage(damage)
            raise damage
        return record

    def _not_proven(
        self, raw: bytes, queue: ConsumeQueue, queue_offset: int, physical_offset: int
    ) -> DamagedFileError:
        """Finds out what is wrong with an entry, and tells."""
        damage = damage_of(raw, queue.queue_id, queue_offset, physical_offset, queue.topic)
        self.on_damage(damage)
        return damage

    def _next_segment(self, physical_offset: int) -> int:
        segment_bytes = self._store.segment_bytes
        return physical_offset - physical_offset % segment_bytes + segment_bytes

    def record_at(self, physical_offset: int) -> bytes | None:
        """Return the committed record that stands at a place, or None when there is none."""
        store = self._store
        end_position = self._dispatcher.dispatched_position
        if not self._first_place(store.first_position) <= physical_offset < end_position:
            return None
        try:
            size_bytes = _SIZE.unpack(self._read_at(physical_offset, _SIZE.size))[0]
            if size_bytes <= 0 or physical_offset + size_bytes > end_position:
                return None
            record = self._read_at(physical_offset, size_bytes)
            head = decode_record_head(record)
        except (StructError, LookupError, RemoteProtocolError):
            return None
        # A record says where it stands, so bytes inside of another one do not pass for one.
        if head.size_bytes != size_bytes or head.physical_offset != physical_offset:
            return None
        return record

    def store_time_from(self, position: int) -> int | None:
        """Return the store time of what begins at a position of the log, None when nothing does."""
        return self.store_time_at(self._first_place(position))

    def store_time_at(self, physical_offset: int) -> int | None:
        """Return the store time of the committed record at a place, None when there is none."""
        record = self.record_at(physical_offset)
        return None if record is None else decode_record_head(record).store_timestamp

    def store_time(self, queue: ConsumeQueue, queue_offset: int) -> int | None:
        """Return the store time of a message, None when it is not there."""
        if not queue.min_offset <= queue_offset < queue.max_offset:
            return None
        return self.store_time_at(queue.unit(queue_offset).physical_offset)

    def offset_by_time(self, queue: ConsumeQueue, timestamp_ms: int) -> int:
        """Return the offset of the message stored nearest to a time; the earlier one on a tie.

        Returns: 0 for an empty queue; the first or last offset when the time lies outside.
        """
        low, high = queue.min_offset, queue.max_offset
        if low >= high:
            return 0
        first, behind = low, high
        # The first message stored at that time or later; store times never fall along a queue.
        while low < high:
            middle = (low + high) // 2
            stored = self.store_time(queue, middle)
            if stored is None:
                return 0
            if stored < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        if low == behind:
            return behind - 1
        if low == first:
            return first
        right, left = self.store_time(queue, low), self.store_time(queue, low - 1)
        if right is None or left is None:
            return 0
        return low if right - timestamp_ms < timestamp_ms - left else low - 1

    def query(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> QueryResult:
        """Return the newest records that are entered under a key, oldest of them first.

        Records of other keys with the same hash may be among them; the client compares.
        """
        parts: list[bytes] = []
        count_max = min(count_max, self._config.query_count_max)
        end = end_ms
        for _ in range(_QUERY_ROUNDS):
            places = sorted(self._key_index.lookup(topic, key, count_max, begin_ms, end))
            oldest = end
            for place in places:
                record = self.record_at(place)
                if record is None:
                    continue
                stored = decode_record_head(record).store_timestamp
                oldest = min(oldest, stored)
                if begin_ms <= stored <= end_ms:
                    parts.append(record)
            if parts or not places or oldest < begin_ms or oldest == end:
                break
            end = oldest
        return QueryResult(
            parts, self._key_index.end_timestamp, max(0, self._key_index.end_physical_offset)
        )


def no_segment(position: int) -> Segment:
    """The segments of a store without a ledger."""
    raise IndexError(f"there is no ledger that could hold position {position}")


def _nothing(
    status: GetMessageStatus, begin: int, low: int, high: int
) -> GetMessageResult[memoryview]:
    return GetMessageResult(status, begin, low, high, [], 0, 0, 0)


assert QUEUE_UNIT.size == QUEUE_UNIT_BYTES
