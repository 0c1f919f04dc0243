"""Which segments of the log may go: a pure decision from their ages and the use of the disk.

Upstream looks at the files' modification times; here a segment is as old as its last record, which
a copy of the files does not change. The last segment never goes.
Source: DLedgerMmapFileStore.CleanSpaceService (0.2.3), DefaultMessageStore.CleanCommitLogService
(4.9.3).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from ledgermq.commitlog.config import StoreConfig

# Segments that one decision gives up at most; the next decision comes soon.
SEGMENTS_MAX: Final = 10
_HOUR_MS: Final = 3_600_000


class SegmentAge(NamedTuple):
    """A segment of the log that is full and dispatched."""

    # Position behind it.
    end_position: int
    # Store time of its last record, ms.
    last_timestamp: int


class CleanReason(Enum):
    """Why segments go now."""

    NONE = "nothing to do"
    HOUR = "the hour of deleteWhen"
    DISK = "the disk is fuller than diskMaxUsedSpaceRatio"
    DISK_FORCED = "the disk is so full that age does not count"
    ASKED = "an operator asked"


@dataclass(frozen=True, slots=True)
class CleanDecision:
    """What retention wants."""

    # Everything before this position may go; 0 for nothing.
    drop_before: int
    reason: CleanReason
    # Whether appends must be refused because the disk is full.
    is_disk_full: bool


def decide(
    segments: Sequence[SegmentAge],
    *,
    now_ms: int,
    local_hour: int,
    disk_percent: int,
    was_disk_full: bool,
    config: StoreConfig,
    is_asked: bool = False,
    needed_position: int | None = None,
) -> CleanDecision:
    """Decide what may be forgotten.

    Args:
        segments: oldest first, without the last one of the log.
        now_ms: ms since 1970, by a clock that no jump of the wall clock moves ahead.
        local_hour: hour of the day, 0 to 23.
        disk_percent: used part of the partition, rounded up; -1 when unknown.
        was_disk_full: the last decision's is_disk_full: refusal ends below a lower level.
        is_asked: an operator wants expired segments gone at any hour.
        needed_position: from here on a follower of this leader lacks the log; it stays, unless the
            disk forces it away. None when nobody lacks anything.
    """
    is_disk_full = is_full(disk_percent, config, was_full=was_disk_full)
    if disk_percent > config.disk_force_percent and config.force_clean:
        reason = CleanReason.DISK_FORCED
    elif disk_percent > config.disk_clean_percent:
        reason = CleanReason.DISK
    elif is_asked:
        reason = CleanReason.ASKED
    elif local_hour in config.delete_hours:
        reason = CleanReason.HOUR
    else:
        return CleanDecision(0, CleanReason.NONE, is_disk_full)
    # DLedger keeps its files an hour longer than fileReservedTime says.
    expired_ms = now_ms - (config.reserved_hours + 1) * _HOUR_MS
    drop_before = 0
    for segment, stored_ms in zip(segments[:SEGMENTS_MAX], _ages(segments, now_ms), strict=False):
        if reason is not CleanReason.DISK_FORCED:
            is_needed = needed_position is not None and segment.end_position > needed_position
            if is_needed or stored_ms > expired_ms:
                break
        drop_before = segment.end_position
    return CleanDecision(drop_before, reason, is_disk_full)


def _ages(segments: Sequence[SegmentAge], now_ms: int) -> list[int]:
    """Return the store time of each segment's last record; of one from a clock that was ahead of
    now, that of the segment behind it, which is no older.
    """
    ages: list[int] = []
    behind_ms = now_ms
    for segment in reversed(segments):
        if segment.last_timestamp <= now_ms:
            behind_ms = segment.last_timestamp
        ages.append(behind_ms)
    return ages[::-1]


def is_full(disk_percent: int, config: StoreConfig, *, was_full: bool) -> bool:
    """Tell whether appends must be refused; see `decide` for the arguments."""
    return disk_percent > (config.disk_force_percent if was_full else config.disk_full_percent)


def used_ratio(total_bytes: int, free_bytes: int, usable_bytes: int) -> float:
    """Return the used part of what a process may use of a partition; 0 when the sizes say nothing.

    Args:
        free_bytes: all free blocks.
        usable_bytes: those that this process may take.
    """
    used_bytes = total_bytes - free_bytes
    if total_bytes <= 0 or used_bytes + usable_bytes <= 0:
        return 0.0
    return used_bytes / (used_bytes + usable_bytes)


def used_percent(total_bytes: int, free_bytes: int, usable_bytes: int) -> int:
    """Return the used part of a partition as upstream rounds it; -1 when the sizes say nothing.

    Args:
        free_bytes: all free blocks.
        usable_bytes: those that this process may take.
    """
    used_bytes = total_bytes - free_bytes
    if total_bytes <= 0 or used_bytes + usable_bytes <= 0:
        return -1
    return -(-100 * used_bytes // (used_bytes + usable_bytes))
