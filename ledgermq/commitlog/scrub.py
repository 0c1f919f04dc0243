"""Scrub: reads what nobody asks for, and finds bits that have flipped before they are needed.

Round after round, from the log's first entry to the last one that was dispatched when the round
began (a log that grows faster than it is read would never be begun again): each entry is compared
with its index unit, its checksums and the entry before it, and then everything that was derived
from it with what would be derived now: its unit in the consume queue, its keys in the key index. A
step is small, so that the reactor stays free; how often it is called bounds the load.

Not here: what is done about damage.
"""

from typing import Final

from ledgermq.commitlog.dispatch import Dispatcher
from ledgermq.commitlog.errors import DamagedFileError
from ledgermq.commitlog.key_index import KeyIndex
from ledgermq.commitlog.row import Row
from ledgermq.commitlog.rows import RowMaker
from ledgermq.dledger.storage import LedgerStore

# Of a unit, what says where its record stands.
_PLACE_BYTES: Final = 8


class Scrub:
    """One log and its derived files, walked without end."""

    def __init__(
        self,
        store: LedgerStore,
        dispatcher: Dispatcher,
        row_maker: RowMaker,
        key_index: KeyIndex,
    ) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._row_maker = row_maker
        self._key_index = key_index
        self._next_index = 0
        # Last entry of the present round.
        self._last_index = -1
        # Rounds that were completed, and bytes looked at since the start.
        self.round_count = 0
        self.byte_count = 0

    def step(self, bytes_max: int) -> int:
        """Looks at about so many bytes, one entry at least.

        Returns:
            Bytes of the log that were looked at; 0 at the end of a round.

        Raises:
            CorruptStoreError: the log or its index is damaged.
            DamagedFileError: a queue or the key index does not say what the log says.
        """
        store = self._store
        if self._next_index <= store.first_index:
            self._last_index = self._dispatcher.dispatched_index
        # Retention and resets move both ends of the log while a round is under way.
        last_index = min(self._last_index, self._dispatcher.dispatched_index)
        first_index = max(self._next_index, store.first_index)
        if first_index > last_index:
            self.round_count += self._next_index > store.first_index
            self._next_index = store.first_index
            return 0
        rows, self._next_index, size_bytes = self._read(first_index, last_index, bytes_max)
        for row in rows:
            self._compare(row)
        # Together: their hashes are made at once.
        missing = self._key_index.find_missing([key for row in rows for key in row.keys])
        if missing is not None:
            what = f"key of the record at {missing[2]}"
            raise DamagedFileError("key index", what, "an entry", "none")
        self.byte_count += size_bytes
        return size_bytes

    def _read(
        self, first_index: int, last_index: int, bytes_max: int
    ) -> tuple[list[Row], int, int]:
        """Returns what is derived from the next entries, the index behind them, and their bytes."""
        entries = self._store.read_verified(first_index, bytes_max)
        stop = min(entries.last_index, last_index) + 1
        return self._row_maker.rows_of(entries, first_index, stop), stop, len(entries.data)

    def _compare(self, row: Row) -> None:
        queue, queue_offset, unit, _, _, _, _, light = row
        # What retention has dropped, and a deleted topic's numbers, have no unit.
        if queue is not None and queue.min_offset <= queue_offset < queue.max_offset:
            found = queue.units(queue_offset, 1)
            if found != unit:
                what = f"unit {queue_offset} of {queue.topic}-{queue.queue_id}"
                raise DamagedFileError("consume queue", what, unit.hex(), found.hex())
        for queue, queue_offset in light:
            if queue.min_offset <= queue_offset < queue.max_offset:
                found = queue.units(queue_offset, 1)
                # One of another record is right where this one was left out.
                if found != unit and found[:_PLACE_BYTES] == unit[:_PLACE_BYTES]:
                    what = f"unit {queue_offset} of {queue.topic}-{queue.queue_id}"
                    raise DamagedFileError("consume queue", what, unit.hex(), found.hex())
