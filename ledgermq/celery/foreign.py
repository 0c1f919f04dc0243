"""What others wrote into messages and into the name servers' table, read with bounds.

A worker reads what anybody with a right to the topic could write. What is malformed, nested too
deep or grows beyond a bound when it is unpacked is a ValueError here, so that it is dropped by who
reads it; an exception of another kind would end the worker, and again after each restart.
"""

import bz2
import json
import lzma
import zlib
from base64 import b64decode
from collections.abc import Callable
from typing import Any, Final

# Of the body of a task, unpacked.
BODY_BYTES_MAX: Final = 64 << 20

# Unpacks at most so many bytes.
_Unpack = Callable[[bytes, int], bytes]


def read_object(text: str | bytes) -> dict[str, Any]:
    """Returns a JSON object.

    Raises:
        ValueError: the text is none, or is nested too deep.
    """
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("the JSON text is nested too deep") from error
    if not isinstance(value, dict):
        raise ValueError(f"the JSON text is no object but {type(value).__name__}")
    return value


def check_task(raw: dict[str, Any]) -> None:
    """Checks what kombu is going to unpack, before it does.

    Args:
        raw: a message as kombu's virtual transports have it.

    Raises:
        ValueError: a member is of another type, or the body is packed in a way that is not known,
            or is larger than allowed when it is unpacked.
    """
    properties, headers, body = raw.get("properties"), raw.get("headers"), raw.get("body")
    if not isinstance(properties, dict) or not isinstance(properties.get("delivery_info"), dict):
        raise ValueError("properties or delivery_info is no object")
    if headers is not None and not isinstance(headers, dict):
        raise ValueError("headers is no object")
    if body is not None and not isinstance(body, str):
        raise ValueError("body is no text")
    for name in ("content-type", "content-encoding"):
        if not isinstance(raw.get(name), str | None):
            raise ValueError(f"{name} is no text")
    if not isinstance((headers or {}).get("task"), str | None):
        raise ValueError("the name of the task is no text")
    encoding = properties.get("body_encoding")
    if encoding is not None and encoding not in ("base64", "utf-8"):
        raise ValueError(f"body_encoding is {str(encoding)[:64]!r}, allowed are base64 and utf-8")
    kind = (headers or {}).get("compression")
    unpack = _UNPACKERS.get(kind) if isinstance(kind, str) else None
    # Also where nothing is packed: what is not of that encoding is a ValueError here.
    packed = b64decode(body or "") if encoding == "base64" else (body or "").encode()
    if packed and unpack is not None:
        count = len(unpack(packed, BODY_BYTES_MAX + 1))
        if count > BODY_BYTES_MAX:
            raise ValueError(f"the body has more than {BODY_BYTES_MAX} bytes when it is unpacked")


def _zlib(packed: bytes, bytes_max: int) -> bytes:
    try:
        return zlib.decompressobj().decompress(packed, bytes_max)
    except zlib.error as error:
        raise ValueError(str(error)) from error


def _bz2(packed: bytes, bytes_max: int) -> bytes:
    unpacker = bz2.BZ2Decompressor()
    try:
        plain = unpacker.decompress(packed, bytes_max)
    except OSError as error:
        raise ValueError(str(error)) from error
    _check_alone(unpacker)
    return plain


def _lzma(packed: bytes, bytes_max: int) -> bytes:
    unpacker = lzma.LZMADecompressor(memlimit=bytes_max)
    try:
        plain = unpacker.decompress(packed, bytes_max)
    except (lzma.LZMAError, EOFError) as error:
        raise ValueError(str(error)) from error
    _check_alone(unpacker)
    return plain


def _check_alone(unpacker: bz2.BZ2Decompressor | lzma.LZMADecompressor) -> None:
    """Checks that nothing stands behind the first stream: kombu would unpack that, too."""
    if unpacker.eof and unpacker.unused_data:
        raise ValueError("the body is packed in more than one piece")


# By kombu's names of compressions; those that a user registers are that user's.
_UNPACKERS: Final[dict[str, _Unpack]] = {
    **dict.fromkeys(("application/x-gzip", "gzip", "zlib"), _zlib),
    **dict.fromkeys(("application/x-bz2", "bzip2", "bzip"), _bz2),
    **dict.fromkeys(("application/x-lzma", "lzma", "xz"), _lzma),
}
