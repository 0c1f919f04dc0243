"""PushThrottle: how fast a follower that is far behind is brought up.

A follower that comes back after hours reads cold segments from the leader's disk and fills its
line, at the cost of all others. Far behind, it gets so many bytes a second; near the end it gets
all there is. Source: DLedgerEntryPusher.EntryDispatcher.checkQuotaAndWait. Differs from it: batches
count, too; a log that grows faster than the quota raises it, for else the follower would never
arrive; and one that hardly grows lifts it, for there is nobody to be spared.
"""

from typing import Final

# Nearer to the end than this, nothing is held back (DLedgerEntryPusher).
NEAR_COUNT: Final = 1000
_SECOND_MS: Final = 1000.0
# A log that grows by less than this part of the quota in a second hardly grows.
_IDLE_PART: Final = 20
_NO_LIMIT_BYTES: Final = 1 << 62


class PushThrottle:
    """The allowance of one follower, second by second."""

    __slots__ = ("_end_position", "_far_bytes", "_left_bytes", "_quota_bytes", "_second_end_ms")

    def __init__(self, far_bytes: int, quota_bytes: int) -> None:
        """Begins with a whole allowance.

        Args:
            far_bytes: a follower that lacks less is not held back.
            quota_bytes: allowance for each second.
        """
        self._far_bytes = far_bytes
        self._quota_bytes = quota_bytes
        self._left_bytes = 0
        self._second_end_ms = float("-inf")
        # End of the log when this second began.
        self._end_position = 0

    def is_far(self, lack_bytes: int, lack_count: int) -> bool:
        """Tells whether a follower that lacks so much gets an allowance at all."""
        return lack_bytes >= self._far_bytes and lack_count > NEAR_COUNT

    def take(self, size_bytes: int, end_position: int, now_ms: float) -> bool:
        """Takes a frame from this second's allowance; False when that is used up.

        Args:
            size_bytes: of the frame, which may be larger than what is left.
            end_position: of the log.
            now_ms: monotonic time.
        """
        if now_ms >= self._second_end_ms:
            is_next = now_ms - self._second_end_ms < _SECOND_MS
            grown_bytes = end_position - self._end_position
            self._left_bytes = max(self._quota_bytes, 2 * grown_bytes if is_next else 0)
            if is_next and grown_bytes * _IDLE_PART < self._quota_bytes:
                self._left_bytes = _NO_LIMIT_BYTES
            self._second_end_ms = now_ms + _SECOND_MS
            self._end_position = end_position
        if self._left_bytes <= 0:
            return False
        self._left_bytes -= size_bytes
        return True

    @property
    def next_ms(self) -> float:
        """When the next allowance comes."""
        return self._second_end_ms
