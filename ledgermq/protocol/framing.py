"""Chunks of a byte stream in, frames out.

A frame on the wire is

    4  length     big endian, counts everything after itself
    4  header     top byte: how the header is written; low 24 bits: its length
    n  header
    m  body

FrameDecoder cuts the stream and trusts no length: it is checked against its limits before a byte is
kept for it. The decoder holds at most one unfinished frame and knows nothing of what a frame means.
It does no I/O.
"""

from struct import Struct
from typing import Final

from ledgermq.protocol.errors import RemoteProtocolError

# Java's default of com.rocketmq.remoting.frameMaxLength; counts the four length bytes too.
FRAME_BYTES_MAX: Final = 16_777_216
LENGTH_BYTES: Final = 4
# A frame holds at least the word with the header length.
_FRAME_LENGTH_MIN: Final = 4
# 4 length
_LENGTH: Final = Struct(">i")


class FrameDecoder:
    """Cuts a stream into frames.

    Invariant: the buffer holds less than one whole frame between two calls.
    """

    __slots__ = ("_buffer", "_failure", "_length_max", "_wanted_bytes")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        """Starts with an empty buffer.

        Args:
            frame_bytes_max: greatest size of a frame with its length bytes.
        """
        assert frame_bytes_max >= LENGTH_BYTES + _FRAME_LENGTH_MIN
        # Greatest number that the length word may hold.
        self._length_max = frame_bytes_max - LENGTH_BYTES
        # The beginning of the frame that is not yet whole.
        self._buffer = bytearray()
        # Size of that frame with its length bytes; 0 while fewer than four bytes of it are here.
        self._wanted_bytes = 0
        # Why the decoder is dead; never reset.
        self._failure: RemoteProtocolError | None = None

    @property
    def buffered_bytes(self) -> int:
        """Bytes held of a frame that is not yet whole."""
        return len(self._buffer)

    @property
    def wanted_bytes(self) -> int:
        """Size of that frame with its length bytes, 0 while it is not known."""
        return self._wanted_bytes

    def find_head(self) -> bytes | None:
        """Returns that frame up to the end of its header, as `feed` would return it without a
        body; None while the header is not whole.
        """
        buffer = self._buffer
        if len(buffer) < 2 * LENGTH_BYTES:
            return None
        end = 2 * LENGTH_BYTES + int.from_bytes(buffer[LENGTH_BYTES + 1 : 2 * LENGTH_BYTES])
        return bytes(buffer[LENGTH_BYTES:end]) if len(buffer) >= end else None

    def clear(self) -> None:
        """Forgets that frame; what comes next begins a new one."""
        self._buffer.clear()
        self._wanted_bytes = 0

    def limit(self, frame_bytes_max: int) -> None:
        """Changes the greatest size of frames whose length is not read yet."""
        assert frame_bytes_max >= LENGTH_BYTES + _FRAME_LENGTH_MIN
        self._length_max = frame_bytes_max - LENGTH_BYTES

    def feed(self, chunk: bytes) -> list[bytes]:
        """Takes the next bytes of the stream and returns the frames they complete.

        Args:
            chunk: bytes as they came, cut anywhere; may be empty.

        Returns:
            The frames without their length bytes, in order; an empty list means "need more".

        Raises:
            RemoteProtocolError: a length is below 4 or above the limit. The decoder is dead from
                then on: it raises the same at every call and keeps no bytes. Whole frames of the
                same chunk are dropped with it.
        """
        if self._failure is not None:
            raise self._failure
        frames: list[bytes] = []
        start = self._complete_first(chunk, frames) if self._buffer else 0
        size = len(chunk)
        length_at = _LENGTH.unpack_from
        length_max = self._length_max
        while size - start >= LENGTH_BYTES:
            (length,) = length_at(chunk, start)
            if not _FRAME_LENGTH_MIN <= length <= length_max:
                raise self._die(length)
            end = start + LENGTH_BYTES + length
            if end > size:
                self._wanted_bytes = LENGTH_BYTES + length
                break
            frames.append(chunk[start + LENGTH_BYTES : end])
            start = end
        if start < size:
            self._buffer += chunk[start:]
        return frames

    def _complete_first(self, chunk: bytes, frames: list[bytes]) -> int:
        """Adds to the unfinished frame what it still wants, and returns how much of the chunk that
        took.
        """
        buffer = self._buffer
        taken = 0
        if not self._wanted_bytes:
            taken = min(LENGTH_BYTES - len(buffer), len(chunk))
            buffer += chunk[:taken]
            if len(buffer) < LENGTH_BYTES:
                return taken
            (length,) = _LENGTH.unpack_from(buffer, 0)
            if not _FRAME_LENGTH_MIN <= length <= self._length_max:
                raise self._die(length)
            self._wanted_bytes = LENGTH_BYTES + length
        missing = self._wanted_bytes - len(buffer)
        buffer += chunk[taken : taken + missing]
        if len(buffer) < self._wanted_bytes:
            return len(chunk)
        with memoryview(buffer) as view:
            frames.append(bytes(view[LENGTH_BYTES:]))
        buffer.clear()
        self._wanted_bytes = 0
        return taken + missing

    def _die(self, length: int) -> RemoteProtocolError:
        limit = f"{_FRAME_LENGTH_MIN} to {self._length_max}"
        self._failure = RemoteProtocolError("frame length", length, limit)
        self._buffer.clear()
        return self._failure
