"""Bodies as clients compress them: zlib, LZ4 frame, Zstandard.

Only clients and tools use this; a broker stores and forwards bodies untouched. Decompression is
bounded by a limit of the caller, whatever the compressed bytes claim. Source: the compression
package of RocketMQ 5.x; a 4.9.3 client knows zlib alone and leaves the type bits zero.
"""

import zlib
from typing import Final

import lz4.frame
import zstandard

from ledgermq.protocol import sysflag
from ledgermq.protocol.errors import LocalProtocolError, RemoteProtocolError

# Levels as Java's defaults: Deflater 5, Zstd 3; the LZ4 frame has its own scale from 0.
_ZLIB_LEVEL: Final = 5
_ZSTD_LEVEL: Final = 3
# What every decoder of Zstandard should have, by its specification (RFC 8878, 3.1.1.1.2).
_WINDOW_BYTES_MAX: Final = 8 << 20


def compress(body: bytes, compression: int, level: int | None = None) -> bytes:
    """Return `body` compressed.

    Args:
        body: what the user sends.
        compression: one of the COMPRESSION_ bits of sysflag.
        level: the codec's own scale; None means the default of Java clients.

    Raises:
        LocalProtocolError: there is no such compression or level.
    """
    try:
        if compression == sysflag.COMPRESSION_ZLIB:
            return zlib.compress(body, _ZLIB_LEVEL if level is None else level)
        if compression == sysflag.COMPRESSION_LZ4:
            packed: bytes = lz4.frame.compress(body, compression_level=level or 0)
            return packed
        if compression == sysflag.COMPRESSION_ZSTD:
            chosen = _ZSTD_LEVEL if level is None else level
            return zstandard.ZstdCompressor(level=chosen).compress(body)
    except (zlib.error, ValueError) as error:
        raise LocalProtocolError("compression level", level) from error
    raise LocalProtocolError("compression type", compression, "0x100, 0x200 or 0x300")


def decompress(body: bytes, sys_flag: int, bytes_max: int) -> bytes:
    """Return the body as the user sent it.

    Args:
        body: the body of a record.
        sys_flag: the record's; when its COMPRESSED bit is not set, `body` is returned.
        bytes_max: the largest result that is acceptable.

    Raises:
        RemoteProtocolError: the bytes are of another codec, end early, are more than one frame, or
            give more than allowed.
    """
    if not sys_flag & sysflag.COMPRESSED:
        return body
    compression = sys_flag & sysflag.COMPRESSION_MASK
    try:
        if compression in (0, sysflag.COMPRESSION_ZLIB):
            result = _inflate(body, bytes_max)
        elif compression == sysflag.COMPRESSION_LZ4:
            result = _unpack_lz4(body, bytes_max)
        elif compression == sysflag.COMPRESSION_ZSTD:
            result = _unpack_zstd(body, bytes_max)
        else:
            raise RemoteProtocolError("compression type", compression, "0, 0x100, 0x200 or 0x300")
    except (zlib.error, RuntimeError, EOFError, MemoryError, zstandard.ZstdError) as error:
        raise RemoteProtocolError("compressed body", str(error)) from error
    if len(result) > bytes_max:
        raise RemoteProtocolError("decompressed body bytes", f"more than {bytes_max}", bytes_max)
    return result


def _inflate(body: bytes, bytes_max: int) -> bytes:
    inflater = zlib.decompressobj()
    result = inflater.decompress(body, bytes_max + 1)
    if not inflater.eof and len(result) <= bytes_max:
        raise RemoteProtocolError("compressed body", "a zlib stream without an end")
    return result


def _unpack_lz4(body: bytes, bytes_max: int) -> bytes:
    unpacker = lz4.frame.LZ4FrameDecompressor()
    result: bytes = unpacker.decompress(body, max_length=bytes_max + 1)
    if len(result) <= bytes_max:
        if not unpacker.eof:
            raise RemoteProtocolError("compressed body", "an LZ4 frame without an end")
        if unpacker.unused_data:
            raise RemoteProtocolError("compressed body", "an LZ4 frame with bytes behind it")
    return result


def _unpack_zstd(body: bytes, bytes_max: int) -> bytes:
    # One frame, as every client writes it: of empty ones, 9 bytes each, a body of 4 MiB would hold
    # half a million, each with a decoder to make. A decoder's window is memory that a frame asks
    # for.
    window_bytes_max = max(_WINDOW_BYTES_MAX, 1 << (bytes_max - 1).bit_length())
    unpacker = zstandard.ZstdDecompressor(max_window_size=min(window_bytes_max, 1 << 27))
    reader = unpacker.stream_reader(body, read_across_frames=False)
    result: bytes = reader.read(bytes_max + 1)
    if len(result) > bytes_max:
        return result
    # Bounded, as the first pass was: the frame gives no more than that.
    rest = unpacker.decompressobj()
    rest.decompress(body)
    if not rest.eof:
        raise RemoteProtocolError("compressed body", "a Zstandard frame without an end")
    if rest.unused_data:
        raise RemoteProtocolError("compressed body", "a Zstandard frame with bytes behind it")
    return result
