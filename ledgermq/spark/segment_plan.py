"""Which segment files a directory holds, what of them is committed, and one partition for each.

    <dir>/data/<20 digits>             a member's ledger, LedgerMQ's or Java's: <dir>/dledger-<id>
    <dir>/dledger-<id>/data/...        the store directory of a member
    <dir>/commitlog/<20 digits>        the store directory of a Java broker without a ledger
    <dir>/<20 digits>                  the files themselves

A file is named by the position of its first byte. A run of files must be without a hole. What is
committed is said by the marks of the ledger; a plain log is taken up to where it was written.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql.datasource import InputPartition

from ledgermq.dledger.entry import HEAD_BYTES, read_head
from ledgermq.dledger.store.filesystem import RealFileSystem
from ledgermq.dledger.store.marks import Marks
from ledgermq.dledger.store.outside_files import (
    SMALL_BYTES_MAX,
    FileRefusedError,
    regular_size,
)
from ledgermq.spark.errors import CorruptDataError, OptionError
from ledgermq.spark.paths import file_size, local_path

_NAME: Final = re.compile(r"\d{20}")
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

    paths: tuple[Path, ...]
    is_ledger: bool
    # The directory of the marks of a ledger.
    directory: Path


def find_log(text: str) -> LogFiles:
    """Returns the log at a path, which is made absolute.

    Raises:
        OptionError: there is none, or there are several members, which would give each row twice.
    """
    path = local_path("path", text)
    members = [path] if _segments(path / "data") else sorted(path.glob("dledger-*"))
    members = [member for member in members if _segments(member / "data")]
    if len(members) > 1:
        shown = ", ".join(str(member) for member in members)
        raise OptionError("path", text, f"one member's directory; this one holds {shown}")
    if members:
        files = _segments(members[0] / "data")
        return LogFiles(paths=files, is_ledger=True, directory=members[0])
    for directory in (path / "commitlog", path):
        files = _segments(directory)
        if files:
            is_ledger = _begins_with_entry(files[0])
            return LogFiles(paths=files, is_ledger=is_ledger, directory=directory.parent)
    raise OptionError("path", text, _ALLOWED)


def find_members(text: str) -> list[Path]:
    """Returns the ledger directories at or below a path, at most two levels down, absolute.

    Raises:
        OptionError: the path is on another kind of file system.
    """
    path = local_path("DIR", text)
    if (path / "data").is_dir():
        return [path]
    return [
        data.parent
        for data in sorted(path.glob("dledger-*/data")) or sorted(path.glob("*/dledger-*/data"))
    ]


def _segments(directory: Path) -> tuple[Path, ...]:
    if not directory.is_dir():
        return ()
    paths = tuple(sorted(p for p in directory.iterdir() if _NAME.fullmatch(p.name)))
    for path in paths:
        file_size(str(path))
    return paths


def _begins_with_entry(path: Path) -> bool:
    """Tells entries from records by the magic of the first one."""
    with open(path, "rb") as file:
        return file.read(4) == b"\0\0\0\1"


def _begins_written(path: Path) -> bool:
    """Tells a file that was only made from one that is used, or damaged: it has zeros in it."""
    with open(path, "rb") as file:
        return file.read(8) != bytes(8)


def plan_segments(log: LogFiles, *, reads_open_segment: bool) -> list[SegmentRange]:
    """Returns a partition for each file that holds something committed.

    Args:
        log: the files.
        reads_open_segment: whether the last file of a plain log is read, too.

    Raises:
        CorruptDataError: a file is missing in the run, or nothing says what is committed.
    """
    _check_run(log.paths)
    committed, first_position = -1, int(log.paths[0].name)
    written = list(log.paths)
    if log.is_ledger:
        committed, first_position = _committed(log)
        paths = [path for path in written if _first_index(path, first_position) <= committed]
    else:
        # A broker makes files ahead.
        while len(written) > 1 and not _begins_written(written[-1]):
            written.pop()
        paths = written if reads_open_segment else written[:-1]
    following = dict(zip(written, written[1:], strict=False))
    return [
        SegmentRange(
            path=str(path),
            position=int(path.name),
            start_offset=max(0, first_position - int(path.name)),
            is_ledger=log.is_ledger,
            committed_index=committed,
            next_path=str(following.get(path, "")),
        )
        for path in paths
    ]


def _check_run(paths: tuple[Path, ...]) -> None:
    for path, after in zip(paths, paths[1:], strict=False):
        expected = int(path.name) + path.stat().st_size
        if int(after.name) != expected:
            raise CorruptDataError(
                str(path),
                f"it has {path.stat().st_size} bytes, so {expected:020d} must follow, but the next"
                f" file is {after.name}",
            )


def _committed(log: LogFiles) -> tuple[int, int]:
    """Returns the committed index, and the position at which the log begins."""
    for path in log.directory.iterdir():
        # Marks of the ledger are files of some bytes.
        if not path.is_dir() and not _NAME.fullmatch(path.name):
            _check_mark(path)
    marks = Marks(RealFileSystem(), str(log.directory))
    start = marks.read_start()
    committed = marks.read_trusted_committed(start)
    if committed < 0:
        raise CorruptDataError(
            str(log.directory / "checkpoint"), "no readable mark says what is committed"
        )
    return committed, start.first_position if start is not None else int(log.paths[0].name)


def _check_mark(path: Path) -> None:
    try:
        regular_size(path, SMALL_BYTES_MAX)
    except FileRefusedError as error:
        raise CorruptDataError(str(path), str(error)) from error


def _first_index(path: Path, first_position: int) -> int:
    """Index of the first entry in a file; larger than any where nothing is written yet."""
    offset = max(0, first_position - int(path.name))
    with open(path, "rb") as file:
        file.seek(offset)
        data = file.read(HEAD_BYTES)
    if len(data) < HEAD_BYTES or not any(data):
        return 2**63
    return read_head(data).index
