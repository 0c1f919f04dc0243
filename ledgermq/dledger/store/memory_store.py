"""DLedgerMemoryStore: the ledger in memory, for tests, simulations and members without a disk.

It places entries as the file store does, blanks included, so that both give the same positions. A
sync has nothing to do: what this store holds is gone with its process. A member that comes back
with an empty one counts for nothing until its leader has given it all that was committed.
"""

from collections.abc import Sequence

from ledgermq.dledger.disk_job import DiskJob
from ledgermq.dledger.entry import EntryHead, EntrySlice, read_head
from ledgermq.dledger.errors import CompactedError, OutOfRangeError
from ledgermq.dledger.store.continuity import check_continues


class DLedgerMemoryStore:
    """A LedgerStore without a disk. Source: DLedgerMemoryStore.java, which has no positions."""

    def __init__(self, segment_bytes: int = 1 << 30) -> None:
        """Makes an empty log with data segments of this size."""
        self.segment_bytes = segment_bytes
        self.first_index = 0
        self.last_index = -1
        self.last_term = -1
        self.last_chain_crc = 0
        self.first_position = 0
        self.end_position = 0
        # Head and body of each entry from first_index on.
        self._entries: list[bytes] = []
        # Term and position of each.
        self._terms: list[int] = []
        self._positions: list[int] = []
        self._committed_index = -1
        # Nothing is ever made ahead.
        self.wants_ahead = False

    def has_room(self, runs: Sequence[EntrySlice]) -> bool:
        """There is room as long as there is memory."""
        return True

    def begin_room(self, runs: Sequence[EntrySlice]) -> DiskJob | None:
        """Nothing has to be made."""
        return None

    def begin_ahead(self) -> DiskJob | None:
        """Nothing has to be made."""
        return None

    def begin_truncate(self, from_index: int) -> DiskJob | None:
        """Does `truncate`: no disk is waited for."""
        self.truncate(from_index)
        return None

    def begin_reset(self, first_index: int, position: int) -> DiskJob | None:
        """Does `reset`."""
        self.reset(first_index, position)
        return None

    def begin_drop(self, position: int) -> DiskJob | None:
        """Does `drop_before`."""
        self.drop_before(position)
        return None

    def begin_sync(self) -> DiskJob | None:
        """There is nothing to sync."""
        return None

    def term_at(self, index: int) -> int:
        """Returns the term of the entry. Raises CompactedError or OutOfRangeError."""
        return self._terms[self._offset(index)]

    def position_at(self, index: int) -> int:
        """Returns where the entry begins. Raises as `term_at`."""
        return self._positions[self._offset(index)]

    def head_at(self, index: int) -> EntryHead:
        """Returns the head of the entry. Raises as `term_at`."""
        return read_head(self._entries[self._offset(index)])

    def read(self, first_index: int, bytes_max: int) -> EntrySlice:
        """Returns entries of one segment, at least one, as many as fit in `bytes_max`."""
        lo = hi = self._offset(first_index)
        begin = end = self._positions[lo]
        starts: list[int] = []
        while hi < len(self._entries) and self._positions[hi] == end:
            size = len(self._entries[hi])
            if starts and end + size > begin + bytes_max:
                break
            starts.append(end - begin)
            end += size
            hi += 1
        return EntrySlice(
            b"".join(self._entries[lo:hi]),
            starts,
            first_index=first_index,
            first_term=self._terms[lo],
            last_term=self._terms[hi - 1],
            position=begin,
            last_chain_crc=read_head(self._entries[hi - 1]).chain_crc,
        )

    def read_cached(self, first_index: int, bytes_max: int) -> EntrySlice:
        """Returns what `read` does: all is in memory."""
        return self.read(first_index, bytes_max)

    def read_verified(self, first_index: int, bytes_max: int) -> EntrySlice:
        """Returns what `read` does: nothing rots here."""
        return self.read(first_index, bytes_max)

    def append(self, entries: EntrySlice) -> None:
        """Adds entries. Raises LedgerPositionError when they do not continue the log."""
        check_continues(self, entries)
        if not self._entries:
            self.first_position = entries.position
        data = bytes(entries.data)
        ends = [*entries.starts[1:], len(data)]
        for i, (start, end) in enumerate(zip(entries.starts, ends, strict=True)):
            self._entries.append(data[start:end])
            self._terms.append(entries.term_at(entries.first_index + i))
            self._positions.append(entries.position + start)
        self.end_position = entries.end_position
        self.last_index = entries.last_index
        self.last_term = entries.last_term
        self.last_chain_crc = entries.last_chain_crc

    def truncate(self, from_index: int) -> None:
        """Drops `from_index` and all after it."""
        kept = self._offset(from_index)
        del self._entries[kept:], self._terms[kept:], self._positions[kept:]
        self.last_index = from_index - 1
        if kept:
            self.end_position = self._positions[-1] + len(self._entries[-1])
            self.last_term = self._terms[-1]
            self.last_chain_crc = read_head(self._entries[-1]).chain_crc
        else:
            self.end_position = self.first_position
            self.last_term, self.last_chain_crc = -1, 0

    def reset(self, first_index: int, position: int) -> None:
        """Wipes the log; the next entry has this index and this position."""
        self._entries, self._terms, self._positions = [], [], []
        self.first_index, self.last_index = first_index, first_index - 1
        self.last_term, self.last_chain_crc = -1, 0
        self.first_position = self.end_position = position
        self._committed_index = min(self._committed_index, first_index - 1)

    def drop_before(self, position: int) -> int:
        """Removes whole segments below `position`, never the last; returns the new first index."""
        if self._entries:
            start = min(position, self._positions[-1]) // self.segment_bytes * self.segment_bytes
            dropped = sum(1 for at in self._positions if at < start)
            if dropped:
                del self._entries[:dropped], self._terms[:dropped], self._positions[:dropped]
                self.first_index += dropped
                self.first_position = self._positions[0]
        return self.first_index

    def read_checkpoint(self) -> int:
        """Returns the committed index noted last, -1 when there was none."""
        return self._committed_index

    def write_checkpoint(self, commit_index: int) -> None:
        """Notes the committed index."""
        self._committed_index = commit_index

    def close(self) -> None:
        """Does nothing; the entries stay readable."""

    def _offset(self, index: int) -> int:
        if index < self.first_index:
            raise CompactedError(index, self.first_index)
        if index > self.last_index:
            raise OutOfRangeError(index, self.first_index, self.last_index)
        return index - self.first_index
