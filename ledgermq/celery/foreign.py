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
from datetime import datetime
from typing import Any, Final

from kombu import compression

from ledgermq.protocol import sysflag
from ledgermq.protocol.compression import decompress
from ledgermq.protocol.errors import RemoteProtocolError

# Of the body of a task, unpacked.
BODY_BYTES_MAX: Final = 64 << 20
# Of times in a task: what lies outside can be beyond a calendar's end in another time zone.
_YEARS: Final = range(1970, 9999)
# Headers and properties of a task that Celery hashes, or makes names of.
_TEXT_HEADERS: Final = ("id", "root_id", "parent_id", "group", "shadow")
_TEXT_PROPERTIES: Final = ("correlation_id", "reply_to")
# Bodies that kombu accepts always, and leaves as they are.
_PLAIN_TYPES: Final = ("application/data", "application/text")
# What kombu brings itself; what a program registers later is its own.
_OF_KOMBU: Final = frozenset((*compression._decoders, *compression._aliases))

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
        ValueError: a member is of another type, or the body is packed in a way that nothing bounds,
            or is larger than allowed when it is unpacked; or Celery could not reckon with a header
            of a task, or not take its body apart.
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
    headers = headers or {}
    if not isinstance(headers.get("task"), str | None):
        raise ValueError("the name of the task is no text")
    encoding = properties.get("body_encoding")
    if encoding is not None and encoding not in ("base64", "utf-8"):
        raise ValueError(f"body_encoding is {str(encoding)[:64]!r}, allowed are base64 and utf-8")
    unpack = _unpacker(headers.get("compression"))
    # Also where nothing is packed: what is not of that encoding is a ValueError here.
    packed = b64decode(body or "") if encoding == "base64" else (body or "").encode()
    plain = unpack(packed, BODY_BYTES_MAX + 1) if packed and unpack is not None else packed
    if len(plain) > BODY_BYTES_MAX:
        raise ValueError(f"the body has more than {BODY_BYTES_MAX} bytes when it is unpacked")
    if headers.get("task") is not None:
        in_body = _headers_in_body(plain, raw.get("content-type"))
        _check_celery({**in_body, **headers}, properties)


def _check_celery(headers: dict[str, Any], properties: dict[str, Any]) -> None:
    """Checks what Celery hashes or reckons with before the task begins: an error there ends it."""
    if headers.get("id") is None:
        raise ValueError("id is no text")
    for names, where in ((_TEXT_HEADERS, headers), (_TEXT_PROPERTIES, properties)):
        for name in names:
            if not isinstance(where.get(name), str | None):
                raise ValueError(f"{name} is no text")
    for name in ("eta", "expires"):
        _check_time(name, headers.get(name))
    if not isinstance(headers.get("retries"), int | None):
        raise ValueError("retries is no number")
    limits = headers.get("timelimit") or (None, None)
    if not isinstance(limits, list | tuple) or len(limits) != 2:
        raise ValueError("timelimit is no pair")
    if not all(isinstance(limit, int | float | None) for limit in limits):
        raise ValueError("timelimit holds what is no number")
    stamped = headers.get("stamped_headers") or []
    if not isinstance(stamped, list) or not all(isinstance(name, str) for name in stamped):
        raise ValueError("stamped_headers is no list of names")
    if not isinstance(headers.get("stamps"), dict | None):
        raise ValueError("stamps is no object")


def _headers_in_body(body: bytes, content_type: str | None) -> dict[str, Any]:
    """Returns what the body of a task says in place of headers: one of JSON with `args`, all.

    Raises:
        ValueError: Celery could not take it apart.
    """
    if not content_type or content_type in _PLAIN_TYPES:
        raise ValueError(f"content-type is {content_type!r}, which no serializer of tasks has")
    if not body:
        raise ValueError("the task has no body")
    if content_type != "application/json":
        return {}
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        # Celery refuses what is no JSON.
        return {}
    if isinstance(value, dict) and "args" in value:
        args, kwargs, embed = value["args"], value.get("kwargs", {}), None
    elif isinstance(value, list) and len(value) == 3:
        args, kwargs, embed = value
    else:
        raise ValueError("the body of the task is not of args, kwargs and embed")
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise ValueError("the body of the task has args that are no list, or kwargs no object")
    if not isinstance(embed, dict | None):
        raise ValueError("the body of the task has an embed that is no object")
    return value if isinstance(value, dict) else {}


def _check_time(name: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is no time")
    try:
        year = datetime.fromisoformat(value).year
    except ValueError:
        # Celery reads more forms, and refuses what is none.
        return
    if year not in _YEARS:
        raise ValueError(f"{name} is of the year {year}, allowed are {_YEARS[0]} to {_YEARS[-1]}")


def _unpacker(kind: Any) -> _Unpack | None:
    """Returns what unpacks a compression; None for none, and for one that a program registered.

    Raises:
        ValueError: nothing bounds what it gives, or nobody knows it.
    """
    if kind is None:
        return None
    if isinstance(kind, str):
        if kind in _UNPACKERS:
            return _UNPACKERS[kind]
        if kind not in _OF_KOMBU and kind in (*compression._decoders, *compression._aliases):
            return None
    allowed = ", ".join(sorted(_UNPACKERS))
    raise ValueError(f"compression is {str(kind)[:64]!r}, allowed are {allowed}")


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


def _zstd(packed: bytes, bytes_max: int) -> bytes:
    try:
        # One more than allowed is an error there.
        zstd = sysflag.COMPRESSED | sysflag.COMPRESSION_ZSTD
        return decompress(packed, zstd, bytes_max - 1)
    except RemoteProtocolError as error:
        raise ValueError(str(error)) from error


def _check_alone(unpacker: bz2.BZ2Decompressor | lzma.LZMADecompressor) -> None:
    """Checks that nothing stands behind the first stream: kombu would unpack that, too."""
    if unpacker.eof and unpacker.unused_data:
        raise ValueError("the body is packed in more than one piece")


# By kombu's names of compressions. Of brotli's no package gives a bounded part.
_UNPACKERS: Final[dict[str, _Unpack]] = {
    **dict.fromkeys(("application/x-gzip", "gzip", "zlib"), _zlib),
    **dict.fromkeys(("application/x-bz2", "bzip2", "bzip"), _bz2),
    **dict.fromkeys(("application/x-lzma", "lzma", "xz"), _lzma),
    **dict.fromkeys(("application/zstd", "zstd", "zstandard"), _zstd),
}
