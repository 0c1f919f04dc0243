"""Opening a file store: from what is on disk to a log whose every entry is good.

The decisions are in recovery.py; this module reads the files for them and carries them out: it cuts
the torn tail (copied aside first), wipes or rewrites the index units that disagree, or raises
CorruptStoreError and changes nothing. Opening twice gives the same result as opening once, wherever
the first one was killed.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ledgermq.dledger.entry import (
    ENTRY_MAGIC,
    HEAD_BYTES,
    INDEX_UNIT_BYTES,
    Crc32c,
    read_head,
)
from ledgermq.dledger.store.entry_index import EntryIndex, IndexUnit
from ledgermq.dledger.store.errors import (
    CorruptStoreError,
    DiskFullError,
    StoreFormatError,
    UnreadableError,
)
from ledgermq.dledger.store.filesystem import FileSystem
from ledgermq.dledger.store.marks import Marks, Start
from ledgermq.dledger.store.opening_progress import OpeningProgress
from ledgermq.dledger.store.recovery import (
    WALKED_SEGMENTS,
    Walk,
    has_good_entry,
    is_damage,
    is_sane_first,
    units_of,
    walk,
)
from ledgermq.dledger.store.segment import segment_name
from ledgermq.dledger.store.segments import Segments

# Of a torn tail at most this much of each segment is copied aside.
_COPIED_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What a store found when it was opened, and what it did."""

    first_index: int
    # first_index - 1 when the log is empty.
    last_index: int
    first_position: int
    end_position: int
    # From the checkpoint, as far as it can be trusted; -1 when unknown.
    committed_index: int
    # Index at which the walk over the entries began.
    walked_from_index: int
    # Walked entries without checksums, as Java writes them.
    unfilled_count: int
    # Why the tail was cut, None when there was none; and the files that hold copies of it.
    cut_reason: str | None
    copies: tuple[str, ...]
    # Index units that were written anew.
    rebuilt_units: int


@dataclass(slots=True, kw_only=True)
class Opened:
    """The state of the log after it was opened."""

    first_index: int
    first_position: int
    last_term: int
    last_chain_crc: int
    # Index up to which entries were on disk for certain, None when unknown.
    durable_index: int | None
    generation: int
    # False when the mark `start` was never written.
    has_start: bool
    report: RecoveryReport


class Opening:
    """One run of the recovery; used once."""

    def __init__(
        self,
        file_system: FileSystem,
        data: Segments,
        index: EntryIndex,
        marks: Marks,
        crc32c: Crc32c,
        *,
        verify_all: bool = False,
        on_damage: Callable[[CorruptStoreError], None] | None = None,
        progress: OpeningProgress,
    ) -> None:
        """Reads the marks.

        Args:
            verify_all: verify the checksums of all entries, not of the last ones alone.
            on_damage: told of damage before the log is cut there; its owner must never again vouch
                for what is cut. None: damage is an error.
            progress: told how far it is.
        """
        self._progress = progress
        self._verify_all = verify_all
        self._on_damage = on_damage
        self._marks = marks
        # Not one entry of the log is good.
        self._is_given_up = False
        # The disk does not give a part of the index, which is made again as a whole.
        self._is_index_unreadable = False
        self._file_system = file_system
        self._data = data
        self._index = index
        self._crc32c = crc32c
        self._start = marks.read_start()
        self._durable_index = marks.read_durable(self._start)
        self._committed_index = marks.read_committed(self._start)
        self._trusted_committed = marks.read_trusted_committed(self._start)
        self._generation = marks.read_generation(self._start)

    def run(self) -> Opened:
        """Returns the state of the log; the segments are as it says.

        Raises:
            StoreFormatError: a file is not as this configuration has it.
            CorruptStoreError: entries that were on disk for certain are bad or gone.
        """
        data = self._data
        data.open(self._gap_found if self._on_damage is not None else None)
        self._open_index()
        self._finish_removal()
        first_index, first_position = self._find_first()
        lost = self._lost_beginning()
        verify_from = self._verify_from()
        state = self._find_walk_start(first_index, first_position, verify_from)
        walked_from = state.next_index
        self._walk(state, verify_from)
        if self._is_index_unreadable and walked_from > first_index:
            state, walked_from = Walk(next_index=first_index, position=first_position), first_index
            self._walk(state, verify_from)
        if lost is None and self._is_damage(state):
            # Damage seldom comes alone: what was not verified before it may be bad, too.
            state, walked_from = Walk(next_index=first_index, position=first_position), first_index
            self._walk(state, 0)
            # A read that failed may have gone well now.
            lost = self._corrupt(state) if self._is_damage(state) else None
        elif lost is not None:
            state = Walk(next_index=first_index, position=first_position)
        if lost is not None:
            first_index, first_position, state = self._give_up_from(
                first_index, first_position, state, lost
            )
        self._note_beginning(first_index, first_position)
        copies = self._copy_tail(state.position)
        if self._is_given_up:
            data.reset(0)
        elif data.starts:
            data.truncate(state.position)
        data.first_position, data.end_position = first_position, state.position
        rebuilt = self._mend_index(first_index, state)
        self._distrust_cache()
        with contextlib.suppress(DiskFullError):
            self._marks.mend_claim(self._start)
        report = RecoveryReport(
            first_index=first_index,
            last_index=state.next_index - 1,
            first_position=first_position,
            end_position=state.position,
            committed_index=min(self._trusted_committed, state.next_index - 1),
            walked_from_index=walked_from,
            unfilled_count=state.unfilled_count,
            cut_reason=_cut_reason(state, copies),
            copies=copies,
            rebuilt_units=rebuilt,
        )
        return Opened(
            first_index=first_index,
            first_position=first_position,
            last_term=state.last_term,
            last_chain_crc=state.last_chain_crc,
            durable_index=self._durable_index,
            generation=self._generation,
            has_start=self._start is not None,
            report=report,
        )

    def _is_damage(self, state: Walk) -> bool:
        return is_damage(
            state,
            committed_index=self._committed_index,
            durable_index=self._durable_index,
            find_unit=self._find_unit,
            is_good=self._is_good,
        )

    def _walk(self, state: Walk, verify_from: int) -> None:
        """Moves `state` to the end of the good entries; see recovery.walk."""
        data = self._data
        segments = [
            (start, data.segment_at(start))
            for start in data.starts
            if start + data.segment_bytes > state.position
        ]
        units, begin = self._units_from(state.next_index), state.position
        progress = self._progress
        progress.begin("checks its ledger", max(data.end_position - begin, 0), "bytes")
        walk(
            segments,
            state,
            units,
            verify_from,
            self._crc32c,
            lambda position: progress.reach(position - begin),
        )

    def _find_unit(self, index: int) -> IndexUnit | None:
        """Returns the unit of an entry, None where no file has one or the disk does not give it."""
        try:
            return self._index.find(index)
        except UnreadableError:
            self._is_index_unreadable = True
            return None

    def _units_from(self, index: int) -> Iterator[tuple[int, ...]]:
        """Yields the fields of the units from `index` on, as far as the disk gives them."""
        if self._is_index_unreadable:
            return
        try:
            yield from self._index.units_from(index)
        except UnreadableError:
            self._is_index_unreadable = True

    def _distrust_cache(self) -> None:
        """Lets the first sync bring to disk what is behind the durable mark, whatever the page
        cache says of it; of a store that Java wrote, which has no mark, what is not written yet.
        """
        data, units = self._data, self._index.segments
        position, unit_position = data.end_position, units.end_position
        if self._durable_index is not None:
            unit = self._find_unit(self._durable_index)
            position = unit.position if unit is not None else data.first_position
            unit_position = max(self._durable_index, 0) * INDEX_UNIT_BYTES
        data.distrust(position)
        units.distrust(unit_position)

    def _finish_removal(self) -> None:
        """Finishes a drop or a reset that was cut short; its mark came first."""
        data, start = self._data, self._start
        if start is None or not data.starts:
            return
        if start.first_position < data.end_position:
            data.drop_before(start.first_position)
        elif self._durable_index is not None and self._durable_index < start.first_index:
            data.reset(start.first_position)

    def _find_first(self) -> tuple[int, int]:
        """Returns index and position of the first entry, or where it will be."""
        data, start = self._data, self._start
        if not data.starts:
            return (start.first_index, start.first_position) if start is not None else (0, 0)
        position = data.first_position
        if start is not None and position <= start.first_position < data.end_position:
            return start.first_index, start.first_position
        head = self._read_head(position)
        if head.count(0) == len(head):
            # A log that Java began inside a segment, or one whose beginning the disk does not give:
            # only its index knows where.
            unit = self._find_first_unit()
            if unit is not None:
                return unit.index, unit.position
        if len(head) == HEAD_BYTES:
            found = read_head(head)
            if found.magic == ENTRY_MAGIC and found.position == position:
                return found.index, position
        return 0, position

    def _read_head(self, position: int) -> bytes:
        """Returns the bytes of the head at a position; none where the disk does not give them."""
        try:
            return self._data.read(position, HEAD_BYTES)
        except UnreadableError:
            return b""

    def _find_first_unit(self) -> IndexUnit | None:
        try:
            return self._index.find_first()
        except UnreadableError:
            self._is_index_unreadable = True
            return None

    def _gap_found(self, gap: StoreFormatError) -> None:
        """A file of the log is missing, or not whole: what it held was on disk for certain."""
        assert self._on_damage is not None
        error = CorruptStoreError(gap.path, 0, gap.field, gap.expected, gap.found, -1)
        self._on_damage(error)

    def _open_index(self) -> None:
        """Opens the index; where its files are not whole, it is made anew from the data."""
        segments = self._index.segments
        try:
            segments.open()
        except StoreFormatError as error:
            if error.field == "name":
                raise
            segments.remove_all()

    def _lost_beginning(self) -> CorruptStoreError | None:
        """Tells of the file that the log should begin with and that is gone.

        Retention notes the new beginning before it removes a file; Java does not, and where it ran
        no claim holds. Nor does one above the beginning where a reset was cut short.
        """
        start, durable_index = self._start, self._durable_index
        if start is None or durable_index is None or durable_index < start.first_index:
            return None
        if not self._data.starts or start.first_position >= self._data.first_position:
            return None
        position = start.first_position - start.first_position % self._data.segment_bytes
        path = os.path.join(self._data.directory, segment_name(position))
        return CorruptStoreError(path, 0, "file", "there", "missing", start.first_index)

    def _note_beginning(self, first_index: int, first_position: int) -> None:
        """Has the mark say where the log begins, where that is behind what it says."""
        start = self._start
        if start is not None and self._data.starts and start.first_position < first_position:
            self._start = replace(start, first_index=first_index, first_position=first_position)
            self._marks.write_start(self._start)

    def _give_up_from(
        self, first_index: int, first_position: int, state: Walk, error: CorruptStoreError
    ) -> tuple[int, int, Walk]:
        """Ends the log before the damage; returns its beginning and its end.

        The claims on disk are lowered first, so that a stop in between leaves a store whose owner
        was told, and which opens.
        """
        if self._on_damage is None:
            raise error
        self._on_damage(error)
        if state.next_index == first_index:
            # Not one good entry: like an empty disk, whatever the marks say.
            self._is_given_up = True
            first_index = first_position = 0
            state = Walk(next_index=0, position=0, flaw=state.flaw)
        self._generation += 1
        self._durable_index = state.next_index - 1
        self._start = Start(
            first_index=first_index,
            first_position=first_position,
            generation=self._generation,
            durable_index=self._durable_index,
        )
        self._marks.write_start(self._start)
        self._trusted_committed = min(self._trusted_committed, self._durable_index)
        return first_index, first_position, state

    def _find_walk_start(self, first_index: int, first_position: int, verify_from: int) -> Walk:
        """Returns a walk that begins at one of the last segments, where an entry is for certain."""
        data = self._data
        starts = data.starts
        has_first_unit = self._index.segments.holds(first_index * INDEX_UNIT_BYTES)
        if self._verify_all or not has_first_unit:
            return Walk(next_index=first_index, position=first_position)
        for start in reversed(starts[1 : max(len(starts) - WALKED_SEGMENTS, 0) + 1]):
            head = self._read_head(start)
            if start > verify_from or not head:
                continue
            if is_sane_first(data.segment_at(start), start, 0, self._find_unit):
                return Walk(next_index=read_head(head).index, position=start)
        return Walk(next_index=first_index, position=first_position)

    def _verify_from(self) -> int:
        """Returns from where on checksums are verified: the last used segment, all not yet durable.

        What lies before was verified when it was written and is again when it is read. A segment
        whose beginning the disk does not give is used; where peers have what it held, everything is
        verified.
        """
        if self._verify_all:
            return 0
        heads = {start: self._read_head(start) for start in self._data.starts}
        if self._on_damage is not None and b"" in heads.values():
            self._verify_all = True
            return 0
        used = [start for start, head in heads.items() if any(head) or not head]
        if self._durable_index is None:
            return used[max(len(used) - WALKED_SEGMENTS, 0)] if used else 0
        unit = self._find_unit(self._durable_index)
        if unit is None or not used:
            return 0
        return min(used[-1], unit.position)

    def _is_good(self, unit: IndexUnit) -> bool:
        data = self._data
        if not data.holds(unit.position):
            return False
        segment = data.segment_at(unit.position)
        return has_good_entry(segment, unit.position % data.segment_bytes, unit, self._crc32c)

    def _copy_tail(self, position: int) -> tuple[str, ...]:
        """Copies aside what stands in the files behind the end of the good entries."""
        data, copies = self._data, []
        for start in data.starts:
            begin = max(position, start) - start
            if begin >= data.segment_bytes:
                continue
            segment = data.segment_at(start)
            ranges = list(segment.written_ranges(begin))
            if not ranges:
                continue
            stop = min(ranges[-1][1], begin + _COPIED_BYTES_MAX)
            content = segment.read_readable(begin, stop - begin).rstrip(b"\0")
            name = f"torn-{segment_name(start + begin)}"
            path = os.path.join(os.path.dirname(data.directory), name)
            self._file_system.replace(path, content)
            copies.append(path)
        return tuple(copies)

    def _mend_index(self, first_index: int, state: Walk) -> int:
        """Makes the index agree with the data; returns how many units were written anew."""
        index, segments = self._index, self._index.segments
        bad_index, position = state.units_bad_from or (state.next_index, state.position)
        if self._is_index_unreadable:
            bad_index, position = first_index, self._data.first_position
            index.reset(first_index)
        elif segments.holds(first_index * INDEX_UNIT_BYTES):
            index.truncate(bad_index, None)
            index.drop_before(first_index)
        else:
            index.reset(first_index)
        segments.first_position = first_index * INDEX_UNIT_BYTES
        segments.end_position = bad_index * INDEX_UNIT_BYTES
        progress, begin = self._progress, position
        if bad_index < state.next_index:
            progress.begin("mends the ledger's index", state.position - begin, "bytes")
        for start in self._data.starts:
            stop = min(state.position, start + self._data.segment_bytes)
            if bad_index < state.next_index and position < stop:
                segment = self._data.segment_at(start)
                segments.append(units_of(segment, position - start, stop - start))
                progress.reach(stop - begin)
                position = stop
        assert segments.end_position == state.next_index * INDEX_UNIT_BYTES
        return state.next_index - bad_index

    def _corrupt(self, state: Walk) -> CorruptStoreError:
        flaw = state.flaw
        position = flaw.position if flaw is not None else state.position
        start = position - position % self._data.segment_bytes
        return CorruptStoreError(
            os.path.join(self._data.directory, segment_name(start)),
            position - start,
            flaw.field if flaw is not None else "magic",
            flaw.expected if flaw is not None else ENTRY_MAGIC,
            flaw.found if flaw is not None else "the end of the log",
            state.next_index,
        )


def _cut_reason(state: Walk, copies: tuple[str, ...]) -> str | None:
    """Tells why a tail was cut; None when there was none."""
    flaw = state.flaw
    if flaw is not None:
        return f"{flaw.field} is {flaw.found}, expected {flaw.expected}"
    return "bytes behind the end" if copies else None
