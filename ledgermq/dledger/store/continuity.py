"""Rules of the stores: which entries may be appended, and which units name their entries."""

from collections.abc import Iterable

from ledgermq.dledger.entry import BLANK_BYTES_MIN, ENTRY_MAGIC, EntrySlice, place
from ledgermq.dledger.errors import LedgerPositionError
from ledgermq.dledger.storage import LedgerStore


def check_continues(store: LedgerStore, entries: EntrySlice) -> None:
    """Checks that the entries are the next ones, where the log itself would place them.

    Raises:
        LedgerPositionError: index, position or term do not continue the log, or the run does not
            fit in one segment.
    """
    if entries.first_index != store.last_index + 1:
        raise LedgerPositionError("index", store.last_index + 1, entries.first_index)
    starts, segment_bytes = entries.starts, store.segment_bytes
    first_bytes = starts[1] if len(starts) > 1 else len(entries.data)
    expected = place(store.end_position, first_bytes, segment_bytes)
    if entries.position != expected:
        raise LedgerPositionError("position", expected, entries.position)
    if entries.first_term < store.last_term:
        raise LedgerPositionError("term", store.last_term, entries.first_term)
    limit = expected - expected % segment_bytes + segment_bytes - BLANK_BYTES_MIN
    if entries.end_position > limit:
        raise LedgerPositionError("end position", limit, entries.end_position)


# The five fields of an index unit, or of the entry head that it should agree with.
Fields = tuple[int, ...]


def find_wrong_unit(
    entries: EntrySlice, units: Iterable[Fields]
) -> tuple[int, int, Fields, Fields] | None:
    """Returns the first of the units that does not name its entry, or None.

    Returns:
        Position and index of that entry, what the unit should say, and what it says.
    """
    ends = [*entries.starts[1:], len(entries.data)]
    for i, (start, end, unit) in enumerate(zip(entries.starts, ends, units, strict=True)):
        index, position = entries.first_index + i, entries.position + start
        head = (ENTRY_MAGIC, position, end - start, index, entries.term_at(index))
        if unit != head:
            return position, index, head, unit
    return None
