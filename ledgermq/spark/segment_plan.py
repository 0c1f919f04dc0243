"""Which segment files a directory holds, what of them is committed, and one partition for each.

    <dir>/data/<20 digits>             a member's ledger, LedgerMQ's or Java's: <dir>/dledger-<id>
    <dir>/dledger-<id>/data/...        the store directory of a member
    <dir>/commitlog/<20 digits>        the store directory of a Java broker without a ledger
    <dir>/<20 digits>                  the files themselves

The same in an object store, where <dir> is ``s3a://BUCKET/PREFIX``.

A file is named by the position of its first byte. A run of files must be without a hole. What is
committed is said by the marks of the ledger; a plain log is taken up to where it was written.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql.datasource import InputPartition

from ledgermq.dledger.entry import HEAD_BYTES, read_head
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.dledger.store.marks import Marks
from ledgermq.spark.errors import CorruptDataError, OptionError
from ledgermq.spark.segment_files import SegmentFiles, StoreFiles, find_place
from ledgermq.spark.tables.storage import StoreKeys

_NAME: Final = re.compile(r"\d{20}")
# Of files whose beginnings are looked at; an object store takes its time for each.
_LOOKS_AT_ONCE: Final = 16
# At which members are looked for, the path itself one of them.
_LEVELS: Final = 3
# Stands beside the files of a copy until all of them are there.
COPY_MARK: Final = "copy-not-complete"
_ALLOWED: Final = (
    "a directory with commitlog/, data/ or dledger-<id>/data/, or one of segment files named by 20"
    " digits"
)


@dataclass(slots=True, frozen=True, kw_only=True)
class SegmentRange(InputPartition):  # type: ignore[misc,unused-ignore]  # untyped where absent
    """One segment file to read."""

    # Absolute, as `next_path` is: a task has another working directory than the driver.
    path: str
    # Position of its first byte in the log, and where in the file the log begins.
    position: int
    start_offset: int
    is_ledger: bool
    # Entries above are not committed; of a plain log -1.
    committed_index: int
    # The file that follows; "" for the last one.
    next_path: str


@dataclass(slots=True, frozen=True, kw_only=True)
class LogFiles:
    """The files of one log; paths are absolute."""

    files: SegmentFiles
    paths: tuple[str, ...]
    is_ledger: bool
    # The directory of the marks of a ledger.
    directory: str


def find_log(text: str, keys: StoreKeys = StoreKeys()) -> LogFiles:  # noqa: B008  # Immutable.
    """Returns the log at a path, which is made absolute.

    Args:
        text: of this machine, or of an object store.
        keys: of the object store.

    Raises:
        OptionError: there is none, or there are several members, which would give each row twice.
        CorruptDataError: it is a copy that is not complete.
        ObjectStoreError: the store does not answer well.
    """
    files, root = find_place("path", text, keys)
    names = files.names(root)
    if COPY_MARK in names:
        raise CorruptDataError(root, "a copy of a store that was cut off, or is still made")
    members = [root]
    if "data" not in names or not _segments(files, f"{root}/data"):
        members = [f"{root}/{name}" for name in names if name.startswith("dledger-")]
        members = [member for member in members if _segments(files, f"{member}/data")]
    if len(members) > 1:
        shown = ", ".join(members)
        raise OptionError("path", text, f"one member's directory; this one holds {shown}")
    if members:
        paths = _segments(files, f"{members[0]}/data")
        return LogFiles(files=files, paths=paths, is_ledger=True, directory=members[0])
    for directory in (f"{root}/commitlog", root):
        paths = _segments(files, directory)
        if paths:
            is_ledger = _begins_with_entry(files, paths[0])
            parent = directory.rpartition("/")[0]
            return LogFiles(files=files, paths=paths, is_ledger=is_ledger, directory=parent)
    raise OptionError("path", text, _ALLOWED)


def find_members(text: str, keys: StoreKeys = StoreKeys()) -> list[str]:  # noqa: B008  # Immutable.
    """Returns the ledger directories at or below a path, at most two levels down, absolute.

    Args:
        text: of this machine, or of an object store.
        keys: of the object store.

    Raises:
        OptionError: the path is on another kind of file system.
        ObjectStoreError: the store does not answer well.
    """
    files, root = find_place("DIR", text, keys)
    if isinstance(files, StoreFiles):
        return _stored_members(files, root)
    path = Path(root)
    if (path / "data").is_dir():
        return [root]
    found = sorted(path.glob("dledger-*/data")) or sorted(path.glob("*/dledger-*/data"))
    # Copies of stores have it right below.
    copies = [data for data in sorted(path.glob("*/data")) if _segments(files, str(data))]
    return [str(data.parent) for data in found or copies]


def _stored_members(files: StoreFiles, root: str) -> list[str]:
    level = [root]
    for _ in range(_LEVELS):
        found = [directory for directory in level if _segments(files, f"{directory}/data")]
        if found:
            return found
        level = [folder for directory in level for folder in files.folders(directory)]
    return []


def _segments(files: SegmentFiles, directory: str) -> tuple[str, ...]:
    names = [name for name in files.names(directory) if _NAME.fullmatch(name)]
    paths = tuple(f"{directory}/{name}" for name in names)
    for path in paths:
        files.size(path)
    return paths


def _position(path: str) -> int:
    """Position of the first byte of a file in its log."""
    return int(path.rpartition("/")[2])


def _begins_with_entry(files: SegmentFiles, path: str) -> bool:
    """Tells entries from records by the magic of the first one."""
    return files.head(path, 0, 4) == b"\0\0\0\1"


def _begins_written(files: SegmentFiles, path: str) -> bool:
    """Tells a file that was only made from one that is used, or damaged: it has zeros in it."""
    return files.head(path, 0, 8) != bytes(8)


def plan_segments(log: LogFiles, *, reads_open_segment: bool) -> list[SegmentRange]:
    """Returns a partition for each file that holds something committed.

    Args:
        log: the files.
        reads_open_segment: whether the last file of a plain log is read, too.

    Raises:
        CorruptDataError: a file is missing in the run, or nothing says what is committed.
    """
    _check_run(log)
    committed, first_position = -1, _position(log.paths[0])
    written = list(log.paths)
    if log.is_ledger:
        committed, first_position = _committed(log)
        with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
            firsts = pool.map(lambda path: _first_index(log, path, first_position), written)
            paths = [
                path for path, first in zip(written, firsts, strict=True) if first <= committed
            ]
    else:
        # A broker makes files ahead.
        while len(written) > 1 and not _begins_written(log.files, written[-1]):
            written.pop()
        paths = written if reads_open_segment else written[:-1]
    following = dict(zip(written, written[1:], strict=False))
    return [
        SegmentRange(
            path=path,
            position=_position(path),
            start_offset=max(0, first_position - _position(path)),
            is_ledger=log.is_ledger,
            committed_index=committed,
            next_path=following.get(path, ""),
        )
        for path in paths
    ]


def _check_run(log: LogFiles) -> None:
    for path, after in zip(log.paths, log.paths[1:], strict=False):
        size = log.files.size(path)
        expected = _position(path) + size
        if _position(after) != expected:
            raise CorruptDataError(
                path,
                f"it has {size} bytes, so {expected:020d} must follow, but the next file is"
                f" {after.rpartition('/')[2]}",
            )


def _committed(log: LogFiles) -> tuple[int, int]:
    """Returns the committed index, and the position at which the log begins."""
    # Marks of the ledger are files of some bytes.
    names = [name for name in log.files.names(log.directory) if not _NAME.fullmatch(name)]
    with log.files.marks(log.directory, names) as directory:
        marks = Marks(RealFileSystem(), directory)
        start = marks.read_start()
        committed = marks.read_trusted_committed(start)
    if committed < 0:
        raise CorruptDataError(
            f"{log.directory}/checkpoint", "no readable mark says what is committed"
        )
    return committed, start.first_position if start is not None else _position(log.paths[0])


def _first_index(log: LogFiles, path: str, first_position: int) -> int:
    """Index of the first entry in a file; larger than any where nothing is written yet."""
    data = log.files.head(path, max(0, first_position - _position(path)), HEAD_BYTES)
    if len(data) < HEAD_BYTES or not any(data):
        return 2**63
    return read_head(data).index
