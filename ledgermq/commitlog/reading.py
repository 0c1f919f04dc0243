"""Reading queues: messages from an offset on, as pulls want them. Committed data only, for a unit
exists only for a committed record.

Records that stand close together are read at once, and each is proven in what was read. The usual
records take a short loop; the first that is anything else, such as one at a limit, in another
segment, in a plain log, in a light queue, or a damaged one, is left to the loop that knows all
cases. Compiled loops (`run_loops.py`) copy a whole answer of usual records and prove the copies:
`find_run` is for them. A reader that must not wait for the disk gets ColdDataError where bytes are
not in memory. `look_up.py` finds messages by time, key and place.
Source: DefaultMessageStore.getMessage of 4.9.3.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from itertools import islice
from struct import Struct
from typing import Final, Generic, NamedTuple, TypeVar

from ledgermq.commitlog.config import StoreConfig
from ledgermq.commitlog.consume_queue import ConsumeQueue
from ledgermq.commitlog.dispatch import Dispatcher
from ledgermq.commitlog.errors import DamagedFileError
from ledgermq.commitlog.layout import QUEUE_UNIT, QUEUE_UNIT_BYTES
from ledgermq.commitlog.proof import PROOF, OnDamage, damage_of, is_light_entry, plain_damage_of
from ledgermq.commitlog.queues import ConsumeQueues
from ledgermq.commitlog.run_loops import Run, measure_run
from ledgermq.dledger.entry import HEAD_BYTES
from ledgermq.dledger.errors import ColdDataError, Readable
from ledgermq.dledger.storage import LedgerStore
from ledgermq.dledger.store.errors import UnreadableError
from ledgermq.dledger.store.segment import ReadMode, Segment
from ledgermq.protocol.checksum import crc32c

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
# Two records of a queue are read at once where no more than this lies between them: about what
# takes as long to copy as a further read.
_GAP_BYTES: Final = 8192
_ROOM_BYTES: Final = 1 << 18
# Of a record, in a unit.
_PLACE: Final = Struct(">q")
_PLACE_AND_SIZE: Final = Struct(">qi")
# Of a record, so that all that proves it is there.
_PROVEN_BYTES_MIN: Final = PROOF.size - HEAD_BYTES
# Fields of a unit: place, size, tags code.
_Unit = tuple[int, int, int]

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


class LogReader:
    """Reads what was dispatched."""

    def __init__(
        self,
        store: LedgerStore,
        read_at: ReadAt,
        dispatcher: Dispatcher,
        queues: ConsumeQueues,
        config: StoreConfig,
        *,
        segment_at: SegmentAt,
        mode: ReadMode,
        plain_end: int = 0,
    ) -> None:
        self._mode = mode
        self._store = store
        self._read_at = read_at
        self._segment_at = segment_at
        self._dispatcher = dispatcher
        self._queues = queues
        self._config = config
        # Told before damage is raised; whoever runs the store repairs it.
        self.on_damage: OnDamage = lambda damage: None
        # Takes what `find_run` reads: new memory for each answer costs more than the read.
        self._room = memoryview(bytearray(_ROOM_BYTES))
        self._memory_bytes = config.machine_memory_bytes * config.memory_ratio_percent // 100
        # Records below have no head in front of them: they stand in a plain log.
        self._plain_end = plain_end

    def lend_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        matcher: TagsMatcher | None,
        *,
        may_wait: bool = True,
    ) -> GetMessageResult[memoryview]:
        """Return records of a queue from `offset` on, or why there are none.

        Args:
            may_wait: whether the reader may wait for the disk.

        Raises:
            ColdDataError: it may not, and would have to before the first record is there.
            DamagedFileError: what stands there is not what was written, or cannot be read.
        """
        mode = self._mode
        mode.may_wait = may_wait
        try:
            return self._find(topic, queue_id, offset, count_max, matcher)
        finally:
            mode.may_wait = True

    def _find(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        count_max: int,
        matcher: TagsMatcher | None,
    ) -> GetMessageResult[memoryview]:
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

    def find_run(self, queue: ConsumeQueue, offset: int, count_max: int) -> Run | None:
        """Return the records that `lend_message` finds without a matcher, if they are usual ones.

        Most pulls find such. None says only that `lend_message` must be asked, as where the disk
        would have to be waited for. Nothing is proven yet; the bytes are good for this turn.
        """
        mode = self._mode
        mode.may_wait = False
        try:
            return self._measure(queue, offset, count_max)
        except (ColdDataError, UnreadableError):
            return None
        finally:
            mode.may_wait = True

    def _measure(self, queue: ConsumeQueue, offset: int, count_max: int) -> Run | None:
        count_max = min(count_max, self._config.memory_count_max)
        # The unit behind them is looked at, too.
        units = queue.units(offset, count_max + 1)
        if not units:
            return None
        (first,) = _PLACE.unpack_from(units)
        try:
            segment = self._segment_at(first)
        except IndexError:
            return None
        end_position = self._dispatcher.dispatched_position
        lowest = self._usual_from(queue, end_position - self._memory_bytes)
        start, bytes_max = segment.start_offset, self._config.memory_bytes_max
        end = start + segment.size_bytes
        count, found_bytes, last = measure_run(units, start, end, lowest, bytes_max, count_max)
        if not count:
            return None
        at, size_bytes = _PLACE_AND_SIZE.unpack_from(units, (count - 1) * QUEUE_UNIT_BYTES)
        begin = first - HEAD_BYTES
        read_bytes = at + size_bytes - begin
        if read_bytes <= 0:
            return None
        read = segment.view(begin - start, read_bytes)
        if read is None:
            if read_bytes > found_bytes + count * _GAP_BYTES:
                return None
            if read_bytes > len(self._room):
                self._room = memoryview(bytearray(read_bytes))
            read = self._room[:read_bytes]
            if not segment.read_cached(begin - start, read):
                return None
        behind = end_position - last
        return count, found_bytes, behind, units, queue.queue_id, offset, read, begin

    def _usual_from(self, queue: ConsumeQueue, disk_before: int) -> int:
        """Returns the place below which no usual record of a queue stands."""
        first_position, plain_end = self._store.first_position, self._plain_end
        return max(
            first_place(queue.dropped_position, plain_end),
            first_position + (first_position >= plain_end),
            plain_end,
            disk_before,
        )

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
        first_position = self._store.first_position
        status = GetMessageStatus.NO_MATCHED_MESSAGE
        plain_end = self._plain_end
        # The queue has no unit that points below: there a bit of one has flipped.
        removed_before = lowest = first_place(queue.dropped_position, plain_end)
        not_removed = first_position + (first_position >= plain_end)
        parts: list[memoryview] = []
        found_bytes = physical_offset = 0
        if matcher is None:
            usual_from = self._usual_from(queue, disk_before)
            parts, found_bytes, physical_offset = self._usual(
                units, queue.queue_id, offset, usual_from, *in_memory
            )
        next_offset = offset + len(parts)
        units = units[len(parts) * QUEUE_UNIT_BYTES :]
        for physical_offset, size_bytes, tags_code in QUEUE_UNIT.iter_unpack(units):
            if physical_offset < removed_before:
                if physical_offset < lowest:
                    raise self._not_proven(b"", queue, next_offset, physical_offset)
                next_offset += 1
                continue
            if parts:
                # One record passes whatever its size; limits count from the second on.
                bytes_max, count_max = on_disk if physical_offset < disk_before else in_memory
                if len(parts) >= count_max or found_bytes + size_bytes > bytes_max:
                    break
            if matcher is not None and not matcher(tags_code):
                next_offset += 1
                continue
            if size_bytes > 0 and physical_offset < not_removed:
                if not parts:
                    status = GetMessageStatus.MESSAGE_WAS_REMOVING
                removed_before = self._next_segment(physical_offset)
                next_offset += 1
                continue
            try:
                record = self._record(queue, next_offset, physical_offset, size_bytes)
            except ColdDataError:
                if parts:
                    # It is left to the next read.
                    break
                raise
            parts.append(record)
            next_offset += 1
            found_bytes += size_bytes
            removed_before = lowest
        if parts:
            status = GetMessageStatus.FOUND
        low, high, behind = queue.min_offset, queue.max_offset, end_position - physical_offset
        return GetMessageResult(
            status, next_offset, low, high, parts, len(parts), found_bytes, behind
        )

    def _usual(
        self,
        units: bytes,
        queue_id: int,
        queue_offset: int,
        lowest: int,
        bytes_max: int,
        count_max: int,
    ) -> tuple[list[memoryview], int, int]:
        """Lends records at the front of some units, up to the first that needs a closer look.

        This is the way of nearly every message; not a call more in the loop than it takes.

        Args:
            units: of the queue, the first of which has the offset `queue_offset`.
            lowest: records below are not for this loop, nor those of a second segment.
            bytes_max, count_max: of one answer.

        Returns:
            The records, their bytes, and the place of the last.
        """
        parts: list[memoryview] = []
        found_bytes = physical_offset = 0
        (first,) = _PLACE.unpack_from(units)
        if first < lowest:
            return parts, 0, 0
        try:
            segment = self._segment_at(first)
        except IndexError:
            return parts, 0, 0
        start = segment.start_offset
        lowest, end = max(lowest, start + HEAD_BYTES), start + segment.size_bytes
        unpack, append = PROOF.unpack_from, parts.append
        wanted: list[_Unit] = list(QUEUE_UNIT.iter_unpack(units[: count_max * QUEUE_UNIT_BYTES]))
        # What was read, and the log's bytes that it holds.
        read, begin, stop = memoryview(b""), 0, 0
        for i, (at, size_bytes, _) in enumerate(wanted):
            found_bytes += size_bytes
            if (
                at < lowest
                or at + size_bytes > end
                or size_bytes < _PROVEN_BYTES_MIN
                or (found_bytes > bytes_max and parts)
            ):
                return parts, found_bytes - size_bytes, physical_offset
            if at - HEAD_BYTES < begin or at + size_bytes > stop:
                try:
                    begin, stop = at - HEAD_BYTES, _end_of_run(wanted, i, end, bytes_max)
                    read = memoryview(self._read_run(segment, begin, stop, at + size_bytes))
                except UnreadableError:
                    return parts, found_bytes - size_bytes, physical_offset
                except ColdDataError:
                    if parts:
                        return parts, found_bytes - size_bytes, physical_offset
                    raise ColdDataError(_runs(wanted, segment, end, bytes_max)) from None
                stop = begin + len(read)
            place = at - begin
            record = read[place : place + size_bytes]
            chain_crc, body_crc, at_queue, at_offset, own_place = unpack(read, place - HEAD_BYTES)
            if (
                own_place != at
                or at_offset != queue_offset
                or at_queue != queue_id
                or (crc32c(record) != body_crc and (chain_crc or body_crc))
            ):
                return parts, found_bytes - size_bytes, physical_offset
            append(record)
            physical_offset = at
            queue_offset += 1
        return parts, found_bytes, physical_offset

    def _read_run(
        self, segment: Segment, begin: int, stop: int, first_stop: int
    ) -> bytes | bytearray:
        """Reads records that stand close together, or the first alone where not all can be read."""
        start = segment.start_offset
        try:
            return segment.lend(begin - start, stop - begin)
        except UnreadableError:
            if stop == first_stop:
                raise
            return segment.lend(begin - start, first_stop - begin)

    def _record(
        self, queue: ConsumeQueue, queue_offset: int, physical_offset: int, size_bytes: int
    ) -> memoryview:
        """Returns a record, once it is proven to be the one that a unit names."""
        place = queue, queue_offset, physical_offset, size_bytes
        try:
            if physical_offset < self._plain_end:
                return memoryview(self._plain_record(*place))
            return self._ledger_record(*place)
        except UnreadableError as error:
            what = f"record at {physical_offset}"
            damage = DamagedFileError("log", what, f"{size_bytes} bytes", error)
            self.on_damage(damage)
            raise damage from error

    def _ledger_record(
        self, queue: ConsumeQueue, queue_offset: int, physical_offset: int, size_bytes: int
    ) -> memoryview:
        """Returns a record of the ledger, once it is proven to be the one that a unit names."""
        try:
            segment = self._segment_at(physical_offset)
        except IndexError:
            raise self._not_proven(b"", queue, queue_offset, physical_offset) from None
        place = physical_offset - segment.start_offset
        if not _PROVEN_BYTES_MIN <= size_bytes <= segment.size_bytes - place or place < HEAD_BYTES:
            raise self._not_proven(b"", queue, queue_offset, physical_offset)
        entry = memoryview(segment.lend(place - HEAD_BYTES, HEAD_BYTES + size_bytes))
        record = entry[HEAD_BYTES:]
        chain_crc, body_crc, at_queue, at_offset, at = PROOF.unpack_from(entry)
        if (
            at != physical_offset
            or at_offset != queue_offset
            or at_queue != queue.queue_id
            or (crc32c(record) != body_crc and (chain_crc or body_crc))
        ):
            raw = bytes(entry)
            if not is_light_entry(raw, queue.topic, queue_offset, physical_offset):
                raise self._not_proven(raw, queue, queue_offset, physical_offset)
        return record

    def _limits(self, count_max: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Returns bytes and records of one answer: of those in memory, and of those on disk."""
        config = self._config
        return (
            (config.memory_bytes_max, min(config.memory_count_max, count_max)),
            (config.disk_bytes_max, min(config.disk_count_max, count_max)),
        )

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


def _end_of_run(wanted: Sequence[_Unit], first: int, limit: int, bytes_max: int) -> int:
    """Returns where the last record ends that is read together with the one at `first`."""
    at, size_bytes, _ = wanted[first]
    end, found_bytes = at + size_bytes, size_bytes
    for at, size_bytes, _ in islice(wanted, first + 1, None):
        found_bytes += size_bytes
        is_near = end <= at <= end + _GAP_BYTES and size_bytes > 0
        if not is_near or at + size_bytes > limit or found_bytes > bytes_max:
            break
        end = at + size_bytes
    return end


def _runs(
    wanted: Sequence[_Unit], segment: Segment, limit: int, bytes_max: int
) -> list[tuple[Readable, int, int]]:
    """Returns what an answer reads of a segment: offset and size of each part."""
    parts: list[tuple[Readable, int, int]] = []
    start, stop, found_bytes = segment.start_offset, 0, 0
    for i, (at, size_bytes, _) in enumerate(wanted):
        found_bytes += size_bytes
        if not start + HEAD_BYTES <= at <= limit - size_bytes or (found_bytes > bytes_max and i):
            break
        if at + size_bytes > stop:
            stop = _end_of_run(wanted, i, limit, bytes_max)
            begin = at - HEAD_BYTES
            parts.append((segment, begin - start, stop - begin))
    return parts


def first_place(position: int, plain_end: int) -> int:
    """Returns where the record stands of what begins at `position` of the log."""
    return position if position < plain_end else position + HEAD_BYTES


def no_segment(position: int) -> Segment:
    """The segments of a store without a ledger."""
    raise IndexError(f"there is no ledger that could hold position {position}")


def _nothing(
    status: GetMessageStatus, begin: int, low: int, high: int
) -> GetMessageResult[memoryview]:
    return GetMessageResult(status, begin, low, high, [], 0, 0, 0)


assert QUEUE_UNIT.size == QUEUE_UNIT_BYTES
