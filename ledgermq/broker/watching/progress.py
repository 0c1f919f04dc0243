"""HealthWatch: what shows over time only; looked at once a second."""

from collections import deque
from typing import Final, Protocol

_SAMPLES_MAX: Final = 60


class DiskWork(Protocol):
    """What is needed of the keeper of the files."""

    begun_count: int

    @property
    def is_busy(self) -> bool: ...


class HealthWatch:
    """Notes since when the disk does not answer, and what was committed when.

    Invariant: a minute of samples at most.
    """

    def __init__(self, disk: DiskWork) -> None:
        """Binds the keeper of the files."""
        self._disk = disk
        # The job that was under way at the last look, and when it was seen first.
        self._job, self._job_seen_s = -1, 0.0
        # Time, and how far the leader said that its log was committed, oldest first.
        self._told: deque[tuple[float, int]] = deque(maxlen=_SAMPLES_MAX)

    def look(self, now_s: float, told_index: int) -> None:
        """Takes a sample.

        Args:
            now_s: monotonic.
            told_index: how far the leader says that its log is committed; -1 when it does not say.
        """
        job = self._disk.begun_count if self._disk.is_busy else -1
        if job != self._job:
            self._job, self._job_seen_s = job, now_s
        self._told.append((now_s, told_index))

    def disk_seconds(self, now_s: float) -> float:
        """Returns for how long the disk has been at the same job; 0 when there is none."""
        is_same = self._disk.is_busy and self._disk.begun_count == self._job
        return now_s - self._job_seen_s if is_same else 0.0

    def behind_seconds(self, now_s: float, applied_index: int) -> float | None:
        """Returns how long ago all was committed that is applied now; None: longer than known."""
        for seen_s, told_index in reversed(self._told):
            if 0 <= told_index <= applied_index:
                return now_s - seen_s
        return None
