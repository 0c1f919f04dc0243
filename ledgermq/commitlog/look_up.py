"""Looking up messages: by place, by time, by key. Committed data only.

A look-up by place is checked against the position up to which was dispatched, against the
record's own claim to stand there, and against what says where entries begin: a body may hold bytes
that make the same claim.
Source: ConsumeQueue.getOffsetInQueueByTime, DefaultMessageStore.queryMessage of 4.9.3.
"""

from collections.abc import Callable, Generator
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeVar

from ledgermq.commitlog.config import StoreConfig
from ledgermq.commitlog.consume_queue import ConsumeQueue
from ledgermq.commitlog.dispatch import Dispatcher
from ledgermq.commitlog.key_index import KeyIndex
from ledgermq.commitlog.queues import ConsumeQueues
from ledgermq.commitlog.reading import ReadAt, first_place
from ledgermq.dledger.entry import HEAD_BYTES, read_head
from ledgermq.dledger.errors import LedgerError
from ledgermq.dledger.storage import LedgerStore
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.protocol.properties import find_property
from ledgermq.protocol.record import (
    RECORD_FIXED_BYTES,
    V6_HOSTS_BYTES,
    RecordHead,
    decode_record_head,
    decode_record_times,
)

# Of a record, its first field.
_SIZE: Final = Struct(">i")
_QUERY_ROUNDS: Final = 3
# Of the records of one answer, which is a frame; the newest is told in any case.
_QUERY_BYTES_MAX: Final = 8 << 20
# In which the times of a record stand, whatever its addresses are.
_HEAD_BYTES: Final = RECORD_FIXED_BYTES + V6_HOSTS_BYTES

_Ended = TypeVar("_Ended")


class QueryResult(NamedTuple):
    """Records that have a key, oldest first."""

    parts: list[bytes]
    # Store time and place of the last record in the index.
    last_update_timestamp: int
    last_update_physical_offset: int


class LookUp:
    """Finds what was dispatched."""

    def __init__(
        self,
        store: LedgerStore,
        read_at: ReadAt,
        dispatcher: Dispatcher,
        queues: ConsumeQueues,
        key_index: KeyIndex,
        config: StoreConfig,
        plain_end: int,
    ) -> None:
        self._store = store
        self._read_at = read_at
        self._dispatcher = dispatcher
        self._queues = queues
        self._key_index = key_index
        self._config = config
        # Records below have no head in front of them: they stand in a plain log.
        self._plain_end = plain_end

    def record_at(self, physical_offset: int) -> bytes | None:
        """Return the committed record that stands at a place, or None when there is none.

        Whoever asks may have made up the place, and the bytes that stand there in a body of its.
        """
        found = self._read_record(physical_offset)
        if found is None:
            return None
        record, head = found
        try:
            return record if self._begins_at(physical_offset, head) else None
        except (StructError, LookupError, LedgerError):
            return None

    def _begins_at(self, physical_offset: int, head: RecordHead) -> bool:
        """Tells whether a record begins there, by what no sender writes: the index of the ledger,
        and in a plain log the queue.
        """
        if physical_offset >= self._plain_end:
            position = physical_offset - HEAD_BYTES
            index = read_head(self._read_at(position, HEAD_BYTES)).index
            return self._store.position_at(index) == position
        queue = self._queues.find(head.topic.decode("utf-8", "replace"), head.queue_id)
        if queue is None or not queue.min_offset <= head.queue_offset < queue.max_offset:
            return False
        return queue.unit(head.queue_offset).physical_offset == physical_offset

    def _read_record(self, physical_offset: int) -> tuple[bytes, RecordHead] | None:
        """Return what claims to be the record of a place, and its head; the place is trusted."""
        store = self._store
        end_position = self._dispatcher.dispatched_position
        if not first_place(store.first_position, self._plain_end) <= physical_offset < end_position:
            return None
        try:
            size_bytes = _SIZE.unpack(self._read_at(physical_offset, _SIZE.size))[0]
            if size_bytes <= 0 or physical_offset + size_bytes > end_position:
                return None
            record = self._read_at(physical_offset, size_bytes)
            head = decode_record_head(record)
        except (StructError, LookupError, RemoteProtocolError):
            return None
        # A record says where it stands: a copy of one, in a body, is none.
        if head.size_bytes != size_bytes or head.physical_offset != physical_offset:
            return None
        return record, head

    def store_time_from(self, position: int) -> int | None:
        """Return the store time of what begins at a position of the log, None when nothing does."""
        return self.store_time_at(first_place(position, self._plain_end))

    def store_time_at(self, physical_offset: int) -> int | None:
        """Return the store time of the committed record at a place, None when there is none."""
        store = self._store
        end_position = self._dispatcher.dispatched_position
        left = end_position - physical_offset
        if left <= 0 or physical_offset < first_place(store.first_position, self._plain_end):
            return None
        try:
            # Its body may have megabytes.
            head = self._read_at(physical_offset, min(_HEAD_BYTES, left))
            size_bytes, place, stored_ms = decode_record_times(head)
        except (StructError, LookupError, RemoteProtocolError):
            return None
        is_whole = 0 < size_bytes <= left and place == physical_offset
        return stored_ms if is_whole else None

    def store_time(self, queue: ConsumeQueue, queue_offset: int) -> int | None:
        """Return the store time of a message, None when it is not there."""
        if not queue.min_offset <= queue_offset < queue.max_offset:
            return None
        return self.store_time_at(queue.unit(queue_offset).physical_offset)

    def offset_by_time(self, queue: ConsumeQueue, timestamp_ms: int) -> int:
        """Return the offset of the message stored nearest to a time; the earlier one on a tie.

        Store times rise along a queue, except where they fall behind messages of a clock that was
        far ahead: those are passed over when the time is that of messages behind them.

        Returns: 0 for an empty queue; the first or last offset when the time lies outside.
        """
        first, behind = queue.min_offset, queue.max_offset
        if first >= behind:
            return 0
        last_ms = self.store_time(queue, behind - 1)
        if last_ms is None:
            return 0
        if last_ms < timestamp_ms:
            return behind - 1
        low = self._first_stored(queue, first, behind, lambda ms: ms >= timestamp_ms)
        while low < behind:
            right = self.store_time(queue, low)
            if right is None or right <= last_ms:
                break
            # It is later than the last message: stored by a clock that was ahead.
            first = self._first_stored(queue, low, behind, lambda ms: ms <= last_ms)
            low = self._first_stored(queue, first, behind, lambda ms: ms >= timestamp_ms)
        if low == behind:
            return behind - 1
        if low == first:
            return first
        right, left = self.store_time(queue, low), self.store_time(queue, low - 1)
        if right is None or left is None:
            return 0
        return low if right - timestamp_ms < timestamp_ms - left else low - 1

    def _first_stored(
        self, queue: ConsumeQueue, low: int, high: int, is_there: Callable[[int], bool]
    ) -> int:
        """Return the first offset in [low, high) whose store time fulfils a condition, by binary
        search; `high` when none does. Messages that are gone fulfil none.
        """
        while low < high:
            middle = (low + high) // 2
            stored = self.store_time(queue, middle)
            if stored is not None and is_there(stored):
                high = middle
            else:
                low = middle + 1
        return low

    def query(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> Generator[None, None, QueryResult]:
        """Look for the newest records of a topic that have a key, as many as an answer has room
        for; yields behind each piece of work.

        The index holds hashes: what it finds is compared with topic and key, for another topic's
        record may be entered under the same hash, and its readers may be others.

        Returns: the records, oldest of them first.
        """
        parts: list[bytes] = []
        count_max = min(count_max, self._config.query_count_max)
        end = end_ms
        topic_bytes = topic.encode("utf-8", "replace")
        key_bytes = key.encode("utf-8", "replace")
        for _ in range(_QUERY_ROUNDS):
            found_at = yield from self._key_index.lookup(topic, key, count_max, begin_ms, end)
            places, oldest, left = sorted(set(found_at), reverse=True), end, _QUERY_BYTES_MAX
            for place in places:
                yield
                found = self._read_record(place)
                if found is None:
                    continue
                record, head = found
                stored = head.store_timestamp
                oldest = min(oldest, stored)
                is_wanted = head.topic == topic_bytes and has_key(head.properties, key_bytes)
                if is_wanted and begin_ms <= stored <= end_ms:
                    left -= len(record)
                    if left < 0 and parts:
                        break
                    parts.append(record)
            if parts or not places or oldest < begin_ms or oldest == end:
                break
            end = oldest
        parts.reverse()
        return QueryResult(
            parts, self._key_index.end_timestamp, max(0, self._key_index.end_physical_offset)
        )


def run_to_end(pieces: Generator[None, None, _Ended]) -> _Ended:
    """Has all pieces of work done at once; returns what they end in."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            ended: _Ended = end.value
            return ended


def has_key(properties: bytes, key: bytes) -> bool:
    """Tell whether a record with these properties is entered under a key: the unique id, or one of
    the blank-separated keys.
    """
    if not key:
        return False
    if find_property(properties, b"UNIQ_KEY") == key:
        return True
    return key in find_property(properties, b"KEYS").split(b" ")
