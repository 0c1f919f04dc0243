"""The rule both stores share: which entries may be appended."""

from ledgermq.dledger.entry import BLANK_BYTES_MIN, EntrySlice, place
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
