"""Where a plain commit log ends after whatever stop: its good prefix stays, a torn tail goes.

The walk covers the last three segments, as upstream's does, and all that is above the durable
offset. A bad record there is a torn tail, whatever is behind it: what was not synced comes to the
disk in any order. What is left of its segment is copied aside, and the log is cut there. Below, it
is damage: it is told, and the files are left as they are, where upstream would drop all that is
behind. Where the durable offset is not known, as in a log that Java wrote, a good record behind the
bad one makes it damage.
"""

import os
from dataclasses import dataclass
from typing import Final

from ledgermq.commitlog.plain_records import Walk, walk_records
from ledgermq.dledger.store.errors import CorruptStoreError, UnreadableError
from ledgermq.dledger.store.filesystem import FileSystem
from ledgermq.dledger.store.opening_progress import OpeningProgress
from ledgermq.dledger.store.segment import segment_name
from ledgermq.dledger.store.segments import Segments
from ledgermq.protocol.record import RECORD_MAGIC

_SEGMENTS_WALKED: Final = 3
_PAGE_BYTES: Final = 4096
_MAGIC: Final = RECORD_MAGIC.to_bytes(4, "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainReport:
    """What opening a plain commit log found and did."""

    first_offset: int
    # Behind the last whole record, or behind the blank when the last segment is full.
    end_offset: int
    # Records in the segments that were walked.
    record_count: int
    # Why a tail was cut; None when nothing was.
    cut_reason: str | None
    # Where it was copied to, "" when nothing was cut.
    copy: str


def recover(
    segments: Segments,
    file_system: FileSystem,
    *,
    durable_offset: int | None,
    is_clean: bool,
    progress: OpeningProgress,
) -> PlainReport:
    """Opens the segments and sets their end: see PlainCommitLog.open."""
    segments.open()
    count, end = 0, segments.first_position
    starts = _starts_to_walk(segments, durable_offset)
    progress.begin("checks its log", len(starts), "files")
    for number, start in enumerate(starts):
        progress.reach(number)
        walk = _walk_segment(segments, start, verify=not is_clean)
        count += len(walk.starts)
        end = walk.next_offset
        if walk.blank_end is None:
            reason = walk.stopped_because or "the log ends here"
            _refuse_damage(segments, start, end, reason, durable_offset)
            break
    if durable_offset is not None and end < durable_offset:
        path = os.path.join(segments.directory, segment_name(end))
        expected = f"a file, as the log was on disk up to {durable_offset}"
        raise CorruptStoreError(path, 0, "record", expected, "none", end)
    return _cut(segments, file_system, end, count)


def _starts_to_walk(segments: Segments, durable_offset: int | None) -> list[int]:
    known = segments.end_position if durable_offset is None else durable_offset
    last = segments.starts[-_SEGMENTS_WALKED:]
    return [
        start
        for start in segments.starts
        if start >= last[0] or start + segments.segment_bytes > known
    ]


def _walk_segment(segments: Segments, start: int, *, verify: bool) -> Walk:
    """Walks over one segment, read in blocks."""
    segment, segment_bytes = segments.segment_at(start), segments.segment_bytes
    starts: list[int] = []
    at = size_bytes = 0
    while True:
        # One page at least, of which the disk gives all or nothing.
        size_bytes = max(size_bytes, _PAGE_BYTES - at % _PAGE_BYTES)
        try:
            block = segment.block(at, size_bytes)
        except UnreadableError as error:
            return Walk(starts, start + at, None, error.reason, False)
        walk = walk_records(block, start + at, segment_bytes, verify=verify)
        starts += walk.starts
        next_at = walk.end - start
        is_end = at + len(block) >= segment_bytes
        if walk.blank_end is not None or is_end or not walk.needs_more:
            return walk._replace(starts=starts)
        # What stands there is longer than what was read of it.
        size_bytes = 0 if next_at > at else len(block) * 2
        at = next_at


def _refuse_damage(
    segments: Segments, start: int, end: int, reason: str, durable_offset: int | None
) -> None:
    path = os.path.join(segments.directory, segment_name(start))
    if durable_offset is not None:
        if end < durable_offset:
            expected = f"a record, as the log was on disk up to {durable_offset}"
            raise CorruptStoreError(path, end - start, "record", expected, f"bad ({reason})", end)
        return
    # A log of Java: nothing tells what was on the disk but the records themselves.
    later = _good_behind(segments, start, end) or [
        other
        for other in segments.starts
        if other > start and _walk_segment(segments, other, verify=False).starts
    ]
    if later:
        expected = f"a record, as the log goes on at {later[0]}"
        raise CorruptStoreError(path, end - start, "record", expected, f"bad ({reason})", end)


def _good_behind(segments: Segments, start: int, end: int) -> list[int]:
    """Returns the place of a good record behind a bad one, in the same segment."""
    content = segments.segment_at(start).read_readable(end - start, segments.segment_bytes)
    at = content.find(_MAGIC, 5)
    while at >= 0:
        place = end + at - 4
        walk = walk_records(content[at - 4 :], place, segments.segment_bytes, verify=True)
        if walk.starts:
            return walk.starts[:1]
        at = content.find(_MAGIC, at + 1)
    return []


def _cut(segments: Segments, file_system: FileSystem, end: int, count: int) -> PlainReport:
    copy, cut_reason = "", None
    if segments.holds(end):
        segment = segments.segment_at(end)
        at = end - segment.start_offset
        torn = b"".join(
            segment.read_readable(max(begin, at), stop - max(begin, at))
            for begin, stop in segment.written_ranges(at)
            if stop > at
        ).rstrip(b"\0")
        if torn:
            cut_reason = f"no whole record stands at {end}"
            copy = f"{segments.directory}-torn-{end:020d}"
            file_system.replace(copy, torn)
    if end < segments.end_position:
        segments.truncate(end)
    return PlainReport(
        first_offset=segments.first_position,
        end_offset=end,
        record_count=count,
        cut_reason=cut_reason,
        copy=copy,
    )
