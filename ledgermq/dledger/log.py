"""RaftLog: the log as the core sees it, one turn ahead of the store.

The store holds what the driver has carried out. On top of it stands what the core has decided since
the last Ready: a cut or a reset, then runs of entries to append. Recent runs stay in memory, so
that pushing what was just proposed, or what a follower lost a moment ago, neither reads the store
nor encodes again. The runs of the last Ready are always among them: the driver may still wait for
the disk before it writes them.

Not here: who may append or cut. `EntryHandler` and `Raft` decide that.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from ledgermq.dledger.entry import (
    BLANK_BYTES_MIN,
    HEAD_BYTES,
    EntryCodec,
    EntryId,
    EntrySlice,
    count_in_segment,
    place,
)
from ledgermq.dledger.errors import CompactedError, OutOfRangeError
from ledgermq.dledger.storage import LedgerStore


class LogChanges:
    """What the driver has to do to the store, in this order: cut or reset, then append."""

    __slots__ = ("entries", "persist_id", "reset_to", "truncate_from")

    def __init__(
        self,
        truncate_from: int | None,
        reset_to: tuple[int, int] | None,
        entries: list[EntrySlice],
        persist_id: EntryId | None,
    ) -> None:
        self.truncate_from = truncate_from
        self.reset_to = reset_to
        self.entries = entries
        self.persist_id = persist_id


class RaftLog:
    """The store plus the changes that wait for the next Ready.

    Invariants:
    1. `first_index - 1 <= persisted_index <= last_index`.
    2. The runs to append are consecutive and end at `last_index`; all of them are also recent.
    3. Recent runs are consecutive and end at `last_index`.
    4. What was handed out last and not cut since is recent.
    """

    def __init__(self, store: LedgerStore, codec: EntryCodec, recent_bytes_max: int) -> None:
        self._store = store
        self._codec = codec
        self._recent_bytes_max = recent_bytes_max
        # Ends of the log with all changes applied, as in LedgerStore.
        self.last_index = store.last_index
        self.last_term = store.last_term
        self.last_chain_crc = store.last_chain_crc
        self.end_position = store.end_position
        # Last entry known to be durable here. What the store held at the start counts: the driver
        # syncs it before it makes the core.
        self.persisted_index = store.last_index
        # Changes for the next Ready.
        self._truncate_from: int | None = None
        self._reset_to: tuple[int, int] | None = None
        # Where the log was begun afresh last: the store may hear of it later.
        self._begin = store.first_index, store.first_position
        self._pending: list[EntrySlice] = []
        # First entry that the store may lack: the first of those handed out last, or to be.
        self._unwritten_from = store.last_index + 1
        # Recent runs, their first indexes (for bisect), what they take in memory.
        self._recent: list[EntrySlice] = []
        self._recent_firsts: list[int] = []
        self.recent_bytes = 0
        # Handed out and not yet reported durable: the id, and how far a report will prove the log.
        # A cut lowers the second number, so that a late report proves nothing about what came
        # after.
        self._outstanding: deque[tuple[EntryId, int]] = deque()

    @property
    def first_index(self) -> int:
        """Index of the first entry; grows when retention drops segments."""
        return max(self._store.first_index, self._begin[0])

    @property
    def first_position(self) -> int:
        """Position of the first entry."""
        return max(self._store.first_position, self._begin[1])

    @property
    def last_id(self) -> EntryId:
        """The end of the log as votes compare it."""
        return EntryId(self.last_term, self.last_index)

    def term_at(self, index: int) -> int:
        """Tell the term of an entry. Raises CompactedError or OutOfRangeError."""
        if index == self.last_index and self.last_term >= 0:
            return self.last_term
        recent = self._find_recent(index)
        return recent.term_at(index) if recent is not None else self._store.term_at(index)

    def chain_crc_at(self, index: int) -> int:
        """Tell the chain checksum of an entry; 0 when it has none. Raises as `term_at`."""
        if index == self.last_index and self.last_term >= 0:
            return self.last_chain_crc
        recent = self._find_recent(index)
        head = recent.head_at(index) if recent is not None else self._store.head_at(index)
        return head.chain_crc

    def id_before(self, index: int) -> EntryId:
        """Tell the id of the entry before `index`; EntryId(-1, -1) before the first entry ever.

        Raises CompactedError when retention has removed it.
        """
        return EntryId(self.term_at(index - 1), index - 1) if index > 0 else EntryId(-1, -1)

    def end_before(self, index: int) -> int:
        """Tell where the entry `index` would be written, before the rule of `place`."""
        if index == self.last_index + 1:
            return self.end_position
        if index <= self.first_index:
            return self.first_position
        recent = self._find_recent(index - 1)
        head = recent.head_at(index - 1) if recent is not None else self._store.head_at(index - 1)
        return head.position + head.size

    def fits(self, entries: EntrySlice) -> bool:
        """Tell whether a run could stand behind the entry before it: by term, and by place, all of
        it in one segment.
        """
        index = entries.first_index
        if index > self.first_index and self.term_at(index - 1) > entries.first_term:
            return False
        size = entries.starts[1] if entries.count > 1 else len(entries.data)
        end = self.end_before(index)
        is_next = entries.position == place(end, size, self._store.segment_bytes)
        return is_next and self.has_room(entries)

    def has_room(self, entries: EntrySlice) -> bool:
        """Tell whether a run ends in the segment in which it begins, with room for a blank."""
        segment_bytes = self._store.segment_bytes
        rest = segment_bytes - entries.position % segment_bytes
        return entries.end_position - entries.position + BLANK_BYTES_MIN <= rest

    def holds(self, entry: EntrySlice) -> bool:
        """Tell whether the log has exactly this one entry (DLedgerEntry.equals)."""
        index = entry.first_index
        if not self.first_index <= index <= self.last_index:
            return False
        return self.term_at(index) == entry.first_term and self.read(index, 1, 1).same_as(entry)

    def read(
        self, index: int, bytes_max: int, count_max: int | None = None, *, may_wait: bool = True
    ) -> EntrySlice:
        """Read a run from `index` on: at least one entry, all of one segment.

        Args:
            index: of the first entry.
            bytes_max: upper bound of the data, unless the first entry alone is larger.
            count_max: upper bound of the entries, or None.
            may_wait: whether the read may wait for the disk.

        Raises:
            CompactedError, OutOfRangeError.
            ColdDataError: it may not, and would have to.
        """
        if index < self.first_index:
            raise CompactedError(index, self.first_index)
        if index > self.last_index:
            raise OutOfRangeError(index, self.first_index, self.last_index)
        at = bisect_right(self._recent_firsts, index) - 1
        if at >= 0:
            run = self._recent[at].slice_from(index)
            if len(run.data) < bytes_max and count_max is None:
                run = self._join(run, at + 1, bytes_max)
            stop = self.last_index + 1
        else:
            read = self._store.read if may_wait else self._store.read_cached
            run = read(index, bytes_max)
            stop = self._recent_firsts[0] if self._recent_firsts else self.last_index + 1
        limit = stop - index if count_max is None else min(count_max, stop - index)
        return run.take(limit, bytes_max)

    def encode(self, bodies: Sequence[bytes], term: int) -> list[EntrySlice]:
        """Append bodies as entries of `term` and return them: one run for each segment they touch.

        The caller has checked that each entry fits a segment.
        """
        segment_bytes = self._store.segment_bytes
        runs: list[EntrySlice] = []
        rest = bodies
        while rest:
            position = place(self.end_position, HEAD_BYTES + len(rest[0]), segment_bytes)
            count = count_in_segment(rest, position, segment_bytes)
            run = self._codec.encode(
                rest if count == len(rest) else rest[:count],
                first_index=self.last_index + 1,
                term=term,
                position=position,
                previous_chain_crc=self.last_chain_crc,
            )
            self.append(run)
            runs.append(run)
            rest = rest[count:] if count < len(rest) else ()
        return runs

    def append(self, entries: EntrySlice) -> None:
        """Put a run behind the log."""
        assert entries.first_index == self.last_index + 1, (entries.first_index, self.last_index)
        assert entries.first_term >= self.last_term, (entries.first_term, self.last_term)
        self._pending.append(entries)
        self._recent.append(entries)
        self._recent_firsts.append(entries.first_index)
        self.recent_bytes += entries.memory_bytes
        self._ends_with(entries)
        if self.recent_bytes > self._recent_bytes_max:
            self._forget_oldest()

    def truncate(self, from_index: int) -> None:
        """Drop `from_index` and all after it."""
        assert self.first_index <= from_index <= self.last_index, (from_index, self.last_index)
        stored_end = self._pending[0].first_index if self._pending else self.last_index + 1
        if from_index < stored_end:
            self._truncate_from = from_index
        self._pending = _cut(self._pending, from_index)
        self._recent = _cut(self._recent, from_index)
        self._recent_firsts = [run.first_index for run in self._recent]
        self.recent_bytes = sum(run.memory_bytes for run in self._recent)
        last = from_index - 1
        if self._recent:
            self._ends_with(self._recent[-1])
        elif last < self.first_index:
            self._ends_empty(from_index, self.first_position)
        else:
            head = self._store.head_at(last)
            self.last_index, self.last_term = last, head.term
            self.last_chain_crc = head.chain_crc
            self.end_position = head.position + head.size
        self._clamp_persisted(last)

    def reset(self, first_index: int, position: int) -> None:
        """Forget the whole log; it goes on with this index at this position."""
        self._truncate_from = None
        self._reset_to = self._begin = first_index, position
        self._pending, self._recent, self._recent_firsts = [], [], []
        self.recent_bytes = 0
        self._ends_empty(first_index, position)
        self._outstanding = deque((entry_id, -1) for entry_id, _ in self._outstanding)
        self.persisted_index = first_index - 1

    def take_changes(self) -> LogChanges | None:
        """Hand out what the store has to be told; None when there is nothing."""
        if not self._pending and self._truncate_from is None and self._reset_to is None:
            return None
        persist_id = self._pending[-1].last_id if self._pending else None
        self._unwritten_from = self.last_index + 1
        if persist_id is not None:
            self._unwritten_from = self._pending[0].first_index
            self._outstanding.append((persist_id, persist_id.index))
        changes = LogChanges(self._truncate_from, self._reset_to, self._pending, persist_id)
        self._truncate_from, self._reset_to, self._pending = None, None, []
        return changes

    def persisted(self, entry_id: EntryId) -> None:
        """Note that the run which ended with `entry_id` when it was handed out is durable.

        Reports come in order; one may stand for those before it. A report for entries that were cut
        meanwhile proves only what was not cut, also when an equal id was appended again since.
        """
        while self._outstanding:
            handed, proven = self._outstanding.popleft()
            self.persisted_index = max(self.persisted_index, proven)
            if handed == entry_id:
                break

    def report_with_next(self, entry_id: EntryId) -> None:
        """Note that there will be no report for the run which ended with `entry_id`: the one for
        the run that was handed out behind it, the last one, stands for both.
        """
        outstanding = self._outstanding
        if len(outstanding) > 1 and outstanding[-2][0] == entry_id:
            del outstanding[-2]

    def _find_recent(self, index: int) -> EntrySlice | None:
        at = bisect_right(self._recent_firsts, index) - 1
        if at < 0 or index > self.last_index:
            return None
        return self._recent[at]

    def _join(self, run: EntrySlice, at: int, bytes_max: int) -> EntrySlice:
        """Extend a run by the recent runs behind it that fit and stand in its segment."""
        parts = [run]
        total = len(run.data)
        for follower in self._recent[at:]:
            total += len(follower.data)
            if total > bytes_max or follower.position != parts[-1].end_position:
                break
            parts.append(follower)
        return run if len(parts) == 1 else _joined(parts)

    def _ends_with(self, entries: EntrySlice) -> None:
        self.last_index, self.last_term = entries.last_index, entries.last_term
        self.last_chain_crc, self.end_position = entries.last_chain_crc, entries.end_position

    def _ends_empty(self, first_index: int, position: int) -> None:
        self.last_index, self.last_term = first_index - 1, -1
        self.last_chain_crc, self.end_position = 0, position

    def _clamp_persisted(self, last: int) -> None:
        self.persisted_index = min(self.persisted_index, last)
        self._outstanding = deque((i, min(proven, last)) for i, proven in self._outstanding)

    def _forget_oldest(self) -> None:
        """Drop the oldest runs above the limit; what the store may lack stays."""
        written_end = min(self._unwritten_from, self._pending[0].first_index)
        drop = 0
        for run in self._recent:
            if self.recent_bytes <= self._recent_bytes_max or run.last_index >= written_end:
                break
            self.recent_bytes -= run.memory_bytes
            drop += 1
        del self._recent[:drop]
        del self._recent_firsts[:drop]


def _cut(runs: list[EntrySlice], from_index: int) -> list[EntrySlice]:
    kept = [run for run in runs if run.first_index < from_index]
    if kept and kept[-1].last_index >= from_index:
        last = kept[-1]
        kept[-1] = last.take(from_index - last.first_index, len(last.data))
    return kept


def _joined(parts: list[EntrySlice]) -> EntrySlice:
    first, last = parts[0], parts[-1]
    starts: list[int] = []
    for part in parts:
        base = part.position - first.position
        starts += [base + start for start in part.starts]
    return EntrySlice(
        b"".join([part.data for part in parts]),
        starts,
        first_index=first.first_index,
        first_term=first.first_term,
        last_term=last.last_term,
        position=first.position,
        last_chain_crc=last.last_chain_crc,
    )
