"""What the two ends of replication need of a plain commit log."""

from typing import Protocol


class ReplicatedLog(Protocol):
    """A log of bytes in segments of one size, addressed by physical offset."""

    @property
    def segment_bytes(self) -> int:
        """Size of each segment; the same on master and slave."""

    @property
    def min_offset(self) -> int:
        """First offset that is still there."""

    @property
    def max_offset(self) -> int:
        """Offset behind the last byte, 0 for a log that never had one."""

    def read(self, offset: int, bytes_max: int) -> bytes | memoryview:
        """Returns bytes from an offset on, of whole or part records, never across the end of a
        segment; nothing at `max_offset`. A view is used before the next call of the log.
        """

    def append_raw(self, offset: int, data: bytes) -> object:
        """Appends a master's bytes, which do not cross the end of a segment.

        Args:
            offset: `max_offset`; of an empty log, the beginning of any segment.

        Raises:
            SegmentLackingError: a file has to be made first; nothing was written.
        """
