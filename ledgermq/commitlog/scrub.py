"""Scrub: reads what nobody asks for, and finds bits that have flipped before they are needed.

Round after round, from the log's first entry to the last one that was dispatched when the round
began (a log that grows faster than it is read would never be begun again): each entry is compared
with its index unit, its checksums and the entry before it, and then everything that was derived
from it with what would be derived now: its unit in the consume queue, its keys in the key index. A
step is small in bytes and ends when its time is over, if need be within the keys of a record, so
that the reactor stays free whatever was stored; how often it is called bounds the load.

Not here: what is done about damage.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ledgermq.commitlog.config import SCHEDULE_TOPIC
from ledgermq.commitlog.dispatch import Dispatcher
from ledgermq.commitlog.errors import DamagedFileError
from ledgermq.commitlog.key_index import KeyIndex, KeyRow
from ledgermq.commitlog.layout import QUEUE_UNIT
from ledgermq.commitlog.row import Row
from ledgermq.commitlog.rows import RowMaker, may_be_delivery_time
from ledgermq.dledger.errors import ColdDataError
from ledgermq.dledger.storage import LedgerStore
from ledgermq.dledger.store.segment import ReadMode

# Of a unit, what says where its record stands.
_PLACE_BYTES: Final = 8
# Where a unit's last field begins: a hash of tags, or the time at which the record is delivered.
_TAGS_CODE_AT: Final = 12
# Read at once, and keys looked for at once: some milliseconds of work each, so that a step ends
# near to where its time does. A record may have thousands of keys: a Java broker takes as many as
# there is room for.
_READ_BYTES: Final = 65_536
_KEYS_AT_ONCE: Final = 256


class Part(NamedTuple):
    """Some entries of the log, and what derives from them."""

    rows: list[Row]
    # Of each row: the index of its entry, and where that begins in the bytes of this part.
    indexes: Sequence[int]
    starts: Sequence[int]
    # Index behind the last entry.
    stop: int
    # Of all that was read.
    size_bytes: int


def _always() -> bool:
    return True


class Scrub:
    """One log and its derived files, walked without end."""

    def __init__(
        self,
        store: LedgerStore,
        dispatcher: Dispatcher,
        row_maker: RowMaker,
        key_index: KeyIndex,
        mode: ReadMode,
    ) -> None:
        self._mode = mode
        self._store = store
        self._dispatcher = dispatcher
        self._row_maker = row_maker
        self._key_index = key_index
        # Entry to be looked at next, and how many of its keys have been already. Nothing else is
        # kept from step to step: what lies between them may have changed.
        self._next_index = 0
        self._keys_done = 0
        # Last entry of the present round.
        self._last_index = -1
        # Rounds that were completed, and bytes of entries looked at as a whole since the start.
        self.round_count = 0
        self.byte_count = 0

    def step(
        self,
        bytes_max: int,
        has_time: Callable[[], bool] = _always,
        *,
        may_wait: bool = True,
    ) -> bool:
        """Looks at about so many bytes, one entry at least, or a part of its keys.

        Args:
            bytes_max: of the log.
            has_time: asked after each little piece of work; False ends the step there, also within
                a record, and the next one goes on.
            may_wait: whether reads may wait for the disk.

        Returns:
            False at the end of a round.

        Raises:
            ColdDataError: they may not, and would have to; the next step begins where this one did.
            CorruptStoreError: the log or its index is damaged.
            DamagedFileError: a queue or the key index does not say what the log says.
        """
        place = self._next_index, self._keys_done, self.byte_count
        self._mode.may_wait = may_wait
        try:
            return self._step(bytes_max, has_time)
        except ColdDataError:
            self._next_index, self._keys_done, self.byte_count = place
            raise
        finally:
            self._mode.may_wait = True

    def _step(self, bytes_max: int, has_time: Callable[[], bool]) -> bool:
        store = self._store
        if self._next_index <= store.first_index and not self._keys_done:
            self._last_index = self._dispatcher.dispatched_index
        # Retention and resets move both ends of the log while a round is under way.
        last_index = min(self._last_index, self._dispatcher.dispatched_index)
        first_index = max(self._next_index, store.first_index)
        if first_index > last_index:
            self.round_count += self._next_index > store.first_index
            self._next_index, self._keys_done = store.first_index, 0
            return False
        bytes_left = bytes_max
        while True:
            if first_index != self._next_index:
                self._keys_done = 0
            size_bytes = self._look(first_index, last_index, min(bytes_left, _READ_BYTES), has_time)
            bytes_left -= size_bytes
            first_index = self._next_index
            if first_index > last_index or bytes_left <= 0 or not has_time():
                return True

    def _look(
        self, first_index: int, last_index: int, bytes_max: int, has_time: Callable[[], bool]
    ) -> int:
        """Looks at some entries, up to where the time is over; returns the bytes that were read."""
        part = self._read(first_index, last_index, bytes_max)
        # Keys of several records are looked for together: their hashes are made at once.
        keys: list[KeyRow] = []
        for row, index, start in zip(part.rows, part.indexes, part.starts, strict=True):
            self._compare(row)
            done = self._keys_done
            self._next_index, self._keys_done = index, 0
            for at in range(done, len(row.keys), _KEYS_AT_ONCE):
                keys += row.keys[at : at + _KEYS_AT_ONCE]
                if len(keys) >= _KEYS_AT_ONCE:
                    self._compare_keys(keys)
                    keys = []
                    if not has_time():
                        self._keys_done = at + _KEYS_AT_ONCE
                        self.byte_count += start
                        return start
        self._compare_keys(keys)
        self._next_index = part.stop
        self.byte_count += part.size_bytes
        return part.size_bytes

    def _compare_keys(self, keys: list[KeyRow]) -> None:
        missing = self._key_index.find_missing(keys)
        if missing is not None:
            what = f"key of the record at {missing[2]}"
            raise DamagedFileError("key index", what, "an entry", "none")

    def _read(self, first_index: int, last_index: int, bytes_max: int) -> Part:
        entries = self._store.read_verified(first_index, bytes_max)
        stop = min(entries.last_index, last_index) + 1
        rows = self._row_maker.rows_of(entries, first_index, stop)
        indexes = range(first_index, stop)
        return Part(rows, indexes, entries.starts[: len(rows)], stop, len(entries.data))

    def _compare(self, row: Row) -> None:
        queue, queue_offset, unit, tags_code, _, _, store_timestamp, light = row
        # What retention has dropped, and a deleted topic's numbers, have no unit.
        if queue is not None and queue.min_offset <= queue_offset < queue.max_offset:
            found = queue.units(queue_offset, 1)
            if found != unit and not _is_delayed_otherwise(
                queue.topic, found, unit, tags_code, store_timestamp
            ):
                what = f"unit {queue_offset} of {queue.topic}-{queue.queue_id}"
                raise DamagedFileError("consume queue", what, unit.hex(), found.hex())
        for queue, queue_offset in light:
            if queue.min_offset <= queue_offset < queue.max_offset:
                found = queue.units(queue_offset, 1)
                # One of another record is right where this one was left out.
                if found != unit and found[:_PLACE_BYTES] == unit[:_PLACE_BYTES]:
                    what = f"unit {queue_offset} of {queue.topic}-{queue.queue_id}"
                    raise DamagedFileError("consume queue", what, unit.hex(), found.hex())


def _is_delayed_otherwise(
    topic: str, found: bytes, unit: bytes, tags_code: int, store_timestamp: int
) -> bool:
    """Tells whether a unit is right but for a delay that was another one when it was made.

    Args:
        found: as it stands in the queue.
        unit, tags_code: as they would be made now.
        store_timestamp: of the record.
    """
    if topic != SCHEDULE_TOPIC or found[:_TAGS_CODE_AT] != unit[:_TAGS_CODE_AT]:
        return False
    found_code = QUEUE_UNIT.unpack(found)[2]
    return may_be_delivery_time(tags_code, store_timestamp) and may_be_delivery_time(
        found_code, store_timestamp
    )
