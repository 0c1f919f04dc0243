"""PlainScrub: the scrub of a plain log, where only the CRC of each body can be compared."""

from ledgermq.commitlog.byte_indexed_log import ByteIndexedLog
from ledgermq.commitlog.dispatch import Dispatcher
from ledgermq.commitlog.errors import DamagedFileError
from ledgermq.commitlog.key_index import KeyIndex
from ledgermq.commitlog.plain_log import PlainCommitLog
from ledgermq.commitlog.plain_records import walk_records
from ledgermq.commitlog.rows import RowMaker
from ledgermq.commitlog.scrub import Part, Scrub


class PlainScrub(Scrub):
    """One plain log and its derived files, walked without end."""

    def __init__(
        self,
        log: PlainCommitLog,
        dispatcher: Dispatcher,
        row_maker: RowMaker,
        key_index: KeyIndex,
    ) -> None:
        super().__init__(ByteIndexedLog(log), dispatcher, row_maker, key_index, log.files.mode)
        self._log = log

    def _read(self, first_index: int, last_index: int, bytes_max: int) -> Part:
        data, found = self._log.records(first_index, min(bytes_max, last_index + 1 - first_index))
        walk = walk_records(
            data[: found.end - first_index], first_index, self._log.segment_bytes, verify=True
        )
        if walk.end != found.end or (not walk.starts and found.blank_end is None):
            what = walk.stopped_because or found.stopped_because or "there is none"
            # The round ends here; the next one comes to it again.
            self._next_index, self._keys_done = self._last_index + 1, 0
            raise DamagedFileError("log", f"record at {walk.end}", "a good record", what)
        starts = [start - first_index for start in walk.starts]
        rows = self._row_maker.rows_between(
            data,
            starts,
            [stop - first_index for stop in walk.stops],
            0,
        )
        size_bytes = found.next_offset - first_index
        return Part(rows, walk.starts, starts, found.next_offset, size_bytes)
