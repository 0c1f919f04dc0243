"""What goes over the wire between a master and a slave, and readers for both directions.

    report  slave to master   8 end_offset (i64) of the slave's log
    frame   master to slave   8 physical_offset (i64) of the first byte, 4 size_bytes (i32), bytes

A frame of size 0 is a heart beat. Neither direction has a magic number or a checksum: a stream that
is cut ends in a torn report or frame, which is dropped with its connection.
Source: `HAConnection.java` (headerSize), `HAService.java` (HAClient.dispatchReadRequest).
"""

import struct
from typing import Final, NamedTuple

from ledgermq.broker.ha.errors import ReplicationError
from ledgermq.dledger.bounds import POSITION_MAX

REPORT: Final = struct.Struct(">q")
FRAME_HEAD: Final = struct.Struct(">qi")
# Java's slave reads into a buffer of 4 MiB that has to hold a whole frame.
FRAME_BYTES_MAX: Final = 4 << 20
BODY_BYTES_MAX: Final = FRAME_BYTES_MAX - FRAME_HEAD.size

assert REPORT.size == 8 and FRAME_HEAD.size == 12, "the layouts of reports and frames"


class Frame(NamedTuple):
    """One piece of a master's log; a heart beat has no bytes."""

    physical_offset: int
    body: bytes


def encode_report(end_offset: int) -> bytes:
    """Returns a slave's report."""
    return REPORT.pack(end_offset)


def encode_frame(physical_offset: int, body: bytes | memoryview) -> bytes:
    """Returns a frame; an empty body makes a heart beat."""
    return FRAME_HEAD.pack(physical_offset, len(body)) + body


class ReportReader:
    """A slave's stream of reports; only the last complete one of each chunk counts."""

    def __init__(self) -> None:
        # Fewer than 8 bytes: the beginning of a report.
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """Takes a chunk of the stream.

        Returns: the last complete report, None when none was completed.

        Raises:
            ReplicationError: a report is negative.
        """
        data = self._rest + data
        whole_bytes = len(data) - len(data) % REPORT.size
        self._rest = data[whole_bytes:]
        if not whole_bytes:
            return None
        (end_offset,) = REPORT.unpack_from(data, whole_bytes - REPORT.size)
        if end_offset < 0:
            raise ReplicationError(f"a slave reports the end offset {end_offset}")
        return int(end_offset)


class FrameReader:
    """A master's stream of frames.

    Invariant: at most one frame of FRAME_BYTES_MAX and the chunk of one `feed` are held.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def buffered_bytes(self) -> int:
        """Bytes of a frame that is not complete."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Frame]:
        """Takes a chunk of the stream and returns the frames that are complete now.

        Raises:
            ReplicationError: a head cannot be right. The reader is of no use any more; frames of
                the same chunk before it are lost with the connection, and are sent again.
        """
        buffer = self._buffer
        buffer += data
        frames: list[Frame] = []
        start = 0
        while len(buffer) - start >= FRAME_HEAD.size:
            physical_offset, size_bytes = FRAME_HEAD.unpack_from(buffer, start)
            is_placed = 0 <= physical_offset <= POSITION_MAX
            if not is_placed or not 0 <= size_bytes <= BODY_BYTES_MAX:
                raise ReplicationError(
                    f"a master sends a frame of {size_bytes} bytes at offset {physical_offset};"
                    f" allowed are 0 to {BODY_BYTES_MAX} bytes at 0 to {POSITION_MAX}"
                )
            end = start + FRAME_HEAD.size + size_bytes
            if len(buffer) < end:
                break
            frames.append(Frame(physical_offset, bytes(buffer[start + FRAME_HEAD.size : end])))
            start = end
        if start:
            del buffer[:start]
        return frames
