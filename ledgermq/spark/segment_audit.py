"""What one task of an audit finds in one segment file: checked entries, and what follows from them.

The units of consume queues and the keys are made by the broker's own code, so that what is compared
with its files, or written anew, is what the broker would write.
"""

from dataclasses import dataclass, field
from typing import Final

from ledgermq.commitlog.derived_files import DerivedFiles
from ledgermq.commitlog.key_index import KeyRow
from ledgermq.commitlog.layout import QUEUE_UNIT_BYTES
from ledgermq.commitlog.light_queues import is_light_queue
from ledgermq.commitlog.queues import ConsumeQueues
from ledgermq.commitlog.rows import RowMaker
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.protocol.checksum import crc32c
from ledgermq.protocol.errors import RemoteProtocolError
from ledgermq.spark.errors import CorruptDataError
from ledgermq.spark.segment_files import files_of
from ledgermq.spark.segment_plan import SegmentRange
from ledgermq.spark.segment_walk import read_entries
from ledgermq.spark.tables.storage import StoreKeys

# Replicas are compared by a checksum of each piece, on a grid that all of them share.
PIECE_BYTES: Final = 1024 * 1024
_FILES_OPEN_MAX: Final = 64
# Topic and queue id.
QueueName = tuple[str, int]
# Of an entry's head: chain_crc and body_crc.
_CHECKSUMS: Final = slice(36, 44)
_NO_CHECKSUMS: Final = bytes(8)
_NO_KEYS: Final = StoreKeys()


@dataclass(slots=True, kw_only=True)
class QueueUnits:
    """Consecutive units of one queue, as entries of the log have them."""

    first_offset: int
    # One after the other, as the files of the queue have them; or none, once they are compared.
    units: bytearray = field(default_factory=bytearray)
    # How many there are, kept or not.
    count: int = field(init=False)
    # Units that the files of the queue have otherwise, or not at all: offset of the first, and what
    # follows it as far as it matters. In order.
    unlike: list[tuple[int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.count = len(self.units) // QUEUE_UNIT_BYTES

    @property
    def end_offset(self) -> int:
        """Offset of the next unit."""
        return self.first_offset + self.count

    def put(self, unit: bytes) -> None:
        """Adds the next unit."""
        self.units += unit
        self.count += 1

    def go_on_with(self, part: "QueueUnits") -> None:
        """Adds the units of a part that are not here yet; it begins at the end or before."""
        known = self.end_offset - part.first_offset
        self.units += part.units[known * QUEUE_UNIT_BYTES :]
        for offset, units in part.unlike:
            left_out = max(0, self.end_offset - offset)
            rest = units[left_out * QUEUE_UNIT_BYTES :]
            if rest:
                self.unlike.append((offset + left_out, rest))
        self.count += part.count - known


@dataclass(slots=True, kw_only=True)
class SegmentFindings:
    """What was found in one file."""

    path: str
    first_index: int = -1
    last_index: int = -1
    first_position: int = -1
    end_position: int = -1
    byte_count: int = 0
    # What ended the walk too early; "" when nothing did.
    defect: str = ""
    # Gaps in the queue offsets of the log itself.
    gaps: list[str] = field(default_factory=list)
    queues: dict[QueueName, QueueUnits] = field(default_factory=dict)
    # Of light queues: runs of consecutive offsets, in order of the log.
    light: dict[QueueName, list[QueueUnits]] = field(default_factory=dict)
    keys: list[KeyRow] = field(default_factory=list)


def audit_segment(
    wanted: SegmentRange,
    delays_ms: tuple[int, ...],
    *,
    wants_keys: bool,
    store_keys: StoreKeys = _NO_KEYS,
) -> SegmentFindings:
    """Walks over one file with every check; a defect is a finding, not an error.

    Raises:
        ObjectStoreError: the store does not give the file.
        PathNotSeenError: the file is not there.
    """
    found = SegmentFindings(path=wanted.path)
    file_system = RealFileSystem()
    files = DerivedFiles(file_system, _FILES_OPEN_MAX)
    # Names queues only: nothing is opened below this directory.
    queues = ConsumeQueues(file_system, "", files, PIECE_BYTES)
    rows = RowMaker(queues, delays_ms=delays_ms, index_enabled=wants_keys)
    try:
        for run, _ in read_entries(wanted, store_keys):
            if found.first_index < 0:
                found.first_index, found.first_position = run.first_index, run.position
            found.last_index, found.end_position = run.last_index, run.end_position
            found.byte_count += len(run.data)
            for row in rows.rows_of(run, run.first_index, run.last_index + 1):
                found.keys += row[4]
                if row[0] is not None:
                    _add_unit(found, (row[0].topic, row[0].queue_id), row[1], row[2])
                for queue, offset in row[7]:
                    _add_light(found, (queue.topic, queue.queue_id), offset, row[2])
    except (CorruptDataError, RemoteProtocolError) as error:
        found.defect = str(error)
    return found


def _add_light(found: SegmentFindings, key: QueueName, offset: int, unit: bytes) -> None:
    runs = found.light.setdefault(key, [])
    if not runs or offset != runs[-1].end_offset:
        runs.append(QueueUnits(first_offset=offset))
    runs[-1].put(unit)


def _add_unit(found: SegmentFindings, key: QueueName, offset: int, unit: bytes) -> None:
    if is_light_queue(key[0]):
        # What others put there stands between.
        _add_light(found, key, offset, unit)
        return
    queue = found.queues.get(key)
    if queue is None:
        queue = found.queues[key] = QueueUnits(first_offset=offset)
    elif offset != queue.end_offset:
        found.gaps.append(
            f"queue {key[0]}-{key[1]}: offset {offset} follows {queue.end_offset - 1}"
            f" in {found.path}"
        )
        queue = found.queues[key] = QueueUnits(first_offset=offset)
    queue.put(unit)


def entry_checksums(
    wanted: SegmentRange, pieces: frozenset[int], store_keys: StoreKeys = _NO_KEYS
) -> dict[int, int]:
    """Returns a checksum of the entries that begin in some pieces, without their own checksums.

    Java leaves these empty, so that members of both kinds differ there and nowhere else.

    Args:
        wanted: the file.
        pieces: positions on the grid of pieces; entries that begin elsewhere are left out.
        store_keys: of the object store, where the file is in one.

    Raises:
        ObjectStoreError: the store does not give the file.
        PathNotSeenError: the file is not there.
    """
    found: dict[int, int] = {}
    try:
        for run, _ in read_entries(wanted, store_keys):
            data = bytearray(run.data)
            for start, end in zip(run.starts, [*run.starts[1:], len(data)], strict=True):
                position = run.position + start
                piece = position - position % PIECE_BYTES
                if piece in pieces:
                    data[start + _CHECKSUMS.start : start + _CHECKSUMS.stop] = _NO_CHECKSUMS
                    # Of all checksums so far and this one, in order.
                    part = found.get(piece, 0).to_bytes(4, "big") + bytes(data[start:end])
                    found[piece] = crc32c(part)
    except CorruptDataError:
        # A defect of its own; what is missing here differs.
        return found
    return found


def piece_checksums(
    path: str, start: int, end: int, store_keys: StoreKeys = _NO_KEYS
) -> dict[int, int]:
    """Returns a checksum of each piece of a range of the log that lies in one file.

    Args:
        path: the file; its name is its position.
        start: first position of the range.
        end: behind the last.
        store_keys: of the object store, where the file is in one.

    Returns:
        By position of the piece; a piece that the file does not hold whole has what there is.

    Raises:
        ObjectStoreError: the store does not give the file.
        PathNotSeenError: the file is not there.
    """
    position = int(path.rpartition("/")[2])
    found = {}
    with files_of(path, store_keys).opened(path) as data:
        at = max(start, position)
        stop = min(end, position + data.size)
        window, window_at = memoryview(b""), at
        while at < stop:
            piece_end = min(stop, at - at % PIECE_BYTES + PIECE_BYTES)
            if piece_end > window_at + len(window):
                window = memoryview(data.window(at - position, piece_end - at))
                window_at = at
            found[at] = crc32c(window[at - window_at : piece_end - window_at])
            at = piece_end
    return found
