"""A plain commit log in memory, for tests of replication."""

from collections.abc import Callable


class MemoryLog:
    """Bytes in segments of one size; retention and refusals as a test wants them."""

    def __init__(self, segment_bytes: int = 64, start: int = 0, data: bytes = b"") -> None:
        self.segment_bytes = segment_bytes
        self.min_offset = start
        self.data = data
        # Called before bytes are appended; may raise.
        self.on_append: Callable[[], None] = lambda: None

    @property
    def max_offset(self) -> int:
        return self.min_offset + len(self.data)

    def append(self, data: bytes) -> None:
        """What a master's senders do."""
        self.data += data

    def read(self, offset: int, bytes_max: int) -> bytes:
        assert self.min_offset <= offset <= self.max_offset
        end = min(offset + bytes_max, offset - offset % self.segment_bytes + self.segment_bytes)
        return self.data[offset - self.min_offset : end - self.min_offset]

    def append_raw(self, offset: int, data: bytes) -> None:
        self.on_append()
        if self.max_offset == 0:
            assert offset % self.segment_bytes == 0
            self.min_offset = offset
        assert offset == self.max_offset
        assert offset % self.segment_bytes + len(data) <= self.segment_bytes
        self.data += data

    def drop_before(self, offset: int) -> None:
        """What retention does."""
        self.data = self.data[offset - self.min_offset :]
        self.min_offset = offset
